//! Models of the seats under loom: every interleaving of requests that ask for seats and release
//! them.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
//!     cargo test -p filoplume-runtime --lib models --release
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use loom::thread;

use super::{Entered, SeatRequest, Seats};
use crate::budget::clients::{ClientConnection, Clients};
use crate::budget::permits::{Permit, PermitWaiter, Permits, Taker};
use crate::execution::key::ExecutionKey;

impl SeatRequest for usize {}

/// Runs a request, and then all requests that get a seat because of it, as a thread of the pool
/// does.
fn run(seats: &Seats<usize>, ran: &AtomicUsize, key: ExecutionKey) {
    let mut seated = match seats.enter(key, 1) {
        Entered::Seated(item) => Some((key, item)),
        Entered::Waiting => None,
        Entered::Replaced(_) | Entered::Refused(..) => panic!("there is room"),
    };
    while let Some((key, item)) = seated {
        ran.fetch_add(item, Ordering::Relaxed);
        seated = seats.leave(key, None).or_else(|| seats.next());
    }
}

/// No request waits for a free seat: the thread that releases a seat sees the waiting request, or
/// the request sees the free seat.
#[test]
fn a_waiting_request_is_run_by_the_thread_that_releases_a_seat() {
    loom::model(|| {
        let seats = Arc::new(Seats::new(1, 10, Duration::from_secs(3600)));
        let ran = Arc::new(AtomicUsize::new(0));
        let others: Vec<_> = (1..3)
            .map(|number| {
                let (seats, ran) = (Arc::clone(&seats), Arc::clone(&ran));
                thread::spawn(move || run(&seats, &ran, ExecutionKey::at(number)))
            })
            .collect();
        run(&seats, &ran, ExecutionKey::at(1));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(ran.load(Ordering::Relaxed), 3);
        assert_eq!(seats.waiting(), 0);
    });
}

/// A thread that exchanges its seat for one of another route, or releases it if it may not, leaves
/// no request waiting.
#[test]
fn an_exchanged_seat_is_not_lost() {
    loom::model(|| {
        let seats = Arc::new(Seats::new(1, 10, Duration::from_secs(3600)));
        let ran = Arc::new(AtomicUsize::new(0));
        let other = thread::spawn({
            let (seats, ran) = (Arc::clone(&seats), Arc::clone(&ran));
            move || run(&seats, &ran, ExecutionKey::at(2))
        });
        let (one, two) = (ExecutionKey::at(1), ExecutionKey::at(2));
        seats.force(one, None);
        let own = if seats.change((one, None), (two, None)) { two } else { one };
        let mut seated = seats.leave(own, None);
        while let Some((key, item)) = seated {
            ran.fetch_add(item, Ordering::Relaxed);
            seated = seats.leave(key, None);
        }
        other.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert_eq!((seats.waiting(), seats.state.lock().taken), (0, 0));
    });
}

/// A request of a counted client.
struct ClientRequest(Arc<ClientConnection>);

impl SeatRequest for ClientRequest {
    fn client(&self) -> Option<&Arc<ClientConnection>> {
        Some(&self.0)
    }
}

/// Seats, and the requests of counted clients that ran.
struct ClientServer {
    seats: Seats<ClientRequest>,
    ran: AtomicUsize,
}

impl ClientServer {
    fn new(seats_max: usize) -> Arc<Self> {
        let seats = Seats::new(seats_max, 10, Duration::from_secs(3600));
        Arc::new(Self { seats, ran: AtomicUsize::new(0) })
    }

    fn enter(&self, key: ExecutionKey, client: &Arc<ClientConnection>) -> Option<ClientRequest> {
        match self.seats.enter(key, ClientRequest(Arc::clone(client))) {
            Entered::Seated(request) => Some(request),
            Entered::Waiting => None,
            Entered::Replaced(_) | Entered::Refused(..) => panic!("there is room"),
        }
    }

    fn run(&self, mut seated: Option<(ExecutionKey, ClientRequest)>) {
        while let Some((key, request)) = seated {
            self.ran.fetch_add(1, Ordering::Relaxed);
            seated = self.seats.leave(key, request.client()).or_else(|| self.seats.next());
        }
    }
}

/// A client that has its share waits although a seat is free, and another client overtakes it. The
/// request that waits gets a seat nevertheless when its client releases one.
#[test]
fn a_request_that_waits_for_the_share_of_its_client_is_run() {
    loom::model(|| {
        let clients = Arc::new(Clients::new(10));
        let client = |number| clients.admit([192, 0, 2, number].into()).unwrap().unwrap();
        let (one, other) = (client(1), client(2));
        let (server, key) = (ClientServer::new(3), ExecutionKey::at(1));
        let first = server.enter(key, &one);
        let second = server.enter(key, &one);
        let others: Vec<_> = [Arc::clone(&one), other]
            .into_iter()
            .map(|client| {
                let server = Arc::clone(&server);
                thread::spawn(move || {
                    let seated = server.enter(key, &client);
                    server.run(seated.map(|request| (key, request)));
                })
            })
            .collect();
        for request in [first, second] {
            server.run(Some((key, request.expect("two of three seats are the share of one"))));
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(server.ran.load(Ordering::Relaxed), 4);
        assert_eq!((server.seats.waiting(), server.seats.state.lock().taken), (0, 0));
        assert_eq!(one.seats(key.index()), 0);
    });
}

/// A request that needs a permit.
struct TestRequest(Permits, Permit, Option<Arc<ClientConnection>>);

impl SeatRequest for TestRequest {
    fn client(&self) -> Option<&Arc<ClientConnection>> {
        self.2.as_ref()
    }

    fn permits(&self) -> Option<&Permits> {
        Some(&self.0)
    }

    fn hold(&mut self, permit: Permit) {
        self.1 = permit;
    }
}

/// A server. A request that gets a seat runs on the thread that gave it the seat.
struct TestServer {
    seats: Seats<TestRequest>,
    ran: AtomicUsize,
}

impl TestServer {
    fn new(seats_max: usize) -> Arc<Self> {
        Arc::new_cyclic(|server: &Weak<Self>| Self {
            seats: Seats::new(seats_max, 10, Duration::from_secs(3600))
                .notifying(Weak::<Self>::clone(server)),
            ran: AtomicUsize::new(0),
        })
    }

    fn run(&self, key: ExecutionKey, permits: &Permits) {
        self.run_for(key, permits, None);
    }

    fn run_for(&self, key: ExecutionKey, permits: &Permits, client: Option<Arc<ClientConnection>>) {
        match self.seats.enter(key, TestRequest(permits.clone(), Permit::default(), client)) {
            Entered::Seated(request) => self.run_all(Some((key, request))),
            Entered::Waiting => {}
            Entered::Replaced(_) | Entered::Refused(..) => panic!("there is room"),
        }
    }

    fn run_all(&self, mut seated: Option<(ExecutionKey, TestRequest)>) {
        while let Some((key, request)) = seated {
            self.ran.fetch_add(1, Ordering::Relaxed);
            // The permit first, because a handler returns before its thread is free.
            let TestRequest(_, permit, client) = request;
            drop(permit);
            seated = self.seats.leave(key, client.as_ref()).or_else(|| self.seats.next());
        }
    }

    fn is_empty(&self) -> bool {
        let state = self.seats.state.lock();
        state.taken == 0 && state.waiting == 0
    }
}

impl PermitWaiter for TestServer {
    fn permit_is_free(self: Arc<Self>) {
        self.run_all(self.seats.next_locked());
    }
}

/// Runs a request on each of these servers at the same time, and checks that all are finished at
/// the end. A server may be in the list more than once.
fn run_at_once(servers: &[Arc<TestServer>], permits: &Permits) {
    let [first, others @ ..] = servers else { panic!("there is one") };
    let threads: Vec<_> = others
        .iter()
        .zip(2..)
        .map(|(server, number)| {
            let (server, permits) = (Arc::clone(server), permits.clone());
            thread::spawn(move || server.run(ExecutionKey::at(number), &permits))
        })
        .collect();
    first.run(ExecutionKey::at(1), permits);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(permits.available(), 1);
    assert!(first.is_empty() && others.iter().all(|server| server.is_empty()));
}

/// No request waits for a free permit, and no permit is lost, even if there are fewer seats than
/// requests.
#[test]
fn a_request_that_waits_for_a_permit_is_run_by_the_thread_that_releases_one() {
    // Three seats for three requests have too many interleavings.
    for (seats, requests) in [(1, 3), (2, 2)] {
        loom::model(move || {
            let server = TestServer::new(seats);
            run_at_once(&vec![Arc::clone(&server); requests], &Permits::new("database", 1));
            assert_eq!(server.ran.load(Ordering::Relaxed), requests);
        });
    }
}

/// The same for servers that share permits: each is notified of permits that another one releases.
#[test]
fn a_permit_that_another_server_releases_is_found() {
    loom::model(|| {
        let (one, two) = (TestServer::new(1), TestServer::new(1));
        let servers = [Arc::clone(&one), Arc::clone(&two), Arc::clone(&two)];
        run_at_once(&servers, &Permits::new("database", 1));
        assert_eq!((one.ran.load(Ordering::Relaxed), two.ran.load(Ordering::Relaxed)), (1, 2));
    });
}

/// A permit that an event loop takes without a seat is offered to the waiting requests on release.
#[test]
fn a_permit_taken_without_a_seat_is_offered_to_waiting_requests() {
    loom::model(|| {
        let (server, permits) = (TestServer::new(1), Permits::new("database", 1));
        let other = thread::spawn({
            let permits = permits.clone();
            move || drop(permits.try_take(Taker::default()))
        });
        server.run(ExecutionKey::at(1), &permits);
        other.join().unwrap();
        assert_eq!((server.ran.load(Ordering::Relaxed), permits.available()), (1, 1));
        assert!(server.is_empty());
    });
}

/// A request that waits for the share of its client in the permits, although one is free, is run by
/// the thread that releases a permit, on this server or on another.
#[test]
fn a_request_that_waits_for_the_share_of_its_client_in_permits_is_run() {
    loom::model(|| {
        let clients = Arc::new(Clients::new(10));
        let client = clients.admit([192, 0, 2, 1].into()).unwrap();
        let permits = Permits::new("database", 3);
        let id = client.as_ref().map(|client| client.client());
        let [first, second] = [(); 2]
            .map(|()| permits.try_take(Taker { client: id, route: None }).expect("two of three"));
        let server = TestServer::new(1);
        let threads = [first, second].map(|permit| thread::spawn(move || drop(permit)));
        server.run_for(ExecutionKey::at(1), &permits, client);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((server.ran.load(Ordering::Relaxed), permits.available()), (1, 3));
        assert!(server.is_empty());
    });
}
