//! The scenarios: the question of each, the servers that it is for, and its figures.

use std::io;

use crate::backends::Backend;
use crate::build::Program;
use crate::clients::Question;
use crate::generator::{self, Form, Job, PIPELINE_DEPTH, Rates, Spent, Tools};
use crate::real::{self, Call};
use crate::report::{Column, Figures, Show};
use crate::running::Running;
use crate::server::{
    ACTIX, BACKENDS_ACTIX, Blocking, ECHO_REFERENCE, Family, Lack, MAY, REFERENCE, ROUTES, Server,
};
use crate::{counts, echo, fair, idle, misses, probe, size, startup, waits};

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

/// Which servers a scenario is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Everyone,
    /// Those that do not have this lack.
    Able(Lack),
    /// Those that callgrind can run.
    Rust,
    /// The reference, which answers everything, and the server with captures.
    Capturing,
    /// Those that can run blocking handlers, marked and unmarked.
    Sleeping,
    /// The same servers, only in the way that their authors recommend.
    SleepingMarked,
    /// The same servers, with handlers that compute.
    Working,
    /// Those that can wait for less than a millisecond, as their authors recommend, at this target.
    Waiting(&'static str),
    /// Those with a handler that is quick except for some calls, at this target.
    Missing(&'static str),
    /// Those whose handlers make this call.
    Calling(&'static Call),
    /// Echo servers.
    Echoing,
    /// Echo servers that can use two threads.
    EchoingOnTwo,
}

impl Who {
    fn family(self) -> Family {
        match self {
            Self::Waiting(_) => Family::Waits,
            Self::Missing(_) => Family::Misses,
            Self::Calling(_) => Family::Calls,
            Self::Echoing | Self::EchoingOnTwo => Family::Echo,
            _ => Family::Standard,
        }
    }

    /// The slow target, for a server that has no separate target for marked handlers.
    fn slow(self) -> &'static str {
        match self {
            Self::Waiting(target) | Self::Missing(target) => target,
            Self::Calling(call) => call.target,
            Self::Working => WORK,
            _ => SLEEP,
        }
    }

    /// The backend that the scenario needs.
    pub fn backend(self) -> Option<Backend> {
        match self {
            Self::Calling(call) => Some(call.backend),
            _ => None,
        }
    }
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

const PLAIN: &str = "/plaintext";
const CAPTURES: &str = "/users/17/posts/42";
const MARKED: &str = " (marked)";
const SLEEP: &str = "/sleep?ms=10";
const UNMARKED_SLEEP: &str = "/sleep_unmarked?ms=10";
const WORK: &str = "/cpu?ms=20";

pub const fn column(key: &'static str, title: &'static str, digits: usize, show: Show) -> Column {
    Column { key, title, digits, show }
}

/// The figure that shows whether a round was disturbed.
pub const OTHERS_KEY: &str = "others";

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

/// All groups. The first one is measured by default.
pub const GROUPS: &[Group] = &[
    Group { name: "standard", asks: "What is measured without --scenarios.", scenarios: STANDARD },
    waits::WAITS,
    waits::MIXED,
    misses::MISSES,
    real::REAL,
    CROWDS,
];

const CROWDS: Group = Group {
    name: "crowds",
    asks: "Many more clients than threads, whose handlers block for 10 ms. Is anyone refused?",
    scenarios: &[
        load("crowd2000", "2,000 clients whose handlers block for 10 ms.", Who::Sleeping, |slow| {
            vec![Job::get(slow, 2_000, 2)]
        }),
        load(
            "crowd10000",
            "10,000 clients whose handlers block for 10 ms.",
            Who::Sleeping,
            |slow| vec![Job::get(slow, 10_000, 2)],
        ),
    ],
};

/// Every scenario.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    GROUPS.iter().flat_map(|group| group.scenarios)
}

/// The standard scenarios, in the order of the report.
pub const STANDARD: &[Scenario] = &[
    Scenario {
        chart: Some("Plain text on 64 connections"),
        ..load("plain64", "What does a small request cost?", Who::Everyone, |_| vec![plain(64, 2)])
    },
    load("plain400", "The same with more connections than a wait names.", Who::Everyone, |_| {
        vec![plain(400, 2)]
    }),
    load("classic", "The load that old comparisons use.", Who::Everyone, |_| vec![plain(400, 10)]),
    load("captures", "What do two captures of the path cost?", Who::Capturing, |_| {
        vec![Job::get(CAPTURES, 64, 2)]
    }),
    load(
        "pipelined",
        "What is left when system calls are shared by 16 requests?",
        Who::Everyone,
        |_| vec![plain(64, 2).sending(Form::Pipelined(PIPELINE_DEPTH))],
    ),
    load(
        "json",
        "What does a message cost that is serialized for each request?",
        Who::Able(Lack::Json),
        |_| vec![Job::get("/json", 64, 2)],
    ),
    load("close", "What does a connection cost?", Who::Able(Lack::Closing), |_| {
        vec![plain(64, 2).sending(Form::Closing)]
    }),
    load("post64k", "What does a body cost?", Who::Able(Lack::Bodies), |_| {
        vec![Job::get("/length", 64, 2).sending(Form::Body)]
    }),
    Scenario {
        chart: Some("Handlers that block for 10 ms, on 400 connections"),
        ..load(
            "sleep",
            "Handlers that block for 10 ms; 40,000/s is the limit.",
            Who::Sleeping,
            |slow| vec![Job::get(slow, 400, 2)],
        )
    },
    Scenario {
        name: "mixed",
        asks: "Do blocking handlers disturb the others? 20,000 slow/s is the limit.",
        who: Who::Sleeping,
        repeats: true,
        columns: PAIR_COLUMNS,
        jobs: |slow| vec![plain(64, 1), Job::get(slow, 200, 1)],
        chart: Some("Plain text on 64 connections, beside 200 whose handlers block for 10 ms"),
        measure: pair,
    },
    Scenario {
        name: "cpu",
        asks: "Do handlers that compute for 20 ms disturb the others?",
        who: Who::Working,
        repeats: true,
        columns: PAIR_COLUMNS,
        jobs: |slow| vec![plain(64, 1), Job::get(slow, 4, 1)],
        chart: None,
        measure: pair,
    },
    Scenario {
        name: "fair_plain",
        asks: "Does every one of 400 connections get its share?",
        who: Who::Everyone,
        repeats: true,
        columns: fair::COLUMNS,
        jobs: |_| Vec::new(),
        chart: None,
        measure: |run| fair::measure(run, &plain(400, 2)),
    },
    Scenario {
        name: "fair_sleep",
        asks: "Does it, when handlers block for 10 ms?",
        who: Who::SleepingMarked,
        repeats: true,
        columns: fair::COLUMNS,
        jobs: |_| Vec::new(),
        chart: None,
        measure: |run| fair::measure(run, &Job::get(run.slow, 400, 2)),
    },
    Scenario {
        name: "idle",
        asks: "What do 10,000 kept connections cost that say nothing?",
        who: Who::Everyone,
        repeats: false,
        columns: idle::COLUMNS,
        jobs: |_| Vec::new(),
        chart: None,
        measure: idle::measure,
    },
    Scenario {
        name: "syscalls",
        asks: "Which system calls does a request need? (64 connections)",
        who: Who::Everyone,
        repeats: false,
        columns: counts::SYSCALL_COLUMNS,
        jobs: |_| Vec::new(),
        chart: None,
        measure: |run| counts::syscalls(run, Question::Get(PLAIN), counts::CONNECTIONS),
    },
    Scenario {
        name: "instructions",
        asks: "How many instructions outside of the kernel does a request need? (64 connections)",
        who: Who::Rust,
        repeats: false,
        columns: counts::INSTRUCTION_COLUMNS,
        jobs: |_| Vec::new(),
        chart: None,
        measure: |run| counts::instructions(run, PLAIN),
    },
    Scenario {
        name: "instructions_captures",
        asks: "The same for a path with two captures.",
        who: Who::Capturing,
        repeats: false,
        columns: counts::INSTRUCTION_COLUMNS,
        jobs: |_| Vec::new(),
        chart: None,
        measure: |run| counts::instructions(run, CAPTURES),
    },
    Scenario {
        name: "startup",
        asks: "How long from the start of the process to its first answer?",
        who: Who::Everyone,
        repeats: false,
        columns: startup::COLUMNS,
        jobs: |_| Vec::new(),
        chart: None,
        measure: startup::measure,
    },
    Scenario {
        name: "size",
        asks: "How large is the binary, and of how many crates is it made?",
        who: Who::Everyone,
        repeats: false,
        columns: size::COLUMNS,
        jobs: |_| Vec::new(),
        chart: None,
        measure: size::measure,
    },
    echo::SMALL,
    echo::SINGLE,
    echo::LARGE,
    echo::SHORT,
    echo::SYSCALLS,
    echo::IDLE,
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
    generator::observe_beside(server, run.beside, |server| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Speech;

    #[test]
    fn echo_scenarios_ask_echo_servers_and_the_others_those_that_speak_http() {
        for scenario in all() {
            for server in Server::all() {
                let is_echo = server.speech == Speech::Echo;
                let asked = !scenario.entrants(&server).is_empty();
                let fits = scenario.name.starts_with("echo") == is_echo;
                assert!(fits || !asked, "{} asks {}", scenario.name, server.name);
            }
        }
    }

    #[test]
    fn a_word_is_the_name_of_one_scenario_or_group() {
        let mut names: Vec<_> = all().map(|scenario| scenario.name).collect();
        names.extend(GROUPS.iter().map(|group| group.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_reference_is_in_its_table() {
        for scenario in all() {
            let reference = scenario.reference();
            let mut entrants =
                Server::all().into_iter().flat_map(|server| scenario.entrants(&server));
            assert!(entrants.any(|entrant| entrant.label == reference), "{}", scenario.name);
        }
    }

    #[test]
    fn what_serves_on_one_thread_is_not_asked_beside_those_with_two() {
        let libuv = Server::named("echo_libuv").unwrap();
        assert!(echo::SMALL.entrants(&libuv).is_empty());
        assert_eq!(echo::SINGLE.entrants(&libuv)[0].label, "echo_libuv");
    }
}
