//! Tests of seats for tasks that cannot wait.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::share::seats_of;
use super::{Entered, SeatRequest, Seats};
use crate::budget::clients::{ClientConnection, Clients};
use crate::budget::permits::{NoWaiter, Permit, Permits};
use crate::execution::key::ExecutionKey;

const KEY: ExecutionKey = ExecutionKey::at(1);
const OTHER: ExecutionKey = ExecutionKey::at(2);

/// A request that may need a permit.
struct TestRequest(Option<Permits>, Permit);

impl SeatRequest for TestRequest {
    fn permits(&self) -> Option<&Permits> {
        self.0.as_ref()
    }

    fn hold(&mut self, permit: Permit) {
        self.1 = permit;
    }
}

fn seats(seats_max: usize) -> Seats<TestRequest> {
    Seats::new(seats_max, 100, Duration::from_secs(3600)).notifying(Weak::<NoWaiter>::new())
}

fn client() -> Arc<ClientConnection> {
    Arc::new(Clients::new(10)).admit([192, 0, 2, 1].into()).unwrap().unwrap()
}

#[test]
fn a_task_gets_what_a_request_of_its_route_would_get() {
    let seats = seats(10);
    assert_eq!((0..20).filter(|_| seats.try_enter(KEY, None)).count(), 9);
    assert!(matches!(seats.enter(KEY, TestRequest(None, Permit::default())), Entered::Waiting));
    let state = seats.state.lock();
    assert_eq!((state.taken, state.routes[&KEY].taken), (9, 9));
}

#[test]
fn a_task_does_not_overtake_requests_of_its_route() {
    let (seats, permits) = (seats(10), Permits::new("database", 1));
    let request = || TestRequest(Some(permits.clone()), Permit::default());
    let Entered::Seated(seated) = seats.enter(KEY, request()) else { panic!("a permit is free") };
    assert!(matches!(seats.enter(KEY, request()), Entered::Waiting));
    assert!(!seats.try_enter(KEY, None), "a request waits for its permit");
    assert!(seats.try_enter(OTHER, None));
    drop((seats.close(), seated));
}

#[test]
fn a_client_has_its_share_of_the_tasks_of_a_route() {
    let (seats, client) = (seats(90), client());
    let taken = (0..100).filter(|_| seats.try_enter(KEY, Some(&client))).count();
    assert_eq!((taken, seats_of(&client, KEY)), (60, 60), "two thirds");
    assert!(seats.try_enter(KEY, None), "others have the rest");
}

#[test]
fn a_route_without_seats_is_not_remembered() {
    let seats = seats(1);
    assert!(seats.try_enter(KEY, None));
    assert!(!seats.try_enter(OTHER, None));
    assert!(!seats.state.lock().routes.contains_key(&OTHER));
}

#[test]
fn a_route_that_has_lost_its_only_seat_to_another_one_is_not_remembered() {
    let seats = seats(10);
    assert!(seats.try_enter(KEY, None));
    assert!(seats.change((KEY, None), (OTHER, None)));
    assert_eq!(seats.state.lock().routes.keys().collect::<Vec<_>>(), [&OTHER]);
}

#[test]
fn nobody_is_short_of_seats_when_the_last_waiting_request_is_removed() {
    let seats = Seats::<u32>::new(1, 100, Duration::from_millis(1));
    assert!(matches!(seats.enter(KEY, 1), Entered::Seated(1)));
    assert!(matches!(seats.enter(KEY, 2), Entered::Waiting));
    assert!(seats.is_short());
    while seats.expired().late.is_empty() {
        std::thread::yield_now();
    }
    assert!(!seats.is_short());
}

#[test]
fn nobody_lacks_processor_time_when_the_last_waiting_request_is_removed() {
    let seats = Seats::<u32>::new(64, 100, Duration::from_millis(1)).on_processors(1);
    seats.presume_computing(KEY);
    while matches!(seats.enter(KEY, 1), Entered::Seated(_)) {}
    while seats.expired().late.is_empty() {
        std::thread::yield_now();
    }
    assert!(!seats.are_limited());
}
