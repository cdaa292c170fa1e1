//! How long a busy connection may keep its loop.

use std::time::Duration;

/// How long a leader handles the input of one connection before it serves its other connections.
pub(crate) const TURN: Duration = Duration::from_millis(1);

/// How long such turns of a whole crowd take together, so that a new request does not wait longer
/// if there are more of these connections.
const CROWD_TURNS: Duration = Duration::from_millis(4);

/// No turn is shorter, however large the crowd is: sixteen short requests are still answered by one
/// write.
const TURN_MIN: Duration = Duration::from_micros(50);

/// Returns how long a turn is while this many connections want to be served.
pub(crate) fn turn_in(crowd: u32) -> Duration {
    (CROWD_TURNS / crowd.max(1)).clamp(TURN_MIN, TURN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_a_crowd_take_four_milliseconds_together() {
        let crowds = [0, 1, 4, 5, 8, 80, 81, u32::MAX];
        let turns = crowds.map(|crowd| turn_in(crowd).as_micros());
        assert_eq!(turns, [1000, 1000, 1000, 800, 500, 50, 50, 50]);
    }
}
