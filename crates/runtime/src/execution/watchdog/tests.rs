//! Each look at a moment of the test's choice.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::*;

/// A loop of which a test says what is seen.
#[derive(Debug)]
struct Loop {
    turn: AtomicU64,
    leader: u32,
    /// Whether the call still holds the loop when it is taken.
    gives: AtomicBool,
    taken: Mutex<Vec<(u64, Duration)>>,
}

impl Loop {
    fn led_by(leader: u32) -> Arc<Self> {
        let (turn, gives) = (AtomicU64::new(0), AtomicBool::new(true));
        Arc::new(Self { turn, leader, gives, taken: Mutex::default() })
    }

    fn set(&self, turn: u64) {
        self.turn.store(turn, Ordering::Relaxed);
    }

    /// What was taken since the last time.
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

    fn stand_by(&self) {}

    fn stand_down(&self) {}

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
fn a_call_is_taken_at_the_second_look_that_finds_it() {
    let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
    let mut lookout = Lookout::new(&loops, &crowd, start);
    for (millis, turn, expected) in [
        (3, 1, vec![]),
        (6, 1, vec![(1, 3 * MILLI)]),
        // It is still there: taking it has failed.
        (9, 1, vec![(1, 6 * MILLI)]),
        // Another one in its place begins anew, and there is none at the next look.
        (12, 3, vec![]),
        (15, 4, vec![]),
        (18, 4, vec![]),
        (21, 5, vec![]),
        (25, 5, vec![(5, 4 * MILLI)]),
    ] {
        loops[0].set(turn);
        lookout.look(start + millis * MILLI, waits);
        assert_eq!(loops[0].taken(), expected, "after {millis} ms");
    }
}

#[test]
fn a_call_that_ran_at_the_start_is_taken_too() {
    let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
    loops[0].set(9);
    let mut lookout = Lookout::new(&loops, &crowd, start);
    lookout.look(start + MILLI, waits);
    assert_eq!(loops[0].taken(), [(9, MILLI)]);
}

#[test]
fn a_thread_at_work_has_until_the_calm_period_is_over() {
    for (is_at_work, taken_after) in [(Some(true), 3000), (Some(false), 500), (None, 500)] {
        let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
        let mut lookout = Lookout::new(&loops, &crowd, start);
        loops[0].set(1);
        lookout.look(start, |_| is_at_work);
        let taken = (1..=10).map(|look| look * PERIOD_WARY).find(|&after| {
            lookout.look(start + after, |_| is_at_work);
            !loops[0].taken().is_empty()
        });
        assert_eq!(taken, Some(Duration::from_micros(taken_after)), "{is_at_work:?}");
    }
}

#[test]
fn the_loop_that_is_held_is_taken_and_its_leader_asked_about() {
    let loops = [Loop::led_by(1), Loop::led_by(2), Loop::led_by(3)];
    let (crowd, start) = (Crowd::new(1), Instant::now());
    let mut lookout = Lookout::new(&loops, &crowd, start);
    // The first is between calls, the second is held, and the third has one quick call after the
    // other.
    for (look, third) in (1..=4).zip([1, 3, 5, 7]) {
        loops[1].set(1);
        loops[2].set(third);
        lookout.look(start + look * PERIOD_WARY, |leader| {
            assert_eq!(leader, 2);
            Some(look < 4)
        });
    }
    assert_eq!(loops.each_ref().map(|each| each.taken().len()), [0, 1, 0]);
}

#[test]
fn a_catch_makes_it_wary_for_a_second() {
    let (loops, crowd, start) = ([Loop::led_by(7)], Crowd::new(1), Instant::now());
    let mut lookout = Lookout::new(&loops, &crowd, start);
    assert_eq!(lookout.period(start), PERIOD_CALM);
    loops[0].set(1);
    lookout.look(start, waits);
    assert_eq!(lookout.period(start), PERIOD_CALM, "one look is no catch");
    // The handler returned between the look and the taking.
    loops[0].gives.store(false, Ordering::Relaxed);
    lookout.look(start + PERIOD_CALM, waits);
    assert_eq!(lookout.period(start + PERIOD_CALM), PERIOD_CALM);
    loops[0].gives.store(true, Ordering::Relaxed);
    let caught_at = start + 2 * PERIOD_CALM;
    lookout.look(caught_at, waits);
    assert_eq!(lookout.period(caught_at), PERIOD_WARY);
    // What returns in time does not prolong it.
    loops[0].set(2);
    lookout.look(caught_at + WARY_TIME / 2, waits);
    assert_eq!(lookout.period(caught_at + WARY_TIME - Duration::from_nanos(1)), PERIOD_WARY);
    assert_eq!(lookout.period(caught_at + WARY_TIME), PERIOD_CALM);
}

#[test]
fn it_parks_when_nothing_has_happened_for_a_while() {
    let (loops, crowd, start) = ([Loop::led_by(1), Loop::led_by(2)], Crowd::new(1), Instant::now());
    let mut lookout = Lookout::new(&loops, &crowd, start);
    let mut look = |millis, turn| {
        loops[1].set(turn);
        lookout.look(start + millis * MILLI, works);
        lookout.is_quiet(start + millis * MILLI)
    };
    assert!(!look(59, 0));
    assert!(look(60, 0));
    // A call was there and is over.
    assert!(!look(61, 2));
    assert!(!look(120, 2));
    assert!(look(121, 2));
    // A call that goes on keeps it awake.
    assert!(!look(122, 3));
    assert!(!look(222, 3));
    assert!(!look(281, 4));
    assert!(look(341, 4));
    let woken_at = start + 1000 * MILLI;
    lookout.woke_up(woken_at);
    assert!(!lookout.is_quiet(woken_at + QUIET_TIME - Duration::from_nanos(1)));
    assert!(lookout.is_quiet(woken_at + QUIET_TIME));
}

#[test]
fn what_calls_took_on_the_pool_is_told_to_the_crowd_once_a_window() {
    let (loops, start) = ([Loop::led_by(1)], Instant::now());
    let crowd = Arc::new(Crowd::new(1));
    let mut lookout = Lookout::new(&loops, &crowd, start);
    let _members: Vec<_> = (0..60).map(|_| crowd.join()).collect();
    assert!(!crowd.may_lease(), "a crowd, and nobody knows what it needs");
    crowd.add_busy(40 * crowd::WINDOW);
    lookout.look(start + crowd::WINDOW - Duration::from_nanos(1), waits);
    assert!(!crowd.may_lease(), "the window is not over");
    lookout.look(start + crowd::WINDOW, waits);
    assert!(crowd.may_lease(), "40 threads were needed");
    crowd.add_busy(19 * 2 * crowd::WINDOW);
    lookout.look(start + 3 * crowd::WINDOW, waits);
    assert!(
        !crowd.may_lease(),
        "19 threads for twice as long, and what came before counts no more"
    );
}
