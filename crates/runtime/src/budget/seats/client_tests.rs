//! Tests of the seats with counted clients.

use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::share::seats_of;
use super::{Entered, Full, SeatRequest, Seats, VITAL_SEATS};
use crate::budget::clients::{ClientConnection, Clients};
use crate::budget::permits::{Permit, PermitWaiter, Permits};
use crate::execution::key::ExecutionKey;

const LONG: Duration = Duration::from_secs(3600);

/// A request of a client.
#[derive(Debug)]
struct TestRequest {
    number: u32,
    client: Option<Arc<ClientConnection>>,
    has_begun: bool,
    permits: Option<Permits>,
    permit: Permit,
}

thread_local! {
    /// How many times this thread asked for the client of a request.
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

impl SeatRequest for TestRequest {
    fn client(&self) -> Option<&Arc<ClientConnection>> {
        LOOKS.set(LOOKS.get() + 1);
        self.client.as_ref()
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn permits(&self) -> Option<&Permits> {
        self.permits.as_ref()
    }

    fn hold(&mut self, permit: Permit) {
        self.permit = permit;
        self.permits = None;
    }
}

/// Seats, and the clients `a`, `b` and `c`. The client `-` is not counted.
struct TestSeats {
    seats: Seats<TestRequest>,
    clients: Vec<Arc<ClientConnection>>,
}

impl TestSeats {
    fn new(seats_max: usize, waiting_max: usize, wait_max: Duration) -> Self {
        let clients = Arc::new(Clients::new(10));
        let clients = (1..4).filter_map(|number| clients.admit([192, 0, 2, number].into()).ok()?);
        let clients = clients.collect();
        Self { seats: Seats::new(seats_max, waiting_max, wait_max), clients }
    }

    fn client(&self, letter: char) -> Option<&Arc<ClientConnection>> {
        "abc".find(letter).map(|index| &self.clients[index])
    }

    fn request(&self, client: char, number: u32) -> TestRequest {
        let client = self.client(client).cloned();
        TestRequest { number, client, has_begun: false, permits: None, permit: Permit::default() }
    }

    /// Asks for a seat for one request of each of these clients, which are numbered from 1. Returns
    /// what became of each: `+` has a seat, `.` waits, a number is refused instead of it, `!` is
    /// refused.
    fn enter(&self, key: ExecutionKey, clients: &str) -> String {
        let mut entered = String::new();
        for (client, number) in clients.chars().zip(1..) {
            entered += &match self.seats.enter(key, self.request(client, number)) {
                Entered::Seated(_) => "+".to_owned(),
                Entered::Waiting => ".".to_owned(),
                Entered::Replaced(other) => other.number.to_string(),
                Entered::Refused(..) => "!".to_owned(),
            };
        }
        entered
    }

    /// Asks for seats until there is none. Returns how many there were.
    fn fill(&self, key: ExecutionKey, client: char) -> usize {
        (0..1000)
            .take_while(|number| {
                let request = self.request(client, *number);
                matches!(self.seats.enter(key, request), Entered::Seated(_))
            })
            .count()
    }

    /// Releases a seat. Returns the number of the request that got it.
    fn leave(&self, key: ExecutionKey, client: char) -> Option<u32> {
        self.seats.leave(key, self.client(client)).map(|(_, request)| request.number)
    }

    /// Releases one seat after the other, beginning with that of `client`. Returns the order of the
    /// requests that got one.
    fn served(&self, key: ExecutionKey, client: char) -> Vec<u32> {
        let mut served = Vec::new();
        let mut next = self.seats.leave(key, self.client(client));
        while let Some((key, request)) = next {
            served.push(request.number);
            next = self.seats.leave(key, request.client.as_ref());
        }
        served
    }
}

fn route(number: usize) -> ExecutionKey {
    ExecutionKey::at(number)
}

#[test]
fn one_client_has_two_thirds_of_the_seats_and_leaves_the_rest_to_others() {
    let test = TestSeats::new(512, 10_000, LONG);
    assert_eq!(test.fill(route(1), 'a'), 342);
    assert_eq!(test.fill(route(1), 'b'), 114, "two thirds of the rest");
    assert_eq!(test.fill(route(2), '-'), 50, "the share of a route is as before");
}

#[test]
fn a_client_that_hangs_in_one_route_has_seats_for_another() {
    let test = TestSeats::new(512, 10_000, LONG);
    assert_eq!(test.fill(route(1), 'a'), 342);
    assert_eq!([2, 3, 4, 5].map(|other| test.enter(route(other), "ab")), ["++"; 4]);
}

#[test]
fn one_client_leaves_a_ninth_of_the_seats_however_many_routes_it_hangs_in() {
    let test = TestSeats::new(512, 10_000, LONG);
    let taken: Vec<_> = (1..=20).map(|number| test.fill(route(number), 'a')).collect();
    assert_eq!((taken[0], taken.iter().sum::<usize>()), (342, 456), "{taken:?}");
    assert_eq!(test.enter(route(21), "ab"), ".+");
    assert_eq!(test.leave(route(1), 'a'), None, "the seat that it returns is one of the others'");
    assert_eq!(test.fill(route(22), 'b'), 38, "two thirds of the rest");
}

#[test]
fn one_ipv6_network_leaves_a_ninth_of_the_seats_however_many_clients_it_is() {
    let mut test = TestSeats::new(512, 10_000, LONG);
    let clients = Arc::new(Clients::new(10));
    let mut admit = |address: String| {
        test.clients[0] = clients.admit(address.parse().unwrap()).unwrap().unwrap();
        (1..=3).map(|number| test.fill(route(number), 'a')).sum::<usize>()
    };
    let taken: Vec<_> = (0..10).map(|subnet| admit(format!("2001:db8:0:{subnet}::1"))).collect();
    assert_eq!((taken[0], taken.iter().sum::<usize>()), (456, 456), "{taken:?}");
    assert_eq!(admit("2001:db8:1::1".to_owned()), 50, "another network has eight of nine");
    assert_eq!(test.enter(route(4), "b"), "+");
}

/// Without this, a network with 10,000 requests in a queue took the lock of the seats for
/// milliseconds with each request of others.
#[test]
fn requests_of_a_network_with_its_share_cost_other_requests_nothing() {
    for needs_permits in [false, true] {
        let test = TestSeats::new(512, 10_000, LONG);
        let permits = needs_permits.then(|| Permits::new("database", 16));
        let clients = Arc::new(Clients::new(10_000));
        let mut seated = Vec::new();
        for number in 0..2_000 {
            let address = format!("2001:db8:0:{number:x}::1").parse().unwrap();
            let client = clients.admit(address).unwrap();
            let permits = permits.clone();
            let request = TestRequest { client, permits, ..test.request('-', number) };
            // One route alone has its own share before the network has.
            let key = route(if needs_permits { 1 } else { number as usize % 2 });
            match test.seats.enter(key, request) {
                Entered::Seated(request) => seated.push(request),
                Entered::Waiting => {}
                Entered::Replaced(_) | Entered::Refused(..) => panic!("there is room"),
            }
        }
        assert_eq!(test.seats.waiting(), 2_000 - seated.len());
        let request = || TestRequest { permits: permits.clone(), ..test.request('b', 1) };
        for _ in 0..2 {
            LOOKS.set(0);
            let Entered::Seated(request) = test.seats.enter(route(1), request()) else { panic!() };
            drop(request.permit);
            assert!(test.seats.leave(route(1), test.client('b')).is_none());
        }
        assert!(LOOKS.get() < 50, "{} looks, with permits: {needs_permits}", LOOKS.get());
    }
}

#[test]
fn a_seat_that_is_exchanged_counts_for_the_other_route() {
    let test = TestSeats::new(16, 100, LONG);
    let client = test.client('a');
    assert_eq!(test.fill(route(1), 'a'), 11);
    assert_eq!(test.fill(route(2), 'a'), 4);
    assert!(
        !test.seats.change((route(1), client), (route(2), client)),
        "requests of the other route wait"
    );
    assert!(test.seats.change((route(1), client), (route(3), client)));
    let seats = [1, 2, 3].map(|number| seats_of(&test.clients[0], route(number)));
    assert_eq!(seats, [10, 4, 1]);
}

/// A thread continues with the next request of a proxy's connection, which belongs to another
/// client.
#[test]
fn a_seat_that_is_exchanged_counts_for_the_other_client() {
    let test = TestSeats::new(16, 100, LONG);
    let (one, other) = (test.client('a'), test.client('b'));
    assert_eq!((test.fill(route(1), 'a'), test.fill(route(2), 'b')), (11, 4));
    assert!(test.seats.change((route(1), one), (route(3), other)));
    let seats = |client: usize, number| seats_of(&test.clients[client], route(number));
    assert_eq!((seats(0, 1), seats(1, 2), seats(1, 3)), (10, 4, 1));
    assert!(test.seats.change((route(3), other), (route(3), None)), "of nobody");
    assert_eq!(seats(1, 3), 0);
    assert!(test.seats.change((route(2), other), (route(4), one)));
    assert!(!test.seats.change((route(3), None), (route(1), one)), "its requests wait");
}

#[test]
fn a_client_alone_has_nearly_all_of_a_few_seats() {
    for (seats, taken) in [(1, 1), (2, 2), (3, 2), (4, 3), (9, 6), (16, 11)] {
        assert_eq!(TestSeats::new(seats, 100, LONG).fill(route(1), 'a'), taken, "{seats} seats");
    }
}

#[test]
fn clients_in_the_queue_of_a_route_are_served_in_turns() {
    let test = TestSeats::new(1, 100, LONG);
    assert_eq!(test.enter(route(1), "aaaabb-c"), "+.......");
    assert_eq!(test.served(route(1), 'a'), [2, 5, 7, 8, 3, 6, 4]);
    assert_eq!((test.seats.waiting(), seats_of(&test.clients[0], route(1))), (0, 0));
}

#[test]
fn a_client_with_all_its_seats_is_overtaken_and_gets_one_of_its_own_back() {
    let test = TestSeats::new(16, 100, LONG);
    assert_eq!(test.fill(route(1), 'a'), 11);
    assert!(test.seats.is_short());
    assert_eq!(test.enter(route(1), "ab-"), ".++", "one request of `a` waits already");
    assert_eq!(test.leave(route(1), 'b'), None, "`a` still has too many");
    assert_eq!(test.leave(route(1), 'a'), None, "the share depends on what is free");
    assert_eq!(test.leave(route(1), 'a'), Some(11));
    assert_eq!(test.leave(route(1), 'a'), Some(1));
    assert_eq!(seats_of(&test.clients[0], route(1)), 10);
    assert_eq!(test.seats.waiting(), 0);
}

#[test]
fn a_request_does_not_overtake_one_that_waits_for_a_permit() {
    let test = TestSeats::new(16, 100, LONG);
    let permits = Permits::new("database", 0);
    let needs = |client| TestRequest { permits: Some(permits.clone()), ..test.request(client, 1) };
    assert!(matches!(test.seats.enter(route(1), needs('a')), Entered::Waiting));
    assert!(matches!(test.seats.enter(route(1), needs('b')), Entered::Waiting));
    assert_eq!(test.enter(route(1), "c"), ".");
    assert_eq!(test.enter(route(2), "c"), "+");
}

#[test]
fn the_greediest_client_makes_room_in_a_full_queue() {
    let test = TestSeats::new(1, 4, LONG);
    assert_eq!(test.enter(route(1), "aaaaa"), "+....");
    assert_eq!(test.enter(route(1), "a"), "!");
    assert_eq!(test.enter(route(2), "b"), "5", "also for another route");
    assert_eq!(test.enter(route(1), "b-"), "43");
    assert_eq!(test.enter(route(1), "b-c"), "!!!", "no client has two");
    assert_eq!(test.served(route(1), 'a'), [2, 1, 1, 2]);
    assert_eq!(test.seats.waiting(), 0, "an evicted request waits no longer");
}

#[test]
fn a_client_that_waits_as_much_as_the_asker_makes_no_room() {
    let test = TestSeats::new(1, 3, LONG);
    assert_eq!(test.enter(route(1), "aaa"), "+..");
    assert_eq!(test.enter(route(1), "bb"), ".!", "both would have two");
}

#[test]
fn a_request_that_has_begun_waits_beyond_the_maximum_and_is_not_evicted() {
    let test = TestSeats::new(1, 1, LONG);
    assert_eq!(test.enter(route(1), "aa"), "+.");
    for number in 3..6 {
        let begun = TestRequest { has_begun: true, ..test.request('a', number) };
        assert!(matches!(test.seats.enter(route(1), begun), Entered::Waiting));
    }
    assert_eq!(test.enter(route(1), "b"), "2", "it makes room for a request of another client");
    assert_eq!(test.enter(route(1), "c"), "!");
    assert_eq!(test.served(route(1), 'a'), [3, 1, 4, 5]);
}

#[test]
fn a_request_that_has_begun_waits_longer_than_others_before_it_is_returned() {
    let test = TestSeats::new(1, 100, Duration::from_millis(20));
    assert_eq!(test.enter(route(1), "a"), "+");
    let begun = TestRequest { has_begun: true, ..test.request('a', 2) };
    assert!(matches!(test.seats.enter(route(1), begun), Entered::Waiting));
    assert_eq!(test.enter(route(1), "-"), ".");
    let mut returned = Vec::new();
    while returned.len() < 2 {
        let expired = test.seats.expired();
        returned.extend(expired.late.iter().map(|request| request.number));
        assert_eq!(expired.search_in.is_some(), returned.len() < 2, "{returned:?}");
        thread::yield_now();
    }
    assert_eq!(returned, [1, 2]);
    assert_eq!((test.seats.waiting(), test.leave(route(1), 'a')), (0, None));
}

/// Seats, and the requests that got one. Each request needs a permit.
struct PermitServer {
    test: TestSeats,
    permits: Permits,
    seated: Mutex<Vec<TestRequest>>,
}

impl PermitServer {
    fn new(permits: &Permits) -> Arc<Self> {
        Arc::new_cyclic(|server: &Weak<Self>| {
            let TestSeats { seats, clients } = TestSeats::new(512, 10_000, LONG);
            let test = TestSeats { seats: seats.notifying(Weak::<Self>::clone(server)), clients };
            Self { test, permits: permits.clone(), seated: Mutex::default() }
        })
    }

    /// Asks for a seat and a permit for one request of each of these clients. Returns which of them
    /// got them.
    fn enter(&self, clients: &str) -> String {
        let mut entered = String::new();
        for client in clients.chars() {
            let permits = Some(self.permits.clone());
            let request = TestRequest { permits, ..self.test.request(client, client.into()) };
            match self.test.seats.enter(route(1), request) {
                Entered::Seated(request) => {
                    entered.push(client);
                    self.seated.lock().push(request);
                }
                Entered::Waiting => {}
                Entered::Replaced(_) | Entered::Refused(..) => panic!("there is room"),
            }
        }
        entered
    }

    /// Ends the request of this client that began first. Returns the clients whose requests begin
    /// because of that.
    fn end(&self, client: char) -> String {
        let before = self.seated.lock().len() - 1;
        let number = u32::from(client);
        let at = self.seated.lock().iter().position(|request| request.number == number);
        let Some(at) = at else { panic!("{client} has no seat") };
        let request = self.seated.lock().remove(at);
        drop(request.permit);
        self.seat_all(self.test.seats.leave(route(1), request.client.as_ref()));
        let seated = self.seated.lock();
        seated[before..].iter().filter_map(|request| char::from_u32(request.number)).collect()
    }

    fn seat_all(&self, mut next: Option<(ExecutionKey, TestRequest)>) {
        while let Some((_, request)) = next {
            self.seated.lock().push(request);
            next = self.test.seats.next();
        }
    }
}

impl PermitWaiter for PermitServer {
    fn permit_is_free(self: Arc<Self>) {
        self.seat_all(self.test.seats.next_locked());
    }
}

#[test]
fn one_client_has_two_thirds_of_the_permits_and_is_overtaken() {
    let permits = Permits::new("database", 4);
    let server = PermitServer::new(&permits);
    assert_eq!(server.enter("aaaaa"), "aaa");
    assert_eq!(permits.available(), 1, "the last one is for another client");
    assert_eq!(server.enter("b"), "b");
    assert_eq!(server.enter("b-"), "", "no permit is free");
    assert_eq!(server.end('b'), "b", "and not the first of the others");
    assert_eq!(server.end('a'), "-");
    assert_eq!(server.end('-'), "", "there are two of it in any case");
    assert_eq!(server.end('a'), "a", "as soon as it has fewer than twice the free ones");
    assert_eq!(server.end('a'), "a");
    for client in ['a', 'a', 'b'] {
        assert_eq!(server.end(client), "");
    }
    assert_eq!((permits.available(), server.test.seats.waiting()), (4, 0));
}

#[test]
fn a_client_that_waits_for_its_share_hears_of_a_permit_that_another_server_releases() {
    let permits = Permits::new("database", 4);
    let (server, other) = (PermitServer::new(&permits), PermitServer::new(&permits));
    assert_eq!((server.enter("aaaa"), other.enter("b")), ("aaa".to_owned(), "b".to_owned()));
    assert_eq!(other.enter("b"), "");
    assert_eq!(other.end('b'), "b", "the server with the greedy client leaves it");
    assert_eq!(server.end('a'), "", "one is free, and the client has two");
    assert_eq!(other.end('b'), "");
    assert_eq!(server.seated.lock().len(), 3, "two are free");
    assert_eq!((permits.available(), server.test.seats.waiting()), (1, 0));
}

#[test]
fn a_refusal_names_the_permits_that_the_client_holds() {
    let permits = Permits::new("database", 4);
    let server = PermitServer::new(&permits);
    assert_eq!(server.enter("aaa"), "aaa");
    let permits = Some(server.permits.clone());
    let request = TestRequest { permits, ..server.test.request('a', 1) };
    let why = server.test.seats.why(route(1), &request).to_string();
    assert!(why.ends_with(", 1 of 4 permits \"database\" are free, its client holds 3"), "{why}");
    let why = server.test.seats.why(route(1), &TestRequest { client: None, ..request }).to_string();
    assert!(why.ends_with(" are free"), "{why}");
}

#[test]
fn a_refusal_says_what_the_client_has() {
    let test = TestSeats::new(2, 1, LONG);
    assert_eq!(test.enter(route(1), "aaa"), "++.");
    let Entered::Refused(_, full) = test.seats.enter(route(1), test.request('a', 4)) else {
        panic!("there is room for one")
    };
    assert_eq!(full.client, Some((2, 1)));
    assert!(full.to_string().ends_with("its client has 2 threads and 1 of these requests"));
    assert_eq!(Full { client: None, ..full }.to_string().matches("client").count(), 0);
}

#[test]
fn one_client_has_half_of_the_vital_seats() {
    let test = TestSeats::new(1, 100, LONG);
    let take =
        |client| (0..100).take_while(|_| test.seats.enter_vital(test.client(client))).count();
    assert_eq!(take('a'), VITAL_SEATS / 2);
    assert_eq!(take('b'), VITAL_SEATS / 2);
    assert_eq!(take('-'), 0);
    test.seats.leave_vital(test.client('a'));
    assert_eq!([take('b'), take('a')], [0, 1]);
}

#[test]
fn one_ipv6_network_has_half_of_the_vital_seats() {
    let mut test = TestSeats::new(1, 100, LONG);
    let clients = Arc::new(Clients::new(10));
    for (client, subnet) in test.clients.iter_mut().zip([1, 2]) {
        let address = format!("2001:db8:0:{subnet}::1").parse().unwrap();
        *client = clients.admit(address).unwrap().unwrap();
    }
    let take =
        |client| (0..100).take_while(|_| test.seats.enter_vital(test.client(client))).count();
    assert_eq!((take('a'), take('b'), take('c')), (VITAL_SEATS / 2, 0, VITAL_SEATS / 2));
    test.seats.leave_vital(test.client('a'));
    assert_eq!([take('b'), take('a')], [1, 0]);
}
