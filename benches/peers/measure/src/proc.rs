//! What the kernel counts: CPU time, context switches, threads and memory of a process and of the
//! processes that it started.

use std::fs;
use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeVal;
use nix::time::clock_getcpuclockid;
use nix::unistd::{Pid, SysconfVar, sysconf};

/// CPU time of a process. Threads that have ended are included.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    /// Adds up the process and those that it started. The sum of user and system time is exact. Its
    /// division is exact to a clock tick, which is usually 10 ms.
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut time = Self::of_one(pid)?;
        for child in descendants(pid) {
            // A process may end between being listed and being read.
            let Ok(child) = Self::of_one(child) else { continue };
            time.user += child.user;
            time.system += child.system;
        }
        Ok(time)
    }

    /// The CPU time of the process itself only.
    pub fn of_one(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is the name in parentheses and may hold spaces.
        let (_, fields) = stat.rsplit_once(')').unwrap_or(("", ""));
        let ticks: Vec<u64> = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse().ok())
            .collect();
        let [user, system] = ticks[..] else {
            return Err(io::Error::other(format!("/proc/{pid}/stat has another form")));
        };
        let in_ticks = Self { user: from_ticks(user), system: from_ticks(system) };
        Ok(in_ticks.of_total(exact_total(pid)?))
    }

    /// Divides a more exact total in the same proportion as this time.
    fn of_total(self, total: Duration) -> Self {
        let ticks = self.total();
        if ticks.is_zero() {
            return Self { user: Duration::ZERO, system: total };
        }
        let user = total.mul_f64(self.user.as_secs_f64() / ticks.as_secs_f64()).min(total);
        Self { user, system: total - user }
    }

    pub fn total(self) -> Duration {
        self.user + self.system
    }

    pub fn since(self, before: Self) -> Self {
        let total = self.total().saturating_sub(before.total());
        let user = self.user.saturating_sub(before.user).min(total);
        Self { user, system: total - user }
    }
}

/// The CPU time of a process in nanoseconds. Threads that have ended are included. The times in
/// `/proc` are cut to ticks, and in a second with few requests one tick is a tenth of the sum.
fn exact_total(pid: u32) -> io::Result<Duration> {
    Ok(clock_getcpuclockid(Pid::from_raw(pid.cast_signed()))?.now()?.into())
}

/// The processes that this one started, and their descendants.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
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
pub fn ended_children() -> CpuTime {
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map(|usage| CpuTime {
            user: from_timeval(usage.user_time()),
            system: from_timeval(usage.system_time()),
        })
        .unwrap_or_default()
}

/// The peak of resident memory so far, or `None` if the process has ended.
pub fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(field(&status, "VmHWM:")).filter(|peak| *peak > 0)
}

/// The sum of the peaks of the process and its descendants. Memory that they share counts several
/// times.
pub fn peak_of_all_kib(pid: u32) -> u64 {
    descendants(pid).into_iter().chain([pid]).filter_map(peak_kib).sum()
}

/// Context switches of the children that were waited for. Their ended threads are included.
pub fn switches_of_ended_children() -> u64 {
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map(|usage| usage.voluntary_context_switches() + usage.involuntary_context_switches())
        .map_or(0, i64::cast_unsigned)
}

/// Context switches of the running threads of the process and its descendants.
pub fn live_switches(pid: u32) -> io::Result<u64> {
    let mut switches = 0;
    for process in descendants(pid).into_iter().chain([pid]) {
        for task in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten() {
            // A thread may end between being listed and being read.
            let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
            switches += field(&status, "voluntary_ctxt_switches:")
                + field(&status, "nonvoluntary_ctxt_switches:");
        }
    }
    Ok(switches)
}

/// Threads and resident memory at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    pub threads: u64,
    pub resident_kib: u64,
}

impl Size {
    /// Adds up the process and its descendants. Memory that they share counts several times.
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut size = Self::of_one(pid)?;
        for child in descendants(pid) {
            let Ok(child) = Self::of_one(child) else { continue };
            size.threads += child.threads;
            size.resident_kib += child.resident_kib;
        }
        Ok(size)
    }

    fn of_one(pid: u32) -> io::Result<Self> {
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

/// Raises the limit of open files to its maximum, because 10,000 connections need it.
pub fn allow_many_files() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If the system refuses this, the scenario that needs many files reports it.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
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
    static PER_SECOND: LazyLock<u64> = LazyLock::new(|| {
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
        ticks.map_or(100, i64::cast_unsigned)
    });
    Duration::from_micros(ticks * 1_000_000 / *PER_SECOND)
}

fn from_timeval(time: TimeVal) -> Duration {
    Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::process;
    use std::time::Instant;

    use super::*;

    #[test]
    fn cpu_time_is_known_to_less_than_a_tick() {
        let before = CpuTime::of_one(process::id()).unwrap();
        let started = Instant::now();
        // Other tests may compute in the same process, so only the lower bound is certain.
        while CpuTime::of_one(process::id()).unwrap().since(before).total().is_zero() {
            assert!(started.elapsed() < Duration::from_secs(5), "computing takes no time");
        }
        let passed = CpuTime::of_one(process::id()).unwrap().since(before).total();
        assert_ne!(passed.subsec_nanos() % 1_000_000, 0, "{passed:?} is a number of ticks");
    }

    #[test]
    fn a_total_is_divided_like_the_ticks() {
        let [one, three] = [1, 3].map(Duration::from_secs);
        let ticks = CpuTime { user: one, system: three };
        let exact = ticks.of_total(Duration::from_micros(4_008_000));
        assert_eq!(exact.user, Duration::from_micros(1_002_000));
        assert_eq!(exact.total(), Duration::from_micros(4_008_000));
        let exact = CpuTime::default().of_total(one);
        assert_eq!((exact.user, exact.system), (Duration::ZERO, one));
    }

    #[test]
    fn a_difference_has_the_exact_total() {
        let ms = Duration::from_millis;
        // The error in the division of the earlier time is larger than the whole difference.
        let [before, after] = [(14, 14), (10, 20)]
            .map(|(user, system)| CpuTime { user: ms(user), system: ms(system) });
        let passed = after.since(before);
        assert_eq!((passed.total(), passed.user), (ms(2), Duration::ZERO));
    }
}
