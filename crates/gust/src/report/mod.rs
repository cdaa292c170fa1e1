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

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn float(value: u64) -> f64 {
    value as f64
}
