//! Models of a queue under loom: every interleaving of send, receive, unblock and close.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
//!     CARGO_PROFILE_RELEASE_LTO=off cargo test -p filoplume-runtime --lib models --release
//! ```
//!
//! The queue is the real one. Its channels are made of loom's primitives, because loom cannot see
//! into crossbeam's. A wake-up that the queue loses is a deadlock, which loom reports.

use super::{MessageQueue, RecvError, SendError};
use crate::sync::thread;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_sent_message_is_received_though_the_queue_is_closed_meanwhile() {
    explore(|| {
        let queue = MessageQueue::new(1);
        let sender = thread::spawn({
            let queue = queue.clone();
            move || queue.send(7)
        });
        let closer = thread::spawn({
            let queue = queue.clone();
            move || queue.close()
        });
        let mut received = Vec::new();
        while let Ok(message) = queue.recv() {
            received.push(message);
        }
        closer.join().unwrap();
        match sender.join().unwrap() {
            Ok(()) => assert_eq!(received, [7]),
            Err(error) => {
                assert_eq!(error, SendError::Closed(7));
                assert_eq!(received, []);
            }
        }
    });
}

#[test]
fn an_unblock_and_a_message_each_reach_one_of_two_receivers() {
    explore(|| {
        let queue = MessageQueue::new(1);
        let receiver = thread::spawn({
            let queue = queue.clone();
            move || queue.recv()
        });
        let unblocker = thread::spawn({
            let queue = queue.clone();
            move || {
                queue.unblock();
                queue.send(7).unwrap();
            }
        });
        let mut outcomes = [queue.recv(), receiver.join().unwrap()];
        unblocker.join().unwrap();
        outcomes.sort_by_key(Result::is_ok);
        assert_eq!(outcomes, [Err(RecvError::Unblocked), Ok(7)]);
    });
}

#[test]
fn closing_wakes_every_receiver() {
    explore(|| {
        let queue = MessageQueue::<u32>::new(1);
        let receivers = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || queue.recv())
        });
        queue.close();
        for receiver in receivers {
            assert_eq!(receiver.join().unwrap(), Err(RecvError::Closed));
        }
    });
}

#[test]
fn a_full_queue_returns_the_message_and_has_room_later() {
    explore(|| {
        let queue = MessageQueue::new(1);
        let sender = thread::spawn({
            let queue = queue.clone();
            move || {
                queue.send(1).unwrap();
                queue.send(2)
            }
        });
        assert_eq!(queue.recv(), Ok(1));
        match sender.join().unwrap() {
            Ok(()) => assert_eq!(queue.try_recv(), Ok(2)),
            Err(error) => assert_eq!(error, SendError::Full(2)),
        }
        assert_eq!(queue.try_recv(), Err(RecvError::Empty));
    });
}
