//! How long things took, in a fixed amount of memory whatever their number.

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Longest time that is told apart: an hour.
const LONGEST: Nanos = 3_600_000_000_000;

/// Significant digits: a bucket is at most 0.1 % wide.
const DIGITS: u8 = 3;

/// The percentiles that every report has.
pub(crate) const PERCENTILES: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// Counts of nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(Hdr<u64>);

/// What a histogram comes down to, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) stdev: f64,
    /// Share of values within one standard deviation of the mean.
    pub(crate) within_stdev: f64,
    /// One for each of [`PERCENTILES`].
    pub(crate) percentiles: Vec<f64>,
    pub(crate) max: f64,
    /// Percentile and value, close together where it matters: at the high end.
    pub(crate) curve: Vec<(f64, f64)>,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self(Hdr::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are in order"))
    }

    #[inline]
    pub(crate) fn record(&mut self, nanos: Nanos) {
        self.0.saturating_record(nanos);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if !other.0.is_empty() {
            self.0.add(&other.0).expect("all have the same bounds");
        }
    }

    pub(crate) fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0.reset();
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn percentile(&self, percentile: f64) -> Nanos {
        if self.0.is_empty() {
            return 0;
        }
        // The upper end of a bucket may lie above what was seen.
        self.0.value_at_percentile(percentile).min(self.0.max())
    }

    pub(crate) fn max(&self) -> Nanos {
        self.0.max()
    }

    pub(crate) fn summary(&self) -> Latency {
        if self.0.is_empty() {
            return Latency { percentiles: vec![0.0; PERCENTILES.len()], ..Latency::default() };
        }
        let (mean, stdev) = (self.0.mean(), self.0.stdev());
        let at = |percentile| float(self.percentile(percentile));
        let within = self.0.count_between(whole(mean - stdev), whole(mean + stdev));
        Latency {
            count: self.count(),
            min: float(self.0.min()),
            mean,
            stdev,
            within_stdev: float(within) / float(self.count()),
            percentiles: PERCENTILES.iter().map(|&percentile| at(percentile)).collect(),
            max: float(self.0.max()),
            curve: curve(self.count()).map(|percentile| (percentile, at(percentile))).collect(),
        }
    }
}

impl Latency {
    /// The value at one of [`PERCENTILES`].
    pub(crate) fn at(&self, percentile: f64) -> f64 {
        let index = PERCENTILES.iter().position(|&known| known == percentile);
        index.and_then(|index| self.percentiles.get(index)).copied().unwrap_or_default()
    }
}

/// Percentiles whose distance to 100 halves again and again, ten steps a halving, as far as single values are told apart.
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
        for (percentile, exact) in [(50.0, 5e8), (90.0, 9e8), (99.0, 9.9e8), (99.9, 9.99e8), (99.99, 9.999e8)]
        {
            let error = (summary.at(percentile) - exact).abs() / exact;
            assert!(error < 0.001, "p{percentile}: {error}");
        }
        assert_eq!(summary.count, 100_000);
        assert!((summary.mean - 5e8).abs() / 5e8 < 0.001);
        assert!((summary.within_stdev - 0.577).abs() < 0.005);
        assert!(summary.max >= 1e9 && summary.max < 1.001e9);
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
    fn nothing_recorded_is_nothing() {
        let summary = Histogram::new().summary();
        assert_eq!((summary.count, summary.max, summary.at(99.0)), (0, 0.0, 0.0));
        assert!(summary.curve.is_empty());
    }

    #[test]
    fn what_takes_for_ever_counts_as_an_hour() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        assert_eq!(histogram.count(), 1);
        assert!(histogram.summary().max >= 3.6e12 * 0.999);
    }

    #[test]
    fn sums_are_those_of_both() {
        let (mut sum, mut other) = (Histogram::new(), Histogram::new());
        sum.record(10);
        other.record(20);
        sum.add(&other);
        assert_eq!((sum.count(), sum.percentile(100.0)), (2, 20));
        sum.clear();
        assert_eq!(sum.count(), 0);
    }

    #[test]
    fn the_curve_is_finest_at_the_end() {
        let points: Vec<_> = curve(10_000).collect();
        assert_eq!((points[0], points[10], points[20]), (0.0, 50.0, 75.0));
        assert_eq!(points.last(), Some(&100.0));
        assert!(points.len() < 150, "{}", points.len());
    }
}
