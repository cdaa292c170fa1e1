//! Waiting for conditions.

use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for an event that is due soon. Generous, because the machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(20);

const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `condition` returns `true`. Panics with `what` after the deadline.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_within(DEADLINE, what, condition);
}

/// As [`eventually`], with a deadline that is a part of the test.
#[track_caller]
pub fn eventually_within(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !condition() {
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        thread::sleep(LOOK_EVERY);
    }
}

/// Checks for a while that `condition` stays true. For events that must not happen, which a test
/// cannot wait for.
#[track_caller]
pub fn holds_for(time: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(condition(), "no longer true: {what}");
        thread::sleep(LOOK_EVERY);
    }
}
