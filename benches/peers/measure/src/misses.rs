//! A quick handler in which one call in 10, 100 or 1,000 waits, like a cache with misses.

use std::io;

use crate::job::Job;
use crate::probe::HITS;
use crate::report::{Column, Figures, Show};
use crate::scenario::{
    CPU, Group, LONGEST, MEMORY, OTHERS, P50, P99, RATE, Run, SWITCHES, Scenario, THREADS, USER,
    column, load, per_request, under_load,
};
use crate::who::Who;

pub const MISSES: Group = Group {
    name: "misses",
    asks: "One call in 10, 100 or 1,000 waits for 1, 5 or 20 ms, on 64 connections.",
    scenarios: ALL,
};

/// So few that the second load adds little to the first.
const HIT_CONNECTIONS: usize = 8;
const HITS_PER_SECOND: u64 = 1_000;

const COLUMNS: &[Column] = &[
    RATE,
    CPU,
    USER,
    SWITCHES,
    P50,
    P99,
    LONGEST,
    column("hit p50", "hit p50 ms", 2, Show::Median),
    column("hit p99", "hit p99 ms", 2, Show::Median),
    column("hit longest", "hit max ms", 1, Show::Median),
    THREADS,
    MEMORY,
    OTHERS,
];

/// Each pattern: its name, the calls per miss and the wait as a reader writes them, and its query.
macro_rules! misses {
    ($(($name:literal, $one_in:literal, $length:literal, $target:literal)),+ $(,)?) => {
        const ALL: &[Scenario] = &[
            $(Scenario {
                columns: COLUMNS,
                measure,
                ..load(
                    concat!("miss_", $name),
                    concat!(
                        "One call in ",
                        $one_in,
                        " waits for ",
                        $length,
                        ". 8 more connections only hit.",
                    ),
                    Who::Missing(concat!("/miss?", $target)),
                    jobs,
                )
            },)+
        ];
    };
}

misses![
    ("10_1ms", "10", "1 ms", "one_in=10&us=1000"),
    ("10_5ms", "10", "5 ms", "one_in=10&us=5000"),
    ("10_20ms", "10", "20 ms", "one_in=10&us=20000"),
    ("100_1ms", "100", "1 ms", "one_in=100&us=1000"),
    ("100_5ms", "100", "5 ms", "one_in=100&us=5000"),
    ("100_20ms", "100", "20 ms", "one_in=100&us=20000"),
    ("1000_1ms", "1,000", "1 ms", "one_in=1000&us=1000"),
    ("1000_5ms", "1,000", "5 ms", "one_in=1000&us=5000"),
    ("1000_20ms", "1,000", "20 ms", "one_in=1000&us=20000"),
];

fn jobs(target: &str) -> Vec<Job> {
    vec![Job::get(target, 64, 1), Job::get(HITS, HIT_CONNECTIONS, 1).rate(HITS_PER_SECOND)]
}

fn measure(run: &Run<'_>) -> io::Result<Figures> {
    let (rates, spent) = under_load(run)?;
    let [all, hits] = &rates[..] else { panic!("two jobs have two results") };
    let of_hits = hits.problems.iter().map(|problem| format!("hits: {problem}")).collect();
    let figures = per_request(&spent, all.requests + hits.requests)
        .number("rate", all.per_second)
        .number("p50", all.p50)
        .number("p99", all.p99)
        .number("longest", all.longest)
        .number("hit p50", hits.p50)
        .number("hit p99", hits.p99)
        .number("hit longest", hits.longest);
    Ok(figures.problems(all.problems.clone()).problems(of_hits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Generator;

    #[test]
    fn hits_are_asked_at_a_constant_rate_beside_all() {
        let scenario = ALL.iter().find(|scenario| scenario.name == "miss_100_5ms").unwrap();
        let jobs = scenario.printed_jobs();
        let lines = jobs.iter().map(|job| Generator::Wrk.command_line(job, 5)).collect::<Vec<_>>();
        assert_eq!(
            lines,
            [
                "wrk -t1 -c64 -d5s --latency /miss?one_in=100&us=5000",
                "gust -t1 -c8 -d5s -r1000 /miss?one_in=0"
            ]
        );
    }
}
