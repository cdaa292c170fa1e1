//! Handlers that wait for 50 µs to 100 ms, alone and together with plain ones. Most calls of real
//! programs to a cache or a database take less than a millisecond.

use crate::job::Job;
use crate::scenario::{Group, PAIR_COLUMNS, Scenario, load, pair, plain};
use crate::who::Who;

pub const WAITS: Group = Group {
    name: "waits",
    asks: "Handlers that wait for each of nine times, on 64 and on 400 connections.",
    scenarios: ALONE,
};

pub const MIXED: Group = Group {
    name: "mixed_waits",
    asks: "64 plain connections beside 64 whose handlers wait for each of these times.",
    scenarios: BESIDE_PLAIN,
};

/// Each wait: its name, how a reader writes it, and its microseconds.
macro_rules! waits {
    ($(($name:literal, $length:literal, $us:literal)),+ $(,)?) => {
        const ALONE: &[Scenario] = &[
            $(load(
                concat!("wait64_", $name),
                concat!("Handlers that wait for ", $length, ", on 64 connections."),
                Who::Waiting(concat!("/sleep?us=", $us)),
                |slow| vec![Job::get(slow, 64, 1)],
            ),)+
            $(load(
                concat!("wait400_", $name),
                concat!("Handlers that wait for ", $length, ", on 400 connections."),
                Who::Waiting(concat!("/sleep?us=", $us)),
                |slow| vec![Job::get(slow, 400, 1)],
            ),)+
        ];

        const BESIDE_PLAIN: &[Scenario] = &[
            $(Scenario {
                columns: PAIR_COLUMNS,
                measure: pair,
                ..load(
                    concat!("mixed_", $name),
                    concat!("Do 64 handlers that wait for ", $length, " disturb the others?"),
                    Who::Waiting(concat!("/sleep?us=", $us)),
                    |slow| vec![plain(64, 1), Job::get(slow, 64, 1)],
                )
            },)+
        ];
    };
}

waits![
    ("50us", "50 µs", 50),
    ("100us", "100 µs", 100),
    ("300us", "300 µs", 300),
    ("1ms", "1 ms", 1_000),
    ("2ms", "2 ms", 2_000),
    ("5ms", "5 ms", 5_000),
    ("10ms", "10 ms", 10_000),
    ("20ms", "20 ms", 20_000),
    ("100ms", "100 ms", 100_000),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;

    #[test]
    fn a_wait_is_told_in_microseconds() {
        let scenario = ALONE.iter().find(|scenario| scenario.name == "wait400_1ms").unwrap();
        let [job] = &scenario.printed_jobs()[..] else { panic!("it is one load") };
        assert_eq!((job.target.as_str(), job.connections, job.threads), ("/sleep?us=1000", 400, 1));
    }

    #[test]
    fn only_servers_with_fine_timers_and_without_a_thread_a_connection_are_asked() {
        let labels: Vec<String> = Server::all()
            .iter()
            .flat_map(|server| ALONE[0].entrants(server))
            .map(|entrant| entrant.label)
            .collect();
        assert_eq!(
            labels.join(", "),
            "ours, framework, may_server (marked), hyper_server (marked), axum_server (marked), \
             actix_server (marked), ntex_server (marked), feather_server (marked), go_net_http, \
             go_fasthttp"
        );
    }
}
