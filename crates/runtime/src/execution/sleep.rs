//! How threads go to sleep without missing a wake-up.
//!
//! The leader in its poller and the watchdog in its park follow the same rule: each side publishes
//! its own state, executes a fence, and then reads the state of the other side. At least one of the
//! two sees the other. The accesses themselves are relaxed; the two fences provide the ordering.

use std::fmt;
use std::sync::OnceLock;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::thread::{self, Thread};

/// Whether a leader waits in its poller, and until when.
#[derive(Debug)]
pub(crate) struct LeaderSleep {
    /// A point in time on the caller's clock, or [`AWAKE`].
    until: AtomicU64,
}

const AWAKE: u64 = 0;

/// The leader sleeps without a deadline, or must be woken by connections that are sent back to it.
pub(crate) const FOR_EVER: u64 = u64::MAX;

impl LeaderSleep {
    pub(crate) fn new() -> Self {
        Self { until: AtomicU64::new(AWAKE) }
    }

    /// Makes the leader wait in `poll`, until `until` at the latest, and then wakes the watchdog.
    /// `poll` is told whether there is already work, and must not wait then. `has_work` is called
    /// after the leader is marked as asleep: a thread that adds work later sees it asleep.
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

    /// Marks the leader as asleep, until `until` at the latest. It must check for work once more
    /// before it waits.
    pub(crate) fn fall_asleep(&self, until: u64) {
        self.until.store(until.max(AWAKE + 1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks the leader as awake. It must wake the watchdog next.
    pub(crate) fn wake_up(&self) {
        self.until.store(AWAKE, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Returns whether the leader must be woken to see the caller's last change.
    pub(crate) fn needs_waking(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_asleep()
    }

    /// Returns whether the leader must be woken to see the caller's last change before `time`. It
    /// need not be if it wakes up by then anyway.
    pub(crate) fn needs_waking_before(&self, time: u64) -> bool {
        fence(Ordering::SeqCst);
        time < self.until.load(Ordering::Relaxed)
    }

    /// Returns whether the leader is asleep. Has no fence.
    pub(crate) fn is_asleep(&self) -> bool {
        self.until.load(Ordering::Relaxed) != AWAKE
    }
}

/// The place where the watchdog sleeps while all leaders sleep.
pub(crate) struct WatchdogSleep {
    thread: OnceLock<Thread>,
    is_parked: AtomicBool,
    is_stopped: AtomicBool,
}

impl WatchdogSleep {
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
        // Release: a thread that sees this flag sees the thread to unpark.
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

    /// Called by a leader after it has marked itself as awake.
    #[inline]
    pub(crate) fn wake(&self) {
        // Usually one load is enough. If several leaders wake up, one of them pays for the unpark.
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

    /// Ends the current sleep of the thread, if it is not asleep in [`park`](Self::park).
    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl fmt::Debug for WatchdogSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchdogSleep").field("is_parked", &self.is_parked).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;

    /// For events that are due soon, on a busy machine.
    const DEADLINE: Duration = Duration::from_secs(30);

    #[test]
    fn a_watchdog_sleeps_until_a_leader_wakes_it_or_for_good() {
        let sleep = Arc::new(WatchdogSleep::new());
        let (tell, told) = mpsc::channel();
        let of_watchdog = Arc::clone(&sleep);
        let watchdog = thread::spawn(move || {
            of_watchdog.enter();
            of_watchdog.park(|| false);
            for turn in 0.. {
                of_watchdog.park(|| tell.send(turn).is_ok());
                if of_watchdog.is_stopped() {
                    break;
                }
            }
        });
        for turn in 0..3 {
            assert_eq!(told.recv_timeout(DEADLINE), Ok(turn), "a leader is awake or woke it");
            // Ends a call of `park`, but not the sleep.
            sleep.unpark();
            assert!(told.try_recv().is_err());
            sleep.wake();
        }
        assert_eq!(told.recv_timeout(DEADLINE), Ok(3));
        sleep.stop();
        watchdog.join().unwrap();
    }
}
