//! The Nth read, write or shutdown of a connection fails, for every N.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::{
    ALL, CONTINUED, CONTINUED_BEHIND, Call, Exchange, Fault, Over, Plan, REFUSED, eventually,
    expected,
};

/// More calls of a kind than any exchange has.
const CALLS_MAX: u64 = 300;

/// Faults that a peer must not notice.
const INVISIBLE: [Fault; 3] =
    [Fault::Error(Errno::INTR), Fault::Error(Errno::AGAIN), Fault::OneByte];

/// Faults that end a connection.
const FATAL: [Fault; 4] = [
    Fault::Error(Errno::CONNRESET),
    Fault::Error(Errno::PIPE),
    Fault::Error(Errno::NOTCONN),
    Fault::Error(Errno::TIMEDOUT),
];

/// Checks the exchange with a fault at the Nth call, for every N up to the number of calls.
fn check_each(name: &str, exchange: Exchange, over: Over, call: Call, fault: Fault) {
    check_rows(name, exchange, over, call, fault, 1);
}

/// Checks the exchange with `times` faults in a row from the Nth call, for every N.
fn check_rows(name: &str, exchange: Exchange, over: Over, call: Call, fault: Fault, times: u64) {
    let is_invisible = INVISIBLE.contains(&fault);
    let expected = expected(exchange);
    let mut first = 1;
    loop {
        assert!(first < CALLS_MAX, "{name} has no end");
        let plan = Arc::new(Plan::new(call, first, times, fault));
        let running = exchange.server(&plan, over);
        let what =
            format!("{name} over {over:?}, {call:?} number {first}, {times} times: {fault:?}");
        let (text, ended) = exchange.run(&running);
        if plan.struck() == 0 {
            // No call has failed, so nothing may be missing, and there are no further calls to
            // fail.
            assert_eq!(
                (text.len(), ended.is_ok()),
                (expected.len(), true),
                "{what}, which did not strike"
            );
            running.end();
            break;
        }
        if is_invisible {
            assert!(ended.is_ok(), "{what}: {ended:?}");
            assert!(
                text == expected,
                "{what}: {} bytes of {}: {text:.300}",
                text.len(),
                expected.len()
            );
        } else {
            let timed_out =
                ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            assert!(!timed_out, "{what}: the connection stays open");
            // The end may be missing, but the rest is correct. A handler that reads its content
            // reports the error.
            let is_read_by_handler =
                exchange.pieces.iter().any(|piece| piece.contains("POST /streamed"));
            let told = text.split_once("HTTP/1.1 400 ").filter(|_| is_read_by_handler);
            let right = told.map_or(&*text, |(before, _)| before);
            assert!(expected.starts_with(right), "{what}: {text:.300}");
        }
        // The next client is served in any case.
        let (text, ended) = exchange.run(&running);
        assert!(
            ended.is_ok() && text == expected,
            "{what}: the next client has {} bytes, {ended:?}",
            text.len()
        );
        let server = &running.server;
        eventually(&format!("{what}: no connection is left"), || {
            server.metrics().is_some_and(|metrics| metrics.connections == 0)
        });
        let metrics = server.metrics().unwrap();
        assert_eq!((metrics.panics, metrics.leased, metrics.pool.panics), (0, 0, 0), "{what}");
        running.end();
        first += 1;
    }
    assert!(first > 1, "{name} has no {call:?}");
}

/// Checks each exchange with each of these faults.
fn check_all(over: Over, call: Call, faults: &[Fault]) {
    for (name, exchange) in ALL {
        for fault in faults {
            check_each(name, exchange, over, call, *fault);
        }
    }
}

#[test]
fn an_interrupted_read_is_not_noticed() {
    check_all(Over::Tcp, Call::Read, &INVISIBLE);
}

#[test]
fn an_interrupted_write_is_not_noticed() {
    check_all(Over::Tcp, Call::Write, &INVISIBLE);
}

#[test]
fn a_read_that_fails_ends_its_connection_and_nothing_else() {
    check_all(Over::Tcp, Call::Read, &FATAL);
}

#[test]
fn a_write_that_fails_ends_its_connection_and_nothing_else() {
    check_all(Over::Tcp, Call::Write, &FATAL);
}

#[test]
fn an_interrupted_read_of_a_unix_socket_is_not_noticed() {
    check_all(Over::Unix, Call::Read, &INVISIBLE);
}

#[test]
fn an_interrupted_write_to_a_unix_socket_is_not_noticed() {
    check_all(Over::Unix, Call::Write, &INVISIBLE);
}

#[test]
fn a_read_of_a_unix_socket_that_fails_ends_its_connection_and_nothing_else() {
    check_all(Over::Unix, Call::Read, &FATAL);
}

#[test]
fn a_write_to_a_unix_socket_that_fails_ends_its_connection_and_nothing_else() {
    check_all(Over::Unix, Call::Write, &FATAL);
}

#[test]
fn an_interim_response_is_complete_and_in_order_however_often_its_write_fails() {
    let exchanges = [("continued", CONTINUED), ("continued behind another", CONTINUED_BEHIND)];
    for (name, exchange) in exchanges {
        for fault in INVISIBLE {
            for times in 2..10 {
                check_rows(name, exchange, Over::Tcp, Call::Write, fault, times);
            }
        }
    }
}

#[test]
fn a_failed_shutdown_of_a_direction_is_harmless() {
    for fault in FATAL {
        for over in [Over::Tcp, Over::Unix] {
            check_each("refused", REFUSED, over, Call::Shutdown, fault);
        }
    }
}

#[test]
fn one_byte_at_a_time_gives_the_same_responses() {
    for (name, exchange) in ALL {
        let expected = expected(exchange);
        // Long exchanges would take too long.
        if exchange.filling + expected.len() > 10_000 {
            continue;
        }
        let both = [
            (Over::Tcp, Call::Read),
            (Over::Tcp, Call::Write),
            (Over::Unix, Call::Read),
            (Over::Unix, Call::Write),
        ];
        for (over, call) in both {
            let plan = Arc::new(Plan::new(call, 1, u64::MAX, Fault::OneByte));
            let running = exchange.server(&plan, over);
            let (text, ended) = exchange.run(&running);
            assert!(
                ended.is_ok() && text == expected,
                "{name}, {over:?}, {call:?}: {text:?}, {ended:?}"
            );
            assert!(plan.struck() > 1, "{name}, {over:?}, {call:?}");
            running.end();
        }
    }
}
