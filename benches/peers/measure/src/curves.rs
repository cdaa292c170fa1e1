//! The chart of the README: requests/s over the length of a wait, a curve per server. It is drawn
//! from the figures that `docs/benchmarks/waits.md` has recorded.

use std::fmt::Write as _;
use std::fs;
use std::io;

use crate::build::main_folder;
use crate::report::number;
use crate::svg;

const PAGE: &str = "benchmarks/waits.md";
const CHART: &str = "charts/waits.svg";
/// The table that is drawn begins below this line.
const HEADING: &str = "## Waits on 64 connections";

const TITLE: &str = "Requests/s of handlers that wait, on 64 connections";

const WIDTH: usize = 900;
const HEIGHT: usize = 440;
/// The area of the curves. The names of the servers stand left of it, requests/s right of it.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 820.0;
const TOP: f64 = 66.0;
const BOTTOM: f64 = 350.0;

/// The distance between two horizontal lines, in requests/s.
const RATE_STEP: f64 = 20_000.0;

/// The minimum distance between two names. Closer ones could not be read.
const NAMES_APART: f64 = 18.0;

/// The servers in the order of their drawing: name in the table, name in the chart, class.
const SERVERS: [(&str, &str, &str); 6] = [
    ("may_server (marked)", "may, marked", "may"),
    ("go_fasthttp", "Go fasthttp", "fasthttp"),
    ("go_net_http", "Go net/http", "go"),
    ("axum_server (marked)", "axum, marked", "axum"),
    ("actix_server (marked)", "actix-web, marked", "actix"),
    ("framework", "Filoplume, unmarked", "ours"),
];

/// The lines and the servers, on a light page.
const LIGHT: &str = "\
    .name { text-anchor: end; }\n\
    .wait { text-anchor: middle; fill: #59636e; }\n\
    .grid { stroke: #d0d7de; stroke-width: 1; }\n\
    polyline { fill: none; stroke: var(--c); stroke-width: 2; }\n\
    circle { fill: var(--c); }\n\
    text.name { fill: var(--c); }\n\
    .ours { --c: #0969da; font-weight: 700; }\n\
    polyline.ours { stroke-width: 4; }\n\
    .actix { --c: #bc4c00; } .axum { --c: #8250df; } .go { --c: #1a7f37; }\n\
    .fasthttp { --c: #57606a; } .may { --c: #cf222e; }\n";

/// The same on a dark page.
const DARK: &str = "\
    .wait { fill: #9198a1; }\n\
    .grid { stroke: #3d444d; }\n\
    .ours { --c: #4493f8; }\n\
    .actix { --c: #f0883e; } .axum { --c: #ab7df8; } .go { --c: #3fb950; }\n\
    .fasthttp { --c: #9198a1; } .may { --c: #f85149; }\n";

/// A wait and the median of the requests/s.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    wait: String,
    us: f64,
    rate: f64,
}

/// Draws the chart anew.
pub fn write() -> io::Result<()> {
    let docs = main_folder().join("docs");
    let svg = draw(&fs::read_to_string(docs.join(PAGE))?).map_err(io::Error::other)?;
    fs::write(docs.join(CHART), svg)
}

fn draw(page: &str) -> Result<String, String> {
    let (_, table) = page.split_once(HEADING).ok_or_else(|| format!("{PAGE} has no {HEADING}"))?;
    let table = table.split("\n## ").next().unwrap_or(table);
    let curves: Vec<_> = SERVERS
        .iter()
        .map(|(server, label, class)| (*label, *class, points(table, server)))
        .collect();
    for (label, _, points) in &curves {
        if points.len() < 2 {
            return Err(format!("{PAGE} has {} figures of {label}", points.len()));
        }
    }
    let waits = &curves[0].2;
    let top = top_of(&curves);
    let mut svg = svg::begin(TITLE, WIDTH, HEIGHT, LIGHT, DARK);
    draw_axes(&mut svg, waits, top);
    let _ = writeln!(
        svg,
        "<text class=\"note\" x=\"20\" y=\"{}\">How long each handler waits. Two cores, which the \
         load generator shares.</text>\n<text class=\"note\" x=\"20\" y=\"{}\">marked: sent to a \
         pool of threads by hand; with may, its own sleep instead of the system's. Go has nothing \
         to mark.</text>",
        BOTTOM + 48.0,
        BOTTOM + 70.0
    );
    for ((label, class, points), name_y) in curves.iter().zip(name_positions(&curves, top)) {
        draw_curve(&mut svg, class, points, waits, top);
        let _ = writeln!(
            svg,
            "\n<text class=\"name {class}\" x=\"{}\" y=\"{:.1}\">{label}</text>",
            LEFT - 10.0,
            name_y + 4.0
        );
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The rate at the top: the first line above all points.
fn top_of(curves: &[(&str, &str, Vec<Point>)]) -> f64 {
    let rates = curves.iter().flat_map(|(_, _, points)| points).map(|point| point.rate);
    (rates.fold(RATE_STEP, f64::max) / RATE_STEP).ceil() * RATE_STEP
}

/// Draws a line for each step of the requests/s, and writes the waits below.
fn draw_axes(svg: &mut String, waits: &[Point], top: f64) {
    let mut rate = 0.0;
    while rate <= top {
        let y = y_of(rate, top);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
             <text class=\"note\" x=\"{}\" y=\"{:.1}\">{}</text>",
            RIGHT + 10.0,
            y + 4.0,
            number(rate, 0)
        );
        rate += RATE_STEP;
    }
    for point in waits {
        let x = x_of(point.us, waits);
        let _ = writeln!(
            svg,
            "<text class=\"wait\" x=\"{x:.1}\" y=\"{}\">{}</text>",
            BOTTOM + 22.0,
            point.wait
        );
    }
}

/// Draws the points of a server and the line through them.
fn draw_curve(svg: &mut String, class: &str, points: &[Point], waits: &[Point], top: f64) {
    let places: Vec<_> = points
        .iter()
        .map(|point| format!("{:.1},{:.1}", x_of(point.us, waits), y_of(point.rate, top)))
        .collect();
    let _ = write!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", places.join(" "));
    for point in points {
        let (x, y) = (x_of(point.us, waits), y_of(point.rate, top));
        let _ = write!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
    }
}

/// The rows of one server: `| 50 µs | framework | 39,695 (33,913..45,081) | ...`.
fn points(table: &str, server: &str) -> Vec<Point> {
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let (wait, name, rate) = (cells.next()?, cells.next()?, cells.next()?);
        let (length, unit) = wait.split_once(' ')?;
        let us = length.parse::<f64>().ok()? * if unit == "ms" { 1000.0 } else { 1.0 };
        let rate = rate.split(' ').next()?.replace(',', "").parse().ok()?;
        (name == server).then(|| Point { wait: wait.to_owned(), us, rate })
    });
    rows.collect()
}

/// Waits are drawn on a logarithmic scale: from 50 µs to 100 ms is a factor of 2,000.
fn x_of(us: f64, waits: &[Point]) -> f64 {
    let (first, last) = (waits.first().map_or(1.0, |p| p.us), waits.last().map_or(1.0, |p| p.us));
    LEFT + (us / first).ln() / (last / first).ln() * (RIGHT - LEFT)
}

fn y_of(rate: f64, top: f64) -> f64 {
    BOTTOM - rate / top * (BOTTOM - TOP)
}

/// Each name stands beside the first point of its curve, or as far from there as the others need.
fn name_positions(curves: &[(&str, &str, Vec<Point>)], top: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..curves.len()).collect();
    order.sort_by(|a, b| curves[*b].2[0].rate.total_cmp(&curves[*a].2[0].rate));
    let mut positions = vec![0.0; curves.len()];
    let mut free_from = f64::MIN;
    for index in order {
        let y = y_of(curves[index].2[0].rate, top).max(free_from);
        positions[index] = y;
        free_from = y + NAMES_APART;
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_has_the_figures_of_the_page() {
        let docs = main_folder().join("docs");
        let drawn = draw(&fs::read_to_string(docs.join(PAGE)).unwrap()).unwrap();
        let kept = fs::read_to_string(docs.join(CHART)).unwrap();
        assert!(drawn == kept, "{CHART} is old: cargo run --release -p measure -- --charts");
    }

    #[test]
    fn a_row_is_a_point() {
        let table =
            "| 50 µs | framework | 39,695 (33,913..45,081) | 1.09 |\n| 1 ms | other | 7 (1..9) |\n";
        let point = Point { wait: "50 µs".to_owned(), us: 50.0, rate: 39_695.0 };
        assert_eq!(points(table, "framework"), [point]);
        assert_eq!(points(table, "other")[0].us, 1000.0);
    }

    #[test]
    fn names_do_not_lie_on_each_other() {
        let curve = |rate| ("", "", vec![Point { wait: String::new(), us: 50.0, rate }]);
        let curves = [curve(40_000.0), curve(40_100.0), curve(10_000.0)];
        let top = top_of(&curves);
        assert_eq!(top, 60_000.0);
        let positions = name_positions(&curves, top);
        assert!(positions[0] - positions[1] >= NAMES_APART, "{positions:?}");
        assert_eq!(positions[2], y_of(10_000.0, top));
    }
}
