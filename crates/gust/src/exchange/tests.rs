//! What an exchange writes, and what the input means.

use std::io::Write;

use super::*;
use crate::args;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";

/// Returns an exchange with requests that were started at these times and written.
fn pipeline(plan: &Plan, begun: &[Nanos], tally: &mut Tally) -> Exchange {
    let mut exchange = Exchange::new(plan);
    for &at in begun {
        exchange.begin(0, at, at, tally);
    }
    while exchange.has_unsent() {
        let length = exchange.unsent_bytes(plan, &mut Vec::new()).len();
        exchange.note_written(plan, length);
    }
    exchange
}

#[test]
fn a_restart_counts_the_requests_that_it_loses_except_in_the_warm_up() {
    let plan = args::plan(":1 -p 8").unwrap();
    let mut tally = Tally::new(100, false);
    let mut exchange = pipeline(&plan, &[98, 99, 100, 101, 102], &mut tally);
    assert_eq!((exchange.oldest_sent(), exchange.unanswered(100)), (Some(98), 3));
    let flow = exchange.receive(&plan, &mut RESPONSE.repeat(3), 200, &mut tally);
    assert_eq!((flow, exchange.answered, exchange.served), (Ok(Flow::Open), 3, 1));
    assert_eq!((exchange.in_flight(), exchange.oldest_sent()), (2, Some(101)));
    assert_eq!(exchange.restart(&tally), 2);
    assert_eq!((exchange.in_flight(), exchange.has_unsent()), (0, false));
    assert_eq!(exchange.restart(&tally), 0);
}

#[test]
fn the_next_connection_starts_with_a_complete_request() {
    let plan = args::plan(":1 -p 2").unwrap();
    let mut tally = Tally::new(0, false);
    let mut exchange = Exchange::new(&plan);
    exchange.begin(0, 1, 1, &mut tally);
    exchange.begin(0, 2, 2, &mut tally);
    let whole = exchange.unsent_bytes(&plan, &mut Vec::new()).to_vec();
    exchange.note_written(&plan, whole.len() / 2 + 3);
    // A part of a response is also kept.
    exchange.receive(&plan, &mut RESPONSE[..9].to_vec(), 3, &mut tally).unwrap();
    assert_eq!(exchange.restart(&tally), 2);
    exchange.begin(0, 4, 4, &mut tally);
    exchange.begin(0, 5, 5, &mut tally);
    assert_eq!(exchange.unsent_bytes(&plan, &mut Vec::new()), whole);
    assert_eq!(exchange.restore(&mut [0; 64]), 0);
}

/// The server did not wait for the request, so the rest of the request would be a new one.
#[test]
fn a_response_to_a_part_of_a_request_ends_the_connection_and_one_to_nothing_is_unsolicited() {
    let plan = args::plan(":1").unwrap();
    let mut tally = Tally::new(0, false);
    let mut exchange = Exchange::new(&plan);
    exchange.begin(0, 1, 1, &mut tally);
    let unsolicited = exchange.receive(&plan, &mut RESPONSE.to_vec(), 2, &mut tally);
    assert_eq!(unsolicited, Err(ErrorKind::Unsolicited));
    let mut exchange = Exchange::new(&plan);
    exchange.begin(0, 1, 1, &mut tally);
    exchange.note_written(&plan, 3);
    let early = exchange.receive(&plan, &mut RESPONSE.to_vec(), 2, &mut tally);
    assert_eq!((early, exchange.answered), (Ok(Flow::Closing), 1));
    assert!(!exchange.has_unsent(), "the rest is not sent");
}

/// Written in part, it must not be waited for until it fits.
#[test]
fn the_rest_of_a_long_request_is_sent_whatever_its_length() {
    let mut list = tempfile::NamedTempFile::new().unwrap();
    for length in [GATHERED_BYTES_MAX + 4000, 1] {
        writeln!(list, "1 GET /{}", "x".repeat(length)).unwrap();
    }
    let plan = args::plan(&format!(":1 -p 2 --urls {}", list.path().display())).unwrap();
    let mut tally = Tally::new(0, false);
    let mut exchange = Exchange::new(&plan);
    exchange.begin(0, 1, 1, &mut tally);
    exchange.begin(1, 1, 1, &mut tally);
    let [long, short] = [0, 1].map(|number| plan.requests.template(number).bytes.clone());
    let expected = [long, short].concat();
    let mut written = Vec::new();
    while exchange.has_unsent() {
        let mut gathered = Vec::new();
        let unsent = exchange.unsent_bytes(&plan, &mut gathered);
        let piece = &unsent[..unsent.len().min(5000)];
        assert!(!piece.is_empty());
        written.extend_from_slice(piece);
        let count = piece.len();
        exchange.note_written(&plan, count);
    }
    assert!(written == expected, "{} bytes of {}", written.len(), expected.len());
}

#[test]
fn an_echo_follows_what_was_written() {
    let plan = args::plan("tcp://:1 -l 5 --verify").unwrap();
    let mut tally = Tally::new(0, false);
    let mut exchange = Exchange::new(&plan);
    exchange.begin(0, 1, 1, &mut tally);
    exchange.note_written(&plan, 2);
    assert_eq!(exchange.receive(&plan, &mut b"01".to_vec(), 2, &mut tally), Ok(Flow::Open));
    let ahead = exchange.receive(&plan, &mut b"2".to_vec(), 2, &mut tally);
    assert_eq!(ahead, Err(ErrorKind::Unsolicited));
    // The next connection begins with a whole message and a whole echo.
    assert_eq!(exchange.restart(&tally), 1);
    exchange.begin(0, 3, 3, &mut tally);
    exchange.note_written(&plan, 5);
    assert_eq!(exchange.receive(&plan, &mut b"01234".to_vec(), 4, &mut tally), Ok(Flow::Open));
    assert_eq!((exchange.answered, exchange.in_flight()), (1, 0));
}

#[test]
fn a_response_is_compared_with_those_to_the_same_request() {
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), "1 GET /a\n1 GET /b\n").unwrap();
    let line = format!(":1 -p 3 --verify=status --urls {}", list.path().display());
    let plan = args::plan(&line).unwrap();
    let mut tally = Tally::new(0, false);
    let mut exchange = Exchange::new(&plan);
    for template in [0, 1, 1] {
        exchange.begin(template, 1, 1, &mut tally);
    }
    while exchange.has_unsent() {
        let length = exchange.unsent_bytes(&plan, &mut Vec::new()).len();
        exchange.note_written(&plan, length);
    }
    let other: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    for (response, mismatches) in [(RESPONSE, 0), (other, 0), (RESPONSE, 1)] {
        exchange.receive(&plan, &mut response.to_vec(), 2, &mut tally).unwrap();
        assert_eq!(tally.slice.errors.mismatch, mismatches);
    }
}
