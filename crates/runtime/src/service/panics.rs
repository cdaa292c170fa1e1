//! Panics that the program or a framework has caught.

use std::cell::Cell;

thread_local! {
    /// The number of panics that were noted during the call that runs on this thread.
    static CAUGHT: Cell<u64> = const { Cell::new(0) };
}

/// Counts a panic that was caught within [`Service::call`](crate::Service::call) in
/// [`Metrics::panics`](crate::Metrics::panics). It is for frameworks that turn panics into
/// responses of their own. Call it on the thread on which the service was called. Panics that reach
/// the engine are counted anyway.
///
/// ```
/// use filoplume_runtime::{Request, Response, note_caught_panic};
/// use std::panic::{AssertUnwindSafe, catch_unwind};
///
/// fn answer(request: Request) -> Response {
///     let handler = AssertUnwindSafe(|| Response::from(request.path().to_owned()));
///     catch_unwind(handler).unwrap_or_else(|_| {
///         note_caught_panic();
///         Response::new(500)
///     })
/// }
/// # let _service: Box<dyn filoplume_runtime::Service> = Box::new(answer);
/// ```
pub fn note_caught_panic() {
    CAUGHT.set(CAUGHT.get() + 1);
}

/// Returns how many panics were noted on this thread since the last call.
#[inline]
pub(crate) fn take_caught() -> u64 {
    CAUGHT.replace(0)
}
