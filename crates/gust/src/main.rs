//! `gust`: a load generator that tells the truth.
//!
//! `args` is what was typed and `plan` what will be done. A `worker` is a thread with an event
//! loop; each of its `connection`s is a socket and an `exchange`, which gives the bytes their
//! meaning. Threads count into slices of time (`tally`), the `collector` adds them up, and a `run`
//! is what came out, for the `report`s.

#![allow(clippy::print_stderr, reason = "that is what a program on a terminal does")]

mod args;
mod blocking;
mod collector;
mod compare;
mod connection;
mod cpu;
mod exchange;
mod histogram;
mod load;
mod outbox;
mod plan;
mod progress;
mod report;
mod retry;
mod run;
mod schedule;
mod serve;
mod shared;
mod tally;
mod target;
mod timer;
mod transport;
mod units;
mod verify;
mod worker;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command, LoadArguments};
use crate::run::Run;

/// It ran, and a demand was not met.
const NOT_MET: u8 = 1;

/// It could not be run. (That is also what clap says to a wrong command line.)
const NOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Some(Command::Echo { listen, threads }) => serve::echo(listen, *threads).map(|()| true),
        Some(Command::Serve { listen, threads }) => serve::serve(listen, *threads).map(|()| true),
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

/// Makes a run and reports it. Returns whether all that was demanded of it is met.
fn measure(arguments: &LoadArguments) -> Result<bool, String> {
    let plan = arguments.plan()?;
    // Before minutes are spent on a run that cannot be compared or kept.
    let base = arguments.compare.as_deref().map(report::json::read).transpose()?;
    for file in [&arguments.save, &arguments.html].into_iter().flatten() {
        is_writable(file)?;
    }
    let run = load::run(&plan, arguments.quiet)?;
    say(&report::write(arguments.format, &run));
    if let Some(file) = &arguments.save {
        write(file, &report::json::write(&run))?;
    }
    if let Some(file) = &arguments.html {
        write(file, &report::html::write(&run))?;
    }
    let mut is_met = demands(arguments, &run);
    if let Some(base) = base {
        let comparison = compare::compare(&base, &run, arguments.threshold);
        // Other formats are read by programs, which must not find a table behind them.
        if arguments.format == args::Format::Text {
            say(&format!("\n{comparison}"));
        } else {
            eprint!("{comparison}");
        }
        is_met &= !comparison.is_worse();
    }
    Ok(is_met)
}

/// Says which demands were not met.
fn demands(arguments: &LoadArguments, run: &Run) -> bool {
    let mut failures = Vec::new();
    if run.responses == 0 {
        failures.push("not one request was answered".to_owned());
    }
    if let Some(errors_max) = arguments.errors_max().filter(|&max| run.errors.total() > max) {
        failures.push(format!(
            "{} errors are more than the {errors_max} of --max-errors",
            run.errors.total()
        ));
    }
    if arguments.errors_max().is_none() {
        if run.errors.status > 0 {
            failures.push(format!(
                "{} answers had a status that --expect does not list",
                run.errors.status
            ));
        }
        if run.errors.mismatch > 0 {
            failures.push(format!("{} answers were not what --verify wants", run.errors.mismatch));
        }
    }
    failures.iter().for_each(|failure| eprintln!("gust: {failure}"));
    failures.is_empty()
}

/// Writes to standard output. Whoever has stopped reading has seen enough.
fn say(text: &str) {
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
