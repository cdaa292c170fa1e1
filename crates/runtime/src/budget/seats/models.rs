//! Every interleaving of requests that ask for seats with those that give them back.
//!
//! `RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true cargo test -p filoplume-runtime --lib models --release`

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use loom::thread;

use super::{Entered, Needs, Seats};
use crate::budget::permits::{Permit, Permits, Waits};
use crate::execution::key::ExecutionKey;

impl Needs for usize {}

/// Runs a request, and then all that have a seat because of it, as a thread of the pool does.
fn run(seats: &Seats<usize>, ran: &AtomicUsize, key: ExecutionKey) {
    let mut seated = match seats.enter(key, 1) {
        Entered::Seated(item) => Some((key, item)),
        Entered::Waits => None,
        Entered::Refused(..) => panic!("there is room"),
    };
    while let Some((key, item)) = seated {
        ran.fetch_add(item, Ordering::Relaxed);
        seated = seats.leave(key).or_else(|| seats.next());
    }
}

/// Nobody waits for a seat that is free: whoever gives one back sees who waits, or comes before it
/// does.
#[test]
fn a_request_that_waits_is_run_by_whoever_gives_a_seat_back() {
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

/// A thread that changes its seat for another route's, or gives it back if it may not, leaves
/// nobody waiting.
#[test]
fn a_seat_that_changes_hands_is_not_lost() {
    loom::model(|| {
        let seats = Arc::new(Seats::new(1, 10, Duration::from_secs(3600)));
        let ran = Arc::new(AtomicUsize::new(0));
        let other = thread::spawn({
            let (seats, ran) = (Arc::clone(&seats), Arc::clone(&ran));
            move || run(&seats, &ran, ExecutionKey::at(2))
        });
        let (one, two) = (ExecutionKey::at(1), ExecutionKey::at(2));
        seats.force(one);
        let own = if seats.change(one, two) { two } else { one };
        let mut seated = seats.leave(own);
        while let Some((key, item)) = seated {
            ran.fetch_add(item, Ordering::Relaxed);
            seated = seats.leave(key);
        }
        other.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert_eq!((seats.waiting(), seats.state.lock().taken), (0, 0));
    });
}

/// A request that needs a permit.
struct Guest(Permits, Permit);

impl Needs for Guest {
    fn permits(&self) -> Option<&Permits> {
        Some(&self.0)
    }

    fn hold(&mut self, permit: Permit) {
        self.1 = permit;
    }
}

/// A server: who is seated runs on the thread that seats it.
struct Hall {
    seats: Seats<Guest>,
    ran: AtomicUsize,
}

impl Hall {
    fn new(seats_max: usize) -> Arc<Self> {
        Arc::new_cyclic(|hall: &Weak<Self>| Self {
            seats: Seats::new(seats_max, 10, Duration::from_secs(3600))
                .telling(Weak::<Self>::clone(hall)),
            ran: AtomicUsize::new(0),
        })
    }

    fn run(&self, key: ExecutionKey, permits: &Permits) {
        match self.seats.enter(key, Guest(permits.clone(), Permit::default())) {
            Entered::Seated(guest) => self.run_all(Some((key, guest))),
            Entered::Waits => {}
            Entered::Refused(..) => panic!("there is room"),
        }
    }

    fn run_all(&self, mut seated: Option<(ExecutionKey, Guest)>) {
        while let Some((key, guest)) = seated {
            self.ran.fetch_add(1, Ordering::Relaxed);
            // The permit first, as its handler returns before its thread is free.
            drop(guest);
            seated = self.seats.leave(key).or_else(|| self.seats.next());
        }
    }

    fn is_empty(&self) -> bool {
        let state = self.seats.state.lock();
        state.taken == 0 && state.waiting == 0
    }
}

impl Waits for Hall {
    fn permit_is_free(self: Arc<Self>) {
        self.run_all(self.seats.look());
    }
}

/// Runs a request of each of these routes, all at once, and says how many ran in the end in halls
/// that may be the same.
fn run_at_once(halls: &[Arc<Hall>], permits: &Permits) {
    let [first, others @ ..] = halls else { panic!("there is one") };
    let threads: Vec<_> = others
        .iter()
        .zip(2..)
        .map(|(hall, number)| {
            let (hall, permits) = (Arc::clone(hall), permits.clone());
            thread::spawn(move || hall.run(ExecutionKey::at(number), &permits))
        })
        .collect();
    first.run(ExecutionKey::at(1), permits);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(permits.available(), 1);
    assert!(first.is_empty() && others.iter().all(|hall| hall.is_empty()));
}

/// Nobody waits for a permit that is free, and none is lost, also when there are fewer seats than
/// requests.
#[test]
fn a_request_that_waits_for_a_permit_is_run_by_whoever_gives_one_back() {
    // With a seat for each of three there are too many interleavings.
    for (seats, requests) in [(1, 3), (2, 2)] {
        loom::model(move || {
            let hall = Hall::new(seats);
            run_at_once(&vec![Arc::clone(&hall); requests], &Permits::new("database", 1));
            assert_eq!(hall.ran.load(Ordering::Relaxed), requests);
        });
    }
}

/// The same for servers that share permits: each is told of what another one gives back.
#[test]
fn a_permit_that_another_server_gives_back_is_found() {
    loom::model(|| {
        let (one, two) = (Hall::new(1), Hall::new(1));
        let halls = [Arc::clone(&one), Arc::clone(&two), Arc::clone(&two)];
        run_at_once(&halls, &Permits::new("database", 1));
        assert_eq!((one.ran.load(Ordering::Relaxed), two.ran.load(Ordering::Relaxed)), (1, 2));
    });
}

/// Who takes a permit on an event loop, without a seat, tells those that wait in lines.
#[test]
fn a_permit_that_was_taken_without_a_seat_comes_back_to_those_that_wait() {
    loom::model(|| {
        let (hall, permits) = (Hall::new(1), Permits::new("database", 1));
        let other = thread::spawn({
            let permits = permits.clone();
            move || drop(permits.try_take())
        });
        hall.run(ExecutionKey::at(1), &permits);
        other.join().unwrap();
        assert_eq!((hall.ran.load(Ordering::Relaxed), permits.available()), (1, 1));
        assert!(hall.is_empty());
    });
}
