//! The thread that takes a loop from a leader whose handler does not return.
//!
//! It looks at every loop once a period. A loop that lies in its slot with the same turn as at the
//! last look has waited for one handler all the while: it is taken and given to a thread that was
//! reserved before, so that it is never without a leader. While nothing happens the watchdog is
//! parked; the first loop that gets an event wakes it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::LoopHandle;
use crate::engine::Engine;
use crate::task::Task;

/// The period while handlers have been caught of late: what blocks once tends to block again.
const PERIOD_WARY: Duration = Duration::from_micros(500);

/// The period else. Each look is a timer and two context switches, which a server that answers
/// quickly pays for nothing: at 500 µs they were 5 % of its CPU time.
const PERIOD_CALM: Duration = Duration::from_millis(3);

/// How long the watchdog stays wary after a catch.
const WARY_TIME: Duration = Duration::from_secs(1);

/// How long nothing has happened before the watchdog parks. Waking it costs a leader more than
/// some looks cost the machine.
const QUIET_TIME: Duration = Duration::from_millis(60);

/// The side of the watchdog that leaders see.
pub(crate) struct Watchdog {
    thread: OnceLock<Thread>,
    is_parked: AtomicBool,
    is_stopped: AtomicBool,
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        Self {
            thread: OnceLock::new(),
            is_parked: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        }
    }

    pub(crate) fn start(&self, engine: &Arc<Engine>, handles: Vec<Arc<LoopHandle>>) -> io::Result<()> {
        let watched = Arc::clone(engine);
        let name = format!("{}-watchdog", engine.config.thread_name);
        let thread = thread::Builder::new().name(name).spawn(move || watch(&watched, &handles))?;
        let _ = self.thread.set(thread.thread().clone());
        Ok(())
    }

    /// Called by a leader that has left its poller, after it has said so.
    #[inline]
    pub(crate) fn wake(&self) {
        // The leader's store of `is_asleep` and this load, the watchdog's store of `is_parked` and
        // its loads of `is_asleep`: all of one total order, so one of the two sees the other.
        if self.is_parked.load(Ordering::SeqCst) && self.is_parked.swap(false, Ordering::SeqCst) {
            self.unpark();
        }
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.is_parked.store(false, Ordering::SeqCst);
        self.unpark();
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Sleeps until a leader wakes it, unless one is awake.
    fn park(&self, handles: &[Arc<LoopHandle>]) {
        self.is_parked.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !handles.iter().all(|handle| handle.is_asleep()) {
            self.is_parked.store(false, Ordering::SeqCst);
            return;
        }
        while self.is_parked.load(Ordering::SeqCst) && !self.is_stopped.load(Ordering::SeqCst) {
            thread::park();
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("is_parked", &self.is_parked).finish_non_exhaustive()
    }
}

fn watch(engine: &Arc<Engine>, handles: &[Arc<LoopHandle>]) {
    let watchdog = &engine.watchdog;
    let mut turns: Vec<u64> = handles.iter().map(|handle| handle.slot.turn()).collect();
    let mut quiet_since = Instant::now();
    let mut wary_until = quiet_since + WARY_TIME;
    while !watchdog.is_stopped.load(Ordering::SeqCst) {
        let is_wary = Instant::now() < wary_until;
        thread::sleep(if is_wary { PERIOD_WARY } else { PERIOD_CALM });
        let now = Instant::now();
        for (handle, last) in handles.iter().zip(&mut turns) {
            let turn = handle.slot.turn();
            let is_running = turn % 2 == 1;
            if is_running && turn == *last {
                hand_over(engine, handle, turn);
                wary_until = now + WARY_TIME;
            }
            if is_running || turn != *last {
                quiet_since = now;
            }
            *last = turn;
        }
        if now - quiet_since >= QUIET_TIME {
            watchdog.park(handles);
            quiet_since = Instant::now();
        }
    }
}

/// Takes a loop from its leader and has another thread lead it.
fn hand_over(engine: &Engine, handle: &LoopHandle, turn: u64) {
    // First the thread, then the loop: a loop that was taken must not wait for a leader.
    let Some(leader) = engine.pool.reserve() else {
        engine.counters.hand_overs_failed.increment();
        return;
    };
    let Some(mut event_loop) = handle.slot.take() else { return };
    engine.counters.hand_overs.increment();
    // Between the look and the taking the handler may have returned and another one begun, which
    // is not to blame. The loop cannot be put back: its leader may have missed it already.
    if handle.slot.turn() == turn.wrapping_add(1) {
        let key = event_loop.running;
        let quick_calls = std::mem::take(&mut event_loop.quick_calls[key.index()]);
        let is_learned = engine.learned.caught(key, quick_calls);
        if is_learned {
            engine.counters.routes_learned.increment();
        }
        tracing::debug!(quick_calls, is_learned, "a handler did not return in time: its loop changes hands");
    }
    leader.run(Task::Lead(event_loop));
}
