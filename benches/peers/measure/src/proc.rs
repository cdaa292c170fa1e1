//! What the kernel counted: CPU time, context switches, threads and memory of a process.

use std::fs;
use std::io;
use std::time::Duration;

/// CPU time of a process, threads that have ended included.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    /// Reads `/proc/PID/stat`. Its unit is a clock tick, usually 10 ms: measure for seconds.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is the name in parentheses and may hold spaces.
        let (_, fields) = stat.rsplit_once(')').unwrap_or(("", ""));
        let ticks: Vec<u64> =
            fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
        let [user, system] = ticks[..] else {
            return Err(io::Error::other(format!("/proc/{pid}/stat has another form")));
        };
        Ok(Self { user: from_ticks(user), system: from_ticks(system) })
    }

    pub fn total(self) -> Duration {
        self.user + self.system
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }
}

/// CPU time of the whole machine that was not idle, the hypervisor's share included.
pub fn machine_busy() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal
    let [user, nice, system, _idle, _wait, irq, softirq, steal, ..] = fields[..] else {
        return Err(io::Error::other("/proc/stat has another form"));
    };
    Ok(from_ticks(user + nice + system + irq + softirq + steal))
}

/// CPU time of the children that were waited for: the load generators and servers that have ended.
pub fn ended_children() -> Duration {
    let mut usage = unsafe { std::mem::zeroed::<libc::rusage>() };
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    from_timeval(usage.ru_utime) + from_timeval(usage.ru_stime)
}

/// Context switches of the threads that live now. Those of ended threads are only in [`Ended`].
pub fn live_switches(pid: u32) -> io::Result<u64> {
    let mut switches = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between being listed and being read.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
        switches +=
            field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:");
    }
    Ok(switches)
}

/// Threads and resident memory of a process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    pub threads: u64,
    pub resident_kib: u64,
}

impl Size {
    pub fn of(pid: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Self { threads: field(&status, "Threads:"), resident_kib: field(&status, "VmRSS:") })
    }

    pub fn max(self, other: Self) -> Self {
        Self {
            threads: self.threads.max(other.threads),
            resident_kib: self.resident_kib.max(other.resident_kib),
        }
    }
}

/// What the kernel says of a process when it is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// All context switches of its life, those of ended threads included.
    pub switches: u64,
}

/// Waits for a child and takes its account.
pub fn wait_for(pid: u32) -> Ended {
    let mut status = 0;
    let mut usage = unsafe { std::mem::zeroed::<libc::rusage>() };
    unsafe { libc::wait4(pid as i32, &raw mut status, 0, &raw mut usage) };
    Ended { switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64 }
}

/// Raises the number of open files to what the system allows: 10,000 connections need it.
pub fn allow_many_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

fn field(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|value| value.split_whitespace().next())
        .and_then(|value| value.parse().ok())
        .unwrap_or(0)
}

fn from_ticks(ticks: u64) -> Duration {
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Duration::from_micros(ticks * 1_000_000 / per_second)
}

fn from_timeval(time: libc::timeval) -> Duration {
    Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64)
}
