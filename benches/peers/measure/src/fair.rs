//! The answers per connection. No usual tool tells how many connections were never served.

use std::io;
use std::slice;

use crate::build::Program;
use crate::generator::{self, Generator, Tools};
use crate::job::Job;
use crate::observe::observe;
use crate::report::{Column, Figures, Show};
use crate::running::Running;
use crate::scenario::{P50, P99, Run, column, per_request};

pub const COLUMNS: &[Column] = &[
    column("rate", "requests/s", 0, Show::Compared),
    column("least", "least per connection", 0, Show::Median),
    column("middle", "median", 0, Show::Median),
    column("most", "most", 0, Show::Median),
    column("unserved", "never served", 0, Show::Median),
    P50,
    P99,
    column("longest", "longest wait ms", 1, Show::Median),
    column("cpu", "CPU µs/request", 2, Show::Compared),
    column("others", "cores used by others", 2, Show::Median),
];

pub fn measure(run: &Run<'_>, job: &Job) -> io::Result<Figures> {
    measure_program(run.program, run.tools, job, run.seconds)
}

pub fn measure_program(
    program: &Program,
    tools: &Tools,
    job: &Job,
    seconds: u64,
) -> io::Result<Figures> {
    let server = Running::start(program)?;
    // wrk does not tell how many answers a single connection got.
    let tools = Tools { generator: Generator::Gust, ..tools.clone() };
    let jobs = slice::from_ref(job);
    let (mut rates, spent) =
        observe(server, |server| generator::run(server, &tools, jobs, seconds))?;
    let rates = rates.pop().expect("one job has one result");
    let shares = rates.shares.expect("gust knows the shares");
    let figures = per_request(&spent, rates.requests)
        .number("rate", rates.per_second)
        .number("least", shares.least as f64)
        .number("middle", shares.median as f64)
        .number("most", shares.most as f64)
        .number("served", job.connections as f64 - shares.never_served as f64)
        .number("unserved", shares.never_served as f64)
        .number("p50", rates.p50)
        .number("p99", rates.p99)
        .number("longest", rates.longest);
    Ok(figures.problems(rates.problems))
}
