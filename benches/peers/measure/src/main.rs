//! Measures HTTP servers beside each other in one run. `--help` says how; the README says how to read it.

mod args;
mod counts;
mod fair;
mod generator;
mod idle;
mod load;
mod machine;
mod poll;
mod proc;
mod report;
mod scenario;
mod server;
mod startup;
mod strace;
mod wrk;

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::args::{Args, HELP, Typed};
use crate::generator::Generator;
use crate::report::Row;
use crate::scenario::{ALL, Entrant, Run, Scenario};
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

/// A server with the binary that was built for it.
struct Built<'a> {
    server: &'a Server,
    binary: PathBuf,
    /// The same code with its names kept; the same file where names are always kept.
    profiling: PathBuf,
}

fn measure(args: &Args) -> io::Result<()> {
    proc::allow_many_files();
    let machine = machine::describe();
    let counts_instructions = args.scenarios.iter().any(|scenario| scenario.name == "instructions");
    let mut built = Vec::new();
    let mut absent = String::new();
    for server in &args.servers {
        match build(server, counts_instructions) {
            Ok(server) => built.push(server),
            Err(error) => absent.push_str(&format!("- not measured: {} ({error})\n", server.name)),
        }
    }
    let head = format!(
        "# Measured beside the peers\n\n{machine}- `cargo run --release -p measure -- {}`: {} rounds in turns, \
         {} s each, median (least..most); a ratio is the median of the rounds' ratios\n{absent}",
        typed(),
        args.rounds,
        args.seconds
    );
    print_part(args, &head)?;
    for scenario in &args.scenarios {
        let part = run_scenario(args, scenario, &built);
        print_part(args, &part)?;
    }
    Ok(())
}

fn build(server: &Server, with_profiling: bool) -> Result<Built<'_>, String> {
    let binary = server.build("release")?;
    let profiling = if with_profiling { server.build("profiling")? } else { binary.clone() };
    Ok(Built { server, binary, profiling })
}

/// Measures every entrant once a round, so that what slows the machine slows all of them.
fn run_scenario(args: &Args, scenario: &Scenario, built: &[Built<'_>]) -> String {
    let entrants: Vec<(&Built<'_>, Entrant)> = built
        .iter()
        .flat_map(|built| scenario.entrants(built.server).into_iter().map(move |entrant| (built, entrant)))
        .collect();
    let mut rows: Vec<Row> = entrants
        .iter()
        .map(|(_, entrant)| Row { label: entrant.label.clone(), rounds: Vec::new() })
        .collect();
    let rounds = if scenario.repeats { args.rounds } else { 1 };
    for round in 1..=rounds {
        for ((built, entrant), row) in entrants.iter().zip(&mut rows) {
            eprintln!("{} {round}/{rounds}: {}", scenario.name, entrant.label);
            let binary = if scenario.name == "instructions" { &built.profiling } else { &built.binary };
            let run = Run {
                binary,
                slow: &entrant.slow,
                seconds: args.seconds,
                generator: args.generator,
                scenario,
            };
            row.rounds.push((scenario.measure)(&run).map_err(|error| error.to_string()));
        }
    }
    let mut commands: String = scenario.printed_jobs().iter().map(|job| command(args, job)).collect();
    if !commands.is_empty() {
        commands.insert(0, '\n');
    }
    format!(
        "\n## {}\n\n{}\n{commands}\n{}",
        scenario.name,
        scenario.asks,
        report::table(scenario.columns, &rows, &scenario.reference())
    )
}

fn command(args: &Args, job: &generator::Job) -> String {
    match args.generator {
        Generator::Wrk => format!("- `{}`\n", wrk::command_line(job, args.seconds)),
        Generator::Own => format!(
            "- own client: {} connections, {} threads, {} {:?}\n",
            job.connections, job.threads, job.target, job.form
        ),
    }
}

fn print_part(args: &Args, part: &str) -> io::Result<()> {
    print!("{part}");
    io::stdout().flush()?;
    if let Some(path) = &args.markdown {
        OpenOptions::new().create(true).append(true).open(path)?.write_all(part.as_bytes())?;
    }
    Ok(())
}
