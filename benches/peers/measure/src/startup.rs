//! How long a server takes to start.

use std::io;
use std::time::{Duration, Instant};

use crate::report::{Column, Figures, Show};
use crate::running::Running;
use crate::scenario::Run;

const STARTS: usize = 10;

/// Often enough for a start that takes a millisecond, and rare enough not to slow it down.
const ASK_EVERY: Duration = Duration::from_micros(50);

pub const COLUMNS: &[Column] = &[
    Column { key: "least", title: "fastest of 10, ms", digits: 2, show: Show::Compared },
    Column { key: "middle", title: "median ms", digits: 2, show: Show::Median },
];

pub fn measure(run: &Run<'_>) -> io::Result<Figures> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let start = Instant::now();
        let server = Running::start_bare(run.program, ASK_EVERY)?;
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
        drop(server);
    }
    times.sort_by(f64::total_cmp);
    Ok(Figures::default().number("least", times[0]).number("middle", times[STARTS / 2]))
}
