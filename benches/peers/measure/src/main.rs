//! Measures HTTP servers side by side in one run. `--help` says how to use it, and the README how
//! to read the results.

mod ab;
mod args;
mod backends;
mod build;
mod busy;
mod chart;
mod child;
mod claims;
mod clients;
mod counts;
mod curves;
mod docs;
mod echo;
mod fair;
mod generator;
mod gust;
mod idle;
mod job;
mod live;
mod load_clients;
mod machine;
mod misses;
mod observe;
mod oha;
mod printed;
mod probe;
mod proc;
mod real;
mod report;
mod rounds;
mod running;
mod scenario;
mod scenarios;
mod server;
mod size;
mod startup;
mod strace;
mod svg;
mod waits;
mod who;
mod wrk;

use std::env;
use std::fs;
use std::io;
use std::process::ExitCode;

use crate::args::{Args, HELP, Mode, Typed};
use crate::backends::{Backend, Backends};
use crate::build::Program;
use crate::busy::BusyLoop;
use crate::docs::Chart;
use crate::generator::Tools;
use crate::job::{BODY_BYTES, Job};
use crate::load_clients::Targets;
use crate::printed::Printed;
use crate::report::Row;
use crate::rounds::Built;
use crate::scenario::Scenario;
use crate::scenarios::GROUPS;
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
        Ok(Typed::Charts) => curves::write().map_err(|error| error.to_string()),
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
    for group in GROUPS {
        println!("{}: {}", group.name, group.asks);
        for scenario in group.scenarios {
            println!("  {:<21} {}", scenario.name, scenario.asks);
        }
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
    let shown: Vec<String> = words
        .iter()
        .map(|word| word.split(',').map(without_folders).collect::<Vec<_>>().join(","))
        .collect();
    shown.join(" ")
}

fn measure(args: &Args) -> io::Result<()> {
    proc::allow_many_files();
    let tools = tools(args).map_err(io::Error::other)?;
    let mut printed = Printed::new(args.markdown.as_deref());
    let (place, charts) = match args.mode {
        Mode::Servers => (docs::MEASURED, measure_servers(args, &tools, &mut printed)?),
        Mode::Clients => {
            let targets = Targets::build().map_err(io::Error::other)?;
            let (_, absent) = load_clients::installed(&tools);
            let below = format!("{}{absent}", machine::generators(&tools));
            printed.add(&head(args, "Load generators beside each other", &[], &below))?;
            load_clients::measure(args, &tools, &targets, &mut printed)?;
            (docs::CLIENTS, Vec::new())
        }
        Mode::Claims => {
            let servers = claims::servers();
            let (built, absent) = build(&servers, false);
            let below = format!("{}{absent}", machine::generators(&tools));
            printed.add(&head(args, "What others claimed, measured today", &built, &below))?;
            claims::measure(args, &tools, &built, &mut printed)?;
            (docs::CLAIMS, Vec::new())
        }
        Mode::Live => {
            let servers: Vec<_> = args.servers.iter().filter(|server| server.is_living()).collect();
            let servers: Vec<Server> = servers.into_iter().cloned().collect();
            let (built, absent) = build(&servers, false);
            printed.add(&head(args, "Connections that live, beside the peers", &built, &absent))?;
            live::measure(args, &tools, &args.only, &mut printed)?;
            (docs::LIVE, Vec::new())
        }
    };
    if args.docs {
        docs::write(place, &printed.text, &charts)?;
    }
    Ok(())
}

fn measure_servers(
    args: &Args,
    tools: &Tools,
    printed: &mut Printed<'_>,
) -> io::Result<Vec<Chart>> {
    let with_profiling =
        args.scenarios.iter().any(|scenario| scenario.name.starts_with("instructions"));
    let is_asked = |server: &&Server| {
        args.scenarios.iter().any(|scenario| !scenario.entrants(server).is_empty())
    };
    let servers: Vec<Server> = args.servers.iter().filter(is_asked).cloned().collect();
    let (mut built, absent) = build(&servers, with_profiling);
    let (backends, not_started) = Backends::start(&wanted_backends(&args.scenarios, &built))?;
    for built in &mut built {
        built.program.environment = backends.environment();
    }
    let busy = args.beside_busy.then(BusyLoop::start);
    let beside = busy.as_ref().map_or_else(String::new, BusyLoop::describe);
    let below = format!("{}{beside}{absent}{not_started}", backends.describe());
    printed.add(&head(args, "Measured beside the peers", &built, &below))?;
    let mut charts = Vec::new();
    for scenario in &args.scenarios {
        if scenario.who.backend().is_some_and(|backend| !backends.has(backend)) {
            // The head of the report says why the backend is missing.
            continue;
        }
        let rows = rounds::measure(args, tools, scenario, &built, &backends.pids());
        if rows.is_empty() {
            // No server that was asked for takes part in this scenario.
            continue;
        }
        printed.add(&part(args, scenario, &rows))?;
        charts.extend(chart(scenario, &rows));
    }
    Ok(charts)
}

/// The backends that the servers call in these scenarios.
fn wanted_backends(scenarios: &[&Scenario], built: &[Built<'_>]) -> Vec<Backend> {
    let mut wanted = Vec::new();
    for scenario in scenarios {
        let is_asked = built.iter().any(|built| !scenario.entrants(built.server).is_empty());
        if let Some(backend) = scenario.who.backend().filter(|_| is_asked)
            && !wanted.contains(&backend)
        {
            wanted.push(backend);
        }
    }
    wanted
}

/// The servers that could be built, and a line for each one that could not.
fn build(servers: &[Server], with_profiling: bool) -> (Vec<Built<'_>>, String) {
    let mut built = Vec::new();
    let mut absent = String::new();
    for server in servers {
        match Program::of(server, with_profiling) {
            Ok(program) => built.push(Built { server, program }),
            Err(error) => absent.push_str(&format!("- skipped: {} ({error})\n", server.name)),
        }
    }
    (built, absent)
}

fn head(args: &Args, title: &str, built: &[Built<'_>], below: &str) -> String {
    let lasts = match args.mode {
        Mode::Claims => String::new(),
        Mode::Servers | Mode::Clients | Mode::Live => format!(", {} s each", args.seconds()),
    };
    format!(
        "# {title}\n\n{}- `cargo run --release -p measure -- {}`: {} rounds in turns{lasts}, \
         median (least..most); a ratio is the median of the rounds' ratios\n{below}",
        machine::describe(built, args.generator),
        typed(),
        args.rounds
    )
}

fn tools(args: &Args) -> Result<Tools, String> {
    let body = build::output_folder()?.join("body");
    fs::write(&body, vec![b'x'; BODY_BYTES]).map_err(|error| error.to_string())?;
    // The shares of single connections are measured with it whoever makes the other loads.
    let oha = match args.mode {
        Mode::Clients => load_clients::oha(args.installs_oha)?,
        Mode::Servers | Mode::Claims | Mode::Live => None,
    };
    Ok(Tools { generator: args.generator, gust: build::gust()?, oha, body })
}

fn part(args: &Args, scenario: &Scenario, rows: &[Row]) -> String {
    let mut commands: String =
        scenario.printed_jobs().iter().map(|job| command(args, job)).collect();
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
