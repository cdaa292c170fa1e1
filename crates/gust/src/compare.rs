//! Compares two runs and decides whether the second one is worse.

use std::fmt;

use crate::run::Run;
use crate::units;

/// A share of errors below this is reported, but does not count as worse.
const ERRORS_IGNORED: f64 = 0.0001;

/// The result of comparing two runs.
#[derive(Debug)]
pub(crate) struct Comparison {
    threshold: f64,
    figures: Vec<Figure>,
    /// Differences of the load, which make the runs hard to compare.
    differences: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Same,
    Worse,
}

#[derive(Debug)]
struct Figure {
    name: &'static str,
    base: String,
    now: String,
    /// The relative change, or `None` if the base is zero.
    change: Option<f64>,
    verdict: Verdict,
}

/// Compares what a user would notice: throughput, latency and errors. If both runs have the CPU
/// time of the server, that is also compared.
pub(crate) fn compare(base: &Run, now: &Run, threshold: f64) -> Comparison {
    let mut figures = Vec::new();
    let mut add = |name, base: f64, now: f64, more_is_better: bool, show: fn(f64) -> String| {
        let change = (base > 0.0).then(|| now / base - 1.0);
        let verdict = match change {
            Some(change) if change.abs() <= threshold => Verdict::Same,
            Some(change) if (change > 0.0) == more_is_better => Verdict::Better,
            Some(_) => Verdict::Worse,
            None => Verdict::Same,
        };
        figures.push(Figure { name, base: show(base), now: show(now), change, verdict });
    };
    add("requests/s", base.per_second(), now.per_second(), true, units::rate);
    add("mean", base.latency.mean, now.latency.mean, false, units::time);
    for (name, percentile) in [("p50", 50.0), ("p90", 90.0), ("p99", 99.0)] {
        add(name, base.latency.at(percentile), now.latency.at(percentile), false, units::time);
    }
    if let (Some(base_server), Some(now_server)) = (base.server, now.server) {
        let (base, now) =
            (base.per_response(base_server.total()), now.per_response(now_server.total()));
        add("server CPU", base, now, false, |micros| format!("{micros:.2} µs"));
    }
    figures.push(errors(base, now, threshold));
    Comparison { threshold, figures, differences: differences(base, now) }
}

/// Compares the shares of errors. They are compared by difference, because the base may be zero.
fn errors(base: &Run, now: &Run, threshold: f64) -> Figure {
    let (before, after) = (base.error_share(), now.error_share());
    let verdict = if after > before * (1.0 + threshold) + ERRORS_IGNORED {
        Verdict::Worse
    } else if before > after * (1.0 + threshold) + ERRORS_IGNORED {
        Verdict::Better
    } else {
        Verdict::Same
    };
    let show = |share: f64| format!("{:.3} %", share * 100.0);
    let change = (before > 0.0).then(|| after / before - 1.0);
    Figure { name: "errors", base: show(before), now: show(after), change, verdict }
}

fn differences(base: &Run, now: &Run) -> Vec<String> {
    let (before, after) = (&base.load, &now.load);
    let mut found = Vec::new();
    let mut check = |name: &str, before: String, after: String| {
        if before != after {
            found.push(format!("{name} was {before} and is {after}"));
        }
    };
    check("the protocol", before.protocol.clone(), after.protocol.clone());
    check(
        "the number of connections",
        before.connections.to_string(),
        after.connections.to_string(),
    );
    check("the pipeline", before.depth.to_string(), after.depth.to_string());
    check("the number of threads", before.threads.to_string(), after.threads.to_string());
    let rate = |rate: Option<f64>| rate.map_or("none".to_owned(), units::rate);
    check("the rate", rate(before.rate), rate(after.rate));
    check("keep-alive", before.keep_alive.to_string(), after.keep_alive.to_string());
    check(
        "the size of a request",
        before.request_bytes.to_string(),
        after.request_bytes.to_string(),
    );
    found
}

impl Comparison {
    pub(crate) fn is_worse(&self) -> bool {
        self.figures.iter().any(|figure| figure.verdict == Verdict::Worse)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<12}{:>14}{:>14}{:>10}", "compared", "base", "now", "change")?;
        for figure in &self.figures {
            let change =
                figure.change.map_or(String::new(), |change| format!("{:+.1} %", change * 100.0));
            let verdict = match figure.verdict {
                Verdict::Better => "  better",
                Verdict::Same => "",
                Verdict::Worse => "  WORSE",
            };
            writeln!(
                f,
                "{:<12}{:>14}{:>14}{change:>10}{verdict}",
                figure.name, figure.base, figure.now
            )?;
        }
        for difference in &self.differences {
            writeln!(f, "not the same load: {difference}")?;
        }
        let verdict = if self.is_worse() { "worse" } else { "not worse" };
        writeln!(f, "{verdict}, with a threshold of {}", units::share(self.threshold))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::report::sample;

    #[test]
    fn an_equal_run_is_not_worse() {
        let comparison = compare(&sample::run(), &sample::run(), 0.0);
        assert!(!comparison.is_worse());
        expect![[r#"
            compared              base           now    change
            requests/s          19,975        19,975    +0.0 %
            mean               33.4 ms       33.4 ms    +0.0 %
            p50                25.1 ms       25.1 ms    +0.0 %
            p90                81.1 ms       81.1 ms    +0.0 %
            p99                98.2 ms       98.2 ms    +0.0 %
            server CPU         6.26 µs       6.26 µs    +0.0 %
            errors             0.075 %       0.075 %    +0.0 %
            not worse, with a threshold of 0 %
        "#]]
        .assert_eq(&comparison.to_string());
    }

    #[test]
    fn a_slower_run_is_worse_only_beyond_the_threshold() {
        let (base, mut now) = (sample::run(), sample::run());
        now.responses = now.responses * 97 / 100;
        now.latency.percentiles[4] *= 1.06;
        assert!(compare(&base, &now, 0.05).is_worse());
        assert!(!compare(&base, &now, 0.10).is_worse());
        expect![[r#"
            compared              base           now    change
            requests/s          19,975        19,376    -3.0 %
            mean               33.4 ms       33.4 ms    +0.0 %
            p50                25.1 ms       25.1 ms    +0.0 %
            p90                81.1 ms       81.1 ms    +0.0 %
            p99                98.2 ms        104 ms    +6.0 %  WORSE
            server CPU         6.26 µs       6.45 µs    +3.1 %
            errors             0.075 %       0.075 %    +0.0 %
            worse, with a threshold of 5 %
        "#]]
        .assert_eq(&compare(&base, &now, 0.05).to_string());
    }

    #[test]
    fn a_faster_run_is_better_and_differences_of_the_load_are_listed() {
        let (base, mut now) = (sample::run(), sample::run());
        now.responses *= 2;
        now.latency.mean /= 2.0;
        now.load.connections = 400;
        now.load.rate = None;
        let comparison = compare(&base, &now, 0.05);
        assert!(!comparison.is_worse());
        expect![[r#"
            compared              base           now    change
            requests/s          19,975        39,950  +100.0 %  better
            mean               33.4 ms       16.7 ms   -50.0 %  better
            p50                25.1 ms       25.1 ms    +0.0 %
            p90                81.1 ms       81.1 ms    +0.0 %
            p99                98.2 ms       98.2 ms    +0.0 %
            server CPU         6.26 µs       3.13 µs   -50.0 %  better
            errors             0.075 %       0.075 %    +0.0 %
            not the same load: the number of connections was 64 and is 400
            not the same load: the rate was 20,000 and is none
            not worse, with a threshold of 5 %
        "#]]
        .assert_eq(&comparison.to_string());
    }

    #[test]
    fn a_change_of_just_the_threshold_is_none() {
        let (mut base, mut now) = (sample::run(), sample::run());
        (base.latency.mean, now.latency.mean) = (100.0, 150.0);
        assert!(!compare(&base, &now, 0.5).is_worse());
        assert!(compare(&base, &now, 0.499).is_worse());
    }

    #[test]
    fn each_difference_of_the_load_is_listed() {
        let (base, mut now) = (sample::run(), sample::run());
        now.load.protocol = "tcp".to_owned();
        now.load.depth += 1;
        now.load.threads += 1;
        now.load.keep_alive ^= true;
        now.load.request_bytes += 1;
        let text = compare(&base, &now, 0.5).to_string();
        for what in ["protocol", "pipeline", "number of threads", "keep-alive", "size of a request"]
        {
            let lines = text.lines().filter(|line| line.starts_with("not the same load: "));
            assert_eq!(lines.filter(|line| line.contains(what)).count(), 1, "{what}: {text}");
        }
    }

    #[test]
    fn one_error_in_ten_thousand_requests_is_ignored() {
        let (mut base, mut now) = (sample::run(), sample::run());
        base.errors = crate::tally::Errors::default();
        now.errors = crate::tally::Errors { timeout: now.requests / 10_000, ..base.errors };
        let is_better =
            |base: &Run, now: &Run| compare(base, now, 0.0).to_string().contains("better");
        assert!(!compare(&base, &now, 0.0).is_worse() && !is_better(&now, &base));
        now.errors.timeout += 1;
        assert!(compare(&base, &now, 0.0).is_worse() && is_better(&now, &base));
    }

    #[test]
    fn new_errors_are_worse() {
        let (mut base, mut now) = (sample::run(), sample::run());
        base.errors = crate::tally::Errors::default();
        now.errors.timeout = now.requests / 100;
        assert!(compare(&base, &now, 0.5).is_worse());
        assert!(!compare(&now, &base, 0.5).is_worse());
    }
}
