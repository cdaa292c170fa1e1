//! What a scenario is: its question, the servers that it is for, and its figures.

use std::io;

use crate::build::Program;
use crate::generator::{self, Tools};
use crate::job::{Job, Rates};
use crate::observe::{Spent, observe_beside};
use crate::probe;
use crate::report::{Column, Figures, OTHERS_KEY, Show};
use crate::running::Running;
use crate::server::{
    ACTIX, BACKENDS_ACTIX, Blocking, ECHO_REFERENCE, MAY, REFERENCE, ROUTES, Server,
};
use crate::who::Who;

/// One question.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub asks: &'static str,
    pub who: Who,
    /// Whether there are several rounds. Times need them, and counts do not.
    pub repeats: bool,
    pub columns: &'static [Column],
    /// The loads of a scenario that consists of nothing else. They are printed as commands.
    pub jobs: fn(&str) -> Vec<Job>,
    /// The title of the chart, if there is one.
    pub chart: Option<&'static str>,
    pub measure: fn(&Run<'_>) -> io::Result<Figures>,
}

/// Scenarios that can be asked for with one word.
#[derive(Debug)]
pub struct Group {
    pub name: &'static str,
    pub asks: &'static str,
    pub scenarios: &'static [Scenario],
}

/// A server in a table, and the target that is slow there.
#[derive(Clone, Debug)]
pub struct Entrant {
    pub label: String,
    pub slow: String,
}

/// One run of one scenario, with a server that is started for it.
#[derive(Debug)]
pub struct Run<'a> {
    pub server: &'a Server,
    pub program: &'a Program,
    pub slow: &'a str,
    pub seconds: u64,
    /// The number of requests, for loads that have one.
    pub requests: u64,
    pub tools: &'a Tools,
    /// Processes that work for the server. Their CPU time is neither its own nor that of others.
    pub beside: &'a [u32],
    pub scenario: &'a Scenario,
}

impl Scenario {
    /// The rows of this server.
    pub fn entrants(&self, server: &Server) -> Vec<Entrant> {
        let entrant = |suffix: &str, slow: &str| Entrant {
            label: format!("{}{suffix}", server.name),
            slow: slow.to_owned(),
        };
        if !server.families.contains(&self.who.family()) {
            return Vec::new();
        }
        let slow = self.who.slow();
        match (self.who, server.blocking) {
            (Who::EchoingOnTwo, _) if server.threads_max < 2 => Vec::new(),
            (Who::Echoing | Who::EchoingOnTwo, _) => vec![entrant("", "")],
            (Who::Everyone, _) => vec![entrant("", "")],
            (Who::Able(lack), _) if server.can(lack) => vec![entrant("", "")],
            (Who::Rust, _) if server.is_rust() => vec![entrant("", "")],
            (Who::Capturing, _) if [REFERENCE, ROUTES].contains(&&*server.name) => {
                vec![entrant("", "")]
            }
            (Who::Able(_) | Who::Rust | Who::Capturing, _) | (_, Blocking::Never) => Vec::new(),
            (_, Blocking::Plain) => vec![entrant("", slow)],
            (Who::Working, Blocking::Cooperative) => vec![entrant(" (has no mark for it)", slow)],
            (Who::Sleeping, _) => {
                vec![entrant(MARKED, slow), entrant(" (unmarked)", UNMARKED_SLEEP)]
            }
            (_, Blocking::Marked | Blocking::Cooperative) => vec![entrant(MARKED, slow)],
        }
    }

    /// The label of the row that is the reference of the ratios.
    pub fn reference(&self) -> String {
        match self.who {
            Who::Everyone | Who::Able(_) | Who::Rust | Who::Capturing => REFERENCE.to_owned(),
            Who::Sleeping | Who::SleepingMarked => format!("{MAY}{MARKED}"),
            Who::Working | Who::Waiting(_) | Who::Missing(_) => format!("{ACTIX}{MARKED}"),
            Who::Calling(_) => format!("{BACKENDS_ACTIX}{MARKED}"),
            Who::Echoing | Who::EchoingOnTwo => ECHO_REFERENCE.to_owned(),
        }
    }

    /// The loads as they are printed, with the slow target of a server that needs no mark.
    pub fn printed_jobs(&self) -> Vec<Job> {
        (self.jobs)(self.who.slow())
    }
}

pub const PLAIN: &str = "/plaintext";
const MARKED: &str = " (marked)";
const UNMARKED_SLEEP: &str = "/sleep_unmarked?ms=10";

pub const fn column(key: &'static str, title: &'static str, digits: usize, show: Show) -> Column {
    Column { key, title, digits, show }
}

pub const RATE: Column = column("rate", "requests/s", 0, Show::Compared);
pub const CPU: Column = column("cpu", "CPU µs/request", 2, Show::Compared);
pub const USER: Column = column("user", "of it user µs", 2, Show::Median);
pub const SWITCHES: Column = column("switches", "context switches/request", 2, Show::Median);
pub const P50: Column = column("p50", "p50 ms", 2, Show::Median);
pub const P99: Column = column("p99", "p99 ms", 2, Show::Median);
pub const LONGEST: Column = column("longest", "max ms", 1, Show::Median);
pub const THREADS: Column = column("threads", "threads", 0, Show::Median);
pub const MEMORY: Column = column("memory", "RSS MiB", 1, Show::Median);
pub const OTHERS: Column = column(OTHERS_KEY, "cores used by others", 2, Show::Median);

pub const LOAD_COLUMNS: &[Column] =
    &[RATE, CPU, USER, SWITCHES, P50, P99, LONGEST, THREADS, MEMORY, OTHERS];

pub const PAIR_COLUMNS: &[Column] = &[
    column("rate", "plain/s", 0, Show::Compared),
    column("p99", "plain p99 ms", 2, Show::Median),
    column("longest", "plain max ms", 1, Show::Median),
    column("slow rate", "slow/s", 0, Show::Compared),
    column("slow p99", "slow p99 ms", 2, Show::Median),
    CPU,
    SWITCHES,
    THREADS,
    MEMORY,
    OTHERS,
];

pub const fn load(
    name: &'static str,
    asks: &'static str,
    who: Who,
    jobs: fn(&str) -> Vec<Job>,
) -> Scenario {
    Scenario {
        name,
        asks,
        who,
        repeats: true,
        columns: LOAD_COLUMNS,
        jobs,
        chart: None,
        measure: single,
    }
}

pub fn plain(connections: usize, threads: usize) -> Job {
    Job::get(PLAIN, connections, threads)
}

pub fn single(run: &Run<'_>) -> io::Result<Figures> {
    let (mut rates, spent) = under_load(run)?;
    let rates = rates.pop().expect("one job has one result");
    let figures = per_request(&spent, rates.requests)
        .number("rate", rates.per_second)
        .number("p50", rates.p50)
        .number("p99", rates.p99)
        .number("longest", rates.longest);
    Ok(figures.problems(rates.problems))
}

pub fn pair(run: &Run<'_>) -> io::Result<Figures> {
    let (rates, spent) = under_load(run)?;
    let [plain, slow] = &rates[..] else { panic!("two jobs have two results") };
    let named = |what: &str, rates: &Rates| -> Vec<String> {
        rates.problems.iter().map(|problem| format!("{what}: {problem}")).collect()
    };
    let figures = per_request(&spent, plain.requests + slow.requests)
        .number("rate", plain.per_second)
        .number("p99", plain.p99)
        .number("longest", plain.longest)
        .number("slow rate", slow.per_second)
        .number("slow p99", slow.p99);
    Ok(figures.problems(named("plain", plain)).problems(named("slow", slow)))
}

pub fn under_load(run: &Run<'_>) -> io::Result<(Vec<Rates>, Spent)> {
    let jobs = (run.scenario.jobs)(run.slow);
    let server = Running::start(run.program)?;
    probe::check(run.scenario.who, server.address)?;
    observe_beside(server, run.beside, |server| {
        generator::run(server, run.tools, &jobs, run.seconds)
    })
}

/// What the server used, per request.
pub fn per_request(spent: &Spent, requests: u64) -> Figures {
    let requests = requests.max(1) as f64;
    Figures::default()
        .number("cpu", spent.cpu.total().as_secs_f64() * 1e6 / requests)
        .number("user", spent.cpu.user.as_secs_f64() * 1e6 / requests)
        .number("switches", spent.switches as f64 / requests)
        .number("threads", spent.size.threads as f64)
        .number("memory", spent.size.resident_kib as f64 / 1024.0)
        .number(OTHERS_KEY, spent.others)
}
