//! Values that the program adds to the metrics: its own, and those of hubs, rooms and channels.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::open_metrics::{OpenMetrics, labels};
use crate::log::log_without_subscriber;

/// Names that begin with one of these are Filoplume's own.
const RESERVED: [&str; 2] = ["filoplume_", "http_server_"];

/// Single reserved names: a program may have other metrics that begin with `process_`.
const RESERVED_NAMES: [&str; 4] = [
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
    "process_resident_memory_bytes",
];

/// The values that a program adds to its metrics: see
/// [`App::collector`](crate::App::collector).
///
/// A family is all samples of one name. Its kind and its help are those of the first one. Names of
/// families and labels consist of ASCII letters, digits and `_`, and do not begin with a digit;
/// names of families do not begin with `filoplume_` or `http_server_` either, and are none of
/// `process_open_fds`, `process_max_fds`, `process_start_time_seconds` and
/// `process_resident_memory_bytes`. A sample that breaks such a rule, or is there already with the
/// same labels, is left out, and the log says so once.
///
/// ```
/// use filoplume::Samples;
///
/// fn collect(samples: &mut Samples) {
///     for (name, length) in [("mail", 3.0), ("bills", 0.0)] {
///         samples.gauge("jobs_waiting", "Jobs in a queue.", &[("queue", name)], length);
///     }
/// }
///
/// let client = filoplume::App::new().metrics("/metrics").collector(collect).test();
/// client.get("/metrics").send().assert_contains("\njobs_waiting{queue=\"mail\"} 3\n");
/// ```
#[derive(Default)]
pub struct Samples {
    families: Vec<Family>,
    /// The first thing that is wrong with the samples.
    mistake: Option<String>,
}

struct Family {
    name: String,
    kind: Kind,
    help: String,
    /// In the order in which they were added.
    values: Vec<Sample>,
    /// The labels of each value, sorted. Two samples with equal labels belong to the same series.
    series: HashSet<String>,
}

struct Sample {
    labels: String,
    value: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

#[derive(Clone, Copy, Debug)]
enum Number {
    Whole(u64),
    Float(f64),
}

impl Samples {
    /// Adds a value that goes up and down, such as the length of a queue.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().metrics("/metrics").collector(|samples| {
    ///     samples.gauge("tank_celsius", "The water.", &[("tank", "north")], 21.5);
    /// });
    /// let metrics = app.test().get("/metrics").send();
    /// assert!(metrics.text().contains("\ntank_celsius{tank=\"north\"} 21.5\n"));
    /// ```
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.add_own(name, Kind::Gauge, help, labels, Number::Float(value));
    }

    /// Adds a number that only grows while the program runs, such as that of orders. In the text
    /// its name ends in `_total`, whether this one does or not.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let orders = Arc::new(AtomicU64::new(0));
    /// let counted = Arc::clone(&orders);
    /// let app = App::new()
    ///     .post("/orders", move || _ = orders.fetch_add(1, Ordering::Relaxed))
    ///     .metrics("/metrics")
    ///     .collector(move |samples| {
    ///         samples.counter("orders", "Orders.", &[], counted.load(Ordering::Relaxed));
    ///     });
    /// let client = app.test();
    /// client.post("/orders").send();
    /// assert!(client.get("/metrics").send().text().contains("\norders_total 1\n"));
    /// ```
    pub fn counter(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: u64) {
        let name = name.strip_suffix("_total").unwrap_or(name);
        self.add_own(name, Kind::Counter, help, labels, Number::Whole(value));
    }

    /// Adds a gauge of Filoplume.
    pub(crate) fn gauge_of(&mut self, name: &str, help: &str, of: &[(&str, &str)], value: usize) {
        self.add(name, Kind::Gauge, help, of, Number::Whole(value as u64));
    }

    /// Adds a counter of Filoplume.
    pub(crate) fn counter_of(&mut self, name: &str, help: &str, of: &[(&str, &str)], value: u64) {
        self.add(name, Kind::Counter, help, of, Number::Whole(value));
    }

    fn add_own(&mut self, name: &str, kind: Kind, help: &str, of: &[(&str, &str)], value: Number) {
        if RESERVED_NAMES.contains(&name) {
            self.refuse(format!("the name `{name}` is one of Filoplume's"));
        } else if RESERVED.iter().any(|reserved| name.starts_with(reserved)) {
            self.refuse(format!("the name `{name}` begins like those of Filoplume"));
        } else if !is_name(name) {
            self.refuse(format!("`{}` is not a name of a metric", name.escape_debug()));
        } else if let Some((label, _)) = of.iter().find(|(label, _)| !is_name(label)) {
            self.refuse(format!("`{}` of `{name}` is not a name of a label", label.escape_debug()));
        } else if let Some(twice) = repeated(of) {
            self.refuse(format!("`{name}` has the label `{twice}` twice"));
        } else if kind == Kind::Gauge && name.ends_with("_total") {
            self.refuse(format!("`{name}` ends like a counter, and is a gauge"));
        } else {
            self.add(name, kind, help, of, value);
        }
    }

    fn add(&mut self, name: &str, kind: Kind, help: &str, of: &[(&str, &str)], value: Number) {
        let mut sorted = of.to_vec();
        sorted.sort_unstable();
        let (labels, series) = (labels(of), labels(&sorted));
        let known = self.families.iter().position(|family| family.name == name);
        let index = known.unwrap_or_else(|| {
            let (name, help) = (name.to_owned(), help.to_owned());
            let (values, series) = (Vec::new(), HashSet::new());
            self.families.push(Family { name, kind, help, values, series });
            self.families.len() - 1
        });
        let family = &mut self.families[index];
        if family.kind != kind {
            return self.refuse(format!("`{name}` is a counter and a gauge"));
        }
        if !family.series.insert(series) {
            return self.refuse(format!("`{name}` is there twice with the labels {{{labels}}}"));
        }
        family.values.push(Sample { labels, value });
    }

    fn refuse(&mut self, mistake: String) {
        self.mistake.get_or_insert(mistake);
    }

    fn write(&self, text: &mut OpenMetrics) {
        for Family { name, kind, help, values, .. } in &self.families {
            let kind_name = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            text.family(name, kind_name, help);
            for Sample { labels, value, .. } in values {
                match (kind, *value) {
                    (Kind::Counter, Number::Whole(value)) => text.counter(labels, "", value),
                    (Kind::Gauge, Number::Whole(value)) => text.gauge(labels, value),
                    (_, Number::Float(value)) => text.gauge(labels, value),
                }
            }
        }
    }
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.families.iter().map(|family| &family.name);
        f.debug_list().entries(names).finish()
    }
}

/// Returns the name of a label that is there twice. Prometheus would refuse the whole text.
fn repeated<'l>(of: &[(&'l str, &str)]) -> Option<&'l str> {
    let names = || of.iter().map(|(name, _)| *name);
    names()
        .enumerate()
        .find(|(index, name)| names().take(*index).any(|other| other == *name))?
        .1
        .into()
}

/// Returns whether this can be the name of a family or a label. Two underscores at the beginning
/// are Prometheus' own.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    begins && !name.starts_with("__") && name.bytes().all(is_allowed)
}

/// Closures that add samples.
#[derive(Default)]
pub(super) struct Collectors {
    all: Mutex<Vec<Collect>>,
    mistake_is_logged: AtomicBool,
    panic_is_logged: AtomicBool,
}

/// Adds samples to a text of the metrics.
pub(super) type Collect = Box<dyn Fn(&mut Samples) + Send + Sync>;

impl Collectors {
    pub(super) fn add(&self, collector: Collect) {
        self.all.lock().push(collector);
    }

    /// Calls all collectors. If one panics, the other metrics are written nevertheless.
    pub(super) fn write(&self, text: &mut OpenMetrics) {
        let mut samples = Samples::default();
        let all = self.all.lock();
        for collect in &*all {
            let collected = catch_unwind(AssertUnwindSafe(|| collect(&mut samples)));
            if collected.is_err() && !self.panic_is_logged.swap(true, Ordering::Relaxed) {
                report("a collector of metrics has panicked: some of its samples are missing");
            }
        }
        drop(all);
        if let Some(mistake) = &samples.mistake {
            if !self.mistake_is_logged.swap(true, Ordering::Relaxed) {
                report(&format!("a sample of a collector is left out: {mistake}"));
            }
        }
        samples.write(text);
    }
}

fn report(line: &str) {
    tracing::error!("{line}");
    log_without_subscriber(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Samples {
        /// Returns the samples as metrics are read.
        pub(crate) fn text(&self) -> String {
            let mut text = OpenMetrics::with_capacity(0);
            self.write(&mut text);
            text.finish()
        }
    }

    fn text_of(collector: impl Fn(&mut Samples)) -> (String, Option<String>) {
        let mut samples = Samples::default();
        collector(&mut samples);
        (samples.text(), samples.mistake)
    }

    #[test]
    fn samples_of_a_name_stand_together_in_the_order_in_which_they_came() {
        let (text, mistake) = text_of(|samples| {
            samples.gauge("queue_seconds", "The \"queue\".", &[("of", "a\"b")], 0.5);
            samples.counter("orders_total", "Orders.", &[], 3);
            samples.gauge("queue_seconds", "Not looked at.", &[("of", "c")], -1e-7);
            samples.counter_of("filoplume_things", "Ours.", &[("name", "x")], u64::MAX);
        });
        assert_eq!(
            text,
            "# TYPE queue_seconds gauge\n# UNIT queue_seconds seconds\n\
             # HELP queue_seconds The \\\"queue\\\".\n\
             queue_seconds{of=\"a\\\"b\"} 0.5\nqueue_seconds{of=\"c\"} -0.0000001\n\
             # TYPE orders counter\n# HELP orders Orders.\norders_total 3\n\
             # TYPE filoplume_things counter\n# HELP filoplume_things Ours.\n\
             filoplume_things_total{name=\"x\"} 18446744073709551615\n# EOF\n"
        );
        assert_eq!(mistake, None);
    }

    #[test]
    fn numbers_that_are_none_have_the_names_of_the_format() {
        let rows = [
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (1e21, "1000000000000000000000"),
            (-0.0, "-0"),
        ];
        for (value, expected) in rows {
            let (text, _) = text_of(|samples| samples.gauge("x", "X.", &[], value));
            assert!(text.ends_with(&format!("\nx {expected}\n# EOF\n")), "{text}");
        }
    }

    #[test]
    fn what_would_break_the_text_is_left_out_and_told() {
        type Add = fn(&mut Samples);
        let rows: [(Add, &str); 15] = [
            (
                |s| {
                    s.gauge("x", "", &[("a", "1"), ("b", "2")], 1.0);
                    s.gauge("x", "", &[("b", "2"), ("a", "1")], 1.0);
                },
                "`x` is there twice with the labels {b=\"2\",a=\"1\"}",
            ),
            (|s| s.gauge("x", "", &[("a", "1"), ("a", "2")], 1.0), "the label `a` twice"),
            (
                |s| s.gauge("x", "", &[("a", "1"), ("b", "1"), ("b", "2")], 1.0),
                "the label `b` twice",
            ),
            (
                |s| {
                    s.gauge("first", "", &[("-", "")], 1.0);
                    s.gauge("second", "", &[("-", "")], 1.0);
                },
                "of `first`",
            ),
            (|s| s.gauge("a b", "", &[], 1.0), "`a b` is not a name of a metric"),
            (|s| s.gauge("1a", "", &[], 1.0), "`1a` is not"),
            (|s| s.gauge("", "", &[], 1.0), "`` is not"),
            (|s| s.counter("a\n", "", &[], 1), "`a\\n` is not"),
            (|s| s.gauge("x", "", &[("a-b", "")], 1.0), "`a-b` of `x` is not a name of a label"),
            (|s| s.gauge("x", "", &[("__name__", "")], 1.0), "`__name__` of `x`"),
            (|s| s.counter("filoplume_x", "", &[], 1), "begins like those of Filoplume"),
            (|s| s.gauge("http_server_x", "", &[], 1.0), "begins like those of Filoplume"),
            (|s| s.gauge("process_max_fds", "", &[], 1.0), "is one of Filoplume's"),
            (|s| s.gauge("x_total", "", &[], 1.0), "`x_total` ends like a counter"),
            (
                |s| {
                    s.counter("kept", "", &[], 1);
                    s.gauge("kept", "", &[], 2.0);
                },
                "`kept` is a counter and a gauge",
            ),
        ];
        for (add, expected) in rows {
            let (text, mistake) = text_of(|samples| {
                add(samples);
                samples.gauge("other", "It stays.", &[], 1.0);
            });
            assert!(mistake.as_ref().unwrap().contains(expected), "{mistake:?}");
            assert!(text.contains("other 1\n"), "{text}");
            assert!(!text.contains("kept 2"), "{text}");
        }
        let (text, mistake) = text_of(|samples| {
            samples.counter("x", "", &[("a", "1")], 1);
            samples.counter("x", "", &[("a", "1")], 2);
        });
        assert_eq!(mistake.unwrap(), "`x` is there twice with the labels {a=\"1\"}");
        assert!(text.contains("x_total{a=\"1\"} 1\n") && !text.contains(" 2\n"), "{text}");
    }

    #[test]
    fn a_collector_that_panics_leaves_the_others() {
        let collectors = Collectors::default();
        collectors.add(Box::new(|samples| {
            samples.gauge("before", "B.", &[], 1.0);
            panic!("as planned");
        }));
        collectors.add(Box::new(|samples| samples.gauge("after", "A.", &[], 2.0)));
        let mut text = OpenMetrics::with_capacity(0);
        collectors.write(&mut text);
        let text = text.finish();
        assert!(text.contains("before 1\n") && text.contains("after 2\n"), "{text}");
    }

    #[test]
    fn the_name_of_a_counter_may_end_like_one_twice() {
        let (text, mistake) = text_of(|samples| samples.counter("x_total_total", "", &[], 1));
        assert_eq!(mistake, None);
        assert!(text.contains("x_total_total 1\n"), "{text}");
    }

    #[test]
    fn a_name_may_begin_with_one_underscore() {
        let (text, mistake) = text_of(|samples| samples.gauge("_x", "", &[("_y", "1")], 1.0));
        assert_eq!(mistake, None);
        assert!(text.contains("\n_x{_y=\"1\"} 1\n"), "{text}");
    }
}
