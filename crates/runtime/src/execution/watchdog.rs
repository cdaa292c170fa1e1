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

use super::crowd;
use super::doze::Standby;
use super::probe;
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

/// A turn of a slot, and when it was first seen.
struct Seen {
    turn: u64,
    since: Instant,
}

fn watch(engine: &Arc<Engine>, handles: &[Arc<LoopHandle>]) {
    let standby = &engine.watchdog.standby;
    standby.enter();
    let mut quiet_since = Instant::now();
    let seen = |handle: &Arc<LoopHandle>| Seen { turn: handle.slot.turn(), since: quiet_since };
    let mut turns: Vec<Seen> = handles.iter().map(seen).collect();
    let mut wary_until = quiet_since;
    let mut busy = (quiet_since, 0);
    while !standby.is_stopped() {
        let is_wary = Instant::now() < wary_until;
        let period = if is_wary { PERIOD_WARY } else { PERIOD_CALM };
        thread::sleep(period);
        let now = Instant::now();
        for (handle, last) in handles.iter().zip(&mut turns) {
            let turn = handle.slot.turn();
            let is_running = turn % 2 == 1;
            if turn != last.turn {
                *last = Seen { turn, since: now };
            } else if is_running {
                let held = now - last.since;
                if holds(handle, held) && hand_over(engine, handle, turn, held) {
                    wary_until = now + WARY_TIME;
                }
            }
            if is_running || last.since == now {
                quiet_since = now;
            }
        }
        let (since, busy_before) = busy;
        if now - since >= crowd::WINDOW {
            busy = (now, engine.crowd.busy_ns());
            engine.crowd.end_window(busy.1 - busy_before, now - since);
        }
        if now - quiet_since >= QUIET_TIME {
            standby.park(|| handles.iter().all(|handle| handle.is_asleep()));
            quiet_since = Instant::now();
        }
    }
}

/// Whether a call that was seen for this long is to lose its loop. One whose thread waits is; one whose
/// thread computes, or stands in line for a processor, may take a little longer.
fn holds(handle: &LoopHandle, held: Duration) -> bool {
    held >= PERIOD_CALM || probe::is_at_work(handle.leader()) != Some(true)
}

/// Takes a loop from its leader and has another thread lead it. Returns whether a call held it.
fn hand_over(engine: &Engine, handle: &LoopHandle, turn: u64, held: Duration) -> bool {
    // First the thread, then the loop: a loop that was taken must not wait for a leader.
    let Some(leader) = engine.pool.reserve() else {
        engine.counters.hand_overs_failed.increment();
        // The route is to leave the loops all the same: the next of its calls would hold another one.
        let key = handle.running();
        if handle.slot.turn() == turn && engine.routes.stuck(key, held) {
            engine.counters.routes_learned.increment();
        }
        return true;
    };
    let Some((mut event_loop, taken_turn)) = handle.slot.take() else { return false };
    engine.counters.hand_overs.increment();
    // Between the look and the taking the handler may have returned and another one begun, which
    // is not to blame. The loop cannot be put back: its leader may have missed it already.
    let is_caught = taken_turn == turn;
    if is_caught {
        let key = handle.running();
        tracing::debug!(key = key.index(), "a handler did not return in time: its loop changes hands");
        if engine.routes.caught(key, event_loop.route_mut(key), held) {
            engine.counters.routes_learned.increment();
        }
    }
    leader.run(Task::Lead(event_loop));
    is_caught
}
