//! Log lines at a bounded rate. A peer that causes warnings must not fill the disk.

// Counters order nothing, so loom need not model them.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// The minimum time between two lines about the same thing.
const INTERVAL: Duration = Duration::from_secs(1);

/// Admits one line per second and counts those that are left out.
#[derive(Debug)]
pub(crate) struct Throttle {
    started: Instant,
    /// The time at which the next line is admitted, in milliseconds since the start.
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
        let after = now.saturating_add(milliseconds(INTERVAL));
        // If several threads arrive at once, one of them writes.
        let passes = now >= next
            && self
                .next
                .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if passes {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// A throttle for each of a few texts.
pub(crate) struct Throttles(Mutex<Vec<(&'static str, Throttle)>>);

impl Default for Throttles {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl Throttles {
    /// Like [`Throttle::admit`], for a line with this text.
    pub(crate) fn admit(&self, text: &'static str) -> Option<u64> {
        let mut throttles = self.0.lock();
        if let Some((_, throttle)) = throttles.iter().find(|(known, _)| *known == text) {
            return throttle.admit();
        }
        let throttle = Throttle::new();
        let left_out = throttle.admit();
        throttles.push((text, throttle));
        left_out
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use tracing::span;

    use super::*;

    /// Counts the lines that have this field.
    struct Lines {
        field: &'static str,
        count: AtomicU64,
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, line: &tracing::Metadata<'_>) -> bool {
            line.fields().field(self.field).is_some()
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    /// Runs code that gets a function which returns how many lines with this field it has logged.
    pub(crate) fn counting_lines(field: &'static str, run: impl FnOnce(&dyn Fn() -> u64)) {
        let lines = Arc::new(Lines { field, count: AtomicU64::new(0) });
        tracing::subscriber::with_default(Arc::clone(&lines), || {
            run(&|| lines.count.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn one_line_per_second_is_admitted_with_the_count_of_those_left_out() {
        let throttle = Throttle::new();
        let at = |milliseconds| throttle.started + Duration::from_millis(milliseconds);
        assert_eq!(throttle.admit_at(at(5)), Some(0), "the first line is admitted at once");
        for n in 0..500 {
            assert_eq!(throttle.admit_at(at(5 + n)), None);
        }
        assert_eq!(throttle.admit_at(at(1004)), None);
        assert_eq!(throttle.admit_at(at(1005)), Some(501));
        assert_eq!(throttle.admit_at(at(9000)), Some(0));
    }

    #[test]
    fn each_text_has_its_own_lines() {
        let throttles = Throttles::default();
        assert_eq!(throttles.admit("a handler panicked"), Some(0));
        assert_eq!(throttles.admit("a handler panicked"), None);
        assert_eq!(throttles.admit("something else"), Some(0));
    }

    #[test]
    fn a_time_before_the_start_counts_as_the_start() {
        let throttle = Throttle::new();
        let before =
            throttle.started.checked_sub(Duration::from_millis(1)).unwrap_or(throttle.started);
        assert_eq!(throttle.admit_at(before), Some(0));
        assert_eq!(throttle.admit_at(before), None);
    }
}
