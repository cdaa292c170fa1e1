//! What a server uses while work is done for it.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::proc::{CpuTime, Size, ended_children, live_switches, machine_busy};
use crate::running::Running;

/// How often threads and memory are read while the load runs.
const LOOK_EVERY: Duration = Duration::from_millis(200);

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
