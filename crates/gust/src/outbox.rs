//! What a thread sends to the collector: its slices during the run, and a summary at the end.

use std::sync::mpsc::{Receiver, Sender};

use crate::cpu::Spent;
use crate::tally::{Slice, Tally};
use crate::units::Nanos;

/// Sends slices to the collector, and reuses them when they come back.
#[derive(Debug)]
pub(crate) struct Outbox {
    thread: usize,
    slices: Sender<Delivery>,
    returned: Receiver<Box<Slice>>,
    tick: Nanos,
    counts_from: Nanos,
    next_tick: Nanos,
    is_counting: bool,
}

/// A slice of one thread, with the tick to which it belongs.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) thread: usize,
    /// The tick to which the slice belongs, or `None` during the warm-up.
    pub(crate) tick: Option<u64>,
    pub(crate) slice: Box<Slice>,
}

/// The summary of a thread that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The number of responses on each connection.
    pub(crate) served: Vec<u64>,
    /// How many times each connection was opened.
    pub(crate) opened: Vec<u64>,
    /// How many connections were held at the end: open, and waiting for what the server sends by
    /// itself, or with a complete response.
    pub(crate) held: usize,
    /// Requests that were sent and have no response.
    pub(crate) unanswered: u64,
    /// Requests that were due and were never sent.
    pub(crate) never_sent: u64,
    /// How long the oldest of these requests has waited.
    pub(crate) longest_wait: Nanos,
    pub(crate) thread: Spent,
    pub(crate) ended: Nanos,
}

impl Outbox {
    pub(crate) fn new(
        thread: usize,
        slices: Sender<Delivery>,
        returned: Receiver<Box<Slice>>,
        tick: Nanos,
        counts_from: Nanos,
    ) -> Self {
        let mut outbox =
            Self { thread, slices, returned, tick, counts_from, next_tick: 0, is_counting: false };
        outbox.set_next_tick(0);
        outbox
    }

    #[inline]
    pub(crate) fn next_tick(&self) -> Nanos {
        self.next_tick
    }

    /// Returns whether the warm-up has just ended. This is true once, and never without a warm-up.
    pub(crate) fn begins_to_count(&mut self, now: Nanos, counts_from: Nanos) -> bool {
        let begins = counts_from > 0 && !self.is_counting && now >= counts_from;
        self.is_counting |= begins;
        begins
    }

    /// Returns whether the current slice belongs to the time after the warm-up.
    pub(crate) fn is_counted(&self, now: Nanos) -> bool {
        self.next_tick.min(now) > self.counts_from
    }

    /// Sends the current slice to the collector and starts a new one.
    pub(crate) fn deliver(&mut self, tally: &mut Tally, now: Nanos) {
        let mut slice = self.returned.try_recv().unwrap_or_else(|_| Box::new(Slice::new()));
        let is_counted = self.is_counted(now);
        if !is_counted && now >= self.counts_from {
            // The last slice of the warm-up ends a little after it. What counts already belongs to
            // the next slice.
            tally.slice.move_uncounted(&mut slice);
        } else {
            std::mem::swap(&mut tally.slice, &mut slice);
        }
        // A slice ends a little after its tick, or well before the next one at the end of the run.
        // So the middle of the slice determines its tick.
        let middle = now.saturating_sub(self.counts_from).saturating_sub(self.tick / 2);
        let tick = is_counted.then(|| middle / self.tick);
        self.set_next_tick(now);
        // This fails if the collector has ended, at the end of the run.
        let _ = self.slices.send(Delivery { thread: self.thread, tick, slice });
    }

    fn set_next_tick(&mut self, now: Nanos) {
        self.next_tick = match now.checked_sub(self.counts_from) {
            Some(counted) => self.counts_from + (counted / self.tick + 1) * self.tick,
            None => (now + self.tick).min(self.counts_from),
        };
    }
}

/// Returns how long the oldest of these requests has waited. The wait counts at the earliest from
/// the end of the warm-up.
pub(crate) fn longest_wait(
    since: impl Iterator<Item = Nanos>,
    counts_from: Nanos,
    ended: Nanos,
) -> Nanos {
    since.min().map_or(0, |since| ended.saturating_sub(since.max(counts_from)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::tally::ErrorKind;

    #[test]
    fn slices_know_their_tick() {
        let (sender, receiver) = mpsc::channel();
        let (_back, returned) = mpsc::channel();
        let mut outbox = Outbox::new(3, sender, returned, 100, 250);
        let mut tally = Tally::new(250, false);
        let mut ticks = Vec::new();
        for late in [0, 0, 7, 0, 330, 0] {
            let now = outbox.next_tick() + late;
            outbox.deliver(&mut tally, now);
            let delivery = receiver.recv().unwrap();
            ticks.push((now, delivery.tick));
        }
        let expected =
            [(100, None), (200, None), (257, None), (350, Some(0)), (780, Some(4)), (850, Some(5))];
        assert_eq!(ticks, expected);
    }

    #[test]
    fn what_counts_before_the_last_slice_of_the_warm_up_ends_is_not_lost() {
        let (sender, receiver) = mpsc::channel();
        let (_back, returned) = mpsc::channel();
        let mut outbox = Outbox::new(0, sender, returned, 100, 100);
        let mut tally = Tally::new(100, false);
        for sent in [50, 101, 102] {
            tally.request(sent);
        }
        assert!(tally.response(101, 101, 103));
        tally.slice.count_status(200);
        (tally.slice.bytes_sent, tally.slice.bytes_received) = (30, 10);
        tally.error(ErrorKind::Reset, 1);
        let mut delivered = |now| {
            outbox.deliver(&mut tally, now);
            let Delivery { tick, slice, .. } = receiver.recv().unwrap();
            let counts = (slice.requests, slice.responses, slice.latency.count());
            let statuses = slice.statuses.len();
            (tick, counts, statuses, slice.bytes_sent, slice.bytes_received, slice.errors.total())
        };
        assert_eq!(delivered(104), (None, (0, 0, 0), 0, 30, 10, 1));
        assert_eq!(delivered(200), (Some(0), (2, 1, 1), 1, 0, 0, 0));
        assert_eq!(delivered(300), (Some(1), (0, 0, 0), 0, 0, 0, 0));
    }

    #[test]
    fn the_longest_wait_is_that_of_the_oldest_since_the_warm_up() {
        let of =
            |since: &[Nanos], counts_from| longest_wait(since.iter().copied(), counts_from, 1000);
        assert_eq!([of(&[], 0), of(&[500, 300, 900], 0)], [0, 700]);
        assert_eq!([of(&[500, 300, 900], 400), of(&[300], 400), of(&[1001], 0)], [600, 600, 0]);
    }

    #[test]
    fn counting_begins_once() {
        let (sender, _receiver) = mpsc::channel();
        let (_back, returned) = mpsc::channel();
        let mut outbox = Outbox::new(0, sender, returned, 100, 250);
        let begins: Vec<_> =
            [0, 249, 250, 300].map(|now| outbox.begins_to_count(now, 250)).to_vec();
        assert_eq!(begins, [false, false, true, false]);
    }
}
