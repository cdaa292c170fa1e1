//! The scenarios of raw TCP: servers that send back all bytes that they receive.

use std::io;
use std::thread;
use std::time::Duration;

use crate::ab::Report;
use crate::build::Program;
use crate::clients::{Clients, Question};
use crate::counts;
use crate::generator::{Generator, Tools};
use crate::job::Job;
use crate::observe::{Spent, observe};
use crate::proc::Size;
use crate::report::{Column, Figures, Show};
use crate::running::Running;
use crate::scenario::{
    MEMORY, OTHERS, P50, P99, Run, Scenario, THREADS, USER, column, per_request, single,
};
use crate::who::Who;

/// Bytes in a message, as in May's comparison.
const SMALL_BYTES: usize = 100;
const CONNECTIONS: usize = 100;

/// Enough for the memory of a connection to stand out.
const IDLE_CONNECTIONS: usize = 1_000;

/// As in magio's table.
const AB_CONNECTIONS: usize = 1_000;

/// The time in which a server may free the buffers of a burst before its memory is read.
const SETTLE: Duration = Duration::from_secs(1);

const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

const COLUMNS: &[Column] = &[
    column("rate", "echoes/s", 0, Show::Compared),
    column("cpu", "CPU µs/echo", 2, Show::Compared),
    USER,
    column("switches", "context switches/echo", 2, Show::Median),
    P50,
    P99,
    THREADS,
    MEMORY,
    OTHERS,
];

/// The figures of ab, and those of the server.
pub const AB_COLUMNS: &[Column] = &[
    column("rate", "echoes/s", 0, Show::Compared),
    column("cpu", "CPU µs/echo", 2, Show::Compared),
    USER,
    column("complete", "complete", 0, Show::Median),
    column("failed", "failed", 0, Show::Median),
    column("kept", "kept alive", 0, Show::Median),
    column("p50", "p50 ms", 0, Show::Median),
    column("p99", "p99 ms", 0, Show::Median),
    MEMORY,
    OTHERS,
];

const IDLE_COLUMNS: &[Column] = &[
    column("memory", "RSS MiB", 1, Show::Compared),
    column("per connection", "KiB/connection", 2, Show::Median),
    THREADS,
];

pub const SMALL: Scenario = Scenario {
    chart: Some("Echoes of 100 bytes on 100 connections"),
    ..load("echo", "What does an echo of 100 bytes cost, on 100 connections?", |_| {
        vec![Job::echo(SMALL_BYTES, CONNECTIONS, 2)]
    })
};

pub const SINGLE: Scenario = Scenario {
    who: Who::Echoing,
    columns: AB_COLUMNS,
    measure: |run| ab_on_one_thread(run.program, run.tools, run.requests),
    ..load(
        "echo_single",
        "An echo server on one thread, asked by `ab -n REQUESTS -c 1000 -k`, as old comparisons \
         do it. Every request has to be complete and kept alive.",
        |_| Vec::new(),
    )
};

pub const LARGE: Scenario = load(
    "echo_large",
    "Echoes of 2,954 bytes for 64 clients that block, with ten connections each.",
    |_| vec![large()],
);

pub const SHORT: Scenario =
    load("echo_short", "Echoes of 26 bytes on 128 connections.", |_| vec![Job::echo(26, 128, 2)]);

pub const SYSCALLS: Scenario = Scenario {
    who: Who::Echoing,
    repeats: false,
    columns: counts::SYSCALL_COLUMNS,
    measure: |run| counts::syscalls(run, Question::Echo(SMALL_BYTES), CONNECTIONS),
    ..load("echo_syscalls", "Which system calls does an echo need? (100 connections)", |_| {
        Vec::new()
    })
};

pub const IDLE: Scenario = Scenario {
    who: Who::Echoing,
    repeats: false,
    columns: IDLE_COLUMNS,
    measure: idle,
    ..load(
        "echo_idle",
        "How much memory do 1,000 connections need that have each been answered once?",
        |_| Vec::new(),
    )
};

const fn load(name: &'static str, asks: &'static str, jobs: fn(&str) -> Vec<Job>) -> Scenario {
    Scenario {
        name,
        asks,
        who: Who::EchoingOnTwo,
        repeats: true,
        columns: COLUMNS,
        jobs,
        chart: None,
        measure: single,
    }
}

/// The load of mioco's echo table.
pub fn large() -> Job {
    Job::echo(2_954, 640, 64).blocking()
}

/// Runs the load of magio's table. The figures include what ab itself counted.
pub fn ab_on_one_thread(program: &Program, tools: &Tools, requests: u64) -> io::Result<Figures> {
    let server = Running::start(&program.on_one_thread())?;
    let job = Job::get("/", AB_CONNECTIONS, 1).requests(requests);
    let (report, spent): (Report, Spent) = observe(server, |server| {
        let ended = Generator::Ab.start(server, tools, &job, 0)?.finish()?;
        Report::parse(&ended.output)
            .ok_or_else(|| io::Error::other(format!("ab gave no result: {}", ended.last_words())))
    })?;
    // A status that is not a success is no problem here, because an echo has no status.
    let mut problems = Vec::new();
    for (what, count) in [
        ("not complete", requests.saturating_sub(report.complete)),
        ("failed", report.failed),
        ("not kept alive", report.complete.saturating_sub(report.kept_alive)),
    ] {
        if count > 0 {
            problems.push(format!("{what} {count}"));
        }
    }
    let figures = per_request(&spent, report.complete)
        .number("rate", report.per_second)
        .number("complete", report.complete as f64)
        .number("failed", report.failed as f64)
        .number("kept", report.kept_alive as f64)
        .number("p50", report.p50)
        .number("p99", report.p99);
    Ok(figures.problems(problems))
}

fn idle(run: &Run<'_>) -> io::Result<Figures> {
    let server = Running::start(run.program)?;
    let before = Size::of(server.pid())?;
    let mut clients = Clients::connect(server.address, IDLE_CONNECTIONS, ANSWERED_WITHIN)?;
    let answered = clients.ask_each(Question::Echo(SMALL_BYTES), 1);
    thread::sleep(SETTLE);
    let size = Size::of(server.pid())?;
    let lost = clients.closed_by_server();
    let mut problems = Vec::new();
    if answered < IDLE_CONNECTIONS as u64 {
        problems.push(format!("only {answered} were answered"));
    }
    if lost > 0 {
        problems.push(format!("{lost} were closed by the server"));
    }
    let grown = size.resident_kib.saturating_sub(before.resident_kib) as f64;
    let figures = Figures::default()
        .number("memory", size.resident_kib as f64 / 1024.0)
        .number("per connection", grown / IDLE_CONNECTIONS as f64)
        .number("threads", size.threads as f64);
    Ok(figures.problems(problems))
}
