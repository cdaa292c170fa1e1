//! Compares load generators: here the client is measured, and the server is always the same.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::args::Args;
use crate::build::{Program, output_folder};
use crate::child::{Child, Ended};
use crate::generator::{self, Generator, Tools};
use crate::job::{Form, Job, Rates};
use crate::observe::observe;
use crate::printed::Printed;
use crate::report::{self, Column, Figures, OTHERS_KEY, Row, Show};
use crate::rounds::Turns;
use crate::running::{Running, guarded};
use crate::scenario::{OTHERS, P50, P99, column};
use crate::server::{REFERENCE, Server};
use crate::strace::Calls;

const TARGET: &str = "/plaintext";

/// The row that is the reference of the ratios.
const REFERENCE_CLIENT: &str = "wrk";

const DEPTH: usize = 64;

/// The rate of the run in which the server is stopped, and its times.
const RATE: u64 = 20_000;
const STOPPED_RUN_SECONDS: u64 = 4;
const STOPPED_AFTER: Duration = Duration::from_millis(1_500);
const STOPPED_FOR: Duration = Duration::from_secs(1);

/// Enough requests that one-time work does not count. Not more, because strace makes a program much
/// slower.
const TRACED_REQUESTS: u64 = 20_000;
const TRACED_SECONDS: u64 = 2;
const TRACED_WITHIN: Duration = Duration::from_secs(120);

const COST_COLUMNS: &[Column] = &[
    column("rate", "requests/s", 0, Show::Compared),
    column("per core", "requests/s per client core", 0, Show::Compared),
    column("user", "client user µs/request", 3, Show::Compared),
    column("system", "client system µs/request", 2, Show::Median),
    P50,
    P99,
    OTHERS,
];

const CALL_COLUMNS: &[Column] = &[
    column("calls", "system calls/request", 3, Show::Compared),
    column("requests", "requests", 0, Show::Median),
    column("by name", "which", 0, Show::Text),
];

const MEMORY_COLUMNS: &[Column] = &[
    column("requests", "requests", 0, Show::Median),
    column("memory", "peak RSS MiB", 2, Show::Median),
    column("more requests", "requests of a longer run", 0, Show::Median),
    column("more memory", "peak RSS MiB", 2, Show::Median),
    column("growth", "grown", 2, Show::Median),
];

const STOPPED_COLUMNS: &[Column] = &[
    column("rate", "requests/s", 0, Show::Median),
    P50,
    column("p90", "p90 ms", 2, Show::Median),
    column("p90 from sent", "p90 ms from when sent", 2, Show::Median),
    P99,
    column("longest", "max ms", 1, Show::Median),
];

/// The servers that are asked.
#[derive(Debug)]
pub struct Targets {
    reference: Program,
    /// The reference with `counted`, so that no two heads are the same.
    counted: Program,
    floor: Program,
}

impl Targets {
    pub fn build() -> Result<Self, String> {
        let reference = Program::of(&Server::named(REFERENCE)?, false)?;
        let counted = Program { arguments: &["counted"], ..reference.clone() };
        Ok(Self { reference, counted, floor: Program::of(&Server::named("raw_epoll")?, false)? })
    }
}

/// A row of a table: a generator, and the server that it asks.
struct Asker<'a> {
    label: String,
    generator: Generator,
    program: &'a Program,
}

/// The generators that are installed, and a line for each one that is missing.
pub fn installed(tools: &Tools) -> (Vec<Generator>, String) {
    let is_there = |generator: &Generator| match generator {
        Generator::Gust => true,
        Generator::Oha => tools.oha.is_some(),
        other => on_path(other.name()).is_some(),
    };
    let all = [Generator::Gust, Generator::Wrk, Generator::Ab, Generator::Oha];
    let (there, absent): (Vec<_>, Vec<_>) = all.into_iter().partition(is_there);
    let lines =
        absent.iter().map(|generator| format!("- skipped: {} (not installed)\n", generator.name()));
    (there, lines.collect())
}

/// The path of oha. Installs it below the target folder first, if that is wanted.
pub fn oha(installs: bool) -> Result<Option<PathBuf>, String> {
    let folder = output_folder()?.join("oha");
    let own = folder.join("bin").join("oha");
    if installs && on_path("oha").is_none() && !own.is_file() {
        eprintln!("installing oha");
        let output = Command::new("cargo")
            .args(["install", "oha", "--locked", "--root"])
            .arg(&folder)
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            eprintln!("measure: oha: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    Ok(on_path("oha").or(Some(own).filter(|own| own.is_file())))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Measures the generators, table by table.
pub fn measure(
    args: &Args,
    tools: &Tools,
    targets: &Targets,
    printed: &mut Printed<'_>,
) -> io::Result<()> {
    let (generators, _) = installed(tools);
    for connections in [64, 400] {
        let job = Job::get(TARGET, connections, 1);
        let askers = with_counted(&generators, targets);
        let asks = format!(
            "What does a request cost the client, on {connections} connections and one thread? \
             oha has no option for threads, and takes one a core. The server is raw_httparse; \
             where a row says so, with a number in each answer, so that no head comes twice."
        );
        let rows =
            in_turns(args, &format!("clients{connections}"), args.rounds, &askers, |asker| {
                cost(args.seconds(), tools, asker, &job)
            });
        let commands = commands(&generators, &job, args.seconds());
        add(printed, &format!("clients{connections}"), &asks, &commands, COST_COLUMNS, &rows)?;
    }
    measure_calls_and_memory(args, tools, &generators, targets, printed)?;
    measure_pipelined(args, tools, &generators, targets, printed)?;
    measure_stopped(args, tools, &generators, targets, printed)
}

fn measure_calls_and_memory(
    args: &Args,
    tools: &Tools,
    generators: &[Generator],
    targets: &Targets,
    printed: &mut Printed<'_>,
) -> io::Result<()> {
    let askers = plain(generators, &targets.reference);
    let rows = in_turns(args, "clients_syscalls", 1, &askers, |asker| traced(tools, asker));
    let asks = "Which system calls does a request need in the client? (64 connections, strace -c \
                -f, a run of its own)";
    add(printed, "clients_syscalls", asks, "", CALL_COLUMNS, &rows)?;

    let requests = (args.requests() / 10).max(1);
    let rows = in_turns(args, "clients_memory", 1, &askers, |asker| memory(requests, tools, asker));
    let asks = "Does its memory grow with the number of requests? (64 connections)";
    add(printed, "clients_memory", asks, "", MEMORY_COLUMNS, &rows)
}

fn measure_pipelined(
    args: &Args,
    tools: &Tools,
    generators: &[Generator],
    targets: &Targets,
    printed: &mut Printed<'_>,
) -> io::Result<()> {
    let job = Job::get(TARGET, 64, 1).sending(Form::Pipelined(DEPTH));
    let pipelining: Vec<Generator> = generators
        .iter()
        .copied()
        .filter(|generator| matches!(generator, Generator::Gust | Generator::Wrk))
        .collect();
    let askers = plain(&pipelining, &targets.floor);
    let rows = in_turns(args, "clients_pipelined", args.rounds, &askers, |asker| {
        cost(args.seconds(), tools, asker, &job)
    });
    let asks =
        "The same with 64 requests on their way on each connection. The server is raw_epoll.";
    let commands = commands(&pipelining, &job, args.seconds());
    add(printed, "clients_pipelined", asks, &commands, COST_COLUMNS, &rows)
}

fn measure_stopped(
    args: &Args,
    tools: &Tools,
    generators: &[Generator],
    targets: &Targets,
    printed: &mut Printed<'_>,
) -> io::Result<()> {
    let askers = plain(generators, &targets.reference);
    let rows = in_turns(args, "clients_stopped", args.rounds, &askers, |asker| {
        stopped(tools, asker, &stopped_job(asker.generator))
    });
    let asks = "Does it notice a server that stands still for 1 s of 4 s? At 20,000/s a quarter \
                of all requests falls due while it stands, so that the true p90 is 600 ms and the \
                time to catch up: some 750 ms. wrk and ab know no rate.";
    let commands: String = askers
        .iter()
        .map(|asker| line(asker.generator, &stopped_job(asker.generator), STOPPED_RUN_SECONDS))
        .collect();
    add(printed, "clients_stopped", asks, &commands, STOPPED_COLUMNS, &rows)
}

fn stopped_job(generator: Generator) -> Job {
    let rate = matches!(generator, Generator::Gust | Generator::Oha).then_some(RATE);
    Job { rate, ..Job::get(TARGET, 64, 1) }
}

fn plain<'a>(generators: &[Generator], program: &'a Program) -> Vec<Asker<'a>> {
    let asker =
        |&generator: &Generator| Asker { label: generator.name().to_owned(), generator, program };
    generators.iter().map(asker).collect()
}

/// All generators with the reference, and gust and wrk also with heads that are all different, so
/// that a head cannot be recognised as a repeated one.
fn with_counted<'a>(generators: &[Generator], targets: &'a Targets) -> Vec<Asker<'a>> {
    let mut askers = plain(generators, &targets.reference);
    let counted =
        generators.iter().filter(|generator| matches!(generator, Generator::Gust | Generator::Wrk));
    for (index, &generator) in counted.enumerate() {
        let label = format!("{} (no head twice)", generator.name());
        askers.insert(2 * index + 1, Asker { label, generator, program: &targets.counted });
    }
    askers
}

fn in_turns(
    args: &Args,
    name: &str,
    rounds: usize,
    askers: &[Asker<'_>],
    one: impl Fn(&Asker<'_>) -> io::Result<Figures>,
) -> Vec<Row> {
    let rows = askers
        .iter()
        .map(|asker| Row::new(&asker.label, asker.generator == Generator::Gust))
        .collect();
    Turns { name, rounds, repeats_max: args.repeats }.measure(rows, |index| one(&askers[index]))
}

fn commands(generators: &[Generator], job: &Job, seconds: u64) -> String {
    generators.iter().map(|&generator| line(generator, job, seconds)).collect()
}

fn line(generator: Generator, job: &Job, seconds: u64) -> String {
    format!("- `{}`\n", generator.command_line(job, seconds))
}

fn add(
    printed: &mut Printed<'_>,
    name: &str,
    asks: &str,
    commands: &str,
    columns: &[Column],
    rows: &[Row],
) -> io::Result<()> {
    let gap = if commands.is_empty() { "" } else { "\n" };
    let table = report::table_of("client", columns, rows, REFERENCE_CLIENT);
    printed.add(&format!("\n## {name}\n\n{asks}\n{gap}{commands}\n{table}"))
}

fn cost(seconds: u64, tools: &Tools, asker: &Asker<'_>, job: &Job) -> io::Result<Figures> {
    let server = Running::start(asker.program)?;
    let ((rates, ended), spent) = observe(server, |server| {
        generator::run_with(asker.generator, server, tools, job, seconds)
    })?;
    let figures = client_cost(&rates, &ended)
        .number("rate", rates.per_second)
        .number("p50", rates.p50)
        .number("p99", rates.p99)
        .number(OTHERS_KEY, spent.others);
    Ok(figures.problems(rates.problems))
}

/// What the client used, per request.
fn client_cost(rates: &Rates, ended: &Ended) -> Figures {
    let requests = rates.requests.max(1) as f64;
    let seconds = ended.cpu.total().as_secs_f64();
    Figures::default()
        .number("per core", requests / seconds.max(1e-6))
        .number("user", ended.cpu.user.as_secs_f64() * 1e6 / requests)
        .number("system", ended.cpu.system.as_secs_f64() * 1e6 / requests)
}

/// A load of this many requests. wrk has no such option, so its load ends after a time.
fn counted_job(generator: Generator, requests: u64) -> Job {
    let job = Job::get(TARGET, 64, 1);
    if generator == Generator::Wrk { job } else { job.requests(requests) }
}

fn traced(tools: &Tools, asker: &Asker<'_>) -> io::Result<Figures> {
    let server = Running::start(asker.program)?;
    let summary = env::temp_dir().join(format!("measure-client-{}", server.pid()));
    let job = counted_job(asker.generator, TRACED_REQUESTS);
    let (program, arguments) = asker.generator.command(server.address, tools, &job, TRACED_SECONDS);
    let mut command = guarded(Path::new("strace"), "KILL");
    command.args(["-c", "-f", "-o"]).arg(&summary).arg(program).args(arguments);
    let ended = Child::spawn(&mut command, TRACED_WITHIN)?.finish()?;
    let rates = asker.generator.read(&ended)?;
    let calls = Calls::parse(&fs::read_to_string(&summary)?);
    fs::remove_file(&summary)?;
    let requests = rates.requests.max(1) as f64;
    let figures = Figures::default()
        .number("calls", calls.total() as f64 / requests)
        .number("requests", requests)
        .text("by name", calls.list(requests));
    Ok(figures.problems(rates.problems))
}

fn memory(requests: u64, tools: &Tools, asker: &Asker<'_>) -> io::Result<Figures> {
    let run = |times: u64| -> io::Result<(Rates, Ended)> {
        let server = Running::start(asker.program)?;
        let job = counted_job(asker.generator, requests * times);
        generator::run_with(asker.generator, &server, tools, &job, times)
    };
    let (rates, ended) = run(1)?;
    let (more_rates, more_ended) = run(10)?;
    let mib = |ended: &Ended| ended.peak_kib as f64 / 1024.0;
    let figures = Figures::default()
        .number("requests", rates.requests as f64)
        .number("memory", mib(&ended))
        .number("more requests", more_rates.requests as f64)
        .number("more memory", mib(&more_ended))
        .number("growth", mib(&more_ended) / mib(&ended).max(1e-6));
    Ok(figures.problems(rates.problems).problems(more_rates.problems))
}

/// Stops the server for a while in the middle of the load.
fn stopped(tools: &Tools, asker: &Asker<'_>, job: &Job) -> io::Result<Figures> {
    let server = Running::start(asker.program)?;
    let (rates, _) = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(STOPPED_AFTER);
            server.pause();
            thread::sleep(STOPPED_FOR);
            server.go_on();
        });
        generator::run_with(asker.generator, &server, tools, job, STOPPED_RUN_SECONDS)
    })?;
    let mut figures = Figures::default()
        .number("rate", rates.per_second)
        .number("p50", rates.p50)
        .number("p90", rates.p90)
        .number("p99", rates.p99)
        .number("longest", rates.longest);
    if let Some(p90) = rates.p90_from_sent {
        figures = figures.number("p90 from sent", p90);
    }
    Ok(figures.problems(rates.problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_know_a_rate_are_told_one() {
        let commands = [Generator::Gust, Generator::Wrk]
            .map(|generator| line(generator, &stopped_job(generator), STOPPED_RUN_SECONDS));
        assert_eq!(commands[0], "- `gust -t1 -c64 -d4s -r20000 /plaintext`\n");
        assert_eq!(commands[1], "- `wrk -t1 -c64 -d4s --latency /plaintext`\n");
    }

    #[test]
    fn wrk_has_a_time_where_others_have_a_number() {
        assert_eq!(counted_job(Generator::Wrk, 5).requests, None);
        assert_eq!(counted_job(Generator::Oha, 5).requests, Some(5));
    }
}
