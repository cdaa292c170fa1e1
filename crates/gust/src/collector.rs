//! Puts the slices of all threads together: the sum, the course over time, and what is going on
//! right now.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::outbox::Delivery;
use crate::tally::Slice;

/// Most moments that a course has: more would not be seen.
const MOMENTS_MAX: usize = 600;

/// Longest course before it is halved: nothing was delivered for so many moments.
const GAP_MAX: usize = MOMENTS_MAX * 64;

/// Something that wants to be told how it goes.
pub(crate) trait Watch {
    /// Called some ten times a second, with what was collected since the last time.
    fn look(&mut self, live: &Live);
}

/// What happened lately.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) is_warm_up: bool,
    pub(crate) responses: u64,
    pub(crate) errors: u64,
    pub(crate) latency: Histogram,
    /// From the beginning.
    pub(crate) responses_total: u64,
    pub(crate) errors_total: u64,
}

/// What all slices come down to.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) total: Slice,
    pub(crate) course: Vec<Moment>,
    /// How long one of its moments is, in ticks.
    pub(crate) ticks_per_moment: u64,
}

pub(crate) struct Collector {
    returns: Vec<Sender<Box<Slice>>>,
    collected: Collected,
    /// Moments to which a thread may still add, by their first tick.
    open: BTreeMap<u64, Slice>,
    /// Slices of moments that are closed: each is most of a megabyte, and there will be another
    /// moment.
    spare: Vec<Slice>,
    /// The tick that each thread has reached.
    reached: Vec<u64>,
    live: Live,
}

impl Collector {
    pub(crate) fn new(returns: Vec<Sender<Box<Slice>>>, ticks_per_moment: u64) -> Self {
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
            collected: Collected { total: Slice::new(), course: Vec::new(), ticks_per_moment },
            open: BTreeMap::new(),
            spare: Vec::new(),
            live,
        }
    }

    /// Collects until every thread has hung up.
    pub(crate) fn run(mut self, slices: &Receiver<Delivery>, watch: &mut dyn Watch) -> Collected {
        loop {
            match slices.recv_timeout(Duration::from_millis(100)) {
                Ok(delivery) => {
                    self.take(delivery);
                    slices.try_iter().for_each(|delivery| self.take(delivery));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            watch.look(&self.live);
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
                .entry(tick / self.collected.ticks_per_moment)
                .or_insert_with(fresh)
                .merge(&slice);
            self.reached[thread] = tick / self.collected.ticks_per_moment;
            self.close_before(self.reached.iter().copied().min().unwrap_or(0));
        }
        slice.clear();
        // The thread may have ended meanwhile.
        let _ = self.returns[thread].send(slice);
    }

    /// Nothing can be added to these moments any more. Those in which nothing was delivered are
    /// empty ones.
    fn close_before(&mut self, end: u64) {
        while self.open.first_key_value().is_some_and(|(&at, _)| at < end) {
            let Some((at, mut slice)) = self.open.pop_first() else { return };
            let index = usize::try_from(at).unwrap_or(usize::MAX);
            // Whoever was suspended for an hour has no course that could be drawn.
            if index >= GAP_MAX {
                continue;
            }
            while self.collected.course.len() < index {
                self.collected.course.push(Moment::default());
            }
            self.collected.course.push(Moment {
                responses: slice.responses,
                errors: slice.errors.total(),
                p50: slice.latency.percentile(50.0),
                p99: slice.latency.percentile(99.0),
                max: slice.latency.max(),
            });
            slice.clear();
            self.spare.push(slice);
        }
        while self.collected.course.len() >= MOMENTS_MAX && self.collected.course.len() % 2 == 0 {
            self.halve();
        }
    }

    /// Half as many moments, each twice as long, so that memory does not grow with time. Of two
    /// percentiles the larger one is kept.
    fn halve(&mut self) {
        let pairs = self.collected.course.chunks(2);
        self.collected.course =
            pairs.map(|pair| pair.iter().copied().fold(Moment::default(), Moment::with)).collect();
        self.collected.ticks_per_moment *= 2;
        self.reached.iter_mut().for_each(|reached| *reached /= 2);
        for (at, slice) in std::mem::take(&mut self.open) {
            self.open.entry(at / 2).or_insert_with(Slice::new).merge(&slice);
        }
    }
}

/// A piece of time. Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moment {
    pub(crate) responses: u64,
    pub(crate) errors: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Moment {
    /// Both as one.
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

    struct Nobody;

    impl Watch for Nobody {
        fn look(&mut self, _: &Live) {}
    }

    /// Each delivery is a thread, a tick and a number of responses. If that is a multiple of 8, it
    /// is recorded as a latency too. Not always, because adding latencies up is most of the work.
    fn collect(ticks_per_moment: u64, deliveries: &[(usize, Option<u64>, u64)]) -> Collected {
        // Slices are large, so few are on their way at once, and those that come back are used
        // again.
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
            Collector::new(vec![back; 2], ticks_per_moment).run(&receiver, &mut Nobody)
        })
    }

    /// What was seen of a run while it went on.
    #[derive(Default)]
    struct Seen {
        lately: Vec<(u64, u64, u64)>,
        in_all: (u64, u64),
        was_warm_up: bool,
    }

    impl Watch for Seen {
        fn look(&mut self, live: &Live) {
            self.lately.push((live.responses, live.errors, live.latency.count()));
            self.in_all = (live.responses_total, live.errors_total);
            self.was_warm_up = live.is_warm_up;
        }
    }

    #[test]
    fn who_watches_is_told_what_came_since_the_last_time_and_what_counts_in_all() {
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
        // All were there at the first look, and nothing came after it.
        assert_eq!(seen.lately, [(88, 12, 4)]);
        assert_eq!((seen.in_all, seen.was_warm_up), ((64, 6), false));
        assert_eq!((collected.total.responses, collected.course.len()), (64, 2));
    }

    #[test]
    fn threads_add_up_at_each_moment() {
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
        let responses: Vec<_> = collected.course.iter().map(|moment| moment.responses).collect();
        assert_eq!(responses, [11, 4, 16]);
        assert_eq!((collected.total.responses, collected.total.errors.timeout), (31, 5));
        assert_eq!(collected.course[0].max, 8);
    }

    #[test]
    fn a_course_of_more_than_600_moments_keeps_each_in_its_place() {
        // One thread is two ticks behind the other: what is open when the course is halved stays
        // right.
        let ticks: i64 = 1300;
        let deliveries: Vec<_> = (0..ticks + 2)
            .flat_map(|tick| [(0, tick), (1, tick - 2)])
            .filter(|(_, tick)| (0..ticks).contains(tick))
            .map(|(thread, tick)| (thread, u64::try_from(tick).ok(), tick.unsigned_abs()))
            .collect();
        let collected = collect(1, &deliveries);
        assert_eq!((collected.ticks_per_moment, collected.course.len()), (4, 325));
        for (index, moment) in (0..).zip(&collected.course) {
            // The ticks 4i to 4i + 3, each with its number from both threads.
            let longest = if index % 2 == 0 { 4 * index } else { 0 };
            let expected = (2 * (16 * index + 6), 8, longest);
            assert_eq!((moment.responses, moment.errors, moment.max), expected, "moment {index}");
        }
    }

    #[test]
    fn a_course_has_600_moments_before_it_is_halved() {
        let of = |ticks: u64| {
            let deliveries: Vec<_> =
                (0..ticks).flat_map(|tick| [(0, Some(tick), 1), (1, Some(tick), 1)]).collect();
            let collected = collect(1, &deliveries);
            (collected.course.len(), collected.ticks_per_moment)
        };
        assert_eq!([599, 600, 601].map(of), [(599, 1), (300, 2), (301, 2)]);
    }

    /// Nothing is delivered of the last moment before the course is halved, so that it grows by two
    /// at once.
    #[test]
    fn a_course_is_halved_when_its_moments_are_pairs() {
        let ticks = (0..=602_u64).filter(|&tick| tick != 599);
        let deliveries: Vec<_> =
            ticks.flat_map(|tick| [(0, Some(tick), 1), (1, Some(tick), 1)]).collect();
        let collected = collect(1, &deliveries);
        let responses: Vec<_> = collected.course.iter().map(|moment| moment.responses).collect();
        let expected: Vec<_> =
            (0..302).map(|index| if matches!(index, 299 | 301) { 2 } else { 4 }).collect();
        assert_eq!((responses, collected.ticks_per_moment), (expected, 2));
    }

    #[test]
    fn a_moment_without_deliveries_is_empty() {
        let collected = collect(1, &[(0, Some(1), 1), (1, Some(3), 2)]);
        let responses: Vec<_> = collected.course.iter().map(|moment| moment.responses).collect();
        assert_eq!(responses, [0, 1, 0, 2]);
        // A thread was suspended for an hour and four minutes: no course is drawn up to there.
        for (tick, in_course) in [(38_399, 3), (38_400, 1)] {
            let collected = collect(1, &[(0, Some(1), 1), (1, Some(tick), 2)]);
            let responses: u64 = collected.course.iter().map(|moment| moment.responses).sum();
            assert_eq!((responses, collected.total.responses), (in_course, 3), "tick {tick}");
        }
    }
}
