//! A thread that keeps a core busy while servers are measured: how are they on a machine that has
//! other work to do?

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const CORE: usize = 0;

/// How many times the thread spins before it checks whether it should end.
const SPINS: u32 = 10_000;

/// A thread that spins until this is dropped. Its CPU time counts as that of `measure`, and not as
/// that of others.
#[derive(Debug)]
pub struct BusyLoop {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    is_pinned: bool,
}

impl BusyLoop {
    /// Starts to spin, on the first core if the system allows it.
    pub fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (sender, is_pinned) = mpsc::channel();
        let seen = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            // `start` waits for this message.
            let _ = sender.send(pin().is_ok());
            while !seen.load(Ordering::Relaxed) {
                for spin in 0..SPINS {
                    black_box(spin);
                }
            }
        });
        let is_pinned = is_pinned.recv().expect("the thread says so before it spins");
        Self { ends, thread: Some(thread), is_pinned }
    }

    /// A Markdown line for the head of a report.
    pub fn describe(&self) -> String {
        let core = if self.is_pinned {
            format!("core {CORE}")
        } else {
            "a core of the system's choice".to_owned()
        };
        format!("- beside a thread that spins on {core} all the time; no round is repeated\n")
    }
}

impl Drop for BusyLoop {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a loop does not panic");
        }
    }
}

/// Keeps the calling thread on one core.
fn pin() -> nix::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(CORE)?;
    sched_setaffinity(Pid::from_raw(0), &cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_says_where_it_spins_and_ends() {
        let mut busy = BusyLoop::start();
        busy.is_pinned = true;
        assert!(busy.describe().starts_with("- beside a thread that spins on core 0 all the time"));
        busy.is_pinned = false;
        assert!(busy.describe().contains("a core of the system's choice"));
    }
}
