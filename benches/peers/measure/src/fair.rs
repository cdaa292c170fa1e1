//! What each single connection got. No usual tool tells how many were never served.

use std::io;

use crate::generator::{self, Job, Rates};
use crate::report::{Column, Figures, Show};
use crate::scenario::{Run, per_request};
use crate::server::Running;

const fn column(key: &'static str, title: &'static str, digits: usize, show: Show) -> Column {
    Column { key, title, digits, show }
}

pub const COLUMNS: &[Column] = &[
    column("rate", "requests/s", 0, Show::Compared),
    column("least", "least per connection", 0, Show::Median),
    column("middle", "median", 0, Show::Median),
    column("most", "most", 0, Show::Median),
    column("unserved", "never served", 0, Show::Median),
    column("p50", "p50 ms", 2, Show::Median),
    column("p99", "p99 ms", 2, Show::Median),
    column("longest", "longest wait ms", 1, Show::Median),
    column("cpu", "CPU µs/request", 2, Show::Compared),
    column("others", "cores used by others", 2, Show::Median),
];

pub fn measure(run: &Run<'_>, job: &Job) -> io::Result<Figures> {
    let server = Running::start(run.binary)?;
    let (outcome, spent) = generator::observe(server, |server| generator::run_own(server, job, run.seconds))?;
    let rates = Rates::from(&outcome);
    let mut answered = outcome.answered;
    answered.sort_unstable();
    let at = |index: usize| answered[index] as f64;
    let unserved = answered.iter().filter(|&&count| count == 0).count();
    let figures = per_request(&spent, rates.requests)
        .number("rate", rates.per_second)
        .number("least", at(0))
        .number("middle", at(answered.len() / 2))
        .number("most", at(answered.len() - 1))
        .number("unserved", unserved as f64)
        .number("p50", rates.p50)
        .number("p99", rates.p99)
        .number("longest", rates.longest);
    Ok(figures.problems(rates.problems))
}
