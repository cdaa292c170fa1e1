//! What the system knows of a process: `/proc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A process, by its number.
#[derive(Clone, Copy, Debug)]
pub struct Process(u32);

impl Process {
    /// A process beside this one.
    pub fn new(id: u32) -> Self {
        Self(id)
    }

    /// This process.
    pub fn this() -> Self {
        Self(std::process::id())
    }

    /// Its threads.
    pub fn threads(self) -> usize {
        self.count("task")
    }

    /// Its open descriptors.
    pub fn descriptors(self) -> usize {
        self.count("fd")
    }

    /// Its memory that is in use, in bytes.
    pub fn resident_bytes(self) -> u64 {
        self.status_kib("VmRSS:") * 1024
    }

    /// Its addresses that are in use, in bytes, touched or not.
    pub fn virtual_bytes(self) -> u64 {
        self.status_kib("VmSize:") * 1024
    }

    /// The time that its threads have run.
    pub fn cpu_time(self) -> Duration {
        let stat = self.read("stat");
        // The name in parentheses may have spaces; the times are the 14th and 15th field of all.
        let (_, fields) = stat.rsplit_once(')').expect("the name ends");
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().unwrap())
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// A path as the process sees it, with what was mounted for it alone.
    pub fn path(self, path: &Path) -> PathBuf {
        let path = path.strip_prefix("/").expect("an absolute path");
        PathBuf::from(format!("/proc/{}/root", self.0)).join(path)
    }

    fn count(self, folder: &str) -> usize {
        fs::read_dir(format!("/proc/{}/{folder}", self.0)).map_or(0, Iterator::count)
    }

    fn status_kib(self, name: &str) -> u64 {
        let status = self.read("status");
        let line =
            status.lines().find(|line| line.starts_with(name)).expect("a line of the status");
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn read(self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0)).unwrap()
    }
}

/// Whether this process, and those that it starts from now on, may have so many descriptors: the
/// limit is raised as far as the system lets it. Says that a test is skipped if not.
pub fn may_open(descriptors: usize) -> bool {
    let limit = || {
        let limits = Process::this().read("limits");
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"))
            .expect("a limit of files");
        // Four words of name, then the soft limit.
        line.split_whitespace().nth(3).and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX)
    };
    if limit() < descriptors {
        let (id, wanted) = (std::process::id().to_string(), format!("--nofile={descriptors}:"));
        // It may not be there, or not be allowed: the limit says.
        let _ = Command::new("prlimit").args(["--pid", &id, &wanted]).output();
    }
    let may = limit() >= descriptors;
    if !may {
        skip::because(&format!("no more than {} of {descriptors} descriptors", limit()));
    }
    may
}
