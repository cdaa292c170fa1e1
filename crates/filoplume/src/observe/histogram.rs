//! Histograms of times that any thread adds to and reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The E24 series: the bounds of a decade, each about 1.1 times the one before. A percentile that
/// Prometheus computes is therefore right to a tenth, wherever in a bucket the true value lies.
const E24: [u64; 24] = [
    100, 110, 120, 130, 150, 160, 180, 200, 220, 240, 270, 300, 330, 360, 390, 430, 470, 510, 560,
    620, 680, 750, 820, 910,
];

/// The first bound is 10 microseconds, the last 91 seconds.
const DECADES: usize = 7;
const FIRST_NS: u64 = 10_000;

/// The number of bounds. One more bucket has all longer times.
pub(crate) const BOUNDS: usize = DECADES * E24.len();

/// How many of the fine buckets make a bucket of the E3 series (1, 2.2, 4.7).
pub(crate) const FINE_PER_COARSE: usize = 8;
pub(crate) const FINE_PER_DECADE: usize = E24.len();

/// How often each time occurred, in buckets.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

/// The contents of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) buckets: [u64; BOUNDS + 1],
    pub(crate) sum: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BOUNDS + 1], sum_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Adds a time that stands for `count` equal ones.
    pub(crate) fn add(&self, time: Duration, count: u32) {
        let ns = nanos(time);
        self.add_to(bucket_of(ns), ns, count);
    }

    /// As [`add`](Self::add), for a time whose bucket is known.
    #[inline]
    pub(crate) fn add_to(&self, bucket: usize, ns: u64, count: u32) {
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(u64::from(count), Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(ns.saturating_mul(u64::from(count)), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Snapshot {
        Snapshot {
            buckets: std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)),
        }
    }
}

impl Snapshot {
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the upper bound of the bucket in which this share of the times ends, such as 0.99.
    /// `None` if there are no times. Times beyond the last bound count as that bound.
    pub(crate) fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let index = self.buckets.iter().position(|in_bucket| {
            seen += in_bucket;
            seen >= rank && count > 0
        })?;
        Some(bound(index.min(BOUNDS - 1)))
    }
}

/// Returns a time in nanoseconds, at most about 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the upper bound of a bucket, which belongs to the bucket.
pub(crate) fn bound(index: usize) -> Duration {
    Duration::from_nanos(bound_ns(index))
}

fn bound_ns(index: usize) -> u64 {
    BOUNDS_NS.get(index).copied().unwrap_or(u64::MAX)
}

static BOUNDS_NS: [u64; BOUNDS] = {
    let mut bounds = [0; BOUNDS];
    let (mut index, mut decade_ns) = (0, FIRST_NS);
    while index < BOUNDS {
        bounds[index] = decade_ns / 100 * E24[index % E24.len()];
        index += 1;
        if index % E24.len() == 0 {
            decade_ns *= 10;
        }
    }
    bounds
};

/// Returns the bucket of a time.
pub(crate) fn bucket_of(ns: u64) -> usize {
    BOUNDS_NS.partition_point(|bound| *bound < ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_grow_by_a_tenth_and_begin_each_decade_anew() {
        assert_eq!(bound(0), Duration::from_micros(10));
        assert_eq!(bound(1), Duration::from_micros(11));
        assert_eq!(bound(48), Duration::from_millis(1));
        assert_eq!(bound(BOUNDS - 1), Duration::from_secs(91));
        for index in 1..BOUNDS {
            let (before, after) = (bound_ns(index - 1), bound_ns(index));
            assert!(after * 100 > before * 106 && after * 100 < before * 116, "{before} {after}");
        }
    }

    #[test]
    fn a_time_belongs_to_the_bucket_whose_bound_it_does_not_exceed() {
        for index in 0..BOUNDS {
            assert_eq!(bucket_of(bound_ns(index)), index);
            assert_eq!(bucket_of(bound_ns(index) + 1), index + 1);
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BOUNDS));
    }

    #[test]
    fn a_quantile_is_right_to_a_tenth_over_all_magnitudes() {
        for exact in [10_u64, 37, 999, 12_345, 1_000_000, 59_000_000].map(Duration::from_micros) {
            let histogram = Histogram::default();
            histogram.add(Duration::from_micros(1), 98);
            histogram.add(exact, 2);
            let found = histogram.read().quantile(0.99).unwrap();
            assert!(found >= exact && found < exact.mul_f64(1.16), "{exact:?}: {found:?}");
            assert_eq!(histogram.read().sum, exact * 2 + Duration::from_micros(98));
        }
        assert_eq!(Histogram::default().read().quantile(0.5), None);
    }

    #[test]
    fn the_median_of_three_is_the_second() {
        let histogram = Histogram::default();
        [1, 2, 9].into_iter().for_each(|ms| histogram.add(Duration::from_millis(ms), 1));
        assert_eq!(histogram.read().quantile(0.5), Some(Duration::from_millis(2)));
        assert_eq!(histogram.read().quantile(0.0), Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_quantile_beyond_the_last_bound_is_the_last_bound() {
        let histogram = Histogram::default();
        assert_eq!(histogram.read().quantile(0.5), None);
        histogram.add(Duration::from_secs(1000), 1);
        assert_eq!(histogram.read().quantile(0.5), Some(bound(BOUNDS - 1)));
    }
}
