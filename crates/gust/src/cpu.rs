//! CPU times of the client and of the server.

use std::fs;

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::units::{Nanos, SECOND};

/// The times of one thread so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadTime {
    cpu: Nanos,
    waited: Nanos,
    clock: Nanos,
}

/// The times of one thread between two points in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) cpu: Nanos,
    /// Time in which the thread was ready to run, but had no core.
    pub(crate) waited: Nanos,
    pub(crate) elapsed: Nanos,
}

/// CPU time of a process, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuTime {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

impl ThreadTime {
    pub(crate) fn start() -> Self {
        Self {
            cpu: nanos(clock_gettime(ClockId::ThreadCPUTime)),
            waited: waited().unwrap_or(0),
            clock: nanos(clock_gettime(ClockId::Monotonic)),
        }
    }

    pub(crate) fn stop(self) -> Spent {
        let now = Self::start();
        Spent {
            cpu: now.cpu.saturating_sub(self.cpu),
            waited: now.waited.saturating_sub(self.waited),
            elapsed: now.clock.saturating_sub(self.clock),
        }
    }
}

impl Spent {
    /// Returns the share of the time in which the thread ran.
    pub(crate) fn busy(self) -> f64 {
        ratio(self.cpu, self.elapsed)
    }

    /// Returns the share of the time in which the thread waited for a core.
    pub(crate) fn kept_waiting(self) -> f64 {
        ratio(self.waited, self.elapsed)
    }
}

impl CpuTime {
    /// Returns the CPU time of this process. The sum is exact. If the system does not report user
    /// and system time separately, all of it counts as user time.
    pub(crate) fn own() -> Self {
        let total = seconds(nanos(clock_gettime(ClockId::ProcessCPUTime)));
        let split = read_stat("/proc/self/stat").unwrap_or_default();
        let ticks = split.user + split.system;
        let user = if ticks > 0.0 { split.user / ticks } else { 1.0 };
        Self { user: total * user, system: total * (1.0 - user) }
    }

    /// Returns the CPU time of another process, with a resolution of 10 ms. `None` if there is no
    /// such process, or if the system does not report it.
    pub(crate) fn of(process: u32) -> Option<Self> {
        read_stat(&format!("/proc/{process}/stat"))
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            user: (self.user - earlier.user).max(0.0),
            system: (self.system - earlier.system).max(0.0),
        }
    }

    pub(crate) fn total(self) -> f64 {
        self.user + self.system
    }
}

/// Reads the 14th and 15th field. The second field is a name in parentheses, which may contain
/// spaces.
fn read_stat(path: &str) -> Option<CpuTime> {
    parse_stat(&fs::read_to_string(path).ok()?)
}

fn parse_stat(text: &str) -> Option<CpuTime> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map_while(|field| field.parse::<f64>().ok());
    #[expect(clippy::cast_precision_loss, reason = "it is 100")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Some(CpuTime { user: ticks.next()? / per_second, system: ticks.next()? / per_second })
}

fn waited() -> Option<Nanos> {
    parse_waited(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

fn parse_waited(text: &str) -> Option<Nanos> {
    text.split_whitespace().nth(1)?.parse().ok()
}

fn nanos(time: Timespec) -> Nanos {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * SECOND + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND as f64
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
fn ratio(part: Nanos, whole: Nanos) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_cpu_times() {
        let (own, thread) = (CpuTime::own(), ThreadTime::start());
        let mut sum = 0_u64;
        while thread.stop().cpu < 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        assert!(CpuTime::own().since(own).total() >= 0.02);
        let spent = thread.stop();
        // More than 1 is possible, because two clocks are read one after the other.
        assert!(spent.busy() > 0.0 && spent.busy() <= 1.2, "{spent:?}");
    }

    #[test]
    fn a_thread_that_has_just_begun_was_not_busy() {
        let spent = Spent { cpu: 0, waited: 0, elapsed: 0 };
        assert_eq!((spent.busy(), spent.kept_waiting()), (0.0, 0.0));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn another_process_can_be_read() {
        assert!(CpuTime::of(std::process::id()).is_some());
        assert_eq!(CpuTime::of(u32::MAX), None);
    }

    #[test]
    fn the_fields_of_the_system_are_those_of_its_manual() {
        // A name may have a parenthesis (proc_pid_stat(5)).
        let stat = "17 (a) b) S 1 2 3 4 5 6 7 8 9 10 200 50 7 8 20 0";
        let time = parse_stat(stat).expect("it has all fields");
        assert_eq!(time.user, time.system * 4.0);
        assert!(time.system > 0.0);
        assert_eq!(parse_waited("100 23 4\n"), Some(23));
        let later = CpuTime { user: 3.0, system: 4.0 };
        let earlier = CpuTime { user: 1.0, system: 1.5 };
        assert_eq!(later.since(earlier), CpuTime { user: 2.0, system: 2.5 });
        assert_eq!(earlier.since(later), CpuTime { user: 0.0, system: 0.0 });
    }
}
