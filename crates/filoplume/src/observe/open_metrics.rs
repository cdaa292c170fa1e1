//! Metrics as text that Prometheus reads: OpenMetrics 1.0.

use std::fmt::Write as _;
use std::time::Duration;

use super::histogram::{BOUNDS, FINE_PER_COARSE, FINE_PER_DECADE, Snapshot, bound};

/// The media type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A text that grows by families of metrics.
#[derive(Debug, Default)]
pub(crate) struct OpenMetrics {
    text: String,
    /// The name of the current family.
    family: String,
    /// What the lines of the current histogram begin with.
    prefix: String,
}

/// Which of the bounds of a histogram are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// All: each is about 1.1 times the one before.
    Fine,
    /// From 100 µs to 10 s: 1, 2.2 and 4.7 of each decade.
    Coarse,
    /// From 100 µs to 10 s: one of each decade.
    Decades,
}

/// The range of the coarse bounds: 100 microseconds to 10 seconds.
const COARSE: std::ops::RangeInclusive<usize> = 24..=144;

impl OpenMetrics {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), family: String::new(), prefix: String::new() }
    }

    /// Begins a family. `kind` is `counter`, `gauge` or `histogram`.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        name.clone_into(&mut self.family);
        self.push_all(&["# TYPE ", name, " ", kind, "\n"]);
        if let Some(unit) = name.rsplit_once('_').map(|(_, unit)| unit) {
            if matches!(unit, "seconds" | "bytes") {
                self.push_all(&["# UNIT ", name, " ", unit, "\n"]);
            }
        }
        self.push_all(&["# HELP ", name, " "]);
        escape(&mut self.text, help);
        self.text.push('\n');
    }

    /// Writes a gauge of the current family. `labels` is what [`labels`] returns.
    pub(crate) fn gauge(&mut self, labels: &str, value: impl Into<Value>) {
        self.sample("", labels, "", value.into());
    }

    /// Writes a counter of the current family. `labels` and `more` are two parts of its labels.
    pub(crate) fn counter(&mut self, labels: &str, more: &str, value: impl Into<Value>) {
        self.sample("_total", labels, more, value.into());
    }

    /// Writes a histogram of the current family.
    pub(crate) fn histogram(&mut self, labels: &str, times: &Snapshot, resolution: Resolution) {
        let mut prefix = std::mem::take(&mut self.prefix);
        prefix.clear();
        prefix.extend([
            &*self.family,
            "_bucket{",
            labels,
            if labels.is_empty() { "" } else { "," },
        ]);
        let mut below = 0;
        for (index, count) in times.buckets.iter().take(BOUNDS).enumerate() {
            below += count;
            let is_written = match resolution {
                Resolution::Fine => true,
                Resolution::Coarse => COARSE.contains(&index) && index % FINE_PER_COARSE == 0,
                Resolution::Decades => COARSE.contains(&index) && index % FINE_PER_DECADE == 0,
            };
            if is_written {
                self.push_bucket(&prefix, LE[index], below);
            }
        }
        let count = times.count();
        self.push_bucket(&prefix, "le=\"+Inf\"} ", count);
        self.prefix = prefix;
        self.sample("_count", labels, "", count.into());
        self.sample("_sum", labels, "", times.sum.into());
    }

    /// Most lines are buckets, so they are put together from few parts.
    fn push_bucket(&mut self, prefix: &str, le: &str, count: u64) {
        self.text.push_str(prefix);
        self.text.push_str(le);
        push_number(&mut self.text, count, 1);
        self.text.push('\n');
    }

    /// Returns the text with its end.
    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }

    fn sample(&mut self, suffix: &str, labels: &str, more: &str, value: Value) {
        let text = &mut self.text;
        text.push_str(&self.family);
        text.push_str(suffix);
        if !(labels.is_empty() && more.is_empty()) {
            text.push('{');
            text.push_str(labels);
            if !(labels.is_empty() || more.is_empty()) {
                text.push(',');
            }
            text.push_str(more);
            text.push('}');
        }
        text.push(' ');
        match value {
            Value::Number(number) => push_number(text, number, 1),
            Value::Seconds(time) => {
                push_number(text, time.as_secs(), 1);
                text.push('.');
                push_number(text, time.subsec_nanos().into(), 9);
            }
            Value::Float(number) if number.is_infinite() => {
                text.push_str(if number > 0.0 { "+Inf" } else { "-Inf" });
            }
            Value::Float(number) => {
                let _ = write!(text, "{number}");
            }
        }
        text.push('\n');
    }

    fn push_all(&mut self, parts: &[&str]) {
        self.text.extend(parts.iter().copied());
    }
}

/// The value of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Number(u64),
    Float(f64),
    /// Seconds, with nanoseconds.
    Seconds(Duration),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<Duration> for Value {
    fn from(time: Duration) -> Self {
        Self::Seconds(time)
    }
}

/// Appends a number with at least `digits_min` digits, at most 20. An app with a thousand routes
/// has tens of thousands of numbers, and `write!` takes several times as long for each.
pub(crate) fn push_number(text: &mut String, mut number: u64, digits_min: usize) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    while number > 0 {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    let first = first.min(digits.len() - digits_min);
    text.push_str(std::str::from_utf8(&digits[first..]).unwrap_or_default());
}

/// Returns labels in the form of the text.
pub(crate) fn labels(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        escape(&mut text, value);
        text.push('"');
    }
    text
}

fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            _ => text.push(character),
        }
    }
}

/// The label of each bound, with what follows it. Formatting them for each route would be most of
/// the work.
static LE: std::sync::LazyLock<[&'static str; BOUNDS]> = std::sync::LazyLock::new(|| {
    std::array::from_fn(|index| {
        let label = format!("le=\"{}\"}} ", bound(index).as_secs_f64());
        &*Box::leak(label.into_boxed_str())
    })
});

#[cfg(test)]
mod tests {
    use super::super::histogram::Histogram;
    use super::*;

    #[test]
    fn families_have_a_type_a_unit_and_an_escaped_help() {
        let mut text = OpenMetrics::with_capacity(0);
        text.family("things_bytes", "gauge", "A \"thing\"\nof \\ bytes.");
        text.gauge("", 17);
        text.family("calls", "counter", "Calls.");
        text.counter(&labels(&[("route", "/a\"b\\c\nd"), ("method", "GET")]), "", 3);
        assert_eq!(
            text.finish(),
            "# TYPE things_bytes gauge\n# UNIT things_bytes bytes\n\
             # HELP things_bytes A \\\"thing\\\"\\nof \\\\ bytes.\nthings_bytes 17\n\
             # TYPE calls counter\n# HELP calls Calls.\n\
             calls_total{route=\"/a\\\"b\\\\c\\nd\",method=\"GET\"} 3\n# EOF\n"
        );
    }

    #[test]
    fn numbers_have_their_digits() {
        for (number, digits_min, expected) in [
            (0, 1, "0"),
            (7, 1, "7"),
            (u64::MAX, 1, "18446744073709551615"),
            (0, 9, "000000000"),
            (1_020_304, 9, "001020304"),
            (999_999_999, 9, "999999999"),
        ] {
            let mut text = String::new();
            push_number(&mut text, number, digits_min);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_infinity() {
        let histogram = Histogram::default();
        histogram.add(Duration::from_micros(90), 3);
        histogram.add(Duration::from_millis(2), 2);
        histogram.add(Duration::from_secs(100), 1);
        let mut text = OpenMetrics::with_capacity(0);
        text.family("time_seconds", "histogram", "Times.");
        text.histogram("route=\"/\"", &histogram.read(), Resolution::Coarse);
        let text = text.finish();
        let value = |le: &str| {
            let start = format!("time_seconds_bucket{{route=\"/\",le=\"{le}\"}} ");
            let line = text.lines().find(|line| line.starts_with(&start));
            line.unwrap_or_else(|| panic!("{le}: {text}"))[start.len()..].parse::<u64>().unwrap()
        };
        assert_eq!((value("0.0001"), value("0.001"), value("0.0022"), value("10")), (3, 3, 5, 5));
        assert_eq!(value("+Inf"), 6);
        assert!(text.contains("time_seconds_count{route=\"/\"} 6\n"));
        assert!(text.contains("time_seconds_sum{route=\"/\"} 100.004270000\n"));
        assert_eq!(text.matches("_bucket").count(), 17);
    }

    #[test]
    fn decades_have_one_bucket_each_and_coarse_ones_three() {
        for (resolution, buckets) in [(Resolution::Decades, 6 + 1), (Resolution::Coarse, 16 + 1)] {
            let mut text = OpenMetrics::with_capacity(0);
            text.family("x_seconds", "histogram", "X.");
            text.histogram("", &Histogram::default().read(), resolution);
            let text = text.finish();
            assert_eq!(text.matches("x_seconds_bucket{le=").count(), buckets, "{text}");
            assert!(text.contains("\nx_seconds_bucket{le=\"0.0001\"} 0\n"), "{text}");
            assert!(text.contains("\nx_seconds_bucket{le=\"10\"} 0\n"), "{text}");
        }
    }
}
