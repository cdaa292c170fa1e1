//! The programs that put load on a running server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::child::{Child, Ended};
use crate::job::{Form, Job, Rates};
use crate::running::{Running, guarded};
use crate::{ab, gust, oha, wrk};

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
