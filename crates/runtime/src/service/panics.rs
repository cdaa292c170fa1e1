//! Panics that somebody else than the engine has caught.

use std::cell::Cell;

thread_local! {
    /// Panics that were noted during the call that runs on this thread.
    static CAUGHT: Cell<u64> = const { Cell::new(0) };
}

/// Has the engine count a panic that was caught within [`Service::call`](crate::Service::call), so
/// that [`Metrics::panics`](crate::Metrics::panics) has it: for frameworks, which answer panics in
/// their own way. Call it on the thread on which the service was called. What reaches the engine is
/// counted anyway.
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

/// Returns how many panics were noted on this thread since the last time.
#[inline]
pub(crate) fn take_caught() -> u64 {
    CAUGHT.replace(0)
}
