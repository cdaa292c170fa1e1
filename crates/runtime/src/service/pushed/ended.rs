//! How a pushed body ended, for code that waits for that.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::budget::refusal::Refusal;
use crate::service::panics::note_caught_panic;

/// What became of a pushed body: see [`Pushed::on_end`](super::Pushed::on_end).
///
/// ```
/// use filoplume_runtime::pushed::{self, Outcome};
/// use std::sync::mpsc;
///
/// let (tell, told) = mpsc::channel();
/// let (sender, body) = pushed::channel();
/// let body = body.on_end(move |ended| {
///     let _ = tell.send((ended.bytes, matches!(ended.outcome, Outcome::Gone)));
/// });
/// // The response is not sent.
/// drop(body);
/// assert_eq!(told.recv(), Ok((0, true)));
/// # drop(sender);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended<'e> {
    /// The bytes of the body that were passed on to the client.
    pub bytes: u64,
    /// Whether that is all, or why not.
    pub outcome: Outcome<'e>,
}

/// How a pushed body ended.
///
/// ```
/// use filoplume_runtime::pushed::Outcome;
///
/// fn is_whole(outcome: &Outcome<'_>) -> bool {
///     matches!(outcome, Outcome::Complete)
/// }
/// assert!(!is_whole(&Outcome::Gone));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'e> {
    /// The senders have finished it. Or it is [endless](super::Pushed::endless) and was dropped:
    /// its client has left, the server stops, or nothing of it was sent.
    Complete,
    /// A sender has failed it.
    Failed(&'e io::Error),
    /// The body has an end of its own, but the client has gone before that, or nothing of the body
    /// was sent, as for `HEAD`.
    Gone,
    /// There was no thread for the code that writes it. The client got a `503` in its place.
    Refused(Refusal),
}

type Tell = Box<dyn FnOnce(&Ended<'_>) + Send>;

/// Code that is told of the end, and what it will be told.
pub(super) struct Watch {
    pub(super) bytes: u64,
    tell: Tell,
}

impl Watch {
    pub(super) fn new(tell: impl FnOnce(&Ended<'_>) + Send + 'static) -> Self {
        Self { bytes: 0, tell: Box::new(tell) }
    }

    /// Returns a watch that tells `first` before this one.
    pub(super) fn behind(self, first: Self) -> Self {
        let (first, then) = (first.tell, self.tell);
        Self::new(move |ended| {
            first(ended);
            then(ended);
        })
    }

    pub(super) fn tell(self, outcome: Outcome<'_>) {
        let Self { bytes, tell } = self;
        let tell = AssertUnwindSafe(|| tell(&Ended { bytes, outcome }));
        // The code runs while a connection ends, which a panic must not prevent.
        if catch_unwind(tell).is_err() {
            tracing::error!("the code that was told of the end of a pushed body panicked");
            note_caught_panic();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
