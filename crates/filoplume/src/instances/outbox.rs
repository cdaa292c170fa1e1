//! What waits to be sent to other instances.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Counts;

/// Most bytes that wait for Redis, which takes as many in some milliseconds. This bounds the memory
/// that a stalled Redis costs until the timeout.
pub(super) const OUTBOX_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a message costs in addition to its bytes.
const MESSAGE_OVERHEAD: usize = 128;

/// About how many bytes are sent before the answers are read.
const BATCH_BYTES: usize = 256 * 1024;

/// A message for a channel.
pub(super) struct Post {
    pub(super) channel: Arc<str>,
    pub(super) bytes: Vec<u8>,
    pub(super) counts: Arc<Counts>,
}

impl Post {
    fn cost(&self) -> usize {
        self.bytes.len() + MESSAGE_OVERHEAD
    }
}

/// What the publishing thread does next.
pub(super) enum Work {
    Publish(Vec<Post>),
    /// Wake the subscribing thread, which also shows whether Redis is there.
    Wake,
    End,
}

/// Messages for other instances. Adding one never waits: a full outbox drops it.
#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Post>,
    bytes: usize,
    connection: Connection,
    must_wake: bool,
    is_closed: bool,
    /// Whether the log says that messages are dropped because the outbox is full.
    is_full: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Connection {
    /// Being made: messages wait for the outcome.
    #[default]
    Trying,
    Up,
    /// It could not be made: messages are dropped.
    Away,
}

impl Outbox {
    /// Adds a message, or drops it.
    pub(super) fn push(&self, post: Post) {
        let mut state = self.state.lock();
        let is_away = state.connection == Connection::Away;
        if is_away || state.bytes + post.cost() > OUTBOX_BYTES_MAX {
            let must_log = !is_away && !std::mem::replace(&mut state.is_full, true);
            drop(state);
            post.counts.dropped();
            if must_log {
                tracing::warn!("Redis is too slow: messages for other instances are dropped");
            }
            return;
        }
        state.bytes += post.cost();
        state.queue.push_back(post);
        drop(state);
        self.changed.notify_all();
    }

    /// Wakes the subscribing thread.
    pub(super) fn wake(&self) {
        self.state.lock().must_wake = true;
        self.changed.notify_all();
    }

    /// Lets both threads end. The subscribing thread is woken after this, so that it sees it.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        (state.is_closed, state.must_wake) = (true, true);
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    pub(super) fn is_up(&self) -> bool {
        self.state.lock().connection == Connection::Up
    }

    /// Waits for work. Messages that were added before the outbox was closed are still published.
    pub(super) fn next(&self) -> Work {
        let mut state = self.state.lock();
        loop {
            if std::mem::take(&mut state.must_wake) {
                return Work::Wake;
            }
            if !state.queue.is_empty() {
                return Work::Publish(state.take_batch());
            }
            state.is_full = false;
            if state.is_closed {
                return Work::End;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits for a while, or until the outbox is closed.
    pub(super) fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.is_closed, time);
    }

    pub(super) fn connected(&self) {
        self.state.lock().connection = Connection::Up;
    }

    pub(super) fn trying(&self) {
        self.state.lock().connection = Connection::Trying;
    }

    /// Drops all messages, and those that follow until there is a connection.
    pub(super) fn away(&self) {
        let mut state = self.state.lock();
        state.connection = Connection::Away;
        state.bytes = 0;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        queue.iter().for_each(|post| post.counts.dropped());
    }
}

impl State {
    fn take_batch(&mut self) -> Vec<Post> {
        let mut batch = Vec::new();
        let mut taken = 0;
        while taken < BATCH_BYTES {
            let Some(post) = self.queue.pop_front() else { break };
            taken += post.cost();
            batch.push(post);
        }
        self.bytes = self.bytes.saturating_sub(taken);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(counts: &Arc<Counts>, length: usize) -> Post {
        Post { channel: "c".into(), bytes: vec![0; length], counts: Arc::clone(counts) }
    }

    fn published(work: Work) -> Vec<usize> {
        match work {
            Work::Publish(posts) => posts.iter().map(|post| post.bytes.len()).collect(),
            Work::Wake | Work::End => Vec::new(),
        }
    }

    #[test]
    fn a_full_outbox_drops_what_is_new_and_keeps_the_order_of_the_rest() {
        let (outbox, counts) = (Outbox::default(), Arc::new(Counts::default()));
        outbox.push(post(&counts, 1));
        outbox.push(post(&counts, OUTBOX_BYTES_MAX - 3 * MESSAGE_OVERHEAD));
        outbox.push(post(&counts, MESSAGE_OVERHEAD));
        outbox.push(post(&counts, 2));
        assert_eq!(counts.read().dropped, 2);
        assert_eq!(published(outbox.next()), [1, OUTBOX_BYTES_MAX - 3 * MESSAGE_OVERHEAD]);
        outbox.push(post(&counts, 3));
        assert_eq!(published(outbox.next()), [3]);
        assert!(outbox.state.lock().is_full, "it is logged once");
        outbox.close();
        assert!(matches!(outbox.next(), Work::Wake));
        assert!(matches!(outbox.next(), Work::End));
        assert!(!outbox.state.lock().is_full, "it may be logged again");
    }

    #[test]
    fn messages_are_dropped_while_redis_is_away_and_wait_while_it_is_tried() {
        let (outbox, counts) = (Outbox::default(), Arc::new(Counts::default()));
        outbox.push(post(&counts, 1));
        outbox.away();
        outbox.push(post(&counts, 2));
        assert_eq!(counts.read().dropped, 2);
        outbox.connected();
        outbox.push(post(&counts, 3));
        outbox.trying();
        outbox.push(post(&counts, 4));
        outbox.close();
        assert!(matches!(outbox.next(), Work::Wake));
        assert_eq!(published(outbox.next()), [3, 4]);
        assert!(matches!(outbox.next(), Work::End));
    }

    /// Regression: the subscribing thread was woken before the outbox was closed. If the publishing
    /// thread was quick, it did not see the end, and kept its connection for ever.
    #[test]
    fn the_subscribing_thread_is_woken_after_the_end() {
        let outbox = Outbox::default();
        outbox.wake();
        assert!(matches!(outbox.next(), Work::Wake));
        outbox.close();
        assert!(matches!(outbox.next(), Work::Wake));
        assert!(outbox.is_closed());
        assert!(matches!(outbox.next(), Work::End));
    }

    #[test]
    fn what_was_dropped_while_redis_was_away_leaves_its_room() {
        let (outbox, counts) = (Outbox::default(), Arc::new(Counts::default()));
        outbox.push(post(&counts, OUTBOX_BYTES_MAX - MESSAGE_OVERHEAD));
        assert_eq!(counts.read().dropped, 0, "it fits just");
        outbox.away();
        outbox.connected();
        outbox.push(post(&counts, 1));
        assert_eq!(counts.read().dropped, 1);
        assert_eq!(published(outbox.next()), [1]);
    }
}
