//! Histograms of times, in a fixed amount of memory.

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Longest time that is recorded: an hour. Longer times count as an hour.
const LONGEST: Nanos = 3_600_000_000_000;

/// Significant digits: a bucket is at most 0.1 % wide.
const DIGITS: u8 = 3;

/// The percentiles that every report has.
pub(crate) const PERCENTILES: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// A histogram of times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Hdr<u64>,
    /// The exact largest value. Its bucket may end up to 0.1 % above it.
    max: Nanos,
}

/// The summary of a histogram, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) stdev: f64,
    /// Share of values within one standard deviation of the mean.
    pub(crate) within_stdev: f64,
    /// One value for each of [`PERCENTILES`].
    pub(crate) percentiles: Vec<f64>,
    pub(crate) max: f64,
    /// Pairs of percentile and value, closest together at the high end.
    pub(crate) curve: Vec<(f64, f64)>,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        let counts = Hdr::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are in order");
        Self { counts, max: 0 }
    }

    #[inline]
    pub(crate) fn record(&mut self, nanos: Nanos) {
        self.counts.saturating_record(nanos);
        self.max = self.max.max(nanos.min(LONGEST));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if !other.counts.is_empty() {
            self.counts.add(&other.counts).expect("all have the same bounds");
            self.max = self.max.max(other.max);
        }
    }

    pub(crate) fn clear(&mut self) {
        if !self.counts.is_empty() {
            self.counts.reset();
            self.max = 0;
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.len()
    }

    pub(crate) fn percentile(&self, percentile: f64) -> Nanos {
        if self.counts.is_empty() {
            return 0;
        }
        // The upper end of a bucket may be above the largest value.
        self.counts.value_at_percentile(percentile).min(self.max)
    }

    pub(crate) fn max(&self) -> Nanos {
        self.max
    }

    pub(crate) fn summary(&self) -> Latency {
        if self.counts.is_empty() {
            return Latency { percentiles: vec![0.0; PERCENTILES.len()], ..Latency::default() };
        }
        let (mean, stdev) = (self.counts.mean(), self.counts.stdev());
        let at = |percentile| float(self.percentile(percentile));
        let within = self.counts.count_between(whole(mean - stdev), whole(mean + stdev));
        Latency {
            count: self.count(),
            min: float(self.counts.min()),
            mean,
            stdev,
            within_stdev: float(within) / float(self.count()),
            percentiles: PERCENTILES.iter().map(|&percentile| at(percentile)).collect(),
            max: float(self.max),
            curve: curve(self.count()).map(|percentile| (percentile, at(percentile))).collect(),
        }
    }
}

impl Latency {
    /// Returns the value at one of [`PERCENTILES`].
    pub(crate) fn at(&self, percentile: f64) -> f64 {
        let index = PERCENTILES.iter().position(|&known| known == percentile);
        index.and_then(|index| self.percentiles.get(index)).copied().unwrap_or_default()
    }
}

/// Returns percentiles whose distance to 100 is halved every ten steps, down to the share of a
/// single value.
fn curve(count: u64) -> impl Iterator<Item = f64> {
    let steps = (0..).map(|step| 100.0 - 100.0 * 0.5_f64.powf(f64::from(step) / 10.0));
    let finest = 100.0 / float(count.max(1));
    steps.take_while(move |percentile| 100.0 - percentile >= finest).chain([100.0])
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days, or 9 * 10^15 values")]
fn float(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_one_in_a_thousand() {
        let mut histogram = Histogram::new();
        (1..=100_000).for_each(|tens| histogram.record(tens * 10_000));
        let summary = histogram.summary();
        for (percentile, exact) in
            [(50.0, 5e8), (90.0, 9e8), (99.0, 9.9e8), (99.9, 9.99e8), (99.99, 9.999e8)]
        {
            let error = (summary.at(percentile) - exact).abs() / exact;
            assert!(error < 0.001, "p{percentile}: {error}");
        }
        assert_eq!(summary.count, 100_000);
        assert!((summary.mean - 5e8).abs() / 5e8 < 0.001);
        assert!((summary.within_stdev - 0.577).abs() < 0.005);
        assert_eq!(summary.max, 1e9);
    }

    #[test]
    fn one_value_is_every_percentile() {
        let mut histogram = Histogram::new();
        histogram.record(1234);
        let summary = histogram.summary();
        assert_eq!((summary.min, summary.max), (1234.0, 1234.0));
        assert_eq!(summary.percentiles, [1234.0; 7]);
        assert_eq!(summary.curve, [(0.0, 1234.0), (100.0, 1234.0)]);
    }

    #[test]
    fn no_percentile_is_above_the_maximum() {
        let mut histogram = Histogram::new();
        (0..100).for_each(|index| histogram.record(999_000_000 + index * 10_001));
        let summary = histogram.summary();
        assert_eq!((histogram.max(), summary.max), (999_990_099, 999_990_099.0));
        assert_eq!((summary.at(99.9), histogram.percentile(100.0)), (summary.max, histogram.max()));
        assert!(
            summary.curve.iter().all(|&(_, value)| value <= summary.max),
            "{:?}",
            summary.curve
        );
    }

    #[test]
    fn an_empty_histogram_has_an_empty_summary() {
        let summary = Histogram::new().summary();
        assert_eq!((summary.count, summary.max, summary.at(99.0)), (0, 0.0, 0.0));
        assert_eq!((summary.percentiles, summary.curve), (vec![0.0; 7], Vec::new()));
    }

    #[test]
    fn a_time_above_the_longest_counts_as_an_hour() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        assert_eq!(histogram.count(), 1);
        assert_eq!((histogram.max(), histogram.percentile(99.0)), (LONGEST, LONGEST));
    }

    #[test]
    fn adding_a_histogram_adds_its_counts_and_keeps_the_larger_maximum() {
        let (mut sum, mut other) = (Histogram::new(), Histogram::new());
        sum.record(10);
        other.record(20);
        sum.add(&other);
        assert_eq!((sum.count(), sum.percentile(100.0)), (2, 20));
        other.add(&sum);
        assert_eq!((other.count(), other.max()), (3, 20));
        sum.clear();
        assert_eq!((sum.count(), sum.max()), (0, 0));
        sum.record(7);
        assert_eq!((sum.count(), sum.max()), (1, 7));
    }

    #[test]
    fn the_curve_is_finest_at_the_end() {
        let points: Vec<_> = curve(10_000).collect();
        assert_eq!((points[0], points[10], points[20]), (0.0, 50.0, 75.0));
        assert_eq!(points.last(), Some(&100.0));
        assert!(points.len() < 150, "{}", points.len());
    }

    #[test]
    fn the_longest_time_of_two_histograms_is_that_of_either() {
        for (one, other) in [(100, 50), (50, 100)] {
            let (mut sum, mut added) = (Histogram::new(), Histogram::new());
            sum.record(one);
            added.record(other);
            sum.add(&added);
            assert_eq!((sum.max(), sum.count()), (100, 2));
        }
    }
}
