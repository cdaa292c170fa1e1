//! Tests of the seats of routes that compute. The items are numbers.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::time::Duration;

use super::{Entered, Ready, SeatRequest, Seats};
use crate::budget::clients::{ClientConnection, Clients};
use crate::execution::key::ExecutionKey;

const COMPUTES: ExecutionKey = ExecutionKey::at(1);
const WAITS: ExecutionKey = ExecutionKey::at(2);

/// Two processors, on which eight threads may be ready to run.
fn seats() -> Seats<u32> {
    Seats::new(64, 100, Duration::from_secs(3600)).on_processors(2)
}

/// Asks for `count` seats. Returns how many there were.
fn enter(seats: &Seats<u32>, key: ExecutionKey, count: u32) -> usize {
    (0..count).filter(|item| matches!(seats.enter(key, *item), Entered::Seated(_))).count()
}

/// Starts the waiting requests that may have a seat. Returns how many there are.
fn start(seats: &Seats<u32>) -> usize {
    std::iter::from_fn(|| seats.next()).count()
}

fn ready(key: ExecutionKey, threads: usize, mostly_computes: bool) -> Ready {
    Ready { key, threads, mostly_computes }
}

#[test]
fn a_route_that_computes_waits_for_processor_time_and_is_in_nobodys_way() {
    let seats = seats();
    seats.presume_computing(COMPUTES);
    assert_eq!(enter(&seats, COMPUTES, 20), 8);
    assert!(seats.is_limited(COMPUTES) && !seats.is_limited(WAITS));
    assert!(!seats.is_short(), "threads of other routes are of no use to it");
    assert_eq!(enter(&seats, WAITS, 40), 40);
    assert_eq!(seats.computing(), Some(vec![COMPUTES]));
    let full = seats.why(COMPUTES, &0);
    assert!(full.lacks_processor && !seats.why(WAITS, &0).lacks_processor);
    assert!(
        full.to_string().ends_with(", its calls compute and keep the processors busy"),
        "{full}"
    );
    assert!(seats.try_enter(COMPUTES, None), "a task that cannot wait does not wait for that");
    assert!(seats.leave(COMPUTES, None).is_none(), "nine are too many");
    assert!(!seats.change((WAITS, None), (COMPUTES, None)), "others wait");
    assert_eq!(seats.leave(COMPUTES, None).map(|(key, _)| key), Some(COMPUTES));
    assert_eq!(start(&seats), 0);
}

#[test]
fn threads_that_were_seen_to_wait_make_room_for_others() {
    let seats = seats();
    seats.presume_computing(COMPUTES);
    assert_eq!(enter(&seats, COMPUTES, 60), 8);
    assert!(seats.note_ready(&[ready(COMPUTES, 5, false)]), "requests may start");
    assert_eq!(start(&seats), 3);
    assert_eq!(start(&seats), 0, "the new ones count until they are seen to wait");
    assert!(seats.note_ready(&[ready(COMPUTES, 8, false)]));
    assert_eq!(start(&seats), 0, "the processors are busy");
    assert!(seats.note_ready(&[ready(COMPUTES, 1, false)]));
    assert_eq!(start(&seats), 7 + 1, "an eighth of its threads more");
}

#[test]
fn a_route_is_limited_as_long_as_it_computes_or_its_requests_wait() {
    let seats = seats();
    assert_eq!(enter(&seats, COMPUTES, 6), 6, "nothing is known of it");
    assert!(!seats.note_ready(&[ready(COMPUTES, 4, false)]));
    assert_eq!(seats.computing(), Some(Vec::new()), "four of eight are no trouble");
    seats.note_ready(&[ready(COMPUTES, 5, false)]);
    assert_eq!(enter(&seats, COMPUTES, 20), 3);
    seats.note_ready(&[ready(COMPUTES, 1, false)]);
    assert_eq!(seats.computing(), Some(vec![COMPUTES]), "17 of its requests wait");
    assert_eq!(start(&seats), 7 + 1);
    seats.note_ready(&[ready(COMPUTES, 0, false)]);
    assert_eq!(start(&seats), 9, "the last ones");
    seats.note_ready(&[ready(COMPUTES, 0, false)]);
    assert_eq!(seats.computing(), Some(Vec::new()));
    seats.note_ready(&[ready(WAITS, 0, true)]);
    assert_eq!(seats.computing(), Some(vec![WAITS]), "it will compute when it is called again");
}

#[test]
fn routes_that_compute_share_the_processors() {
    let seats = seats();
    [COMPUTES, WAITS].iter().for_each(|key| seats.presume_computing(*key));
    assert_eq!(enter(&seats, COMPUTES, 20), 8);
    assert_eq!(enter(&seats, WAITS, 20), 2, "each may have two");
    // The requests that leave are replaced by those of both routes in turns.
    let mut next = 0;
    for _ in 0..8 {
        next += usize::from(seats.leave(COMPUTES, None).is_some());
        next += start(&seats);
    }
    assert_eq!((next, seats.state.lock().taken), (6, 8));
}

/// A request of a counted client.
struct OfClient(Arc<ClientConnection>);

impl SeatRequest for OfClient {
    fn client(&self) -> Option<&Arc<ClientConnection>> {
        Some(&self.0)
    }
}

#[test]
fn a_client_that_computes_has_its_share_and_is_in_nobodys_way() {
    let clients = Arc::new(Clients::new(10));
    let [one, other] = [1, 2].map(|number| clients.admit([192, 0, 2, number].into()));
    let (one, other) = (one.unwrap().unwrap(), other.unwrap().unwrap());
    let seats = Seats::new(64, 100, Duration::from_secs(3600)).on_processors(2);
    seats.presume_computing(COMPUTES);
    let enter = |client: &Arc<ClientConnection>, count| {
        let item = || OfClient(Arc::clone(client));
        (0..count).filter(|_| matches!(seats.enter(COMPUTES, item()), Entered::Seated(_))).count()
    };
    assert_eq!(enter(&one, 20), 6);
    assert!(seats.is_limited(COMPUTES) && !seats.is_short());
    assert_eq!(enter(&other, 20), 2, "it overtakes them");
    assert!(seats.note_ready(&[ready(COMPUTES, 5, false)]), "requests may start");
    assert_eq!(std::iter::from_fn(|| seats.next()).count(), 2, "one is left for a third client");
}

#[test]
fn a_route_that_waits_keeps_its_threads_beside_one_that_computes() {
    let seats = seats();
    seats.presume_computing(COMPUTES);
    assert_eq!((enter(&seats, COMPUTES, 20), enter(&seats, WAITS, 10)), (8, 10));
    // One of the ten threads of `WAITS` was ready to run when they were looked at.
    seats.note_ready(&[ready(COMPUTES, 8, true), ready(WAITS, 1, false)]);
    for _ in 0..50 {
        assert!(seats.leave(WAITS, None).is_none(), "the others lack processor time");
        assert_eq!(enter(&seats, WAITS, 1), 1);
    }
}

#[test]
fn only_routes_with_ready_threads_are_limited_while_the_processors_are_busy() {
    let seats = seats();
    seats.note_ready(&[ready(COMPUTES, 5, false), ready(WAITS, 0, false)]);
    assert_eq!(seats.computing(), Some(vec![COMPUTES]));
}

/// A request whose response has begun.
struct Begun;

impl SeatRequest for Begun {
    fn has_begun(&self) -> bool {
        true
    }
}

#[test]
fn a_response_that_has_begun_may_go_on_when_threads_are_seen_to_wait() {
    let seats = Seats::new(64, 100, Duration::from_secs(3600)).on_processors(1);
    seats.presume_computing(COMPUTES);
    while matches!(seats.enter(COMPUTES, Begun), Entered::Seated(_)) {}
    assert!(seats.note_ready(&[ready(COMPUTES, 0, false)]));
    assert!(seats.next().is_some());
}

#[test]
fn requests_are_not_limited_when_those_that_wait_lack_something_else() {
    let seats = seats();
    seats.presume_computing(COMPUTES);
    assert_eq!(enter(&seats, COMPUTES, 9), 8);
    while matches!(seats.enter(WAITS, 0), Entered::Seated(_)) {}
    assert!(seats.are_limited());
    // The request of the route that computes is not in the queue any more.
    seats.note_ready(&[ready(COMPUTES, 0, false)]);
    seats.force(COMPUTES, None);
    while seats.leave(COMPUTES, None).is_none_or(|(key, _)| key != COMPUTES) {}
    while seats.next().is_some() {}
    assert!(seats.waiting() > 0 && !seats.are_limited());
}

/// A request for which there is no memory.
struct Large;

impl SeatRequest for Large {
    fn charge(&mut self) -> bool {
        false
    }
}

#[test]
fn a_route_whose_only_request_has_no_memory_is_not_remembered() {
    let seats = Seats::new(1, 100, Duration::from_secs(3600));
    assert!(matches!(seats.enter(COMPUTES, Large), Entered::Seated(_)));
    assert!(matches!(seats.enter(WAITS, Large), Entered::Refused(..)));
    assert!(!seats.state.lock().routes.contains_key(&WAITS));
}
