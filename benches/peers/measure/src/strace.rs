//! Counts a process's system calls with `strace -c -f -p`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::proc::descendants;
use crate::running::guarded;

const ATTACHED_WITHIN: Duration = Duration::from_secs(30);

/// An attached strace.
#[derive(Debug)]
pub struct Strace {
    child: Child,
    summary: PathBuf,
}

impl Strace {
    /// Attaches to every thread of the process and of those it started.
    pub fn attach(pid: u32) -> io::Result<Self> {
        let summary = std::env::temp_dir().join(format!("measure-strace-{pid}"));
        let mut command = guarded("strace".as_ref(), "KILL");
        command.args(["-c", "-f", "-o"]).arg(&summary);
        let processes: Vec<u32> = descendants(pid).into_iter().chain([pid]).collect();
        for process in &processes {
            command.args(["-p", &process.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child =
            command.spawn().map_err(|error| io::Error::other(format!("strace: {error}")))?;
        let strace = Self { child, summary };
        let deadline = Instant::now() + ATTACHED_WITHIN;
        for process in processes {
            strace.until_attached(process, deadline)?;
        }
        Ok(strace)
    }

    fn until_attached(&self, pid: u32, deadline: Instant) -> io::Result<()> {
        while !is_traced(pid)? {
            if Instant::now() > deadline {
                return Err(io::Error::other("strace does not attach"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Detaches and returns what was counted.
    pub fn finish(mut self) -> io::Result<Calls> {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT)?;
        self.child.wait()?;
        let text = fs::read_to_string(&self.summary)?;
        fs::remove_file(&self.summary)?;
        Ok(Calls::parse(&text))
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often each system call was made.
#[derive(Debug, PartialEq, Eq)]
pub struct Calls(Vec<(String, u64)>);

impl Calls {
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Each call with its count divided, the most frequent first.
    pub fn list(&self, divided_by: f64) -> String {
        let digits = if divided_by == 1.0 { 0 } else { 3 };
        let shown: Vec<_> = self
            .0
            .iter()
            .map(|(name, count)| (name, *count as f64 / divided_by))
            .filter(|(_, share)| digits == 0 || *share >= 0.001)
            .map(|(name, share)| format!("{name} {share:.digits$}"))
            .collect();
        shown.join(", ")
    }

    /// Lines of `% time, seconds, usecs/call, calls, [errors,] syscall`.
    pub fn parse(text: &str) -> Self {
        let mut calls: Vec<(String, u64)> = text
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let name = words.last().filter(|name| **name != "total")?;
                Some(((*name).to_owned(), words.get(3)?.parse().ok()?))
            })
            .collect();
        calls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Self(calls)
    }
}

fn is_traced(pid: u32) -> io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
        if status.lines().any(|line| line == "TracerPid:\t0") {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let text = "% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000060           6        10           write
 40.00    0.000040           2        20         5 read
------ ----------- ----------- --------- --------- ----------------
100.00    0.000100           3        30         5 total";
        let calls = Calls::parse(text);
        assert_eq!(calls.total(), 30);
        assert_eq!(calls.list(10.0), "read 2.000, write 1.000");
    }
}
