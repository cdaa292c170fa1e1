//! Decides whether a task waits for a busy worker to finish, or wakes another one at once.
//!
//! Waking a thread has a price: a system call, a context switch, and on a busy or virtual machine
//! much more. A worker that ends its task takes the next one at no cost. So a task may wait as long
//! as a thread would take to wake up, by the measurements: it runs as soon, and at a lower cost.
//! This also limits the number of threads to what the work needs, which is its rate times its
//! duration. This module takes nanoseconds and returns decisions: it has no clock and no lock.

/// The assumed time of a wake-up before one was measured, in nanoseconds.
const WAKE_AT_FIRST: u64 = 50_000;

/// The bounds of the measured time, in nanoseconds.
const WAKE_MIN: u64 = 10_000;
const WAKE_MAX: u64 = 1_000_000;

/// A task waits for at most this many times the time of a wake-up. With one, about half of the
/// wake-ups are in vain.
const WAKES_MAX: u64 = 2;

/// How fast workers finish, and how long it takes to wake one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The average time between two workers that finish.
    gap_ns: u64,
    returned_at: u64,
    wake_ns: u64,
}

impl Patience {
    pub(super) const fn new() -> Self {
        Self { gap_ns: u64::MAX / 2, returned_at: 0, wake_ns: WAKE_AT_FIRST }
    }

    /// Returns whether one more task should wait behind the queued ones.
    pub(super) fn waits(&self, now: u64, queued: usize) -> bool {
        // If no worker has finished for longer than usual, that time is the new estimate.
        let gap = self.gap_ns.max(now.saturating_sub(self.returned_at));
        gap.saturating_mul(queued as u64 + 1) <= self.longest_wait()
    }

    /// Returns how long a task that is queued since `queued_at` may still wait, or `None` if it is
    /// overdue.
    pub(super) fn left(&self, now: u64, queued_at: u64) -> Option<u64> {
        let late_at = queued_at + self.longest_wait();
        if now >= late_at { None } else { Some(late_at - now) }
    }

    /// Records that a worker has finished a task.
    pub(super) fn returned(&mut self, now: u64) {
        let gap = now.saturating_sub(self.returned_at);
        self.returned_at = now;
        self.gap_ns = mean(self.gap_ns, gap.min(100 * WAKE_MAX), 8);
    }

    /// Records the time from a wake-up to the start of the task.
    pub(super) fn woke(&mut self, took: u64) {
        self.wake_ns = mean(self.wake_ns, took.clamp(WAKE_MIN, WAKE_MAX), 4);
    }

    const fn longest_wait(&self) -> u64 {
        self.wake_ns * WAKES_MAX
    }
}

/// Returns a moving average over about the last `weight` values.
fn mean(before: u64, value: u64, weight: u64) -> u64 {
    let before = before.min(1000 * WAKE_MAX);
    (before * (weight - 1) + value) / weight
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the state after this many workers finished at this interval, and the time of the
    /// last one.
    fn after(returns: u64, gap: u64) -> (Patience, u64) {
        let mut patience = Patience::new();
        (1..=returns).for_each(|number| patience.returned(number * gap));
        (patience, returns * gap)
    }

    #[test]
    fn no_task_waits_for_workers_that_never_finished_one() {
        assert!(!Patience::new().waits(0, 0));
        assert!(!Patience::new().waits(1_000_000, 0));
    }

    #[test]
    fn a_task_waits_if_a_worker_finishes_sooner_than_one_wakes_up() {
        let (patience, now) = after(200, 20_000);
        assert!(patience.waits(now, 0) && patience.waits(now, 4));
        assert!(!patience.waits(now, 5), "no worker finishes in time for a sixth task");
        let (patience, now) = after(200, 200_000);
        assert!(!patience.waits(now, 0));
    }

    #[test]
    fn no_task_waits_for_workers_that_stay_busy() {
        let (patience, now) = after(200, 20_000);
        assert!(patience.waits(now + 100_000, 0));
        assert!(!patience.waits(now + 100_001, 0));
    }

    #[test]
    fn a_machine_that_wakes_threads_late_makes_tasks_wait_longer() {
        let (mut patience, now) = after(200, 200_000);
        (0..20).for_each(|_| patience.woke(400_000));
        assert!(patience.waits(now, 2) && !patience.waits(now, 5));
        (0..20).for_each(|_| patience.woke(1));
        assert!(!patience.waits(now, 0));
        (0..20).for_each(|_| patience.woke(u64::MAX));
        assert!(patience.left(5, 5).is_some_and(|left| left <= WAKES_MAX * WAKE_MAX));
    }

    #[test]
    fn a_task_is_overdue_after_the_same_time() {
        let patience = Patience::new();
        assert_eq!(patience.left(0, 0), Some(100_000));
        assert_eq!(patience.left(99_999, 0), Some(1));
        assert_eq!(patience.left(100_000, 0), None);
    }
}
