//! Decides whether a task waits for a busy worker to finish, or wakes another one at once.
//!
//! Waking a thread has a price: a system call, a context switch, and on a busy or virtual machine
//! much more. A worker that ends its task takes the next one at no cost. So a task may wait for as
//! long as a thread takes to wake up according to the measurements: it then runs just as early, and
//! at a lower cost. This also limits the number of threads to what the work needs, which is its
//! rate times its duration. This module takes nanoseconds and returns decisions: it has no clock
//! and no lock.
//!
//! If all processors are busy, another thread does not make a task begin sooner: the thread stands
//! in line where the task would have waited, and costs two context switches more. So tasks may wait
//! longer then, provided that workers return often.

/// The assumed time of a wake-up before one was measured, in nanoseconds.
const WAKE_AT_FIRST: u64 = 50_000;

/// The bounds of the measured time, in nanoseconds.
const WAKE_MIN: u64 = 10_000;
const WAKE_MAX: u64 = 1_000_000;

/// A task waits for at most this many times the time of a wake-up. With one, about half of the
/// wake-ups are in vain.
const WAKES_MAX: u64 = 2;

/// Tasks wait for a processor rather than for a wake-up only if workers return within this many
/// times the time of a wake-up.
const WAKES_PER_RETURN: u64 = 4;

/// The share of the time in which leaders stand in line for a processor, in thousandths, up to
/// which no task waits longer because of that. With free processors it is up to 300, with busy ones
/// 400 to 750.
const IN_LINE_USUAL: u64 = 400;

/// How much longer a task may wait per thousandth above that, in nanoseconds.
const WAIT_PER_THOUSANDTH: u64 = 40_000;

/// How long a task waits for a processor at most, in nanoseconds.
const WAIT_FOR_PROCESSOR_MAX: u64 = 8_000_000;

/// Over how long the share is averaged, in nanoseconds.
const IN_LINE_WINDOW: u64 = 8_000_000;

/// How fast workers finish, how long it takes to wake one, and how busy the processors are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The average time between two workers that finish.
    gap_ns: u64,
    returned_at: u64,
    wake_ns: u64,
    /// The share of the time in which leaders stood in line for a processor, in thousandths.
    in_line: u64,
}

impl Patience {
    pub(super) const fn new() -> Self {
        Self { gap_ns: u64::MAX / 2, returned_at: 0, wake_ns: WAKE_AT_FIRST, in_line: 0 }
    }

    /// Returns whether one more task should wait behind the queued ones.
    pub(super) fn waits(&self, now: u64, queued: usize) -> bool {
        // If no worker has finished for longer than usual, that time is the new estimate.
        let gap = self.gap_ns.max(now.saturating_sub(self.returned_at));
        let longest = if gap <= self.rare_return() {
            self.wait_for_wake().max(self.wait_for_processor())
        } else {
            self.wait_for_wake()
        };
        gap.saturating_mul(queued as u64 + 1) <= longest
    }

    /// Returns how long a task that is queued since `queued_at` may still wait, or `None` if it is
    /// overdue.
    pub(super) fn left(&self, now: u64, queued_at: u64) -> Option<u64> {
        // A task waits for a processor only as long as workers return.
        let overdue_at = (queued_at + self.wait_for_processor())
            .min(self.returned_at + self.rare_return())
            .max(queued_at + self.wait_for_wake());
        if now >= overdue_at { None } else { Some(overdue_at - now) }
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

    /// Records how long a leader stood in line for a processor, and in how much time.
    pub(super) fn stood_in_line(&mut self, in_line: u64, elapsed: u64) {
        let (in_line, elapsed) = (in_line.min(u64::MAX / 1000), elapsed.max(1));
        let share = (in_line * 1000 / elapsed).min(1000);
        let weight = elapsed.min(IN_LINE_WINDOW);
        self.in_line = (self.in_line * (IN_LINE_WINDOW - weight) + share * weight) / IN_LINE_WINDOW;
    }

    /// Returns how long a task waits for a busy worker instead of waking a thread.
    const fn wait_for_wake(&self) -> u64 {
        self.wake_ns * WAKES_MAX
    }

    /// Returns how long a task waits for a busy worker instead of having a thread stand in line for
    /// a processor.
    const fn wait_for_processor(&self) -> u64 {
        let longest = self.in_line.saturating_sub(IN_LINE_USUAL) * WAIT_PER_THOUSANDTH;
        if longest < WAIT_FOR_PROCESSOR_MAX { longest } else { WAIT_FOR_PROCESSOR_MAX }
    }

    /// Returns the time between two workers above which they return too rarely to be waited for.
    const fn rare_return(&self) -> u64 {
        self.wake_ns * WAKES_PER_RETURN
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

    #[test]
    fn a_long_pause_counts_as_a_hundred_slow_wake_ups() {
        let mut patience = Patience { gap_ns: 0, ..Patience::new() };
        patience.returned(3600 * 1_000_000_000);
        assert_eq!(patience.gap_ns, 100 * WAKE_MAX / 8);
        assert_eq!(mean(u64::MAX, 0, 8), 1000 * WAKE_MAX / 8 * 7);
    }

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

    /// The state after workers finished at this interval while leaders stood in line for this many
    /// thousandths of the time.
    fn in_line(gap: u64, share: u64) -> (Patience, u64) {
        let (mut patience, now) = after(200, gap);
        (0..100).for_each(|_| patience.stood_in_line(share * 1000, 1_000_000));
        (patience, now)
    }

    #[test]
    fn more_tasks_wait_while_all_processors_are_busy() {
        let (mut patience, now) = in_line(20_000, 507);
        assert!(patience.waits(now, 190) && !patience.waits(now, 200), "4 ms, of 20 us each");
        patience.returned(now + 4_000_000);
        assert!(patience.left(now + 3_900_000, now).is_some());
        assert_eq!(patience.left(now + 4_100_000, now), None);
    }

    #[test]
    fn no_task_waits_for_more_than_8_ms_for_a_processor() {
        let (mut patience, now) = in_line(20_000, 1000);
        assert!(patience.waits(now, 398) && !patience.waits(now, 400));
        patience.returned(now + 8_000_000);
        assert_eq!(patience.left(now + 7_999_999, now), Some(1));
        assert_eq!(patience.left(now + 8_000_000, now), None);
    }

    #[test]
    fn free_processors_and_rare_returns_let_no_task_wait_longer() {
        for (gap, share) in [(20_000, 0), (20_000, IN_LINE_USUAL), (201_000, 1000)] {
            let (busy, now) = in_line(gap, share);
            let (idle, _) = after(200, gap);
            for queued in 0..10 {
                assert_eq!(busy.waits(now, queued), idle.waits(now, queued), "{gap} {share}");
            }
        }
    }

    #[test]
    fn no_task_waits_for_workers_that_have_stopped_returning() {
        let (patience, now) = in_line(20_000, 1000);
        assert!(patience.waits(now + 200_000, 0) && !patience.waits(now + 201_000, 0));
        // Tasks that wait already.
        assert_eq!(patience.left(now + 199_999, now), Some(1));
        assert_eq!(patience.left(now + 200_000, now), None);
        assert_eq!(patience.left(now + 200_000, now + 150_000), Some(50_000), "as for a wake-up");
    }

    #[test]
    fn the_share_follows_the_last_milliseconds() {
        let (mut patience, _) = in_line(20_000, 600);
        assert!((590..=600).contains(&patience.in_line), "{patience:?}");
        patience.stood_in_line(0, 2_000_000);
        assert!((440..=450).contains(&patience.in_line), "{patience:?}");
        patience.stood_in_line(u64::MAX, 1);
        assert!((440..=450).contains(&patience.in_line), "{patience:?}");
        patience.stood_in_line(0, 100_000_000);
        assert_eq!(patience.in_line, 0, "an idle time ends it at once");
        patience.stood_in_line(u64::MAX, 100_000_000);
        assert_eq!(patience.in_line, 1000);
    }
}
