//! Tests of the watchdog's checks, each at a time that the test chooses.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::*;

/// A loop whose state the test sets.
#[derive(Debug)]
struct Loop {
    turn: AtomicU64,
    leader: u32,
    /// Whether the call still holds the loop when it is taken.
    gives: AtomicBool,
    /// Whether requests wait for what the watchdog will see.
    is_limited: AtomicBool,
    taken: Mutex<Vec<(u64, Duration)>>,
}

impl Loop {
    fn led_by(leader: u32) -> Arc<Self> {
        let (turn, gives, is_limited) = (AtomicU64::new(0), true.into(), false.into());
        Arc::new(Self { turn, leader, gives, is_limited, taken: Mutex::default() })
    }

    fn set(&self, turn: u64) {
        self.turn.store(turn, Ordering::Relaxed);
    }

    /// Returns what was taken since the last call.
    fn taken(&self) -> Vec<(u64, Duration)> {
        std::mem::take(&mut self.taken.lock())
    }
}

impl Watched for Loop {
    fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    fn leader(&self) -> u32 {
        self.leader
    }

    fn is_asleep(&self) -> bool {
        false
    }

    fn reserve_leader(&self) {}

    fn release_leader(&self) {}

    fn look_at_calls(&self, _: &mut Looks) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    fn hand_over(&self, turn: u64, held: Duration) -> bool {
        self.taken.lock().push((turn, held));
        self.gives.load(Ordering::Relaxed)
    }
}

fn waits(_: u32) -> Option<bool> {
    Some(false)
}

fn works(_: u32) -> Option<bool> {
    Some(true)
}

const MILLI: Duration = Duration::from_millis(1);

#[test]
fn a_loop_is_taken_at_the_second_check_that_finds_the_same_call() {
    let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
    let mut watcher = Watcher::new(&loops, &crowd, start);
    for (millis, turn, expected) in [
        (3, 1, vec![]),
        (6, 1, vec![(1, 3 * MILLI)]),
        // The call is still running: taking the loop has failed.
        (9, 1, vec![(1, 6 * MILLI)]),
        // A new call starts over, and at the next check there is none.
        (12, 3, vec![]),
        (15, 4, vec![]),
        (18, 4, vec![]),
        (21, 5, vec![]),
        (25, 5, vec![(5, 4 * MILLI)]),
    ] {
        loops[0].set(turn);
        watcher.check(start + millis * MILLI, waits);
        assert_eq!(loops[0].taken(), expected, "after {millis} ms");
    }
}

#[test]
fn a_loop_whose_call_ran_at_the_start_is_taken_too() {
    let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
    loops[0].set(9);
    let mut watcher = Watcher::new(&loops, &crowd, start);
    watcher.check(start + MILLI, waits);
    assert_eq!(loops[0].taken(), [(9, MILLI)]);
}

#[test]
fn a_thread_at_work_has_until_the_calm_period_is_over() {
    for (is_at_work, taken_after) in [(Some(true), 3000), (Some(false), 250), (None, 250)] {
        let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
        let mut watcher = Watcher::new(&loops, &crowd, start);
        loops[0].set(1);
        watcher.check(start, |_| is_at_work);
        let taken = (1..=20).map(|check| check * PERIOD_AFTER_WAIT).find(|&after| {
            watcher.check(start + after, |_| is_at_work);
            !loops[0].taken().is_empty()
        });
        assert_eq!(taken, Some(Duration::from_micros(taken_after)), "{is_at_work:?}");
    }
}

#[test]
fn only_the_held_loop_is_taken_and_only_its_leader_is_examined() {
    let loops = [Loop::led_by(1), Loop::led_by(2), Loop::led_by(3)];
    let (crowd, start) = (Crowd::new(1), Instant::now());
    let mut watcher = Watcher::new(&loops, &crowd, start);
    // The first loop is between calls, the second one is held, and the third one runs one quick
    // call after the other.
    for (check, third) in (1..=4).zip([1, 3, 5, 7]) {
        loops[1].set(1);
        loops[2].set(third);
        watcher.check(start + check * PERIOD_AFTER_WAIT, |leader| {
            assert_eq!(leader, 2);
            Some(check < 4)
        });
    }
    assert_eq!(loops.each_ref().map(|each| each.taken().len()), [0, 1, 0]);
}

#[test]
fn a_catch_shortens_the_period_for_a_second() {
    let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
    let mut watcher = Watcher::new(&loops, &crowd, start);
    assert_eq!(watcher.period(start), PERIOD_CALM);
    loops[0].set(1);
    watcher.check(start, waits);
    assert_eq!(watcher.period(start), PERIOD_CALM, "one check is not a catch");
    // The handler returned between the check and the attempt to take the loop.
    loops[0].gives.store(false, Ordering::Relaxed);
    watcher.check(start + PERIOD_CALM, waits);
    assert_eq!(watcher.period(start + PERIOD_CALM), PERIOD_CALM);
    loops[0].gives.store(true, Ordering::Relaxed);
    let caught_at = start + 2 * PERIOD_CALM;
    watcher.check(caught_at, waits);
    assert_eq!(watcher.period(caught_at), PERIOD_AFTER_WAIT);
    // A handler that returns in time does not prolong the short period.
    loops[0].set(2);
    watcher.check(caught_at + WARY_TIME / 2, waits);
    let before_end = caught_at + WARY_TIME - Duration::from_nanos(1);
    assert_eq!(watcher.period(before_end), PERIOD_AFTER_WAIT);
    assert_eq!(watcher.period(caught_at + WARY_TIME), PERIOD_CALM);
}

#[test]
fn the_period_is_shortest_after_a_call_that_waited() {
    for (is_at_work, micros) in [(Some(false), 250), (Some(true), 500), (None, 500)] {
        let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
        let mut watcher = Watcher::new(&loops, &crowd, start);
        loops[0].set(1);
        watcher.check(start, |_| is_at_work);
        let caught_at = start + PERIOD_CALM;
        watcher.check(caught_at, |_| is_at_work);
        assert_eq!(loops[0].taken(), [(1, PERIOD_CALM)], "{is_at_work:?}");
        assert_eq!(watcher.period(caught_at).as_micros(), micros, "{is_at_work:?}");
        assert_eq!(watcher.period(caught_at + WARY_TIME), PERIOD_CALM, "{is_at_work:?}");
    }
}

#[test]
fn a_call_that_computed_does_not_lengthen_the_period_after_one_that_waited() {
    let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
    let mut watcher = Watcher::new(&loops, &crowd, start);
    for (millis, turn, is_at_work) in [(0, 1, false), (3, 1, false), (6, 3, true), (9, 3, true)] {
        loops[0].set(turn);
        watcher.check(start + millis * MILLI, |_| Some(is_at_work));
    }
    assert_eq!(loops[0].taken().len(), 2);
    assert_eq!(watcher.period(start + 9 * MILLI), PERIOD_AFTER_WAIT);
    assert_eq!(watcher.period(start + 3 * MILLI + WARY_TIME), PERIOD_AFTER_WORK);
    assert_eq!(watcher.period(start + 9 * MILLI + WARY_TIME), PERIOD_CALM);
}

#[test]
fn the_watchdog_parks_when_nothing_has_happened_for_a_while() {
    let (loops, crowd, start) = ([Loop::led_by(1), Loop::led_by(2)], Crowd::new(1), Instant::now());
    let mut watcher = Watcher::new(&loops, &crowd, start);
    let mut check = |millis, turn| {
        loops[1].set(turn);
        watcher.check(start + millis * MILLI, works);
        watcher.is_quiet(start + millis * MILLI)
    };
    assert!(!check(59, 0));
    assert!(check(60, 0));
    // A call was running and has ended.
    assert!(!check(61, 2));
    assert!(!check(120, 2));
    assert!(check(121, 2));
    // A running call keeps the watchdog awake.
    assert!(!check(122, 3));
    assert!(!check(222, 3));
    assert!(!check(281, 4));
    assert!(check(341, 4));
    let woken_at = start + 1000 * MILLI;
    watcher.woke_up(woken_at);
    assert!(!watcher.is_quiet(woken_at + QUIET_TIME - Duration::from_nanos(1)));
    assert!(watcher.is_quiet(woken_at + QUIET_TIME));
}

#[test]
fn the_watchdog_goes_on_while_requests_wait_for_what_it_sees() {
    let (loops, crowd, start) = ([Loop::led_by(1)], Crowd::new(1), Instant::now());
    let mut watcher = Watcher::new(&loops, &crowd, start);
    let mut is_quiet_at = |millis: u32| {
        watcher.check(start + millis * MILLI, works);
        watcher.is_quiet(start + millis * MILLI)
    };
    loops[0].is_limited.store(true, Ordering::Relaxed);
    assert!((3..500).step_by(3).all(|millis| !is_quiet_at(millis)));
    loops[0].is_limited.store(false, Ordering::Relaxed);
    assert!((500..620).any(is_quiet_at));
}

#[test]
fn the_busy_time_of_the_pool_is_reported_to_the_crowd_once_per_window() {
    let (loops, start) = ([Loop::led_by(1)], Instant::now());
    let crowd = Arc::new(Crowd::new(1));
    let mut watcher = Watcher::new(&loops, &crowd, start);
    let _members: Vec<_> = (0..60).map(|_| crowd.join()).collect();
    assert!(!crowd.may_lease(), "many connections, and their need is unknown");
    crowd.add_busy(40 * crowd::WINDOW);
    watcher.check(start + crowd::WINDOW - Duration::from_nanos(1), waits);
    assert!(!crowd.may_lease(), "the window is not over");
    watcher.check(start + crowd::WINDOW, waits);
    assert!(crowd.may_lease(), "40 threads were needed");
    crowd.add_busy(19 * 2 * crowd::WINDOW);
    watcher.check(start + 3 * crowd::WINDOW, waits);
    assert!(!crowd.may_lease(), "19 threads for twice as long; earlier windows do not count");
}
