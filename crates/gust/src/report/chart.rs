//! Charts as SVG, which browsers draw without a script.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 34.0;

/// A chart: its curves, and the labels of its axes.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    /// The description for readers who cannot see the chart.
    pub(crate) title: &'a str,
    pub(crate) curves: Vec<Curve<'a>>,
    pub(crate) x_ticks: Vec<(f64, String)>,
    pub(crate) y_ticks: Vec<(f64, String)>,
    /// The upper end of the axis. Both axes begin at zero.
    pub(crate) x_max: f64,
    pub(crate) y_max: f64,
}

#[derive(Debug)]
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    /// A class of the style sheet: `a`, `b` or `c`.
    pub(crate) class: &'a str,
    pub(crate) is_bars: bool,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The text of the tooltip.
    pub(crate) label: String,
}

impl Chart<'_> {
    pub(crate) fn svg(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.draw(&mut out);
        out
    }

    fn draw(&self, out: &mut String) -> std::fmt::Result {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        writeln!(
            out,
            r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">"#,
            escape(self.title)
        )?;
        for (y, label) in &self.y_ticks {
            let at = self.y(*y);
            writeln!(
                out,
                r#"<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1}" y2="{at:.1}"/>"#
            )?;
            let (x, baseline) = (LEFT - 8.0, at + 4.0);
            writeln!(
                out,
                r#"<text x="{x}" y="{baseline:.1}" text-anchor="end">{}</text>"#,
                escape(label)
            )?;
        }
        for (x, label) in &self.x_ticks {
            let at = self.x(*x);
            writeln!(
                out,
                r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{bottom}"/>"#
            )?;
            let baseline = bottom + 18.0;
            writeln!(
                out,
                r#"<text x="{at:.1}" y="{baseline}" text-anchor="middle">{}</text>"#,
                escape(label)
            )?;
        }
        for curve in &self.curves {
            if curve.is_bars { self.bars(curve, out)? } else { self.line(curve, out)? }
        }
        writeln!(out, "</svg>")?;
        if self.curves.len() > 1 {
            let keys: String = self
                .curves
                .iter()
                .map(|curve| {
                    format!(r#"<span class="key {}">{}</span>"#, curve.class, escape(curve.name))
                })
                .collect();
            writeln!(out, r#"<p class="keys">{keys}</p>"#)?;
        }
        Ok(())
    }

    fn line(&self, curve: &Curve<'_>, out: &mut String) -> std::fmt::Result {
        let points: Vec<_> = curve
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", self.x(point.x), self.y(point.y)))
            .collect();
        writeln!(out, r#"<polyline class="{}" points="{}"/>"#, curve.class, points.join(" "))?;
        for point in &curve.points {
            let (x, y) = (self.x(point.x), self.y(point.y));
            let title = title(&point.label);
            writeln!(
                out,
                r#"<circle class="{}" cx="{x:.1}" cy="{y:.1}" r="4">{title}</circle>"#,
                curve.class
            )?;
        }
        Ok(())
    }

    fn bars(&self, curve: &Curve<'_>, out: &mut String) -> std::fmt::Result {
        let each = (WIDTH - LEFT - RIGHT)
            / f64::from(u32::try_from(curve.points.len().max(1)).unwrap_or(u32::MAX));
        let width = (each - 1.0).max(1.0);
        for point in curve.points.iter().filter(|point| point.y > 0.0) {
            let (x, y) = (self.x(point.x) - width / 2.0, self.y(point.y));
            let height = HEIGHT - BOTTOM - y;
            let (class, title) = (curve.class, title(&point.label));
            write!(out, r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" "#)?;
            writeln!(out, r#"height="{height:.1}">{title}</rect>"#)?;
        }
        Ok(())
    }

    fn x(&self, x: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (x / self.x_max.max(1e-12)).clamp(0.0, 1.0)
    }

    fn y(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y / self.y_max.max(1e-12)).clamp(0.0, 1.0)
    }
}

/// Returns about four round numbers from zero to just above `max`.
pub(crate) fn ticks(max: f64) -> Vec<f64> {
    let rough = (max / 4.0).max(1e-9);
    let magnitude = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|&step| step >= rough);
    let step = step.unwrap_or(rough);
    (0..).map(|index| f64::from(index) * step).take_while(|&tick| tick < max + step).collect()
}

/// Returns a tooltip.
fn title(label: &str) -> String {
    format!("<title>{}</title>", escape(label))
}

/// Returns the text escaped for use between tags and in quotes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(ticks(97.0), [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert_eq!(ticks(8.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert!(ticks(0.0).len() < 10 && ticks(1e300).len() < 10);
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }

    #[test]
    fn a_bar_is_wide_enough_to_be_seen_and_nothing_has_none() {
        let point = |x: u32| Point { x: x.into(), y: f64::from(x % 2), label: String::new() };
        let points = (0..2000).map(point).collect();
        let chart = Chart {
            title: "",
            curves: vec![Curve { name: "", class: "", is_bars: true, points }],
            x_ticks: Vec::new(),
            y_ticks: Vec::new(),
            x_max: 2000.0,
            y_max: 1.0,
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<rect ").count(), 1000);
        assert_eq!(svg.matches(" width=\"1.0\"").count(), 1000, "a tenth of a pixel");
        let from_top_to_axis = format!(" height=\"{:.1}\"", HEIGHT - BOTTOM - TOP);
        assert_eq!(svg.matches(&from_top_to_axis).count(), 1000);
    }

    #[test]
    fn all_texts_of_a_chart_are_escaped() {
        let curve = || {
            let points = vec![Point { x: 0.0, y: 1.0, label: "<".to_owned() }];
            Curve { name: "<", class: "", is_bars: false, points }
        };
        let ticks = vec![(0.0, "<".to_owned())];
        let chart = Chart {
            title: "<",
            curves: vec![curve(), curve()],
            x_ticks: ticks.clone(),
            y_ticks: ticks,
            x_max: 1.0,
            y_max: 1.0,
        };
        let svg = chart.svg();
        assert_eq!((svg.matches("&lt;").count(), svg.matches("<<").count()), (7, 0), "{svg}");
    }
}
