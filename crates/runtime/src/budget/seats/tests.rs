//! Seats without the engine: items are numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::{Entered, Full, Seats};
use crate::execution::key::ExecutionKey;

const LONG: Duration = Duration::from_secs(3600);

fn route(number: usize) -> ExecutionKey {
    ExecutionKey::at(number)
}

/// Asks for a seat until there is none. Returns how many there were.
fn fill(seats: &Seats<u32>, key: ExecutionKey) -> usize {
    (0..).take_while(|_| matches!(seats.enter(key, 0), Entered::Seated(_))).count()
}

#[test]
fn no_route_has_all_seats_and_whoever_has_none_finds_one() {
    let seats = Seats::new(512, 10_000, LONG);
    assert_eq!(fill(&seats, route(1)), 456, "eight of nine");
    assert_eq!(fill(&seats, route(2)), 50, "eight of nine of the rest");
    for other in 3..8 {
        assert!(matches!(seats.enter(route(other), 1), Entered::Seated(1)), "{other}");
    }
}

#[test]
fn a_few_seats_are_all_used() {
    for count in 1..9 {
        assert_eq!(fill(&Seats::new(count, 100, LONG), route(1)), count);
    }
    assert_eq!(fill(&Seats::new(10, 100, LONG), route(1)), 9);
}

#[test]
fn requests_of_a_route_are_served_in_order_and_routes_in_turns() {
    let seats = Seats::new(2, 100, LONG);
    assert_eq!(fill(&seats, route(0)), 2);
    assert_eq!(seats.waiting(), 1, "the one that found no seat");
    for (key, item) in [(1, 10), (1, 11), (1, 12), (2, 20), (2, 21)] {
        assert!(matches!(seats.enter(route(key), item), Entered::Waits));
    }
    let mut served = Vec::new();
    let mut next = seats.leave(route(0));
    while let Some((key, item)) = next {
        served.push(item);
        next = seats.leave(key);
    }
    assert_eq!(served, [0, 10, 20, 11, 21, 12]);
    assert_eq!(seats.waiting(), 0);
}

#[test]
fn who_comes_behind_others_of_the_route_waits_even_if_there_is_a_seat() {
    let seats = Seats::new(1, 100, LONG);
    assert!(matches!(seats.enter(route(1), 1), Entered::Seated(1)));
    assert!(matches!(seats.enter(route(1), 2), Entered::Waits));
    let (key, item) = seats.leave(route(1)).unwrap();
    assert_eq!((key, item), (route(1), 2));
    assert!(seats.next().is_none());
}

#[test]
fn a_request_too_many_is_given_back_with_the_reason() {
    let seats = Seats::new(1, 2, LONG);
    for item in 1..=3 {
        assert!(!matches!(seats.enter(route(1), item), Entered::Refused(..)));
    }
    let Entered::Refused(4, full) = seats.enter(route(1), 4) else { panic!("there is room for two") };
    assert_eq!(full, Full { taken: 1, taken_in_all: 1, seats_max: 1, waiting: 2, wait: None });
}

#[test]
fn what_waits_for_too_long_is_taken_out() {
    let seats = Seats::new(1, 100, Duration::from_millis(30));
    assert!(matches!(seats.enter(route(1), 1), Entered::Seated(1)));
    assert!(matches!(seats.enter(route(1), 2), Entered::Waits));
    let (expired, next) = seats.expired();
    assert!(expired.is_empty() && next.is_some_and(|next| next <= Duration::from_millis(30)));
    while seats.expired().0 != [2] {
        thread::yield_now();
    }
    assert_eq!(seats.waiting(), 0);
    assert_eq!(seats.expired(), (vec![], None));
    assert!(seats.leave(route(1)).is_none());
}

#[test]
fn a_seat_is_changed_for_one_of_another_route_if_that_has_one_to_spare() {
    let seats = Seats::new(2, 100, LONG);
    assert!(matches!(seats.enter(route(1), 1), Entered::Seated(1)));
    assert!(seats.change(route(1), route(2)));
    assert!(seats.change(route(2), route(2)), "also for its own");
    assert_eq!(fill(&seats, route(1)), 1);
    assert!(!seats.change(route(2), route(1)), "another one of that route waits");
    seats.force(route(3));
    assert_eq!(seats.leave(route(2)), None, "three of two seats were taken");
    assert_eq!(seats.leave(route(3)), Some((route(1), 0)));
}

#[test]
fn closed_it_gives_back_what_waits_and_lets_nothing_wait() {
    let seats = Seats::new(1, 100, LONG);
    assert_eq!(fill(&seats, route(1)), 1);
    assert!(matches!(seats.enter(route(2), 5), Entered::Waits));
    let mut left = seats.close();
    left.sort_unstable();
    assert_eq!(left, [0, 5]);
    assert!(matches!(seats.enter(route(2), 6), Entered::Refused(6, _)));
    assert!(seats.leave(route(1)).is_none());
    assert!(seats.state.lock().lines.values().all(|line| line.taken == 0));
}

/// Threads that come and go: each request is run once, and none is left.
#[test]
fn under_load_every_request_is_run_once() {
    const THREADS: usize = 8;
    const REQUESTS: usize = 20_000;
    let seats = Arc::new(Seats::new(3, REQUESTS * THREADS, LONG));
    let ran = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (seats, ran) = (Arc::clone(&seats), Arc::clone(&ran));
            thread::spawn(move || {
                for request in 0..REQUESTS {
                    let key = route((number + request) % 3);
                    let mut seated = match seats.enter(key, 1) {
                        Entered::Seated(item) => Some((key, item)),
                        Entered::Waits => None,
                        Entered::Refused(..) => panic!("there is room for all"),
                    };
                    while let Some((key, item)) = seated {
                        ran.fetch_add(item, Ordering::Relaxed);
                        seated = seats.leave(key);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(ran.load(Ordering::Relaxed), THREADS * REQUESTS);
    assert_eq!((seats.waiting(), seats.state.lock().taken), (0, 0));
}
