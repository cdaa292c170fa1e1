//! Support for the benches: the time per call, as the minimum of several rounds.
//!
//! The minimum, because disturbances only make a call slower. Compare only figures of one run on
//! one machine.

use std::time::{Duration, Instant};

/// The number of rounds, of which the quickest counts.
const ROUNDS: u32 = 20;

/// Calls `code` repeatedly and prints the time per call.
pub fn report(what: &str, calls_a_round: u32, mut code: impl FnMut()) {
    let mut round = || {
        let started = Instant::now();
        for _ in 0..calls_a_round {
            code();
        }
        started.elapsed() / calls_a_round
    };
    // The first round fills caches.
    round();
    let least = (0..ROUNDS).map(|_| round()).min().unwrap_or(Duration::ZERO);
    println!("{what:<60} {:>9.1} ns", least.as_secs_f64() * 1e9);
}
