//! How a thread goes to sleep without missing what it is needed for.
//!
//! There is one rule, for the leader in its poller and for the watchdog in its park: each side
//! first says what it does, then a fence, then looks at what the other says. One of the two sees
//! the other. The accesses themselves need no order; all of it is in the fences, one on each side.

use std::fmt;
use std::sync::OnceLock;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::thread::{self, Thread};

/// Whether a leader waits in its poller, and until when.
#[derive(Debug)]
pub(crate) struct Doze {
    /// A point in time on the clock of whoever uses this; [`AWAKE`] while the leader is.
    until: AtomicU64,
}

const AWAKE: u64 = 0;

/// A leader that sleeps without an end, or that waits for something that comes back to it.
pub(crate) const FOR_EVER: u64 = u64::MAX;

impl Doze {
    pub(crate) fn new() -> Self {
        Self { until: AtomicU64::new(AWAKE) }
    }

    /// Has the leader wait in `poll`, until this point in time at the latest, and then wakes the
    /// watchdog. `poll` is told whether there is work already, and does not wait then. `has_work`
    /// is asked after the leader has said that it sleeps: whoever makes work later sees it asleep.
    #[inline]
    pub(crate) fn sleep<T>(
        &self,
        until: u64,
        has_work: impl FnOnce() -> bool,
        poll: impl FnOnce(bool) -> T,
        wake_watchdog: impl FnOnce(),
    ) -> T {
        self.fall_asleep(until);
        let result = poll(has_work());
        self.wake_up();
        wake_watchdog();
        result
    }

    /// Says that the leader is going to wait, until this point in time at the latest. It must look
    /// for work once more before it does.
    pub(crate) fn fall_asleep(&self, until: u64) {
        self.until.store(until.max(AWAKE + 1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the leader has left its poller. It must wake the watchdog next.
    pub(crate) fn wake_up(&self) {
        self.until.store(AWAKE, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the leader has to be woken to see what the caller has just done.
    pub(crate) fn needs_waking(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_asleep()
    }

    /// Whether the leader has to be woken to see what the caller has just done before this point in
    /// time. It does not if it wakes up by then in any case.
    pub(crate) fn needs_waking_before(&self, time: u64) -> bool {
        fence(Ordering::SeqCst);
        time < self.until.load(Ordering::Relaxed)
    }

    /// A look without a fence.
    pub(crate) fn is_asleep(&self) -> bool {
        self.until.load(Ordering::Relaxed) != AWAKE
    }
}

/// Where the watchdog sleeps while all leaders do.
pub(crate) struct Standby {
    thread: OnceLock<Thread>,
    is_parked: AtomicBool,
    is_stopped: AtomicBool,
}

impl Standby {
    pub(crate) fn new() -> Self {
        Self {
            thread: OnceLock::new(),
            is_parked: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Makes the current thread the one that parks here.
    pub(crate) fn enter(&self) {
        let _ = self.thread.set(thread::current());
    }

    /// Sleeps until a leader wakes up, unless one is awake.
    pub(crate) fn park(&self, are_all_asleep: impl FnOnce() -> bool) {
        // Release: who sees this sees the thread to unpark.
        self.is_parked.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if !are_all_asleep() {
            self.is_parked.store(false, Ordering::Relaxed);
            return;
        }
        while self.is_parked.load(Ordering::Acquire) && !self.is_stopped() {
            thread::park();
        }
    }

    /// Called by a leader after it has said that it woke up.
    #[inline]
    pub(crate) fn wake(&self) {
        // Most of the time a load is all; of several leaders one pays for the unpark.
        if self.is_parked.load(Ordering::Relaxed) && self.is_parked.swap(false, Ordering::AcqRel) {
            self.unpark();
        }
    }

    /// Ends the watchdog's sleep for good.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.unpark();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").field("is_parked", &self.is_parked).finish_non_exhaustive()
    }
}
