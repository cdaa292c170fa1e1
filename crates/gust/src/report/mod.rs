//! Reports of a run, for people and for programs. Each format is a function from a run to a text.

pub(crate) mod ab;
mod chart;
pub(crate) mod csv;
pub(crate) mod echo;
pub(crate) mod html;
pub(crate) mod json;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod text;
pub(crate) mod wrk;

use crate::args::Format;
use crate::run::Run;

/// Returns the report of a run in one of the formats for standard output.
pub(crate) fn write(format: Format, run: &Run) -> String {
    match format {
        Format::Text => text::write(run),
        Format::Wrk => wrk::write(run),
        Format::Ab => ab::write(run),
        Format::Echo => echo::write(run),
        Format::Json => json::write(run),
        Format::Csv => csv::write(run),
    }
}

/// Returns the length of an interval of the timeline. The last one ends with the run, so it can be
/// shorter than the others. It can also be longer, by up to half a tick: what comes in less than
/// half a tick at the end belongs to the tick before.
fn interval_seconds(run: &Run, index: usize) -> f64 {
    let length = run.timeline.seconds_per_interval;
    let rest = run.seconds - float(index as u64) * length;
    let is_last = index + 1 == run.timeline.intervals.len();
    // If the program was suspended for long, the timeline ends before the run. If a thread was late
    // at the end, the timeline may have an interval after the run: its rest is zero or a rounding
    // error.
    let ends_run = is_last && rest > length * 1e-6 && rest <= length * 1.5;
    if ends_run { rest } else { length }.max(1e-9)
}

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_interval_ends_with_the_run() {
        // There are eight intervals of half a second.
        for (seconds, last) in [
            (4.0, 0.5),
            (3.6, 0.1),
            (4.05, 0.55),
            (4.25, 0.75),
            // The timeline ends before the run, or after it.
            (4.3, 0.5),
            (9.0, 0.5),
            (3.5, 0.5),
            (3.5 + 1e-12, 0.5),
            (3.0, 0.5),
        ] {
            let run = Run { seconds, ..sample::run() };
            assert!((interval_seconds(&run, 7) - last).abs() < 1e-9, "{seconds}");
            assert_eq!(interval_seconds(&run, 6), 0.5, "{seconds}");
        }
    }
}
