//! A made-up run, for the tests of the reports.

use std::collections::BTreeMap;

use crate::collector::Interval;
use crate::cpu::CpuTime;
use crate::histogram::{Histogram, Latency};
use crate::run::{Client, Connections, FORMAT, Load, Run, Timeline};
use crate::tally::{Errors, Handshakes};

/// Returns a run at a constant rate in which every kind of figure occurs.
pub(crate) fn run() -> Run {
    Run {
        format: FORMAT,
        target: "http://127.0.0.1:8080/plain?a=<b>&c".to_owned(),
        load: load(),
        seconds: 4.0,
        requests: 80_000,
        responses: 79_900,
        unanswered: 40,
        never_sent: 2,
        longest_wait: 3_000_000,
        errors: Errors { reset: 3, timeout: 55, status: 2, ..Errors::default() },
        statuses: BTreeMap::from([(200, 79_898), (503, 2)]),
        bytes_sent: 80_000 * 47,
        bytes_received: 79_900 * 130,
        connections: Connections {
            asked: 64,
            opened: 64,
            served: 63,
            never_served: 1,
            held: None,
            reopened: 5,
            least: 0,
            median: 1250,
            most: 1300,
        },
        latency: latency(1),
        uncorrected: Some(latency(2)),
        connect: latency(10),
        handshakes: Some(Handshakes { full: 16, resumed: 48 }),
        client: Client {
            cpu: CpuTime { user: 0.02, system: 0.3 },
            busiest: 0.42,
            kept_waiting: 0.01,
        },
        server: Some(CpuTime { user: 0.1, system: 0.4 }),
        timeline: timeline(),
    }
}

/// Returns a run of more than 3.5 s, with 2000 responses per second in each of its intervals.
pub(crate) fn steady(seconds: f64) -> Run {
    let mut run = Run { seconds, ..run() };
    run.timeline.intervals.iter_mut().for_each(|interval| interval.responses = 1000);
    if let Some(last) = run.timeline.intervals.last_mut() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small number"
        )]
        let responses = ((seconds - 3.5) * 2000.0).round() as u64;
        last.responses = responses;
    }
    run
}

fn load() -> Load {
    Load {
        protocol: "http".to_owned(),
        connections: 64,
        threads: 2,
        is_blocking: false,
        depth: 1,
        keep_alive: true,
        rate: Some(20_000.0),
        duration_seconds: Some(4.0),
        requests: None,
        warmup_seconds: 1.0,
        request_bytes: 47,
        opening_seconds: 0.0,
        holds: false,
    }
}

fn latency(divisor: u64) -> Latency {
    let mut histogram = Histogram::new();
    (1..=10_000).for_each(|index| histogram.record(100_000 + index * index / divisor));
    histogram.summary()
}

fn timeline() -> Timeline {
    Timeline {
        seconds_per_interval: 0.5,
        intervals: (0..8)
            .map(|index| Interval {
                responses: 10_000 - index * 1000 * (index % 2),
                errors: index % 3,
                p50: 400_000,
                p99: 900_000 + index * 100_000,
                max: 2_000_000,
            })
            .collect(),
    }
}
