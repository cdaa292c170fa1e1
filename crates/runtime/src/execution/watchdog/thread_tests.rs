//! Tests of the thread of the watchdog: when it reserves a leader, and when it parks.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A loop whose call goes on for ever. Counts what the thread of the watchdog asks for.
#[derive(Default)]
struct Counted {
    is_asleep: bool,
    is_running: bool,
    reserved: AtomicU64,
    released: AtomicU64,
}

impl Watched for Counted {
    fn turn(&self) -> u64 {
        u64::from(self.is_running)
    }

    fn leader(&self) -> u32 {
        0
    }

    fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    fn reserve_leader(&self) {
        self.reserved.fetch_add(1, Ordering::SeqCst);
    }

    fn release_leader(&self) {
        self.released.fetch_add(1, Ordering::SeqCst);
    }

    fn look_at_calls(&self, _: &mut Looks) -> bool {
        false
    }

    fn hand_over(&self, _: u64, _: Duration) -> bool {
        false
    }
}

fn eventually(happens: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !happens() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

fn start(watchdog: &Watchdog, loops: &[Arc<Counted>]) {
    watchdog.start("watchdog".to_owned(), loops.to_vec(), Arc::new(Crowd::new(1))).unwrap();
}

#[test]
fn a_leader_is_reserved_while_a_call_runs_and_released_at_the_end() {
    let counted = Arc::new(Counted { is_running: true, ..Counted::default() });
    let watchdog = Watchdog::new();
    start(&watchdog, &[Arc::clone(&counted)]);
    eventually(|| counted.reserved.load(Ordering::SeqCst) > 1);
    watchdog.stop();
    eventually(|| counted.released.load(Ordering::SeqCst) == 1);
}

#[test]
fn the_watchdog_does_not_park_while_one_of_its_loops_is_awake() {
    let asleep = Arc::new(Counted { is_asleep: true, ..Counted::default() });
    let awake = Arc::new(Counted::default());
    let watchdog = Watchdog::new();
    start(&watchdog, &[Arc::clone(&asleep), awake]);
    // Nobody wakes it, so if it parked at all, it would never ask again.
    eventually(|| asleep.released.load(Ordering::SeqCst) > 2);
    watchdog.stop();
}
