//! Puts load on a running server, and reads what the server spent meanwhile.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{Clients, Outcome, Question, Until};
use crate::proc::{CpuTime, Size, ended_children, live_switches, machine_busy};
use crate::server::Running;
use crate::wrk;

/// How often threads and memory are looked at while the load runs.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How many requests a pipelining client writes at once.
pub const PIPELINE_DEPTH: usize = 16;

/// How long the body of a large POST is.
pub const BODY_BYTES: usize = 64 * 1024;

/// Which program makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    Wrk,
    Own,
}

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    One,
    Pipelined,
    Body,
    /// A connection for each request; only wrk can.
    Closing,
}

/// One load.
#[derive(Clone, Debug)]
pub struct Job {
    pub target: String,
    pub connections: usize,
    pub threads: usize,
    pub form: Form,
}

impl Job {
    pub fn get(target: &str, connections: usize, threads: usize) -> Self {
        Self { target: target.to_owned(), connections, threads, form: Form::One }
    }

    pub fn sending(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    fn question(&self) -> Question {
        match self.form {
            Form::One | Form::Closing => Question::get(&self.target),
            Form::Pipelined => Question::get(&self.target).pipelined(PIPELINE_DEPTH),
            Form::Body => Question::post(&self.target, BODY_BYTES),
        }
    }
}

/// What a load generator saw. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct Rates {
    pub requests: u64,
    pub per_second: f64,
    pub p50: f64,
    pub p99: f64,
    pub longest: f64,
    pub problems: Vec<String>,
}

impl From<&Outcome> for Rates {
    fn from(outcome: &Outcome) -> Self {
        let requests = outcome.total();
        let quantile = |quantile| outcome.latency.value_at_quantile(quantile) as f64 / 1_000.0;
        let problems = [(outcome.broken, "broken"), (outcome.refused, "refused")];
        Self {
            requests,
            per_second: requests as f64 / outcome.elapsed.as_secs_f64(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            longest: outcome.longest.as_secs_f64() * 1_000.0,
            problems: problems
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{what} {count}"))
                .collect(),
        }
    }
}

/// What the server spent while the load ran.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub cpu: CpuTime,
    /// Of its whole life but for what was before the load: threads that ended meanwhile are counted too.
    pub switches: u64,
    /// The largest of several looks.
    pub size: Size,
    /// Cores that neither the server nor the generator used: the noise.
    pub others: f64,
}

/// Runs the work against the server, ends the server, and returns what both have to say.
pub fn observe<T>(server: Running, work: impl FnOnce(&Running) -> io::Result<T>) -> io::Result<(T, Spent)> {
    let pid = server.pid();
    let switches_before = live_switches(pid)?;
    let before = Moment::now(pid)?;
    let done = AtomicBool::new(false);
    let (result, size) = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut size = Size::default();
            while !done.load(Ordering::Relaxed) {
                size = size.max(Size::of(pid).unwrap_or_default());
                thread::park_timeout(LOOK_EVERY);
            }
            size
        });
        let result = work(&server);
        done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        (result, watcher.join().expect("the watcher does not panic"))
    });
    let after = Moment::now(pid)?;
    let size = size.max(Size::of(pid)?);
    let switches = server.end().switches.saturating_sub(switches_before);
    let cpu = after.server.since(before.server);
    let busy = after.machine.saturating_sub(before.machine);
    let known = cpu.total() + after.generators.saturating_sub(before.generators);
    let others = busy.saturating_sub(known).as_secs_f64() / (after.at - before.at).as_secs_f64();
    Ok((result?, Spent { cpu, switches, size, others }))
}

/// Runs the jobs at once.
pub fn run(server: &Running, generator: Generator, jobs: &[Job], seconds: u64) -> io::Result<Vec<Rates>> {
    if generator == Generator::Wrk || jobs.iter().any(|job| job.form == Form::Closing) {
        let started: Vec<_> =
            jobs.iter().map(|job| wrk::start(server.address, job, seconds)).collect::<io::Result<_>>()?;
        return started.into_iter().map(wrk::finish).collect();
    }
    let outcomes: Vec<io::Result<Outcome>> = thread::scope(|scope| {
        let running: Vec<_> =
            jobs.iter().map(|job| scope.spawn(move || run_own(server, job, seconds))).collect();
        running.into_iter().map(|job| job.join().expect("a client does not panic")).collect()
    });
    outcomes.into_iter().map(|outcome| outcome.as_ref().map(Rates::from).map_err(copy)).collect()
}

/// Runs one job with our own client.
pub fn run_own(server: &Running, job: &Job, seconds: u64) -> io::Result<Outcome> {
    let mut clients = Clients::connect(server.address, job.connections)?;
    clients.run(&job.question(), Until::Elapsed(Duration::from_secs(seconds)), job.threads)
}

fn copy(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

struct Moment {
    at: Instant,
    server: CpuTime,
    generators: Duration,
    machine: Duration,
}

impl Moment {
    fn now(pid: u32) -> io::Result<Self> {
        Ok(Self {
            at: Instant::now(),
            server: CpuTime::of(pid)?,
            generators: CpuTime::of(process::id())?.total() + ended_children(),
            machine: machine_busy()?,
        })
    }
}
