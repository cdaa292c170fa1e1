//! What the benches share: time per call, as the least of several rounds.
//!
//! The least, because everything that disturbs a machine makes a call slower and nothing makes it
//! faster. Compare only figures of one run on one machine.

use std::time::{Duration, Instant};

/// Rounds of which the quickest counts.
const ROUNDS: u32 = 20;

/// Calls `code` again and again and prints what one call takes.
pub fn report(what: &str, calls_a_round: u32, mut code: impl FnMut()) {
    let mut round = || {
        let started = Instant::now();
        for _ in 0..calls_a_round {
            code();
        }
        started.elapsed() / calls_a_round
    };
    // The first round fills caches and stashes.
    round();
    let least = (0..ROUNDS).map(|_| round()).min().unwrap_or(Duration::ZERO);
    println!("{what:<60} {:>9.1} ns", least.as_secs_f64() * 1e9);
}
