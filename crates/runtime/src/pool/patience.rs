//! Whether a task waits for a worker that comes back, or has another one woken at once.
//!
//! Waking a thread has a price: a system call, a switch, and on a busy or a virtual machine much
//! more. A worker that ends its task takes the next one for nothing. So a task may wait as long as
//! a thread would take to wake up, by what was measured: it is served as soon, and cheaper. That
//! also bounds the number of threads to what the work needs, which is its rate times its length.
//! Nanoseconds in, decisions out: no clock and no lock.

/// What a wake-up is taken to need before one was measured, in nanoseconds.
const WAKE_AT_FIRST: u64 = 50_000;

/// The bounds of what is believed, in nanoseconds.
const WAKE_MIN: u64 = 10_000;
const WAKE_MAX: u64 = 1_000_000;

/// A task waits for at most so many times as a wake-up needs. With one, about as many threads are
/// woken in vain as are not.
const WAKES_MAX: u64 = 2;

/// How fast workers come back, and how long it takes to wake one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The mean time between two workers that come back.
    gap_ns: u64,
    returned_at: u64,
    wake_ns: u64,
}

impl Patience {
    pub(super) const fn new() -> Self {
        Self { gap_ns: u64::MAX / 2, returned_at: 0, wake_ns: WAKE_AT_FIRST }
    }

    /// Whether one more task should wait behind those that wait already.
    pub(super) fn waits(&self, now: u64, queued: usize) -> bool {
        // If nobody has come back for longer than usual, that is what is usual now.
        let gap = self.gap_ns.max(now.saturating_sub(self.returned_at));
        gap.saturating_mul(queued as u64 + 1) <= self.longest_wait()
    }

    /// How long a task that began to wait then may still do so, or `None` if it is late.
    pub(super) fn left(&self, now: u64, queued_at: u64) -> Option<u64> {
        let late_at = queued_at + self.longest_wait();
        if now >= late_at { None } else { Some(late_at - now) }
    }

    /// A worker has come back.
    pub(super) fn returned(&mut self, now: u64) {
        let gap = now.saturating_sub(self.returned_at);
        self.returned_at = now;
        self.gap_ns = mean(self.gap_ns, gap.min(100 * WAKE_MAX), 8);
    }

    /// A worker that was woken has begun its task after this time.
    pub(super) fn woke(&mut self, took: u64) {
        self.wake_ns = mean(self.wake_ns, took.clamp(WAKE_MIN, WAKE_MAX), 4);
    }

    const fn longest_wait(&self) -> u64 {
        self.wake_ns * WAKES_MAX
    }
}

/// A mean over about the last `weight` values.
fn mean(before: u64, value: u64, weight: u64) -> u64 {
    let before = before.min(1000 * WAKE_MAX);
    (before * (weight - 1) + value) / weight
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patience after workers came back so often, this far apart, and the time of the last one.
    fn after(returns: u64, gap: u64) -> (Patience, u64) {
        let mut patience = Patience::new();
        (1..=returns).for_each(|number| patience.returned(number * gap));
        (patience, returns * gap)
    }

    #[test]
    fn nobody_waits_for_workers_that_were_never_seen_to_come_back() {
        assert!(!Patience::new().waits(0, 0));
        assert!(!Patience::new().waits(1_000_000, 0));
    }

    #[test]
    fn a_task_waits_if_a_worker_comes_back_sooner_than_one_wakes_up() {
        let (patience, now) = after(200, 20_000);
        assert!(patience.waits(now, 0) && patience.waits(now, 4));
        assert!(!patience.waits(now, 5), "the fifth one before it would take the last in time");
        let (patience, now) = after(200, 200_000);
        assert!(!patience.waits(now, 0));
    }

    #[test]
    fn workers_that_stay_away_are_not_waited_for() {
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
    fn a_task_is_late_after_the_same_time() {
        let patience = Patience::new();
        assert_eq!(patience.left(0, 0), Some(100_000));
        assert_eq!(patience.left(99_999, 0), Some(1));
        assert_eq!(patience.left(100_000, 0), None);
    }
}
