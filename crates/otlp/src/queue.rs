//! Encoded spans that wait for the thread, and the counts of exported and dropped spans.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::limits::{BATCH_BYTES, BATCH_SPANS, DURATION_MAX, REPORT_INTERVAL};

/// How many spans were exported, and how many were dropped and why.
///
/// ```
/// use filoplume_otlp::Otlp;
///
/// let (_layer, exporter) = Otlp::new().start()?;
/// let counts = exporter.counts();
/// assert_eq!((counts.exported, counts.dropped()), (0, 0));
/// # Ok::<(), filoplume_otlp::OtlpError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Spans that the collector has accepted.
    pub exported: u64,
    /// Spans that found the queue full, or came after the exporter's end.
    pub dropped_full: u64,
    /// Spans that could not be sent, after all attempts or at the end of the program.
    pub dropped_unsent: u64,
    /// Spans that the collector has rejected.
    pub rejected: u64,
}

impl Counts {
    /// Returns how many spans were dropped or rejected.
    pub fn dropped(&self) -> u64 {
        self.dropped_full + self.dropped_unsent + self.rejected
    }
}

/// What the layer, the thread and the handle share.
#[derive(Debug)]
pub(crate) struct Queue {
    limits: QueueLimits,
    waiting: Mutex<Waiting>,
    /// Wakes the thread, which waits for spans.
    arrived: Condvar,
    /// Wakes handles, which wait for the thread.
    settled: Condvar,
    counts: AtomicCounts,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub(crate) spans: usize,
    pub(crate) bytes: usize,
    pub(crate) delay: Duration,
}

#[derive(Debug, Default)]
struct AtomicCounts {
    exported: AtomicU64,
    dropped_full: AtomicU64,
    dropped_unsent: AtomicU64,
    rejected: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// When the spans that wait are sent, even if they do not fill a batch by then.
    due: Option<Instant>,
    /// How many spans were ever accepted, and how many of them are exported or dropped.
    accepted: u64,
    finished: u64,
    /// The spans up to this number are sent at once, because a flush waits for them.
    wanted: u64,
    /// Set when the queue is closed: the time until which the remaining spans may be sent.
    deadline: Option<Instant>,
    is_over: bool,
}

/// Returns the time after a duration.
fn after(duration: Duration) -> Instant {
    Instant::now() + duration.min(DURATION_MAX)
}

/// The result of sending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The collector has accepted the batch, except for `rejected` spans.
    Accepted {
        rejected: u64,
    },
    Unsent,
}

impl Queue {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            settled: Condvar::new(),
            counts: AtomicCounts::default(),
        }
    }

    /// Adds a span, or drops it if there is no room. Never waits for the collector.
    pub(crate) fn push(&self, span: Box<[u8]>) {
        let mut waiting = self.waiting.lock();
        let is_full = waiting.spans.len() >= self.limits.spans
            || waiting.bytes + span.len() > self.limits.bytes;
        if is_full || waiting.deadline.is_some() {
            drop(waiting);
            self.counts.dropped_full.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let was_enough = waiting.is_enough();
        waiting.bytes += span.len();
        waiting.spans.push_back(span);
        waiting.accepted += 1;
        if waiting.spans.len() == 1 {
            waiting.due = Some(after(self.limits.delay));
        }
        // One notification for the first span, and one when a batch is complete.
        let notifies = waiting.spans.len() == 1 || (!was_enough && waiting.is_enough());
        drop(waiting);
        if notifies {
            self.arrived.notify_one();
        }
    }

    /// Waits for the next batch. If no spans arrive for [`REPORT_INTERVAL`], `report` is called so
    /// that dropped spans are logged. Returns `None` when the queue was closed and nothing more is
    /// to be sent.
    pub(crate) fn next_batch(&self, mut report: impl FnMut()) -> Option<Vec<Box<[u8]>>> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            if waiting.is_due() {
                return Some(waiting.take(self.limits.delay));
            }
            if waiting.deadline.is_some() {
                return None;
            }
            match waiting.due {
                Some(due) => _ = self.arrived.wait_until(&mut waiting, due),
                // No spans wait. `report` is called a last time, and then the thread waits without
                // a timeout.
                None => {
                    if self.arrived.wait_for(&mut waiting, REPORT_INTERVAL).timed_out() {
                        MutexGuard::unlocked(&mut waiting, &mut report);
                        if waiting.spans.is_empty() && waiting.deadline.is_none() {
                            self.arrived.wait(&mut waiting);
                        }
                    }
                }
            }
        }
    }

    /// Records the result of sending a batch.
    pub(crate) fn finish(&self, spans: u64, outcome: Outcome) {
        let add = |counter: &AtomicU64, number| counter.fetch_add(number, Ordering::Relaxed);
        match outcome {
            Outcome::Accepted { rejected } => {
                let rejected = rejected.min(spans);
                add(&self.counts.exported, spans - rejected);
                add(&self.counts.rejected, rejected);
            }
            Outcome::Unsent => _ = add(&self.counts.dropped_unsent, spans),
        }
        self.waiting.lock().finished += spans;
        self.settled.notify_all();
    }

    /// Waits before the next attempt to send. Returns `false` if the deadline of the queue comes
    /// first.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let until = after(pause);
        let mut waiting = self.waiting.lock();
        while Instant::now() < until {
            if waiting.deadline.is_some_and(|deadline| deadline <= until) {
                return false;
            }
            self.arrived.wait_until(&mut waiting, until);
        }
        true
    }

    /// Returns the time that is left until the deadline, or `None` if the queue is not closed.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let deadline = self.waiting.lock().deadline;
        deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Drops the spans that were not sent, because the thread has ended. If it has panicked, they
    /// include the batch that it was sending.
    pub(crate) fn end(&self) {
        let mut waiting = self.waiting.lock();
        let unsent = waiting.accepted - waiting.finished;
        waiting.spans.clear();
        waiting.bytes = 0;
        waiting.finished = waiting.accepted;
        waiting.deadline.get_or_insert_with(Instant::now);
        waiting.is_over = true;
        drop(waiting);
        self.counts.dropped_unsent.fetch_add(unsent, Ordering::Relaxed);
        self.settled.notify_all();
    }

    /// Waits until all spans so far were sent or dropped. Returns `false` after the timeout.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let until = after(timeout);
        let mut waiting = self.waiting.lock();
        let target = waiting.accepted;
        waiting.wanted = waiting.wanted.max(target);
        self.arrived.notify_one();
        while waiting.finished < target {
            if self.settled.wait_until(&mut waiting, until).timed_out() {
                return waiting.finished >= target;
            }
        }
        true
    }

    /// Accepts no more spans, and waits until the thread has ended. Returns `false` after the
    /// timeout.
    pub(crate) fn close(&self, timeout: Duration) -> bool {
        let until = after(timeout);
        let mut waiting = self.waiting.lock();
        // A second call does not wait longer than the first.
        let until = waiting.deadline.map_or(until, |other| other.min(until));
        waiting.deadline = Some(until);
        self.arrived.notify_one();
        while !waiting.is_over {
            if self.settled.wait_until(&mut waiting, until).timed_out() {
                return waiting.is_over;
            }
        }
        true
    }

    pub(crate) fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            exported: load(&self.counts.exported),
            dropped_full: load(&self.counts.dropped_full),
            dropped_unsent: load(&self.counts.dropped_unsent),
            rejected: load(&self.counts.rejected),
        }
    }
}

impl Waiting {
    fn is_enough(&self) -> bool {
        self.spans.len() >= BATCH_SPANS || self.bytes >= BATCH_BYTES
    }

    /// Returns whether a batch is to be sent now.
    fn is_due(&self) -> bool {
        !self.spans.is_empty()
            && (self.is_enough()
                || self.wanted > self.finished
                || self.deadline.is_some()
                || self.due.is_some_and(|due| Instant::now() >= due))
    }

    fn take(&mut self, delay: Duration) -> Vec<Box<[u8]>> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES && batch.len() < BATCH_SPANS {
            let Some(span) = self.spans.pop_front() else { break };
            bytes += span.len();
            batch.push(span);
        }
        self.bytes -= bytes;
        self.due = (!self.spans.is_empty()).then(|| after(delay));
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn queue(bytes: usize) -> Queue {
        Queue::new(QueueLimits { spans: 10_000, bytes, delay: MINUTE })
    }

    fn push(queue: &Queue, bytes: usize) {
        queue.push(vec![0; bytes].into());
    }

    #[test]
    fn a_span_fits_if_the_bytes_are_not_exceeded_with_it() {
        let queue = queue(10);
        for (bytes, dropped) in [(6, 0), (5, 1), (4, 1), (1, 2)] {
            push(&queue, bytes);
            assert_eq!(queue.counts().dropped_full, dropped, "{bytes}");
        }
    }

    #[test]
    fn as_many_spans_wait_as_the_limit_says() {
        let queue = Queue::new(QueueLimits { spans: 2, bytes: 10, delay: MINUTE });
        (0..3).for_each(|_| push(&queue, 1));
        assert_eq!(queue.counts().dropped_full, 1);
        assert_eq!(queue.waiting.lock().spans.len(), 2);
    }

    #[test]
    fn there_is_no_batch_after_the_deadline() {
        let queue = queue(10);
        push(&queue, 1);
        assert!(!queue.close(Duration::ZERO));
        assert!(queue.next_batch(|| ()).is_none());
    }

    #[test]
    fn no_span_is_accepted_after_the_end() {
        let queue = queue(10);
        push(&queue, 1);
        assert!(!queue.close(Duration::ZERO));
        push(&queue, 1);
        assert_eq!(queue.counts().dropped_full, 1);
        queue.end();
        assert_eq!(queue.counts().dropped_unsent, 1, "that one would wait for ever");
    }

    #[test]
    fn a_second_end_does_not_extend_the_first() {
        let queue = queue(10);
        assert!(!queue.close(Duration::ZERO));
        queue.end();
        assert!(queue.close(MINUTE));
        assert_eq!(queue.time_left(), Some(Duration::ZERO));
    }

    #[test]
    fn what_a_batch_leaves_is_due_after_another_delay() {
        let queue = queue(1 << 20);
        for _ in 0..=BATCH_SPANS {
            push(&queue, 1);
        }
        let earliest = after(MINUTE);
        let batch = queue.next_batch(|| ()).unwrap();
        assert_eq!(batch.len(), BATCH_SPANS);
        let due = queue.waiting.lock().due.unwrap();
        assert!((earliest..=after(MINUTE)).contains(&due));
    }
}
