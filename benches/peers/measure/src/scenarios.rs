//! All scenarios, and their groups.

use crate::clients::Question;
use crate::job::{Form, Job, PIPELINE_DEPTH};
use crate::scenario::{Group, PAIR_COLUMNS, PLAIN, Scenario, load, pair, plain};
use crate::server::Lack;
use crate::who::Who;
use crate::{counts, echo, fair, idle, misses, real, size, startup, waits};

const CAPTURES: &str = "/users/17/posts/42";

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Server, Speech};

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
