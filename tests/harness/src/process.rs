//! The resource usage of processes, from `/proc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A process, by its ID.
#[derive(Clone, Copy, Debug)]
pub struct Process(u32);

impl Process {
    /// Returns another process.
    pub fn new(id: u32) -> Self {
        Self(id)
    }

    /// Returns this process.
    pub fn this() -> Self {
        Self(std::process::id())
    }

    /// Returns the number of its threads.
    pub fn threads(self) -> usize {
        self.count("task")
    }

    /// Returns the number of its open file descriptors.
    pub fn descriptors(self) -> usize {
        self.count("fd")
    }

    /// Returns its resident memory in bytes.
    pub fn resident_bytes(self) -> u64 {
        self.status_kib("VmRSS:") * 1024
    }

    /// Returns the size of its virtual memory in bytes.
    pub fn virtual_bytes(self) -> u64 {
        self.status_kib("VmSize:") * 1024
    }

    /// Returns the CPU time of its threads.
    pub fn cpu_time(self) -> Duration {
        let stat = self.read("stat");
        // The name in parentheses may have spaces. The times are the 14th and 15th field.
        let (_, fields) = stat.rsplit_once(')').expect("the name ends");
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().unwrap())
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// Returns a path as the process sees it, including its private mounts.
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

/// Runs `start` with a low soft limit of file descriptors of this process, for a server that reads
/// it when it starts. Returns `None`, and reports a skipped test, if that is not possible.
pub fn with_descriptors<T>(descriptors: usize, start: impl FnOnce() -> T) -> Option<T> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = limit();
    set_limit(descriptors);
    if limit() != descriptors {
        skip::because("`prlimit` cannot lower the limit of descriptors");
        return None;
    }
    let started = start();
    set_limit(before);
    assert_eq!(limit(), before, "the limit is as before");
    Some(started)
}

/// Returns whether this process, and processes that it starts from now on, may open this many file
/// descriptors. Raises the limit as far as the system allows. Reports a skipped test if that is not
/// enough.
pub fn may_open(descriptors: usize) -> bool {
    if limit() < descriptors {
        set_limit(descriptors);
    }
    let may = limit() >= descriptors;
    if !may {
        skip::because(&format!("no more than {} of {descriptors} descriptors", limit()));
    }
    may
}

/// Returns the soft limit of file descriptors of this process.
fn limit() -> usize {
    let limits = Process::this().read("limits");
    let line =
        limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit of files");
    // The soft limit follows a name of three words.
    line.split_whitespace().nth(3).and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX)
}

/// Sets the soft limit of file descriptors, if `prlimit` is installed. The caller reads the limit
/// again.
fn set_limit(descriptors: usize) {
    let (id, wanted) = (std::process::id().to_string(), format!("--nofile={descriptors}:"));
    let _ = Command::new("prlimit").args(["--pid", &id, &wanted]).output();
}
