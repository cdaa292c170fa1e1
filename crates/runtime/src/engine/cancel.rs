//! Running the callbacks of handlers whose clients have gone, on threads where they delay nobody.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Engine;
use super::event_loop::LoopHandle;
use super::task::Task;
use crate::service::latch::{Latch, Set};

/// Maximum number of threads that run callbacks. One would do for callbacks that return at once; a
/// callback that connects to a database server to cancel a query must not delay all others.
pub(super) const RUNNERS_MAX: usize = 4;

/// The callbacks that wait for a thread.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arc<Latch>>,
    runners: usize,
}

impl Engine {
    /// Tells a handler that nobody waits for its response any more. Its callbacks run on a thread
    /// of the pool. They need no seat: with one, they could wait for requests that in turn wait for
    /// them.
    #[cold]
    pub(crate) fn cancel(self: &Arc<Self>, latch: Arc<Latch>) {
        let set = latch.set();
        if set != Set::TooLate {
            self.counters.cancelled.increment();
        }
        if set != Set::WithCallbacks {
            return;
        }
        {
            let mut state = self.cancels.state.lock();
            state.waiting.push_back(latch);
            if state.runners == RUNNERS_MAX {
                return;
            }
            state.runners += 1;
        }
        if let Err(refused) = self.pool.submit_urgent(Task::Cancel(Arc::clone(self))) {
            let runners = {
                let mut state = self.cancels.state.lock();
                state.runners -= 1;
                state.runners
            };
            tracing::error!(reason = ?refused.reason, runners, "a cancellation waits for a thread");
        }
    }

    /// Runs waiting callbacks until there are none.
    pub(super) fn run_cancels(&self) {
        while let Some(latch) = self.next_cancel() {
            for _ in 0..latch.run_callbacks() {
                self.note_panic("a callback for a client that has gone panicked");
            }
        }
    }

    fn next_cancel(&self) -> Option<Arc<Latch>> {
        let mut state = self.cancels.state.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.runners -= 1;
        }
        next
    }
}

/// Tells a handler when the peer of its connection closes its direction. No loop has the connection
/// at the moment. `has_end` is whether the peer has closed it already.
pub(super) fn watch_client(
    loop_handle: &LoopHandle,
    token: usize,
    has_end: bool,
    latch: &Arc<Latch>,
) {
    if has_end {
        loop_handle.engine.cancel(Arc::clone(latch));
    } else {
        loop_handle.send(super::event_loop::Message::WatchClient(token, Arc::clone(latch)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
