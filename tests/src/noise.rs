//! Measures how late the machine wakes a thread. The delay may come from other programs, but also
//! from the test and its server, so a bound that allows for the delay needs a maximum of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the thread sleeps each time.
const SLEEP: Duration = Duration::from_millis(2);

/// How many wake-ups may be as late as the latest that was seen: a response waits for those of the
/// server's thread, of the client's, and of a thread that started both.
const WAKE_UPS: u32 = 3;

/// A thread that sleeps again and again, and measures how much longer it sleeps than it asked for.
#[derive(Debug)]
pub struct Noise {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

impl Noise {
    /// Starts to measure.
    pub fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                let mut latest = Duration::ZERO;
                while !is_over.load(Ordering::Relaxed) {
                    let slept = Instant::now();
                    thread::sleep(SLEEP);
                    latest = latest.max(slept.elapsed().saturating_sub(SLEEP));
                }
                latest
            }
        });
        Self { is_over, thread: Some(thread) }
    }

    /// Stops, and returns how much later than on a quiet machine a response may be: below a
    /// millisecond if nothing else runs.
    #[track_caller]
    pub fn stop(mut self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is stopped once");
        thread.join().expect("measuring does not panic") * WAKE_UPS
    }
}

/// A failed test must not leave the thread behind.
impl Drop for Noise {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
