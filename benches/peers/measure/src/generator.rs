//! Puts load on a running server, and reads what the server spent meanwhile.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::proc::{CpuTime, Size, ended_children, live_switches, machine_busy};
use crate::running::{Running, guarded};
use crate::{gust, wrk};

/// How often threads and memory are looked at while the load runs.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A generator that has not ended so long after its load is killed: a server that hangs must not hang us.
const GRACE: Duration = Duration::from_secs(15);

/// How many requests a pipelining client has on their way at once.
pub const PIPELINE_DEPTH: usize = 16;

/// How long the body of a large POST is.
pub const BODY_BYTES: usize = 64 * 1024;

/// Which program makes the loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    Gust,
    Wrk,
}

/// Where the programs and their files lie.
#[derive(Clone, Debug)]
pub struct Tools {
    pub generator: Generator,
    pub gust: PathBuf,
    /// A file with [`BODY_BYTES`] bytes.
    pub body: PathBuf,
}

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    One,
    Pipelined,
    Body,
    /// A connection for each request.
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
    /// What each single connection got; only gust knows.
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
    let result = result?;
    let after = Moment::now(pid).map_err(|_| io::Error::other("the server ended under the load"))?;
    let size = size.max(Size::of(pid)?);
    let switches = server.end().saturating_sub(switches_before);
    let cpu = after.server.since(before.server);
    let busy = after.machine.saturating_sub(before.machine);
    let known = cpu.total() + after.generators.saturating_sub(before.generators);
    let others = busy.saturating_sub(known).as_secs_f64() / (after.at - before.at).as_secs_f64();
    Ok((result, Spent { cpu, switches, size, others }))
}

/// Runs the jobs at once, with one of the two generators.
pub fn run(server: &Running, tools: &Tools, jobs: &[Job], seconds: u64) -> io::Result<Vec<Rates>> {
    let started: Vec<Started> =
        jobs.iter().map(|job| Started::spawn(server, tools, job, seconds)).collect::<io::Result<_>>()?;
    let parse = match tools.generator {
        Generator::Gust => gust::parse,
        Generator::Wrk => wrk::parse,
    };
    let said: Vec<io::Result<String>> = started.into_iter().map(Started::finish).collect();
    said.into_iter()
        .map(|said| {
            let said = said?;
            parse(&said).ok_or_else(|| io::Error::other(format!("the load gave no result: {}", said.trim())))
        })
        .collect()
}

/// A generator at work.
struct Started {
    child: Child,
    said: mpsc::Receiver<String>,
    deadline: Instant,
}

impl Started {
    fn spawn(server: &Running, tools: &Tools, job: &Job, seconds: u64) -> io::Result<Self> {
        let url = format!("http://{}{}", server.address, job.target);
        let mut command = match tools.generator {
            Generator::Gust => guarded(&tools.gust, "KILL"),
            Generator::Wrk => guarded("wrk".as_ref(), "KILL"),
        };
        command.args(match tools.generator {
            Generator::Gust => gust::arguments(job, seconds, &tools.body),
            Generator::Wrk => wrk::arguments(job, seconds),
        });
        let mut child = spawn_piped(command.arg(url))?;
        let mut output = child.stdout.take().expect("its output is piped");
        let mut errors = child.stderr.take().expect("its errors are piped");
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            let mut text = Vec::new();
            // What was said before a failure is what there is to say.
            let _ = output.read_to_end(&mut text);
            if text.is_empty() {
                let _ = errors.read_to_end(&mut text);
            }
            // Nobody listens any more when the deadline has passed.
            let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
        });
        Ok(Self { child, said, deadline: Instant::now() + Duration::from_secs(seconds) + GRACE })
    }

    fn finish(mut self) -> io::Result<String> {
        let said = self.said.recv_timeout(self.deadline.saturating_duration_since(Instant::now()));
        if said.is_err() {
            self.child.kill()?;
        }
        self.child.wait()?;
        said.map_err(|_| io::Error::other(format!("the load did not end within {GRACE:?} of its time")))
    }
}

fn spawn_piped(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
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
            generators: CpuTime::of_one(process::id())?.total() + ended_children(),
            machine: machine_busy()?,
        })
    }
}
