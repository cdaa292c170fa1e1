//! Puts load on a running server, and measures what the server uses in this time.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::{Child, Ended};
use crate::proc::{CpuTime, Size, ended_children, live_switches, machine_busy};
use crate::running::{Running, guarded};
use crate::{ab, gust, oha, wrk};

/// How often threads and memory are read while the load runs.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long after its load a generator may end.
const GRACE: Duration = Duration::from_secs(15);

/// The slowest rate for which a load with a number of requests is given time.
const REQUESTS_PER_SECOND_MIN: u64 = 2_000;

/// How many requests a pipelining client has in flight.
pub const PIPELINE_DEPTH: usize = 16;

/// How long the body of a large POST is.
pub const BODY_BYTES: usize = 64 * 1024;

/// A program that makes loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    Gust,
    Wrk,
    Ab,
    Oha,
}

impl Generator {
    pub fn name(self) -> &'static str {
        match self {
            Self::Gust => "gust",
            Self::Wrk => "wrk",
            Self::Ab => "ab",
            Self::Oha => "oha",
        }
    }

    /// This generator, or gust if only gust can make the load.
    fn able(self, job: &Job) -> Self {
        let is_rated = self == Self::Wrk && job.rate.is_some();
        if is_rated || matches!(job.form, Form::Echo(_)) { Self::Gust } else { self }
    }

    /// The command as a reader would type it.
    pub fn command_line(self, job: &Job, seconds: u64) -> String {
        match self.able(job) {
            Self::Gust => gust::command_line(job, seconds),
            Self::Wrk => wrk::command_line(job, seconds),
            Self::Ab => ab::command_line(job, seconds),
            Self::Oha => oha::command_line(job, seconds),
        }
    }

    /// The program and its arguments, including the URL.
    pub fn command(
        self,
        address: SocketAddr,
        tools: &Tools,
        job: &Job,
        seconds: u64,
    ) -> (PathBuf, Vec<String>) {
        let (program, mut arguments) = match self {
            Self::Gust => (tools.gust.clone(), gust::arguments(job, seconds, &tools.body)),
            Self::Wrk => (PathBuf::from("wrk"), wrk::arguments(job, seconds)),
            Self::Ab => (PathBuf::from("ab"), ab::arguments(job, seconds, &tools.body)),
            Self::Oha => {
                let oha = tools.oha.clone().unwrap_or_else(|| PathBuf::from("oha"));
                (oha, oha::arguments(job, seconds, &tools.body))
            }
        };
        arguments.push(job.url(address));
        if self == Self::Wrk {
            arguments.extend(wrk::arguments_after(job));
        }
        (program, arguments)
    }

    pub fn start(
        self,
        server: &Running,
        tools: &Tools,
        job: &Job,
        seconds: u64,
    ) -> io::Result<Child> {
        let (program, arguments) = self.command(server.address, tools, job, seconds);
        Child::spawn(guarded(&program, "KILL").args(arguments), job.within(seconds))
    }

    /// Reads the report of this generator.
    pub fn read(self, ended: &Ended) -> io::Result<Rates> {
        let rates = match self {
            Self::Gust => gust::parse(&ended.output),
            Self::Wrk => wrk::parse(&ended.output),
            Self::Ab => ab::parse(&ended.output),
            Self::Oha => oha::parse(&ended.output),
        };
        rates.ok_or_else(|| {
            io::Error::other(format!("the load gave no result: {}", ended.last_words()))
        })
    }
}

/// The paths of the programs and their files.
#[derive(Clone, Debug)]
pub struct Tools {
    pub generator: Generator,
    pub gust: PathBuf,
    /// The path of oha, if `measure` has installed it.
    pub oha: Option<PathBuf>,
    /// A file with [`BODY_BYTES`] bytes.
    pub body: PathBuf,
}

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    One,
    /// This many requests in flight per connection.
    Pipelined(usize),
    Body,
    /// A connection for each request.
    Closing,
    /// Messages of this many bytes, without HTTP.
    Echo(usize),
}

/// One load.
#[derive(Clone, Debug)]
pub struct Job {
    pub target: String,
    pub connections: usize,
    pub threads: usize,
    pub form: Form,
    /// The number of requests. Without it, the load ends with its time.
    pub requests: Option<u64>,
    /// Requests per second. Without it, requests are sent as fast as answers come.
    pub rate: Option<u64>,
    /// The threads block on their sockets.
    pub is_blocking: bool,
}

impl Job {
    pub fn get(target: &str, connections: usize, threads: usize) -> Self {
        Self {
            target: target.to_owned(),
            connections,
            threads,
            form: Form::One,
            requests: None,
            rate: None,
            is_blocking: false,
        }
    }

    /// Messages of this length to a server that sends them back.
    pub fn echo(length: usize, connections: usize, threads: usize) -> Self {
        Self::get("", connections, threads).sending(Form::Echo(length))
    }

    pub fn requests(mut self, requests: u64) -> Self {
        self.requests = Some(requests);
        self
    }

    pub fn rate(mut self, per_second: u64) -> Self {
        self.rate = Some(per_second);
        self
    }

    pub fn blocking(mut self) -> Self {
        self.is_blocking = true;
        self
    }

    pub fn sending(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    pub fn url(&self, address: SocketAddr) -> String {
        match self.form {
            Form::Echo(_) if !self.target.starts_with('/') => format!("tcp://{address}"),
            _ => format!("http://{address}{}", self.target),
        }
    }

    /// The text in place of the URL in a printed command.
    pub fn shown_target(&self) -> &str {
        if matches!(self.form, Form::Echo(_)) { "tcp://" } else { &self.target }
    }

    /// The time after which a generator is killed, so that a server that hangs cannot block us.
    pub fn within(&self, seconds: u64) -> Duration {
        let asked = self.requests.map_or(seconds, |requests| requests / REQUESTS_PER_SECOND_MIN);
        Duration::from_secs(asked) + GRACE
    }
}

/// What a load generator saw. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct Rates {
    pub requests: u64,
    pub per_second: f64,
    pub p50: f64,
    pub p90: f64,
    /// The same percentile from when a request was sent, if `p90` counts from when it was due.
    pub p90_from_sent: Option<f64>,
    pub p99: f64,
    pub longest: f64,
    pub problems: Vec<String>,
    /// The answers per connection. Only gust counts them.
    pub shares: Option<Shares>,
}

/// Answers per connection.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    pub least: u64,
    pub median: u64,
    pub most: u64,
    pub never_served: u64,
}

/// What the server used while the load ran.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub cpu: CpuTime,
    /// Context switches of the server's whole life, minus those before the load. Threads that ended
    /// in the meantime are included.
    pub switches: u64,
    /// The largest of several readings.
    pub size: Size,
    /// Cores that other processes used, which disturb the measurement: not the server, not the
    /// generator, and not the processes that work for the server.
    pub others: f64,
}

/// Runs the work against the server, and ends the server. Returns the result, and what the server
/// used.
pub fn observe<T>(
    server: Running,
    work: impl FnOnce(&Running) -> io::Result<T>,
) -> io::Result<(T, Spent)> {
    observe_beside(server, &[], work)
}

/// Like `observe`, with other processes that work for the server.
pub fn observe_beside<T>(
    server: Running,
    beside: &[u32],
    work: impl FnOnce(&Running) -> io::Result<T>,
) -> io::Result<(T, Spent)> {
    let pid = server.pid();
    let switches_before = live_switches(pid)?;
    let before = Moment::now(pid, beside)?;
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
    let result = result?;
    let after = Moment::now(pid, beside)
        .map_err(|_| io::Error::other("the server ended under the load"))?;
    let size = size.max(Size::of(pid)?);
    let switches = server.end().saturating_sub(switches_before);
    let cpu = after.server.since(before.server);
    let busy = after.machine.saturating_sub(before.machine);
    let known = cpu.total() + after.known.saturating_sub(before.known);
    let others = busy.saturating_sub(known).as_secs_f64() / (after.at - before.at).as_secs_f64();
    Ok((result, Spent { cpu, switches, size, others }))
}

/// Runs the jobs at the same time, each with a generator that can make it.
pub fn run(server: &Running, tools: &Tools, jobs: &[Job], seconds: u64) -> io::Result<Vec<Rates>> {
    let started: Vec<Child> = jobs
        .iter()
        .map(|job| tools.generator.able(job).start(server, tools, job, seconds))
        .collect::<io::Result<_>>()?;
    let ended: Vec<io::Result<Ended>> = started.into_iter().map(Child::finish).collect();
    let read = |(job, ended): (&Job, io::Result<Ended>)| tools.generator.able(job).read(&ended?);
    jobs.iter().zip(ended).map(read).collect()
}

/// Runs one job with this generator. Also returns what the generator used.
pub fn run_with(
    generator: Generator,
    server: &Running,
    tools: &Tools,
    job: &Job,
    seconds: u64,
) -> io::Result<(Rates, Ended)> {
    let ended = generator.start(server, tools, job, seconds)?.finish()?;
    Ok((generator.read(&ended)?, ended))
}

struct Moment {
    at: Instant,
    server: CpuTime,
    /// CPU time of `measure`, of the generators, and of the processes that work for the server.
    known: Duration,
    machine: Duration,
}

impl Moment {
    fn now(pid: u32, beside: &[u32]) -> io::Result<Self> {
        let mut known = CpuTime::of_one(process::id())?.total() + ended_children().total();
        for &pid in beside {
            known += CpuTime::of(pid)?.total();
        }
        Ok(Self { at: Instant::now(), server: CpuTime::of(pid)?, known, machine: machine_busy()? })
    }
}
