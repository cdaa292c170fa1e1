//! Bar charts as SVG: requests/s on the left, CPU time on the right, one line per server.

use std::fmt::Write as _;

use crate::report::{Row, median, number};
use crate::svg::{self, MARGIN, escape};

const WIDTH: usize = 900;
const LINE: usize = 26;
const BAR: usize = 16;

/// Where the first line starts, below the title and the names of the two halves.
const TOP: usize = 84;
const BOTTOM: usize = 44;

/// Where the bars of each half start, and the maximum length of a bar. The number of a bar is on
/// its right.
const LEFT_BARS: usize = 210;
const RIGHT_BARS: usize = 610;
const BAR_MAX: usize = 270;
const RIGHT_BAR_MAX: usize = 200;

/// A server that needs more CPU time than the median times this has its bar cut. Otherwise the bars
/// of the others would be too short to compare.
const CUT_ABOVE_MEDIANS: f64 = 3.0;

/// The bars on a light page.
const LIGHT: &str = "\
    .name { text-anchor: end; }\n\
    .ours { font-weight: 700; }\n\
    .bar { fill: #8c959f; }\n\
    .gap { fill: #ffffff; }\n\
    .bar.ours { fill: #0969da; }\n";

/// The same on a dark page.
const DARK: &str = "\
    .bar { fill: #6e7681; }\n\
    .gap { fill: #0d1117; }\n\
    .bar.ours { fill: #4493f8; }\n";

/// What a chart shows of one server.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    label: String,
    is_ours: bool,
    rate: f64,
    cpu: f64,
    has_problems: bool,
}

/// Draws the medians of the rows, the fastest first. Returns `None` if nothing was measured.
pub fn draw(title: &str, rate_title: &str, rows: &[Row]) -> Option<String> {
    let mut lines: Vec<Line> = rows.iter().filter_map(line).collect();
    lines.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    let rate_most = lines.first()?.rate;
    let cpu_most = cpu_scale(&lines);
    let height = TOP + lines.len() * LINE + BOTTOM;
    let mut svg = svg::begin(title, WIDTH, height, LIGHT, DARK);
    let _ = writeln!(
        svg,
        "<text class=\"note\" x=\"{LEFT_BARS}\" y=\"64\">{} (more is better)</text>\n<text \
         class=\"note\" x=\"{RIGHT_BARS}\" y=\"64\">server CPU µs/request (less is \
         better)</text>\n<text class=\"note\" x=\"{MARGIN}\" y=\"{}\">A bar with a gap is longer \
         than it is drawn. * had problems, such as connections that were never served: see the \
         table.</text>",
        escape(rate_title),
        height - 16
    );
    for (index, line) in lines.iter().enumerate() {
        let y = TOP + index * LINE;
        let class = if line.is_ours { " ours" } else { "" };
        let _ = writeln!(
            svg,
            "<text class=\"name{class}\" x=\"{}\" y=\"{}\">{}{}</text>",
            LEFT_BARS - 10,
            y + 13,
            escape(&line.label),
            if line.has_problems { " *" } else { "" }
        );
        bar(
            &mut svg,
            LEFT_BARS,
            y,
            class,
            scaled(line.rate, rate_most, BAR_MAX),
            &number(line.rate, 0),
        );
        bar(
            &mut svg,
            RIGHT_BARS,
            y,
            class,
            scaled(line.cpu, cpu_most, RIGHT_BAR_MAX),
            &number(line.cpu, 1),
        );
        if line.cpu > cpu_most {
            let x = RIGHT_BARS + RIGHT_BAR_MAX - 16;
            let _ = writeln!(
                svg,
                "<rect class=\"gap\" x=\"{x}\" y=\"{y}\" width=\"5\" height=\"{BAR}\"/>"
            );
        }
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn line(row: &Row) -> Option<Line> {
    Some(Line {
        label: row.label.clone(),
        is_ours: row.is_ours,
        rate: row.median("rate")?,
        cpu: row.median("cpu")?,
        has_problems: !row.problems().is_empty(),
    })
}

fn bar(svg: &mut String, x: usize, y: usize, class: &str, length: f64, value: &str) {
    let _ = writeln!(
        svg,
        "<rect class=\"bar{class}\" x=\"{x}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR}\" \
         rx=\"2\"/><text x=\"{:.1}\" y=\"{}\">{value}</text>",
        x as f64 + length + 6.0,
        y + 13
    );
}

/// The CPU time that the longest bar stands for.
fn cpu_scale(lines: &[Line]) -> f64 {
    let mut values: Vec<f64> = lines.iter().map(|line| line.cpu).collect();
    values.sort_by(f64::total_cmp);
    let most = values.last().copied().unwrap_or(0.0);
    most.min(median(&values) * CUT_ABOVE_MEDIANS)
}

/// The length of the bar of a value. The longest bar belongs to `most`, and the shortest is still
/// visible.
fn scaled(value: f64, most: f64, longest: usize) -> f64 {
    if most > 0.0 { (value / most * longest as f64).clamp(1.0, longest as f64) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Figures;

    #[test]
    fn bars_are_as_long_as_their_values() {
        assert_eq!(scaled(100.0, 100.0, 300), 300.0);
        assert_eq!(scaled(50.0, 100.0, 300), 150.0);
    }

    #[test]
    fn the_shortest_bar_can_be_seen() {
        assert_eq!(scaled(0.001, 100_000.0, 300), 1.0);
        assert_eq!(scaled(0.0, 0.0, 300), 1.0);
    }

    #[test]
    fn the_fastest_stands_first_and_what_failed_is_left_out() {
        let row = |label: &str, rate: f64| {
            let mut row = Row::new(label, label == "ours");
            row.rounds.push(Ok(Figures::default().number("rate", rate).number("cpu", 7.0)));
            row
        };
        let mut failed = Row::new("broken", false);
        failed.rounds.push(Err("it hangs".to_owned()));
        let svg =
            draw("a < b", "requests/s", &[row("slow", 10.0), row("ours", 20.0), failed]).unwrap();
        assert!(svg.find(">ours<").unwrap() < svg.find(">slow<").unwrap());
        assert!(svg.contains("a &lt; b") && !svg.contains("broken"));
        assert_eq!(svg.matches("class=\"bar ours\"").count(), 2);
    }

    #[test]
    fn one_slow_server_does_not_flatten_the_others() {
        let line = |cpu: f64| Line {
            label: String::new(),
            is_ours: false,
            rate: 1.0,
            cpu,
            has_problems: false,
        };
        assert_eq!(cpu_scale(&[line(5.0), line(6.0), line(500.0)]), 18.0);
        assert_eq!(cpu_scale(&[line(5.0), line(6.0), line(7.0)]), 7.0);
        assert_eq!(scaled(500.0, 18.0, 200), 200.0);
    }

    #[test]
    fn nothing_measured_is_no_chart() {
        assert_eq!(draw("nothing", "requests/s", &[]), None);
    }
}
