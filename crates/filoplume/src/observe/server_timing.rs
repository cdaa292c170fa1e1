//! The field `Server-Timing`, by which a browser shows where the time of a request went.

use std::fmt::{self, Write as _};
use std::time::Duration;

use filoplume_runtime::Timing;

/// Returns the value of `Server-Timing` (W3C Server Timing): the phases before the response was
/// written that took any time, and their sum, in milliseconds. Writing the response comes after the
/// field, so it is not included.
pub(crate) fn server_timing(timing: &Timing) -> String {
    let mut value = String::with_capacity(96);
    for (name, time) in timing.phases() {
        if !time.is_zero() {
            let _ = write!(value, "{name};dur={}, ", Milliseconds(time));
        }
    }
    let _ = write!(value, "total;dur={}", Milliseconds(timing.total()));
    value
}

/// A time in milliseconds with three decimals, rounded.
struct Milliseconds(Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.saturating_add(Duration::from_nanos(500)).as_micros();
        write!(f, "{}.{:03}", us / 1000, us % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_that_took_no_time_are_left_out() {
        let mut timing = Timing::default();
        assert_eq!(server_timing(&timing), "total;dur=0.000");
        timing.queue = Duration::from_micros(12_345);
        timing.waiting = Duration::from_millis(200);
        assert_eq!(
            server_timing(&timing),
            "queue;dur=12.345, waiting;dur=200.000, total;dur=212.345"
        );
        let mut timing = Timing::default();
        timing.queue = Duration::from_nanos(1_500);
        assert_eq!(server_timing(&timing), "queue;dur=0.002, total;dur=0.002", "it is rounded");
    }
}
