//! Log lines at a bounded rate: whoever makes the server complain must not fill its disk.

// Plain counts order nothing, so they stay out of loom's sight.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The least time between two lines about the same thing.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets one line a second pass and counts those that it left out.
#[derive(Debug)]
pub(crate) struct Throttle {
    started: Instant,
    /// From when the next line may pass, in milliseconds since the start.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Asks for a line. Returns how many were left out since the last one, or `None` if this one is
    /// left out too.
    pub(crate) fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let now = milliseconds(now.saturating_duration_since(self.started));
        let next = self.next.load(Ordering::Relaxed);
        let then = now.saturating_add(milliseconds(INTERVAL));
        // Of several threads that come at once, one writes.
        let passes = now >= next
            && self.next.compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if passes {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_passes_and_says_how_many_did_not() {
        let throttle = Throttle::new();
        let at = |milliseconds| throttle.started + Duration::from_millis(milliseconds);
        assert_eq!(throttle.admit_at(at(5)), Some(0), "the first passes at once");
        for n in 0..500 {
            assert_eq!(throttle.admit_at(at(5 + n)), None);
        }
        assert_eq!(throttle.admit_at(at(1004)), None);
        assert_eq!(throttle.admit_at(at(1005)), Some(501));
        assert_eq!(throttle.admit_at(at(9000)), Some(0));
    }

    #[test]
    fn a_moment_before_the_start_is_the_start() {
        let throttle = Throttle::new();
        let before =
            throttle.started.checked_sub(Duration::from_millis(1)).unwrap_or(throttle.started);
        assert_eq!(throttle.admit_at(before), Some(0));
        assert_eq!(throttle.admit_at(before), None);
    }
}
