//! Errors that were created with the status of a success.

use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;

use filoplume_runtime::StatusCode;

/// The cause of the `500` that an error with a status below 300 becomes.
///
/// With its own status, the error would tell clients and metrics that nothing went wrong. The
/// mistake does not cause a panic, because the status may be computed, and wrong for only some
/// requests. Redirects and `304` are allowed: extractors and middleware end a request with them.
#[derive(Debug)]
pub(super) struct NoError {
    status: StatusCode,
    place: &'static Location<'static>,
}

impl NoError {
    /// Returns the mistake if the status is not that of an error.
    #[track_caller]
    pub(super) fn of(status: StatusCode) -> Option<Self> {
        let place = Location::caller();
        (status.as_u16() < 300).then_some(Self { status, place })
    }
}

impl fmt::Display for NoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, place } = self;
        write!(f, "an `Error` was created with the status {status} at {place}: ")?;
        f.write_str("that is the status of a success; return it with `Ok`, or as a `StatusCode`")
    }
}

impl StdError for NoError {}
