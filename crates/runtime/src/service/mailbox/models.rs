//! Models of a queue of bytes under loom: every interleaving of senders, the owner that takes, and
//! the end.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
//!     CARGO_PROFILE_RELEASE_LTO=off cargo test -p filoplume-runtime --lib models --release
//! ```
//!
//! The queue is the real one. The loop is a flag with a condition variable: a notification that the
//! queue loses is a deadlock, which loom reports, and so is a sender that nobody wakes. A model of
//! a leader that falls asleep is in `execution/models`.

use std::time::Instant;

use bytes::Bytes;

use super::{End, Part, Refused, Rest, SendQueue};
use crate::sync::{Arc, Condvar, Mutex, thread};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A queue with room for one byte, and whether its owner was notified.
struct Shared {
    queue: SendQueue,
    is_notified: Mutex<bool>,
    notified: Condvar,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: SendQueue::new(1),
            is_notified: Mutex::new(false),
            notified: Condvar::new(),
        })
    }

    fn notify_if(&self, is_due: bool) {
        if is_due {
            *self.is_notified.lock() = true;
            self.notified.notify_all();
        }
    }

    fn send(&self, text: &'static str) -> Result<(), Refused> {
        let part = Part::from(Bytes::from_static(text.as_bytes()));
        let is_due = self.queue.put(part, Some(Instant::now()))?;
        self.notify_if(is_due);
        Ok(())
    }

    fn wait(&self) {
        let mut is_notified = self.is_notified.lock();
        while !std::mem::take(&mut *is_notified) {
            (is_notified, _) = self.notified.wait_until(is_notified, Instant::now());
        }
    }

    /// Takes until the end, as the protocol of a connection does: it waits only for notifications.
    fn take_all(&self) -> (Vec<u8>, End) {
        let mut received = Vec::new();
        loop {
            match self.queue.take_framed(1, &mut received, |_, _| {}) {
                (_, Rest::End(end)) => return (received, end),
                (0, Rest::Nothing) => self.wait(),
                _ => {}
            }
        }
    }
}

#[test]
fn a_sender_that_waits_for_room_and_the_end_behind_its_bytes_reach_the_owner() {
    explore(|| {
        let shared = Shared::new();
        let sender = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for text in ["a", "b"] {
                    shared.send(text).unwrap();
                }
                shared.notify_if(shared.queue.end(End::Finished(None)));
            }
        });
        let (received, end) = shared.take_all();
        assert_eq!(received, b"ab");
        assert!(matches!(end, End::Finished(None)));
        sender.join().unwrap();
    });
}

#[test]
fn two_senders_that_wait_for_the_same_room_are_both_served() {
    explore(|| {
        let shared = Shared::new();
        shared.send("a").unwrap();
        let senders = ["b", "c"].map(|text| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.send(text).unwrap())
        });
        let mut received = Vec::new();
        while received.len() < 3 {
            if let (0, Rest::Nothing) = shared.queue.take_framed(1, &mut received, |_, _| {}) {
                shared.wait();
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        received.sort_unstable();
        assert_eq!(received, b"abc");
    });
}

#[test]
fn a_sender_that_waits_learns_that_the_connection_is_closed() {
    explore(|| {
        let shared = Shared::new();
        shared.send("a").unwrap();
        let sender = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.send("b")
        });
        shared.queue.close();
        assert_eq!(sender.join().unwrap(), Err(Refused::Gone));
    });
}

#[test]
fn a_failure_is_taken_even_if_another_sender_finishes() {
    explore(|| {
        let shared = Shared::new();
        let failing = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let error = std::io::Error::other("a test");
                shared.notify_if(shared.queue.end(End::Failed(error)));
            }
        });
        shared.notify_if(shared.queue.end(End::Finished(None)));
        failing.join().unwrap();
        assert!(matches!(shared.take_all().1, End::Failed(_)));
    });
}
