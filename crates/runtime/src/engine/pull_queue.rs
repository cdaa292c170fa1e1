//! The queue of requests that the program pulls. As many requests may wait as the program pulls in
//! time.
//!
//! The bound is a time, as for requests that wait for a thread
//! ([`backlog`](crate::budget::seats::backlog)): a count would either refuse requests that would be
//! pulled within 40 ms, or keep clients waiting for minutes. The capacity of the queue is an
//! additional bound.
//!
//! The estimate has a lock of its own, which is never held while the queue is used. Two threads may
//! therefore both find room where there is room for only one request. That is harmless: the bound
//! is an estimate anyway, and the queue enforces its capacity.

use std::time::{Duration, Instant};

use crate::budget::seats::backlog::Backlog;
use crate::queue::{MessageQueue, RecvError};
use crate::sync::Mutex;

/// This many requests may wait even in an overload, as long as they are pulled in time: a program
/// may pull in bursts, and the number of threads that pull is unknown.
const BURST: usize = 128;

/// A queue whose messages wait for a bounded time.
pub(crate) struct PullQueue<T> {
    queue: MessageQueue<T>,
    backlog: Mutex<Backlog>,
    started_at: Instant,
}

/// A message that found no room.
pub(crate) struct NotSent<T> {
    pub(crate) message: T,
    /// How long it would have waited, if that is known.
    pub(crate) wait: Option<Duration>,
}

impl<T> PullQueue<T> {
    /// Returns a queue in which messages wait for about `wait_max`, and never more than `capacity`.
    pub(crate) fn new(capacity: usize, wait_max: Duration) -> Self {
        let wait_max = u64::try_from(wait_max.as_nanos()).unwrap_or(u64::MAX);
        Self {
            queue: MessageQueue::new(capacity),
            backlog: Mutex::new(Backlog::new(wait_max)),
            started_at: Instant::now(),
        }
    }

    /// Appends a message if it will be pulled in time.
    pub(crate) fn send(&self, message: T) -> Result<(), NotSent<T>> {
        self.send_at(message, self.now())
    }

    fn send_at(&self, message: T, now: u64) -> Result<(), NotSent<T>> {
        let waiting = self.queue.len();
        let may_wait = self.backlog.lock().may_wait(now, waiting, BURST);
        let refused =
            if may_wait { self.queue.send(message) } else { return self.refuse(message) };
        refused.or_else(|error| self.refuse(error.into_message()))
    }

    fn refuse(&self, message: T) -> Result<(), NotSent<T>> {
        let wait = self.backlog.lock().wait_for(self.now(), self.queue.len());
        Err(NotSent { message, wait: wait.map(Duration::from_nanos) })
    }

    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        self.queue.recv().inspect(|_| self.pulled(self.now()))
    }

    pub(crate) fn try_recv(&self) -> Result<T, RecvError> {
        self.queue.try_recv().inspect(|_| self.pulled(self.now()))
    }

    pub(crate) fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        self.queue.recv_timeout(timeout).inspect(|_| self.pulled(self.now()))
    }

    fn pulled(&self, now: u64) {
        let mut backlog = self.backlog.lock();
        backlog.served(now);
        if self.queue.is_empty() {
            // The program waits for requests. The next wait will have another cause.
            backlog.reset();
        }
    }

    pub(crate) fn unblock(&self) {
        self.queue.unblock();
    }

    pub(crate) fn close(&self) {
        self.queue.close();
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn queue() -> PullQueue<u64> {
        PullQueue::new(8192, Duration::from_secs(2))
    }

    /// Pulls one message when the clock shows `now`.
    fn pull(queue: &PullQueue<u64>, now: u64) {
        assert!(queue.queue.try_recv().is_ok());
        queue.pulled(now);
    }

    #[test]
    fn a_program_that_pulls_nothing_gets_no_more_after_the_time() {
        let queue = queue();
        for request in 0..3000 {
            assert!(queue.send_at(request, 10 * MS).is_ok(), "nothing is known yet");
        }
        assert!(queue.send_at(0, 2_100 * MS).is_err());
        while queue.len() > 0 {
            pull(&queue, 2_200 * MS);
        }
        assert!(queue.send_at(0, 2_201 * MS).is_ok(), "it pulls again");
    }

    #[test]
    fn as_many_wait_as_are_pulled_in_time() {
        let queue = queue();
        let mut refused = 0;
        // 1,000 requests are pulled per second, and 1,200 arrive.
        for ms in 0..10_000 {
            for request in 0..if ms % 5 == 0 { 2 } else { 1 } {
                refused += u64::from(queue.send_at(request, ms * MS).is_err());
            }
            pull(&queue, ms * MS);
            assert!(queue.len() <= 2_000, "{} wait after {ms} ms", queue.len());
        }
        assert!((1..2_000).contains(&refused), "{refused}");
        assert!(queue.len() >= BURST / 2, "the program is kept busy");
    }

    #[test]
    fn a_request_at_a_time_is_never_refused() {
        let queue = queue();
        // The program needs three seconds for each.
        for request in 0..100 {
            assert!(queue.send_at(request, request * 3_000 * MS).is_ok());
            pull(&queue, request * 3_000 * MS + MS);
        }
    }
}
