//! Tests of the seats without the engine. The items are numbers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::rest::KEPT_FOR;
use super::{Entered, Full, SeatRequest, Seats, VITAL_SEATS};
use crate::budget::permits::{Permit, PermitWaiter, Permits};
use crate::budget::refusal::Refusal;
use crate::execution::key::ExecutionKey;

const LONG: Duration = Duration::from_secs(3600);

impl SeatRequest for i32 {}
impl SeatRequest for u32 {}
impl SeatRequest for usize {}

/// A request that needs a permit and keeps it while it has a seat.
#[derive(Debug)]
struct TestRequest(u32, Permits, Permit);

impl SeatRequest for TestRequest {
    fn permits(&self) -> Option<&Permits> {
        Some(&self.1)
    }

    fn hold(&mut self, permit: Permit) {
        self.2 = permit;
    }
}

fn request(number: u32, permits: &Permits) -> TestRequest {
    TestRequest(number, permits.clone(), Permit::default())
}

/// Seats, and the requests that got a seat because a permit became free.
struct TestServer {
    seats: Seats<TestRequest>,
    seated: Mutex<Vec<(ExecutionKey, TestRequest)>>,
}

impl TestServer {
    fn new(seats_max: usize, wait_max: Duration) -> Arc<Self> {
        Arc::new_cyclic(|server: &Weak<Self>| Self {
            seats: Seats::new(seats_max, 100, wait_max).notifying(Weak::<Self>::clone(server)),
            seated: Mutex::default(),
        })
    }

    /// Asks for a seat. Returns whether the request waits.
    fn enter(&self, key: ExecutionKey, request: TestRequest) -> bool {
        match self.seats.enter(key, request) {
            Entered::Seated(request) => self.seated.lock().push((key, request)),
            Entered::Waiting => return true,
            Entered::Replaced(_) | Entered::Refused(..) => panic!("there is room"),
        }
        false
    }

    fn seat_all(&self, mut next: Option<(ExecutionKey, TestRequest)>) {
        while let Some(seated) = next {
            self.seated.lock().push(seated);
            next = self.seats.next();
        }
    }

    /// Releases the permit of the first seated request, and then its seat. Returns its number.
    fn leave(&self) -> u32 {
        let (key, TestRequest(number, _, permit)) = self.seated.lock().remove(0);
        drop(permit);
        self.seat_all(self.seats.leave(key, None));
        number
    }

    fn seated(&self) -> Vec<u32> {
        self.seated.lock().iter().map(|(_, request)| request.0).collect()
    }
}

impl PermitWaiter for TestServer {
    fn permit_is_free(self: Arc<Self>) {
        self.seat_all(self.seats.next_locked());
    }
}

fn route(number: usize) -> ExecutionKey {
    ExecutionKey::at(number)
}

/// Asks for seats until there is none. Returns how many there were.
fn fill(seats: &Seats<u32>, key: ExecutionKey) -> usize {
    (0..).take_while(|_| matches!(seats.enter(key, 0), Entered::Seated(_))).count()
}

#[test]
fn no_route_has_all_seats_and_a_route_without_seats_finds_one() {
    let seats = Seats::new(512, 10_000, LONG);
    assert_eq!(seats.waiting(), 0, "none has come yet");
    assert_eq!(fill(&seats, route(1)), 456, "eight of nine");
    assert_eq!(fill(&seats, route(2)), 50, "eight of nine of the rest");
    for other in 3..8 {
        assert!(matches!(seats.enter(route(other), 1), Entered::Seated(1)), "{other}");
    }
}

/// Releases this many seats, and returns how many other requests got one.
fn leave(seats: &Seats<u32>, key: ExecutionKey, count: usize) -> usize {
    (0..count).filter(|_| seats.leave(key, None).is_some()).count()
}

/// Ends this many periods for which seats are kept.
fn end_periods(seats: &Seats<u32>, count: u64) {
    for _ in 0..count {
        let mut state = seats.state.lock();
        let ends = state.counts.rest.period_ends();
        assert!(state.counts.rest.renew(ends));
    }
}

#[test]
fn seats_that_others_had_a_moment_ago_are_kept_from_a_route_that_hangs() {
    let seats = Seats::new(64, 10_000, LONG);
    for _ in 0..30 {
        assert!(matches!(seats.enter(route(1), 0), Entered::Seated(0)));
    }
    for _ in 0..20 {
        assert!(matches!(seats.enter(route(2), 0), Entered::Seated(0)));
    }
    leave(&seats, route(2), 20);
    // All calls hang from now on. Beside the twenty seats, an eighth as many stay free.
    assert_eq!(30 + fill(&seats, route(1)), 42);
    assert_eq!(fill(&seats, route(2)), 20);
    leave(&seats, route(2), 20);
    assert_eq!(seats.waiting(), 1, "one of each route had no seat");
    end_periods(&seats, 1);
    assert!(seats.next().is_none(), "they are kept for one more period");
    end_periods(&seats, 1);
    assert_eq!(seats.next(), Some((route(1), 0)));
}

#[test]
fn half_of_the_seats_and_two_may_be_taken_whatever_others_had() {
    for (count, most) in [(1, 1), (2, 2), (3, 2), (4, 2), (64, 32)] {
        let seats = Seats::new(count, 10_000, LONG);
        for other in [1, 2] {
            (0..count).for_each(|_| seats.force(route(other), None));
        }
        leave(&seats, route(2), count);
        leave(&seats, route(1), count - 1);
        assert_eq!(1 + fill(&seats, route(1)), most, "{count}");
    }
}

#[test]
fn a_request_that_waits_for_kept_seats_gets_one_when_their_time_is_over() {
    let seats = Seats::new(4, 10_000, LONG);
    assert_eq!(fill(&seats, route(1)), 4);
    assert_eq!(leave(&seats, route(1), 2), 1);
    seats.force(route(2), None);
    assert_eq!(seats.leave(route(2), None), None);
    assert_eq!(fill(&seats, route(1)), 0, "three of four are taken");
    let expired = seats.expired();
    assert!(!expired.has_changed);
    assert!(expired.search_in.is_some_and(|time| time <= Duration::from_nanos(KEPT_FOR)));
    end_periods(&seats, 1);
    assert!(seats.next().is_none());
    end_periods(&seats, 1);
    assert_eq!(seats.next(), Some((route(1), 0)));
}

#[test]
fn a_look_at_the_queues_ends_the_time_of_kept_seats() {
    let seats = Seats::new(1, 10_000, LONG);
    assert_eq!(fill(&seats, route(1)), 1);
    let begun = Instant::now();
    while !seats.expired().has_changed {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(begun.elapsed() >= Duration::from_nanos(KEPT_FOR) - Duration::from_millis(100));
}

#[test]
fn a_seat_that_is_exchanged_is_kept_for_its_route() {
    let seats = Seats::new(4, 10_000, LONG);
    assert_eq!(fill(&seats, route(1)), 4);
    leave(&seats, route(1), 2);
    seats.force(route(2), None);
    assert!(!seats.change((route(2), None), (route(1), None)), "a request of that route waits");
    seats.close();
    assert!(!seats.change((route(2), None), (route(1), None)), "three are taken, and one is kept");
    assert_eq!(
        seats.state.lock().counts.rest.kept(),
        0,
        "a seat that is not exchanged is counted again"
    );
    end_periods(&seats, 2);
    assert!(seats.change((route(1), None), (route(3), None)));
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
    assert_eq!(seats.waiting(), 1, "the request that found no seat");
    for (key, item) in [(1, 10), (1, 11), (1, 12), (2, 20), (2, 21)] {
        assert!(matches!(seats.enter(route(key), item), Entered::Waiting));
    }
    let mut served = Vec::new();
    let mut next = seats.leave(route(0), None);
    while let Some((key, item)) = next {
        served.push(item);
        next = seats.leave(key, None);
    }
    assert_eq!(served, [0, 10, 20, 11, 21, 12]);
    assert_eq!(seats.waiting(), 0);
}

#[test]
fn a_request_behind_others_of_its_route_waits_even_if_a_seat_is_free() {
    let seats = Seats::new(1, 100, LONG);
    assert!(matches!(seats.enter(route(1), 1), Entered::Seated(1)));
    assert!(matches!(seats.enter(route(1), 2), Entered::Waiting));
    let (key, item) = seats.leave(route(1), None).unwrap();
    assert_eq!((key, item), (route(1), 2));
    assert!(seats.next().is_none());
}

#[test]
fn a_request_over_the_limit_is_returned_with_the_reason() {
    let seats = Seats::new(1, 2, LONG);
    for item in 1..=3 {
        assert!(!matches!(seats.enter(route(1), item), Entered::Refused(..)));
    }
    let Entered::Refused(4, full) = seats.enter(route(1), 4) else {
        panic!("there is room for two")
    };
    assert_eq!(
        full,
        Full {
            taken: 1,
            taken_in_all: 1,
            seats_max: 1,
            waiting: 2,
            client: None,
            wait: None,
            permits: None,
            lacks_processor: false,
            lacks_memory: false,
        }
    );
}

/// A request that counts how often it was charged, and is allowed to wait once.
#[derive(Debug)]
struct ChargedRequest(Arc<AtomicUsize>);

impl SeatRequest for ChargedRequest {
    fn charge(&mut self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }
}

#[test]
fn only_requests_that_wait_are_charged_and_without_memory_they_are_refused() {
    let (seats, charged) = (Seats::new(1, 100, LONG), Arc::new(AtomicUsize::new(0)));
    let enter = || seats.enter(route(1), ChargedRequest(Arc::clone(&charged)));
    assert!(matches!(enter(), Entered::Seated(_)));
    assert_eq!(charged.load(Ordering::Relaxed), 0);
    assert!(matches!(enter(), Entered::Waiting));
    let Entered::Refused(_, full) = enter() else { panic!("there is no memory for it") };
    assert_eq!((full.lacks_memory, full.refusal(), full.waiting), (true, Refusal::Memory, 1));
    assert_eq!((charged.load(Ordering::Relaxed), seats.waiting()), (2, 1));
    assert!(seats.leave(route(1), None).is_some(), "the one that waits is not lost");
}

#[test]
fn requests_that_wait_for_too_long_are_removed() {
    let seats = Seats::new(1, 100, Duration::from_millis(30));
    assert!(matches!(seats.enter(route(1), 1), Entered::Seated(1)));
    assert!(matches!(seats.enter(route(1), 2), Entered::Waiting));
    let expired = seats.expired();
    assert!(expired.late.is_empty() && !expired.has_changed);
    assert!(expired.search_in.is_some_and(|time| time <= Duration::from_millis(30)));
    let expired = std::iter::repeat_with(|| seats.expired()).find(|expired| expired.has_changed);
    assert_eq!(expired.unwrap().late, [2]);
    assert_eq!(seats.waiting(), 0);
    let expired = seats.expired();
    assert!(expired.late.is_empty() && !expired.has_changed && expired.search_in.is_none());
    assert!(seats.leave(route(1), None).is_none());
}

#[test]
fn a_seat_is_exchanged_if_the_other_route_may_take_one() {
    let seats = Seats::new(2, 100, LONG);
    assert!(matches!(seats.enter(route(1), 1), Entered::Seated(1)));
    assert!(seats.change((route(1), None), (route(2), None)));
    assert!(seats.change((route(2), None), (route(2), None)), "also for the same route");
    assert_eq!(fill(&seats, route(1)), 1);
    assert!(!seats.change((route(2), None), (route(1), None)), "a request of that route waits");
    seats.force(route(3), None);
    assert_eq!(seats.leave(route(2), None), None, "three of two seats were taken");
    assert_eq!(seats.leave(route(3), None), Some((route(1), 0)));
}

#[test]
fn closing_returns_waiting_requests_and_queues_no_more() {
    let seats = Seats::new(1, 100, LONG);
    assert_eq!(fill(&seats, route(1)), 1);
    assert!(matches!(seats.enter(route(2), 5), Entered::Waiting));
    let mut left = seats.close();
    left.sort_unstable();
    assert_eq!(left, [0, 5]);
    assert!(matches!(seats.enter(route(2), 6), Entered::Refused(6, _)));
    assert!(seats.leave(route(1), None).is_none());
    assert!(seats.state.lock().routes.values().all(|route| route.taken == 0));
}

/// Threads that come and go: each request runs once, and none is left.
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
                        Entered::Waiting => None,
                        Entered::Replaced(_) | Entered::Refused(..) => {
                            panic!("there is room for all")
                        }
                    };
                    while let Some((key, item)) = seated {
                        ran.fetch_add(item, Ordering::Relaxed);
                        seated = seats.leave(key, None);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(ran.load(Ordering::Relaxed), THREADS * REQUESTS);
    assert_eq!((seats.waiting(), seats.state.lock().taken), (0, 0));
}

#[test]
fn a_request_waits_for_a_permit_while_seats_are_free() {
    let (server, permits) = (TestServer::new(10, LONG), Permits::new("database", 2));
    let waits: Vec<bool> =
        (0..5).map(|number| server.enter(route(1), request(number, &permits))).collect();
    assert_eq!(waits, [false, false, true, true, true]);
    assert!(!server.seats.is_short(), "no request waits for a seat");
    assert!(!server.enter(route(2), request(9, &Permits::new("other", 1))));
    for number in [0, 1, 9, 2, 3, 4] {
        assert_eq!(server.leave(), number);
    }
    assert_eq!((server.seats.waiting(), permits.available()), (0, 2));
}

#[test]
fn routes_that_share_permits_get_them_in_turns() {
    let (server, permits) = (TestServer::new(10, LONG), Permits::new("database", 1));
    for (key, number) in [(1, 10), (1, 11), (1, 12), (2, 20), (2, 21)] {
        server.enter(route(key), request(number, &permits));
    }
    let served: Vec<u32> = (0..5).map(|_| server.leave()).collect();
    assert_eq!(served, [10, 11, 20, 12, 21]);
}

#[test]
fn servers_that_share_permits_get_them_in_turns() {
    let permits = Permits::new("database", 1);
    let (one, two) = (TestServer::new(10, LONG), TestServer::new(10, LONG));
    for number in 0..3 {
        one.enter(route(1), request(number, &permits));
        two.enter(route(1), request(number + 10, &permits));
    }
    let mut served = Vec::new();
    while permits.available() == 0 {
        served.push(if one.seated().is_empty() { two.leave() } else { one.leave() });
    }
    assert_eq!(served, [0, 10, 1, 11, 2, 12]);
}

#[test]
fn a_permit_that_no_seated_request_can_use_is_left_to_others() {
    let permits = Permits::new("database", 1);
    let (full, other) = (TestServer::new(1, LONG), TestServer::new(10, LONG));
    other.enter(route(1), request(0, &permits));
    assert!(full.enter(route(1), request(1, &permits)));
    full.seats.force(route(2), None);
    assert_eq!(other.leave(), 0);
    assert_eq!((full.seated().len(), permits.available()), (0, 1), "the server has no seat for it");
    assert!(full.seats.is_short());
    full.seat_all(full.seats.leave(route(2), None));
    assert_eq!((full.seated(), permits.available()), (vec![1], 0));
}

#[test]
fn a_request_that_waits_in_vain_for_a_permit_is_removed_without_one() {
    let (server, permits) =
        (TestServer::new(10, Duration::from_millis(30)), Permits::new("database", 1));
    server.enter(route(1), request(0, &permits));
    assert!(server.enter(route(1), request(1, &permits)));
    while server.seats.expired().late.is_empty() {
        thread::yield_now();
    }
    assert!(server.enter(route(2), request(2, &permits)));
    assert_eq!(server.seats.close().len(), 1);
    assert_eq!(server.leave(), 0);
    assert_eq!((server.seated().len(), permits.available()), (0, 1));
}

#[test]
fn a_route_without_permits_may_wait_although_others_held_them_all_for_long() {
    let (server, permits) =
        (TestServer::new(10, Duration::from_millis(20)), Permits::new("database", 1));
    server.enter(route(1), request(0, &permits));
    for number in 1..4 {
        assert!(server.enter(route(2), request(number, &permits)));
        while server.seats.expired().late.is_empty() {
            thread::yield_now();
        }
    }
    assert!(server.enter(route(2), request(4, &permits)));
    server.leave();
    assert_eq!(server.seated(), [4]);
}

#[test]
fn vital_requests_have_reserved_seats() {
    let seats = Seats::<u32>::new(1, 100, LONG);
    assert_eq!(fill(&seats, route(1)), 1);
    assert_eq!((0..100).take_while(|_| seats.enter_vital(None)).count(), VITAL_SEATS);
    seats.leave_vital(None);
    assert!(seats.enter_vital(None));
    assert_eq!(seats.leave(route(1), None), Some((route(1), 0)), "the other seats are unchanged");
}
