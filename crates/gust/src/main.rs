//! `gust`: a load generator that reports when its own figures are unreliable.
//!
//! `args` parses the command line into a `plan`. A `worker` is a thread with an event loop. Each of
//! its `connection`s has a socket and an `exchange`, which interprets the bytes. Each thread counts
//! in slices of time (`tally`), and the `collector` adds them up. The result is a `run`, from which
//! the `report`s are made.

#![allow(clippy::print_stderr, reason = "that is what a program on a terminal does")]

mod args;
mod arrival;
mod blocking;
mod collector;
mod compare;
mod connection;
mod cpu;
mod event_stream;
mod exchange;
mod histogram;
mod load;
mod outbox;
mod plan;
mod progress;
mod report;
mod request_source;
mod retry;
mod run;
mod schedule;
mod serve;
mod shared;
mod tally;
mod target;
mod timer;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
#[cfg(feature = "top")]
mod top;
mod transport;
mod units;
mod url_list;
mod verify;
mod websocket;
mod worker;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command, LoadArguments};
use crate::run::Run;

/// Exit code: the run took place, but a requirement was not met.
const NOT_MET: u8 = 1;

/// Exit code: the run did not take place. clap uses the same code for an invalid command line.
const NOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Some(Command::Echo { listen, threads }) => serve::echo(listen, *threads).map(|()| true),
        Some(Command::Serve { listen, threads }) => serve::serve(listen, *threads).map(|()| true),
        #[cfg(feature = "top")]
        Some(Command::Top(arguments)) => top::show(arguments).map(|()| true),
        None => measure(&arguments.load),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_MET),
        Err(error) => {
            eprintln!("gust: {error}");
            ExitCode::from(NOT_RUN)
        }
    }
}

/// Runs the load and reports the result. Returns whether all requirements were met.
fn measure(arguments: &LoadArguments) -> Result<bool, String> {
    let plan = arguments.plan()?;
    // These checks come first, so that no time is spent on a run that cannot be compared or saved.
    let base = arguments.compare.as_deref().map(report::json::read).transpose()?;
    for file in [&arguments.save, &arguments.html].into_iter().flatten() {
        is_writable(file)?;
    }
    let run = load::run(&plan, arguments.quiet)?;
    print(&report::write(arguments.format, &run));
    if let Some(file) = &arguments.save {
        write(file, &report::json::write(&run))?;
    }
    if let Some(file) = &arguments.html {
        write(file, &report::html::write(&run))?;
    }
    let mut is_met = check_requirements(arguments, &run);
    if let Some(base) = base {
        let comparison = compare::compare(&base, &run, arguments.threshold);
        // Other formats are read by programs, so the table must not follow them on standard output.
        if arguments.format == args::Format::Text {
            print(&format!("\n{comparison}"));
        } else {
            eprint!("{comparison}");
        }
        is_met &= !comparison.is_worse();
    }
    Ok(is_met)
}

/// Prints the requirements that were not met, and returns whether all were met.
fn check_requirements(arguments: &LoadArguments, run: &Run) -> bool {
    let mut failures = Vec::new();
    if run.connections.held == Some(0) {
        failures.push("no connection was held".to_owned());
    }
    if run.responses == 0 && !run.load.holds {
        failures.push("no request was answered".to_owned());
    }
    if let Some(errors_max) = arguments.errors_max().filter(|&max| run.errors.total() > max) {
        failures.push(format!(
            "{} errors exceed the limit of {errors_max} (--max-errors)",
            run.errors.total()
        ));
    }
    if arguments.errors_max().is_none() {
        if run.errors.status > 0 {
            failures.push(format!(
                "{} responses had a status that --expect does not list",
                run.errors.status
            ));
        }
        if run.errors.mismatch > 0 {
            failures.push(format!(
                "{} responses did not match what --verify expects",
                run.errors.mismatch
            ));
        }
    }
    failures.iter().for_each(|failure| eprintln!("gust: {failure}"));
    failures.is_empty()
}

/// Writes to standard output. Errors are ignored, because the reader of a pipe may have ended.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn is_writable(file: &Path) -> Result<(), String> {
    let opened = fs::OpenOptions::new().append(true).create(true).open(file);
    opened.map(drop).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Returns whether a run meets what the arguments require, after `change`.
    fn is_met(line: &str, change: impl FnOnce(&mut Run)) -> bool {
        let words = ["gust", ":1"].into_iter().chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).unwrap().load;
        let mut run = sample::run();
        run.errors = tally::Errors::default();
        change(&mut run);
        check_requirements(&arguments, &run)
    }

    #[test]
    fn what_a_run_must_meet_has_bounds() {
        assert!(is_met("", |_| {}));
        assert!(is_met("", |run| run.errors.timeout = 1000), "only its figures are worse");
        assert!(is_met("--max-errors 2", |run| run.errors.timeout = 2));
        assert!(!is_met("--max-errors 2", |run| run.errors.timeout = 3));
        assert!(!is_met("", |run| run.errors.status = 1));
        assert!(!is_met("", |run| run.errors.mismatch = 1));
        let both = |run: &mut Run| (run.errors.status, run.errors.mismatch) = (1, 1);
        assert!(is_met("--max-errors 2", both), "the limit counts these too");
        assert!(!is_met("--max-errors 1", both));
    }

    #[test]
    fn a_run_without_answers_is_none_unless_it_holds_connections() {
        assert!(!is_met("", |run| run.responses = 0));
        let held = |count| {
            move |run: &mut Run| {
                run.load.holds = true;
                (run.responses, run.connections.held) = (0, Some(count));
            }
        };
        assert!(is_met("", held(1)) && !is_met("", held(0)));
    }
}
