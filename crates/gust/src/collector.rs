//! Merges the slices of all threads: the total, the timeline, and the current figures.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::outbox::Delivery;
use crate::tally::Slice;

/// Most intervals in a timeline. A chart could not show more.
const INTERVALS_MAX: usize = 600;

/// Most intervals that a gap without deliveries may add before the timeline is merged.
const GAP_MAX: usize = INTERVALS_MAX * 64;

/// An observer of a run in progress.
pub(crate) trait Observer {
    /// Called about ten times per second, with the figures since the last call.
    fn update(&mut self, live: &Live);
}

/// The current figures of a run.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) is_warm_up: bool,
    pub(crate) responses: u64,
    pub(crate) errors: u64,
    pub(crate) latency: Histogram,
    /// Since the end of the warm-up.
    pub(crate) responses_total: u64,
    pub(crate) errors_total: u64,
}

/// The result of merging all slices.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) total: Slice,
    pub(crate) timeline: Vec<Interval>,
    /// The length of one interval of the timeline, in ticks.
    pub(crate) ticks_per_interval: u64,
}

pub(crate) struct Collector {
    returns: Vec<Sender<Box<Slice>>>,
    collected: Collected,
    /// Intervals to which a thread may still add, by their number.
    open: BTreeMap<u64, Slice>,
    /// Slices of closed intervals, kept for reuse. Each has nearly a megabyte.
    spare: Vec<Slice>,
    /// The interval that each thread has reached.
    reached: Vec<u64>,
    live: Live,
}

impl Collector {
    pub(crate) fn new(returns: Vec<Sender<Box<Slice>>>, ticks_per_interval: u64) -> Self {
        let live = Live {
            is_warm_up: true,
            responses: 0,
            errors: 0,
            latency: Histogram::new(),
            responses_total: 0,
            errors_total: 0,
        };
        Self {
            reached: vec![0; returns.len()],
            returns,
            collected: Collected { total: Slice::new(), timeline: Vec::new(), ticks_per_interval },
            open: BTreeMap::new(),
            spare: Vec::new(),
            live,
        }
    }

    /// Collects until every thread has dropped its sender.
    pub(crate) fn run(
        mut self,
        slices: &Receiver<Delivery>,
        observer: &mut dyn Observer,
    ) -> Collected {
        loop {
            match slices.recv_timeout(Duration::from_millis(100)) {
                Ok(delivery) => {
                    self.take(delivery);
                    slices.try_iter().for_each(|delivery| self.take(delivery));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            observer.update(&self.live);
            self.live.responses = 0;
            self.live.errors = 0;
            self.live.latency.clear();
        }
        self.close_before(u64::MAX);
        self.collected
    }

    fn take(&mut self, delivery: Delivery) {
        let Delivery { thread, tick, mut slice } = delivery;
        self.live.is_warm_up = tick.is_none();
        self.live.responses += slice.responses;
        self.live.errors += slice.errors.total();
        self.live.latency.add(&slice.latency);
        if let Some(tick) = tick {
            self.live.responses_total += slice.responses;
            self.live.errors_total += slice.errors.total();
            self.collected.total.merge(&slice);
            let fresh = || self.spare.pop().unwrap_or_else(Slice::new);
            self.open
                .entry(tick / self.collected.ticks_per_interval)
                .or_insert_with(fresh)
                .merge(&slice);
            self.reached[thread] = tick / self.collected.ticks_per_interval;
            self.close_before(self.reached.iter().copied().min().unwrap_or(0));
        }
        slice.clear();
        // This fails if the thread has ended.
        let _ = self.returns[thread].send(slice);
    }

    /// Closes the intervals before `end`, to which nothing can be added any more. Intervals without
    /// deliveries are empty.
    fn close_before(&mut self, end: u64) {
        while self.open.first_key_value().is_some_and(|(&at, _)| at < end) {
            let Some((at, mut slice)) = self.open.pop_first() else { return };
            let index = usize::try_from(at).unwrap_or(usize::MAX);
            // Intervals this late, after the run was suspended for an hour, are left out of the
            // timeline: a chart could not show them.
            if index >= GAP_MAX {
                continue;
            }
            while self.collected.timeline.len() < index {
                self.collected.timeline.push(Interval::default());
            }
            self.collected.timeline.push(Interval {
                responses: slice.responses,
                errors: slice.errors.total(),
                p50: slice.latency.percentile(50.0),
                p99: slice.latency.percentile(99.0),
                max: slice.latency.max(),
            });
            slice.clear();
            self.spare.push(slice);
        }
        while self.collected.timeline.len() >= INTERVALS_MAX
            && self.collected.timeline.len() % 2 == 0
        {
            self.merge_pairs();
        }
    }

    /// Merges pairs of intervals into intervals of twice the length, so that memory does not grow
    /// with time. The larger of two percentiles is kept.
    fn merge_pairs(&mut self) {
        let pairs = self.collected.timeline.chunks(2);
        self.collected.timeline = pairs
            .map(|pair| pair.iter().copied().fold(Interval::default(), Interval::with))
            .collect();
        self.collected.ticks_per_interval *= 2;
        self.reached.iter_mut().for_each(|reached| *reached /= 2);
        for (at, slice) in std::mem::take(&mut self.open) {
            self.open.entry(at / 2).or_insert_with(Slice::new).merge(&slice);
        }
    }
}

/// The figures of one interval of time. Latencies are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interval {
    pub(crate) responses: u64,
    pub(crate) errors: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Interval {
    /// Returns both intervals merged.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            responses: self.responses + other.responses,
            errors: self.errors + other.errors,
            p50: self.p50.max(other.p50),
            p99: self.p99.max(other.p99),
            max: self.max.max(other.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::tally::ErrorKind;

    struct NoObserver;

    impl Observer for NoObserver {
        fn update(&mut self, _: &Live) {}
    }

    /// Collects deliveries, each with a thread, a tick and a number of responses. A number that is
    /// a multiple of 8 is also recorded as a latency. Others are not, because merging latencies is
    /// most of the work.
    fn collect(ticks_per_interval: u64, deliveries: &[(usize, Option<u64>, u64)]) -> Collected {
        // Slices are large, so the channel is short and returned slices are reused.
        let (sender, receiver) = mpsc::sync_channel(1);
        let (back, returned) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                for &(thread, tick, responses) in deliveries {
                    let mut slice = returned.try_recv().unwrap_or_else(|_| Box::new(Slice::new()));
                    slice.responses = responses;
                    if responses % 8 == 0 {
                        slice.latency.record(responses);
                    }
                    slice.errors.add(ErrorKind::Timeout, 1);
                    sender.send(Delivery { thread, tick, slice }).unwrap();
                }
            });
            Collector::new(vec![back; 2], ticks_per_interval).run(&receiver, &mut NoObserver)
        })
    }

    /// What an observer has seen of a run in progress.
    #[derive(Default)]
    struct Seen {
        lately: Vec<(u64, u64, u64)>,
        in_all: (u64, u64),
        was_warm_up: bool,
    }

    impl Observer for Seen {
        fn update(&mut self, live: &Live) {
            self.lately.push((live.responses, live.errors, live.latency.count()));
            self.in_all = (live.responses_total, live.errors_total);
            self.was_warm_up = live.is_warm_up;
        }
    }

    #[test]
    fn an_observer_gets_the_figures_since_the_last_update_and_the_totals() {
        let (sender, receiver) = mpsc::channel();
        for (tick, responses) in [(None, 8), (None, 16), (Some(0), 24), (Some(1), 40)] {
            let mut slice = Box::new(Slice::new());
            slice.responses = responses;
            slice.latency.record(responses);
            slice.errors.add(ErrorKind::Timeout, 3);
            sender.send(Delivery { thread: 0, tick, slice }).unwrap();
        }
        drop(sender);
        let mut seen = Seen::default();
        let collected = Collector::new(vec![mpsc::channel().0], 1).run(&receiver, &mut seen);
        // All slices were there at the first update, and none came later.
        assert_eq!(seen.lately, [(88, 12, 4)]);
        assert_eq!((seen.in_all, seen.was_warm_up), ((64, 6), false));
        assert_eq!((collected.total.responses, collected.timeline.len()), (64, 2));
    }

    #[test]
    fn the_slices_of_all_threads_add_up_in_each_interval() {
        let collected = collect(
            2,
            &[
                (0, None, 99),
                (0, Some(0), 1),
                (0, Some(1), 2),
                (0, Some(2), 4),
                (1, Some(1), 8),
                (1, Some(5), 16),
            ],
        );
        let responses: Vec<_> =
            collected.timeline.iter().map(|interval| interval.responses).collect();
        assert_eq!(responses, [11, 4, 16]);
        assert_eq!((collected.total.responses, collected.total.errors.timeout), (31, 5));
        assert_eq!(collected.timeline[0].max, 8);
    }

    #[test]
    fn a_timeline_of_more_than_600_intervals_keeps_their_order() {
        // One thread is two ticks behind the other, so intervals are open when pairs are merged.
        let ticks: i64 = 1300;
        let deliveries: Vec<_> = (0..ticks + 2)
            .flat_map(|tick| [(0, tick), (1, tick - 2)])
            .filter(|(_, tick)| (0..ticks).contains(tick))
            .map(|(thread, tick)| (thread, u64::try_from(tick).ok(), tick.unsigned_abs()))
            .collect();
        let collected = collect(1, &deliveries);
        assert_eq!((collected.ticks_per_interval, collected.timeline.len()), (4, 325));
        for (index, interval) in (0..).zip(&collected.timeline) {
            // The ticks 4i to 4i + 3, each with its number from both threads.
            let longest = if index % 2 == 0 { 4 * index } else { 0 };
            let expected = (2 * (16 * index + 6), 8, longest);
            assert_eq!(
                (interval.responses, interval.errors, interval.max),
                expected,
                "interval {index}"
            );
        }
    }

    #[test]
    fn a_timeline_has_600_intervals_before_pairs_are_merged() {
        let of = |ticks: u64| {
            let deliveries: Vec<_> =
                (0..ticks).flat_map(|tick| [(0, Some(tick), 1), (1, Some(tick), 1)]).collect();
            let collected = collect(1, &deliveries);
            (collected.timeline.len(), collected.ticks_per_interval)
        };
        assert_eq!([599, 600, 601].map(of), [(599, 1), (300, 2), (301, 2)]);
    }

    /// Nothing is delivered for the last interval before the merge, so the timeline grows by two at
    /// once.
    #[test]
    fn pairs_are_merged_only_if_the_number_of_intervals_is_even() {
        let ticks = (0..=602_u64).filter(|&tick| tick != 599);
        let deliveries: Vec<_> =
            ticks.flat_map(|tick| [(0, Some(tick), 1), (1, Some(tick), 1)]).collect();
        let collected = collect(1, &deliveries);
        let responses: Vec<_> =
            collected.timeline.iter().map(|interval| interval.responses).collect();
        let expected: Vec<_> =
            (0..302).map(|index| if matches!(index, 299 | 301) { 2 } else { 4 }).collect();
        assert_eq!((responses, collected.ticks_per_interval), (expected, 2));
    }

    #[test]
    fn an_interval_without_deliveries_is_empty() {
        let collected = collect(1, &[(0, Some(1), 1), (1, Some(3), 2)]);
        let responses: Vec<_> =
            collected.timeline.iter().map(|interval| interval.responses).collect();
        assert_eq!(responses, [0, 1, 0, 2]);
        // A thread was suspended for an hour and four minutes. The timeline does not extend to that
        // time.
        for (tick, in_timeline) in [(38_399, 3), (38_400, 1)] {
            let collected = collect(1, &[(0, Some(1), 1), (1, Some(tick), 2)]);
            let responses: u64 = collected.timeline.iter().map(|interval| interval.responses).sum();
            assert_eq!((responses, collected.total.responses), (in_timeline, 3), "tick {tick}");
        }
    }

    #[test]
    fn two_intervals_have_the_sums_and_the_worse_times_of_both() {
        let one = Interval { responses: 1, errors: 2, p50: 30, p99: 90, max: 100 };
        let other = Interval { responses: 10, errors: 20, p50: 40, p99: 80, max: 200 };
        let both = Interval { responses: 11, errors: 22, p50: 40, p99: 90, max: 200 };
        assert_eq!((one.with(other), other.with(one)), (both, both));
    }

    /// Passes on what each update says.
    struct Telling(Sender<(u64, u64, u64, bool)>);

    impl Observer for Telling {
        fn update(&mut self, live: &Live) {
            let seen = (live.responses, live.errors, live.latency.count(), live.is_warm_up);
            // Nothing may have come for a while.
            if live.responses > 0 {
                self.0.send(seen).unwrap();
            }
        }
    }

    #[test]
    fn an_update_has_only_what_is_new_and_says_whether_it_is_the_warm_up() {
        let ((sender, receiver), (tell, told)) = (mpsc::channel(), mpsc::channel());
        let (back, _returned) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || Collector::new(vec![back], 1).run(&receiver, &mut Telling(tell)));
            for (tick, responses) in [(None, 8), (None, 16), (Some(0), 24), (Some(1), 40)] {
                let mut slice = Box::new(Slice::new());
                slice.responses = responses;
                slice.latency.record(responses);
                slice.errors.add(ErrorKind::Timeout, 1);
                sender.send(Delivery { thread: 0, tick, slice }).unwrap();
                assert_eq!(told.recv(), Ok((responses, 1, 1, tick.is_none())));
            }
            drop(sender);
        });
    }
}
