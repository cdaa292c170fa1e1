//! Tells the seats which routes compute, and how many of their threads are ready to run.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::Engine;
use super::task::Task;
use crate::budget::seats::Ready;
use crate::execution::key::ExecutionKey;
use crate::execution::looks::{Candidate, Looks, OLD, OLD_IF_UNKNOWN, Share};
use crate::execution::policy::{CallTimes, OnLoop};
use crate::execution::probe;
use crate::execution::routes::Left;

impl Engine {
    /// Records the times of a call that was measured.
    #[inline]
    pub(crate) fn note_ran(&self, key: ExecutionKey, took: CallTimes) {
        if self.routes.note_ran(key, took) && sees_threads() {
            self.seats.presume_computing(key);
        }
    }

    /// Records that the watchdog has taken the loop from a call of this thread, which had run for
    /// `held`.
    ///
    /// If the call computes, the next calls of its route are presumed to compute too, in two cases:
    /// it is the first call of the route, or the route moves to the pool because of it. The times
    /// of earlier calls do not matter then. Without this presumption, each of the next calls would
    /// get a thread at once.
    #[cold]
    pub(crate) fn caught(
        &self,
        key: ExecutionKey,
        on_loop: &mut OnLoop,
        thread: u32,
        held: Duration,
    ) -> Option<Left> {
        let is_first = self.routes.computes(key).is_none();
        let is_at_work = probe::is_at_work(thread) == Some(true);
        let left = self.routes.caught(key, on_loop, held);
        if left.is_some() {
            self.counters.routes_learned.increment();
        }
        if (is_first || left.is_some()) && is_at_work {
            self.routes.set_ready(key, Share::ALL);
            self.seats.presume_computing(key);
        }
        left
    }

    /// Looks at some of the calls that run on the pool. Called by the watchdog only. Returns
    /// whether the watchdog must look again even if nothing else happens, because requests wait for
    /// the result.
    pub(crate) fn look_at_calls(self: &Arc<Self>, looks: &mut Looks) -> bool {
        let Some(known) = self.seats.computing().filter(|_| sees_threads()) else { return false };
        let mut running: HashMap<_, usize> = known.into_iter().map(|key| (key, 0)).collect();
        let now = Instant::now();
        let calls = self.calls.on_pool().filter(|(route, _, since)| {
            let running = now.saturating_duration_since(*since);
            match self.routes.computes(route.key) {
                Some(true) => true,
                Some(false) => running >= OLD,
                None => running >= OLD_IF_UNKNOWN,
            }
        });
        let calls: Vec<_> =
            calls.map(|(route, thread, _)| Candidate { key: route.key, thread }).collect();
        calls.iter().for_each(|call| *running.entry(call.key).or_default() += 1);
        // Threads that stand in line for a turn would compute. If they counted as waiting, each of
        // them would let one more call begin, which would stand in line as well.
        let in_line = self.streams.in_line();
        let seen = looks.look(&calls, |thread| {
            if in_line.contains(&thread) { Some(true) } else { probe::is_at_work(thread) }
        });
        let ready = |(key, running): (ExecutionKey, usize)| {
            let share = self.routes.ready(key);
            let share = seen.get(&key).map_or(share, |seen| share.after(*seen));
            self.routes.set_ready(key, share);
            let mostly_computes = share.is_large() && self.routes.computes(key) != Some(false);
            Ready { key, threads: share.times(running), mostly_computes }
        };
        let ready: Vec<_> = running.into_iter().map(ready).collect();
        if self.seats.note_ready(&ready) {
            // Not on this thread: the response to a refused request comes from the program's code,
            // which may block.
            let _ = self.pool.submit_urgent(Task::StartWaiting(Arc::clone(self)));
        }
        self.seats.are_limited()
    }
}

/// Returns whether the system tells whether a thread is running. If it does not, no route is
/// presumed to compute: a wrong guess from its first call could never be corrected.
fn sees_threads() -> bool {
    static SEES: OnceLock<bool> = OnceLock::new();
    *SEES.get_or_init(|| probe::is_at_work(probe::thread_number()).is_some())
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests;
