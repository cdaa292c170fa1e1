//! Waiting for what is to become true.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that should come soon: generous, because the machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(20);

const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `condition` holds; fails with `what` if it does not come to that.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_within(DEADLINE, what, condition);
}

/// As [`eventually`], with a deadline that is part of what is tested.
#[track_caller]
pub fn eventually_within(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !condition() {
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        thread::sleep(LOOK_EVERY);
    }
}

/// Looks for a while whether `condition` stays true. For what must not happen: there is no event to
/// wait for.
#[track_caller]
pub fn holds_for(time: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(condition(), "no longer true: {what}");
        thread::sleep(LOOK_EVERY);
    }
}
