//! Every interleaving of requests that ask for seats with those that give them back.
//!
//! `RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true cargo test -p filoplume-runtime --lib models --release`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::thread;

use super::{Entered, Seats};
use crate::execution::key::ExecutionKey;

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

/// Nobody waits for a seat that is free: whoever gives one back sees who waits, or comes before it does.
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

/// A thread that changes its seat for another route's, or gives it back if it may not, leaves nobody waiting.
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
