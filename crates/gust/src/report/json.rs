//! Writes all figures of a run to a file, and reads them again.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{FORMAT, Run};

pub(crate) fn write(run: &Run) -> String {
    let mut text = serde_json::to_string_pretty(run).expect("a run is made of plain values");
    text.push('\n');
    text
}

/// Reads a saved run.
pub(crate) fn read(file: &Path) -> Result<Run, String> {
    let text = fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    parse(&text).map_err(|error| format!("{} {error}", file.display()))
}

fn parse(text: &str) -> Result<Run, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("is not a saved run: {error}"))?;
    match value.get("format").and_then(Value::as_u64) {
        Some(format) if format == u64::from(FORMAT) => {}
        Some(format) => return Err(format!("has format {format}, but only {FORMAT} is supported")),
        None => return Err("is not a saved run".to_owned()),
    }
    serde_json::from_value(value).map_err(|error| format!("is not a saved run: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_written_run_can_be_read() {
        let run = sample::run();
        let read = parse(&write(&run)).unwrap();
        assert_eq!(
            (read.requests, read.responses, read.seconds),
            (run.requests, run.responses, run.seconds)
        );
        assert_eq!(
            (&read.load, &read.errors, &read.statuses),
            (&run.load, &run.errors, &run.statuses)
        );
        assert_eq!((&read.connections, &read.timeline), (&run.connections, &run.timeline));
        assert_eq!(read.latency.percentiles, run.latency.percentiles);
        // Formatting and parsing may change the last digit of a fraction.
        assert!((read.latency.mean - run.latency.mean).abs() < 1e-6);
    }

    #[test]
    fn a_file_that_is_not_a_run_is_refused() {
        assert!(parse("{").unwrap_err().contains("is not a saved run"));
        assert_eq!(parse("{}"), Err("is not a saved run".to_owned()));
        assert_eq!(
            parse(r#"{"format": 99}"#),
            Err("has format 99, but only 1 is supported".to_owned())
        );
        assert!(parse(r#"{"format": 1}"#).unwrap_err().contains("missing field"));
    }
}
