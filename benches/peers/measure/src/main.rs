//! Measures HTTP servers beside each other in one run. `--help` says how; the README says how to read it.

mod ab;
mod args;
mod build;
mod chart;
mod child;
mod clients;
mod counts;
mod docs;
mod echo;
mod fair;
mod generator;
mod gust;
mod idle;
mod machine;
mod oha;
mod proc;
mod report;
mod rounds;
mod running;
mod scenario;
mod server;
mod size;
mod startup;
mod strace;
mod wrk;

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::process::ExitCode;

use crate::args::{Args, HELP, Typed};
use crate::build::Program;
use crate::docs::Chart;
use crate::generator::{BODY_BYTES, Generator, Job, Tools};
use crate::report::Row;
use crate::rounds::Built;
use crate::scenario::{ALL, Scenario};
use crate::server::Server;

fn main() -> ExitCode {
    let result = match args::parse(env::args().skip(1)) {
        Ok(Typed::Help) => {
            print!("{HELP}");
            Ok(())
        }
        Ok(Typed::List) => {
            list();
            Ok(())
        }
        Ok(Typed::Measure(args)) => measure(&args).map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    println!("scenarios:");
    for scenario in ALL {
        println!("  {:<13} {}", scenario.name, scenario.asks);
    }
    println!("servers:");
    for server in Server::all() {
        println!("  {}", server.name);
    }
}

/// The options as a report shows them: without the paths of this machine.
fn typed() -> String {
    let mut words: Vec<String> = env::args().skip(1).collect();
    if let Some(at) = words.iter().position(|word| word == "--markdown") {
        words.drain(at..(at + 2).min(words.len()));
    }
    let without_folders = |server: &str| match server.split_once('=') {
        Some((name, path)) => format!("{name}={}", path.rsplit('/').next().unwrap_or(path)),
        None => server.to_owned(),
    };
    let shown: Vec<String> =
        words.iter().map(|word| word.split(',').map(without_folders).collect::<Vec<_>>().join(",")).collect();
    shown.join(" ")
}

fn measure(args: &Args) -> io::Result<()> {
    proc::allow_many_files();
    let tools = tools(args.generator).map_err(io::Error::other)?;
    let with_profiling = args.scenarios.iter().any(|scenario| scenario.name.starts_with("instructions"));
    let mut built = Vec::new();
    let mut absent = String::new();
    for server in &args.servers {
        match Program::of(server, with_profiling) {
            Ok(program) => built.push(Built { server, program }),
            Err(error) => absent.push_str(&format!("- skipped: {} ({error})\n", server.name)),
        }
    }
    let mut report = format!(
        "# Measured beside the peers\n\n{}- `cargo run --release -p measure -- {}`: {} rounds in turns, \
         {} s each, median (least..most); a ratio is the median of the rounds' ratios\n{absent}",
        machine::describe(&built, args.generator),
        typed(),
        args.rounds,
        args.seconds()
    );
    print_part(args, &report)?;
    let mut charts = Vec::new();
    for scenario in &args.scenarios {
        let rows = rounds::measure(args, &tools, scenario, &built);
        if rows.is_empty() {
            // None of the servers that were asked for speaks so.
            continue;
        }
        let part = part(args, scenario, &rows);
        print_part(args, &part)?;
        report.push_str(&part);
        charts.extend(chart(scenario, &rows));
    }
    if args.docs {
        docs::write(&report, &charts)?;
    }
    Ok(())
}

fn tools(generator: Generator) -> Result<Tools, String> {
    let body = build::output_folder()?.join("body");
    fs::write(&body, vec![b'x'; BODY_BYTES]).map_err(|error| error.to_string())?;
    // The shares of single connections are measured with it whoever makes the other loads.
    Ok(Tools { generator, gust: build::gust()?, oha: None, body })
}

fn part(args: &Args, scenario: &Scenario, rows: &[Row]) -> String {
    let mut commands: String = scenario.printed_jobs().iter().map(|job| command(args, job)).collect();
    if !commands.is_empty() {
        commands.insert(0, '\n');
    }
    format!(
        "\n## {}\n\n{}\n{commands}\n{}",
        scenario.name,
        scenario.asks,
        report::table(scenario.columns, rows, &scenario.reference())
    )
}

fn command(args: &Args, job: &Job) -> String {
    format!("- `{}`\n", args.generator.command_line(job, args.seconds()))
}

fn chart(scenario: &Scenario, rows: &[Row]) -> Option<Chart> {
    let title = scenario.chart?;
    let rate = scenario.columns.iter().find(|column| column.key == "rate")?;
    let svg = chart::draw(title, rate.title, rows)?;
    Some(Chart { name: scenario.name.to_owned(), title: title.to_owned(), svg })
}

fn print_part(args: &Args, part: &str) -> io::Result<()> {
    print!("{part}");
    io::stdout().flush()?;
    if let Some(path) = &args.markdown {
        OpenOptions::new().create(true).append(true).open(path)?.write_all(part.as_bytes())?;
    }
    Ok(())
}
