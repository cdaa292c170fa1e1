//! The report as a page with charts: one file, without scripts and without external resources.

use std::fmt::Write;

use crate::collector::Interval;
use crate::histogram::{Latency, PERCENTILES};
use crate::report::chart::{Chart, Curve, Point, escape, ticks};
use crate::report::{float, interval_seconds, text};
use crate::run::Run;
use crate::units;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2330; --dim: #667085; --line: #d9dee7; --back: #fff; \
                     --a: #2563eb; --b: #d97706; --c: #dc2626; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --dim: #98a2b3; --line: #344054; \
                     --back: #14181f; --a: #6ea8fe; --b: #fbbf24; --c: #f87171; } }
body { margin: 2rem auto; max-width: 900px; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; \
                     color: var(--ink); background: var(--back); }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; margin-bottom: 0; } h2 { font-size: 1.05rem; \
                     margin: 2rem 0 .3rem; } p { margin: .3rem 0; }
.dim { color: var(--dim); } .warning { border-left: 4px solid var(--b); padding: .2rem .8rem; \
                     margin: .6rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } td, th { text-align: \
                     right; padding: .15rem 1.2rem .15rem 0; font-weight: normal; }
td:first-child, th:first-child { text-align: left; } th { color: var(--dim); } tr + tr td { \
                     border-top: 1px solid var(--line); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .8rem; \
                     margin: 1rem 0; }
.tile { border: 1px solid var(--line); border-radius: 8px; padding: .5rem .8rem; } .tile b { \
                     display: block; font-size: 1.25rem; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--dim); } .grid { stroke: \
                     var(--line); }
polyline { fill: none; stroke-width: 2; } polyline.a { stroke: var(--a); } polyline.b { stroke: \
                     var(--b); } polyline.c { stroke: var(--c); }
circle { fill: transparent; } circle.a:hover { fill: var(--a); } circle.b:hover { fill: var(--b); \
                     } circle.c:hover { fill: var(--c); }
rect.c { fill: var(--c); } .key { margin-right: 1.2rem; } .key::before { content: ''; display: \
                     inline-block; width: 1em; height: 3px; margin-right: .4em; vertical-align: \
                     middle; background: var(--a); }
.key.b::before { background: var(--b); } .key.c::before { background: var(--c); } .keys { color: \
                     var(--dim); }
";

pub(crate) fn write(run: &Run) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = page(run, &mut out);
    out
}

fn page(run: &Run, out: &mut String) -> std::fmt::Result {
    let target = escape(&run.target);
    writeln!(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(
        out,
        "<meta name=\"viewport\" content=\"width=device-width\">\n<title>gust: {target}</title>"
    )?;
    writeln!(out, "<style>{STYLE}</style>\n</head>\n<body>\n<h1>{target}</h1>")?;
    let length = units::time(run.seconds * 1e9);
    writeln!(out, "<p class=\"dim\">{}; counted for {length}</p>", escape(&text::load(&run.load)))?;
    tiles(run, out)?;
    for warning in run.warnings() {
        writeln!(out, "<p class=\"warning\">{}</p>", escape(&warning))?;
    }
    writeln!(out, "<h2>Latency by percentile</h2>\n{}", percentiles(run).svg())?;
    latency_table(run, out)?;
    let interval = units::time(run.timeline.seconds_per_interval * 1e9);
    writeln!(
        out,
        "<h2>Responses per second</h2>\n<p class=\"dim\">each point: {interval}</p>\n{}",
        throughput(run).svg()
    )?;
    writeln!(out, "<h2>Latency over time</h2>\n{}", latency_over_time(run).svg())?;
    writeln!(out, "<h2>Errors</h2>\n<p id=\"errors\">{}</p>", escape(&text::errors(run)))?;
    if run.timeline.intervals.iter().any(|interval| interval.errors > 0) {
        writeln!(out, "{}", errors_over_time(run).svg())?;
    }
    facts(run, out)?;
    writeln!(out, "</body>\n</html>")
}

fn tiles(run: &Run, out: &mut String) -> std::fmt::Result {
    let connections = &run.connections;
    let tiles = [
        ("requests/s", units::rate(run.per_second())),
        ("p50", units::time(run.latency.at(50.0))),
        ("p99", units::time(run.latency.at(99.0))),
        ("max", units::time(run.latency.max)),
        ("errors", units::count(run.errors.total())),
        ("never served", format!("{} of {}", connections.never_served, connections.asked)),
    ];
    writeln!(out, "<div class=\"tiles\">")?;
    for (name, value) in tiles {
        writeln!(out, "<div class=\"tile\">{name}<b>{value}</b></div>")?;
    }
    writeln!(out, "</div>")
}

/// Returns the position of a percentile on an axis on which each step to the right halves the
/// remaining share: the position of 90 % is log2(10), that of 99 % is log2(100).
fn percentile_position(percentile: f64, count: u64) -> f64 {
    let finest = (float(count.max(2)) * 2.0).log2();
    if percentile >= 100.0 { finest } else { (100.0 / (100.0 - percentile)).log2().min(finest) }
}

fn percentiles(run: &Run) -> Chart<'_> {
    let count = run.latency.count;
    let curve = |name, class, latency: &Latency| Curve {
        name,
        class,
        is_bars: false,
        points: latency
            .curve
            .iter()
            .map(|&(percentile, value)| Point {
                x: percentile_position(percentile, count),
                y: value,
                label: format!("{percentile:.4} %: {}", units::time(value)),
            })
            .collect(),
    };
    let mut curves = vec![curve("from when due", "a", &run.latency)];
    if let Some(uncorrected) = &run.uncorrected {
        curves.push(curve("from when sent (hides waiting)", "b", uncorrected));
    }
    let x_max = percentile_position(100.0, count);
    let marks = [0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999, 99.9999];
    let mut x_ticks: Vec<_> = marks
        .into_iter()
        .map(|mark| (percentile_position(mark, count), format!("{mark} %")))
        .filter(|&(x, _)| x < x_max - 1.5)
        .collect();
    x_ticks.push((x_max, "max".to_owned()));
    Chart { title: "latency by percentile", curves, x_ticks, x_max, ..time_axis(run.latency.max) }
}

fn throughput(run: &Run) -> Chart<'_> {
    let points = over_time(
        run,
        |interval, seconds| float(interval.responses) / seconds,
        |rate| format!("{}/s", units::rate(rate)),
    );
    let y_ticks = ticks(points.iter().map(|point| point.y).fold(1.0, f64::max));
    Chart {
        title: "responses per second over time",
        curves: vec![Curve { name: "responses/s", class: "a", is_bars: false, points }],
        x_ticks: seconds_axis(run),
        x_max: length_of(run),
        y_max: y_ticks.last().copied().unwrap_or(1.0),
        y_ticks: y_ticks
            .into_iter()
            .map(|tick| (tick, units::rate(tick).replace(".00", "")))
            .collect(),
    }
}

fn latency_over_time(run: &Run) -> Chart<'_> {
    let curve = |name, class, of: fn(&Interval) -> u64| Curve {
        name,
        class,
        is_bars: false,
        points: over_time(run, |interval, _| float(of(interval)), units::time),
    };
    let curves = vec![
        curve("p50", "a", |interval| interval.p50),
        curve("p99", "b", |interval| interval.p99),
        curve("max", "c", |interval| interval.max),
    ];
    let max = run.timeline.intervals.iter().map(|interval| float(interval.max)).fold(0.0, f64::max);
    Chart {
        title: "latency over time",
        curves,
        x_ticks: seconds_axis(run),
        x_max: length_of(run),
        ..time_axis(max)
    }
}

fn errors_over_time(run: &Run) -> Chart<'_> {
    let points =
        over_time(run, |interval, _| float(interval.errors), |count| format!("{count:.0} errors"));
    let y_ticks = ticks(points.iter().map(|point| point.y).fold(1.0, f64::max));
    Chart {
        title: "errors over time",
        curves: vec![Curve { name: "errors", class: "c", is_bars: true, points }],
        x_ticks: seconds_axis(run),
        x_max: length_of(run),
        y_max: y_ticks.last().copied().unwrap_or(1.0),
        y_ticks: y_ticks.into_iter().map(|tick| (tick, format!("{tick}"))).collect(),
    }
}

/// Returns a chart without curves, with a vertical axis of times.
fn time_axis<'a>(max: f64) -> Chart<'a> {
    let y_ticks = ticks(max.max(1.0));
    Chart {
        title: "",
        curves: Vec::new(),
        x_ticks: Vec::new(),
        x_max: 1.0,
        y_max: y_ticks.last().copied().unwrap_or(1.0),
        y_ticks: y_ticks.into_iter().map(|tick| (tick, units::time(tick))).collect(),
    }
}

/// Returns a point for each interval, from the interval and its length in seconds.
fn over_time(
    run: &Run,
    value: impl Fn(&Interval, f64) -> f64,
    show: impl Fn(f64) -> String,
) -> Vec<Point> {
    let length = run.timeline.seconds_per_interval;
    let intervals = run.timeline.intervals.iter().enumerate();
    intervals
        .map(|(index, interval)| {
            let seconds = interval_seconds(run, index);
            // The point is in the middle of the interval.
            let (x, y) = (float(index as u64) * length + seconds / 2.0, value(interval, seconds));
            Point { x, y, label: format!("{x:.2} s: {}", show(y)) }
        })
        .collect()
}

fn length_of(run: &Run) -> f64 {
    (float(run.timeline.intervals.len() as u64) * run.timeline.seconds_per_interval).max(1e-9)
}

fn seconds_axis(run: &Run) -> Vec<(f64, String)> {
    let end = length_of(run);
    ticks(end)
        .into_iter()
        .filter(|&tick| tick <= end)
        .map(|tick| (tick, format!("{} s", round(tick))))
        .collect()
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn latency_table(run: &Run, out: &mut String) -> std::fmt::Result {
    let second = run.uncorrected.as_ref();
    let title = if second.is_some() {
        "<th>from when due</th><th>from when sent</th>"
    } else {
        "<th>latency</th>"
    };
    writeln!(out, "<table id=\"latency\">\n<tr><th></th>{title}</tr>")?;
    let mut row = |name: &str, value: &dyn Fn(&Latency) -> f64| {
        let cell = |latency: &Latency| format!("<td>{}</td>", units::time(value(latency)));
        writeln!(
            out,
            "<tr><td>{name}</td>{}{}</tr>",
            cell(&run.latency),
            second.map_or(String::new(), cell)
        )
    };
    row("min", &|latency| latency.min)?;
    row("mean", &|latency| latency.mean)?;
    for percentile in PERCENTILES {
        row(&format!("{percentile} %"), &|latency| latency.at(percentile))?;
    }
    row("max", &|latency| latency.max)?;
    writeln!(out, "</table>")
}

fn facts(run: &Run, out: &mut String) -> std::fmt::Result {
    writeln!(out, "<h2>Complete report</h2>\n<pre>{}</pre>", escape(&text::write(run)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_page_needs_no_other_file_and_is_escaped() {
        let page = write(&sample::run());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(page.contains("a=&lt;b&gt;&amp;c") && !page.contains("a=<b>"));
        for fetched in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(fetched), "{fetched}");
        }
        assert_eq!(page.matches("<svg").count(), 4);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.contains("3 reset, 55 timeout, 2 status"));
    }

    #[test]
    fn a_run_without_responses_has_a_page() {
        let mut run = sample::run();
        run.responses = 0;
        run.latency = crate::histogram::Histogram::new().summary();
        run.uncorrected = None;
        run.timeline.intervals.clear();
        let page = write(&run);
        assert!(
            page.contains("no request was answered")
                && !page.contains("NaN")
                && !page.contains("inf")
        );
    }

    #[test]
    fn each_step_of_the_axis_halves_the_remaining_share() {
        let at = |percentile| percentile_position(percentile, 1 << 20);
        assert_eq!((at(0.0), at(50.0), at(75.0), at(100.0)), (0.0, 1.0, 2.0, 21.0));
    }

    #[test]
    fn the_last_point_is_not_lower_because_its_interval_is_shorter() {
        let run = sample::steady(3.6);
        let rates = throughput(&run).curves.remove(0).points;
        assert!(rates.iter().all(|point| (point.y - 2000.0).abs() < 1e-6), "{}", rates[7].label);
        assert!((rates[7].x - 3.55).abs() < 1e-9, "{}", rates[7].x);
    }
}
