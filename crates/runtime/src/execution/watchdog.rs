//! The thread that takes a loop from a leader whose handler does not return.
//!
//! It looks at every loop once a period. A loop that lies in its slot with the same turn as at the
//! last look has waited for one handler all the while: it is taken and given to a thread that was
//! reserved before, so that it is never without a leader. While nothing happens the watchdog is
//! parked; the first loop that gets an event wakes it.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::doze::Standby;
use super::learn::Caught;
use crate::engine::Engine;
use crate::event_loop::LoopHandle;
use crate::scheduling::as_usual;
use crate::task::Task;

/// The period while handlers have been caught of late: what blocks once tends to block again.
const PERIOD_WARY: Duration = Duration::from_micros(500);

/// The period else. Each look is a timer and two context switches, which a server that answers
/// quickly pays for nothing. One every 0.8 ms showed in its CPU time, one every 3 ms did not.
const PERIOD_CALM: Duration = Duration::from_millis(3);

/// How long the watchdog stays wary after a catch.
const WARY_TIME: Duration = Duration::from_secs(1);

/// How long nothing has happened before the watchdog parks. Waking it costs a leader more than
/// some looks cost the machine.
const QUIET_TIME: Duration = Duration::from_millis(60);

/// The side of the watchdog that leaders see.
#[derive(Debug)]
pub(crate) struct Watchdog {
    standby: Standby,
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        Self { standby: Standby::new() }
    }

    pub(crate) fn start(&self, engine: &Arc<Engine>, handles: Vec<Arc<LoopHandle>>) -> io::Result<()> {
        let watched = Arc::clone(engine);
        let name = format!("{}-watchdog", engine.config.thread_name);
        thread::Builder::new().name(name).spawn(as_usual(move || watch(&watched, &handles)))?;
        Ok(())
    }

    /// Called by a leader that has left its poller, after it has said so.
    #[inline]
    pub(crate) fn wake(&self) {
        self.standby.wake();
    }

    pub(crate) fn stop(&self) {
        self.standby.stop();
    }
}

fn watch(engine: &Arc<Engine>, handles: &[Arc<LoopHandle>]) {
    let standby = &engine.watchdog.standby;
    standby.enter();
    let mut turns: Vec<u64> = handles.iter().map(|handle| handle.slot.turn()).collect();
    let mut quiet_since = Instant::now();
    let mut wary_until = quiet_since;
    while !standby.is_stopped() {
        let is_wary = Instant::now() < wary_until;
        thread::sleep(if is_wary { PERIOD_WARY } else { PERIOD_CALM });
        let now = Instant::now();
        for (handle, last) in handles.iter().zip(&mut turns) {
            let turn = handle.slot.turn();
            let is_running = turn % 2 == 1;
            if is_running && turn == *last && hand_over(engine, handle, turn) {
                wary_until = now + WARY_TIME;
            }
            if is_running || turn != *last {
                quiet_since = now;
            }
            *last = turn;
        }
        if now - quiet_since >= QUIET_TIME {
            standby.park(|| handles.iter().all(|handle| handle.is_asleep()));
            quiet_since = Instant::now();
        }
    }
}

/// Takes a loop from its leader and has another thread lead it. Returns whether a handler blocks.
fn hand_over(engine: &Engine, handle: &LoopHandle, turn: u64) -> bool {
    // First the thread, then the loop: a loop that was taken must not wait for a leader.
    let Some(leader) = engine.pool.reserve() else {
        engine.counters.hand_overs_failed.increment();
        return true;
    };
    let Some((mut event_loop, taken_turn)) = handle.slot.take() else { return false };
    engine.counters.hand_overs.increment();
    // Between the look and the taking the handler may have returned and another one begun, which
    // is not to blame. The loop cannot be put back: its leader may have missed it already.
    let mut caught = Caught::ByChance;
    if taken_turn == turn {
        let key = event_loop.running;
        let quick_calls = std::mem::take(&mut event_loop.quick_calls[key.index()]);
        caught = engine.learned.caught(key, quick_calls);
        tracing::debug!(quick_calls, ?caught, "a handler did not return in time: its loop changes hands");
    }
    if caught == Caught::First {
        engine.counters.routes_learned.increment();
    }
    leader.run(Task::Lead(event_loop));
    caught != Caught::ByChance
}
