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

use super::crowd::{self, Crowd};
use super::doze::Standby;
use super::probe;
use super::scheduling::as_usual;

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

/// A loop, as far as the watchdog knows it.
pub(crate) trait Watched: Send + Sync + 'static {
    /// The turn of its slot: odd while a handler runs.
    fn turn(&self) -> u64;

    /// The system's number of the thread that leads it, or led it last; 0 if the system has none.
    fn leader(&self) -> u32;

    /// Whether it waits for events: nobody runs a handler on it.
    fn is_asleep(&self) -> bool;

    /// Has a thread stand by that will lead a loop that is taken. Called every period while there
    /// is work.
    fn stand_by(&self);

    /// Lets that thread go: there is nothing to be taken.
    fn stand_down(&self);

    /// Takes the loop from the call of this turn, which has been seen for `held`, and has another
    /// thread lead it. Returns whether that call held it.
    fn hand_over(&self, turn: u64, held: Duration) -> bool;
}

/// The side of the watchdog that leaders see.
#[derive(Debug)]
pub(crate) struct Watchdog {
    standby: Arc<Standby>,
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        Self { standby: Arc::new(Standby::new()) }
    }

    pub(crate) fn start(
        &self,
        name: String,
        loops: Vec<Arc<impl Watched>>,
        crowd: Arc<Crowd>,
    ) -> io::Result<()> {
        let standby = Arc::clone(&self.standby);
        thread::Builder::new()
            .name(name)
            .spawn(as_usual(move || watch(&standby, &loops, &crowd)))?;
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

fn watch<W: Watched>(standby: &Standby, loops: &[Arc<W>], crowd: &Crowd) {
    standby.enter();
    let mut lookout = Lookout::new(loops, crowd, Instant::now());
    while !standby.is_stopped() {
        // Every loop's handle knows the one thread that stands by for all.
        if let Some(watched) = loops.first() {
            watched.stand_by();
        }
        thread::sleep(lookout.period(Instant::now()));
        let now = Instant::now();
        lookout.look(now, probe::is_at_work);
        if lookout.is_quiet(now) {
            if let Some(watched) = loops.first() {
                watched.stand_down();
            }
            standby.park(|| loops.iter().all(|watched| watched.is_asleep()));
            lookout.woke_up(Instant::now());
        }
    }
    // What stands by would keep the pool from its end.
    if let Some(watched) = loops.first() {
        watched.stand_down();
    }
}

/// What the watchdog has seen, and what it does about it. It has no clock: the time is an argument.
struct Lookout<'a, W> {
    loops: &'a [Arc<W>],
    crowd: &'a Crowd,
    /// The last turn of each loop.
    seen: Vec<Seen>,
    wary_until: Instant,
    /// When something last happened.
    quiet_since: Instant,
    /// When the crowd's window began, and how long calls had taken until then.
    window_since: Instant,
    busy_ns_before: u64,
}

/// A turn of a slot, and when it was first seen.
struct Seen {
    turn: u64,
    since: Instant,
}

impl<'a, W: Watched> Lookout<'a, W> {
    fn new(loops: &'a [Arc<W>], crowd: &'a Crowd, now: Instant) -> Self {
        Self {
            loops,
            crowd,
            seen: loops.iter().map(|watched| Seen { turn: watched.turn(), since: now }).collect(),
            wary_until: now,
            quiet_since: now,
            window_since: now,
            busy_ns_before: 0,
        }
    }

    /// How long to sleep before the next look.
    fn period(&self, now: Instant) -> Duration {
        if now < self.wary_until { PERIOD_WARY } else { PERIOD_CALM }
    }

    /// Looks at every loop, and has those handed over whose call is the one of the last look.
    fn look(&mut self, now: Instant, is_at_work: impl Fn(u32) -> Option<bool>) {
        for (watched, last) in self.loops.iter().zip(&mut self.seen) {
            let turn = watched.turn();
            let is_running = turn % 2 == 1;
            if turn != last.turn {
                *last = Seen { turn, since: now };
            } else if is_running {
                let held = now - last.since;
                if holds(held, || is_at_work(watched.leader())) && watched.hand_over(turn, held) {
                    self.wary_until = now + WARY_TIME;
                }
            }
            if is_running || last.since == now {
                self.quiet_since = now;
            }
        }
        let window = now - self.window_since;
        if window >= crowd::WINDOW {
            let busy_ns = self.crowd.busy_ns();
            self.crowd.end_window(busy_ns - self.busy_ns_before, window);
            (self.window_since, self.busy_ns_before) = (now, busy_ns);
        }
    }

    /// Whether nothing has happened for so long that the watchdog parks.
    fn is_quiet(&self, now: Instant) -> bool {
        now - self.quiet_since >= QUIET_TIME
    }

    /// A leader has ended the park.
    fn woke_up(&mut self, now: Instant) {
        self.quiet_since = now;
    }
}

/// Whether a call that was seen for this long is to lose its loop. One whose thread waits is; one
/// whose thread computes, or stands in line for a processor, may take a little longer.
fn holds(held: Duration, is_at_work: impl FnOnce() -> Option<bool>) -> bool {
    held >= PERIOD_CALM || is_at_work() != Some(true)
}

#[cfg(test)]
mod tests;
