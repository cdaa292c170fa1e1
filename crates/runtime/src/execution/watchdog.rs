//! The thread that takes a loop from a leader whose handler does not return.
//!
//! It checks every loop once per period. If a loop is in its slot with the same turn as at the last
//! check, one handler has been running all the time. The watchdog then gives the loop to a thread
//! that was reserved before, so that the loop is never without a leader. While nothing happens the
//! watchdog is parked, and the first loop that gets an event wakes it.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::crowd::{self, Crowd};
use super::looks::Looks;
use super::probe;
use super::scheduling::with_normal_policy;
use super::sleep::WatchdogSleep;

/// The period after a call that waited was caught recently: a program that blocked once tends to
/// block again, and meanwhile the other connections of the loop wait.
pub(crate) const PERIOD_AFTER_WAIT: Duration = Duration::from_micros(250);

/// The period after a call that computed was caught recently. Such a call keeps its loop for
/// [`PERIOD_CALM`] anyway, and checks take processor time from it.
const PERIOD_AFTER_WORK: Duration = Duration::from_micros(500);

/// The period otherwise. Each check is a timer and two context switches, which are wasted on a
/// server with quick handlers. A check every 0.8 ms showed in its CPU time, one every 3 ms did not.
const PERIOD_CALM: Duration = Duration::from_millis(3);

/// How long a short period applies after a catch.
const WARY_TIME: Duration = Duration::from_secs(1);

/// How long nothing must happen before the watchdog parks. Waking it costs a leader more than some
/// checks cost the machine.
const QUIET_TIME: Duration = Duration::from_millis(60);

/// A loop, as far as the watchdog uses it.
pub(crate) trait Watched: Send + Sync + 'static {
    /// Returns the turn of its slot, which is odd while a handler runs.
    fn turn(&self) -> u64;

    /// Returns the system's id of the thread that leads it, or led it last. Returns 0 if the system
    /// has no such id.
    fn leader(&self) -> u32;

    /// Returns whether it waits for events, so that no handler runs on it.
    fn is_asleep(&self) -> bool;

    /// Reserves a thread to lead a loop that is taken. Called every period while there is work.
    fn reserve_leader(&self);

    /// Releases the reserved thread when no loop has to be taken.
    fn release_leader(&self);

    /// Looks at which calls on the pool compute. Called once per window. Returns whether the next
    /// look must come even if nothing happens.
    fn look_at_calls(&self, looks: &mut Looks) -> bool;

    /// Takes the loop from the call of this turn, which has been running for `held`, and lets
    /// another thread lead it. If no thread is available, the call keeps the loop. Returns whether
    /// the call of this turn still held the loop. `false` means that it returned before the loop
    /// was taken; another call may have lost the loop instead.
    fn hand_over(&self, turn: u64, held: Duration) -> bool;
}

/// The part of the watchdog that leaders use.
#[derive(Debug)]
pub(crate) struct Watchdog {
    watchdog_sleep: Arc<WatchdogSleep>,
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        Self { watchdog_sleep: Arc::new(WatchdogSleep::new()) }
    }

    pub(crate) fn start(
        &self,
        name: String,
        loops: Vec<Arc<impl Watched>>,
        crowd: Arc<Crowd>,
    ) -> io::Result<()> {
        let watchdog_sleep = Arc::clone(&self.watchdog_sleep);
        thread::Builder::new()
            .name(name)
            .spawn(with_normal_policy(move || watch(&watchdog_sleep, &loops, &crowd)))?;
        Ok(())
    }

    /// Called by a leader that has left its poller, after it has marked itself as awake.
    #[inline]
    pub(crate) fn wake(&self) {
        self.watchdog_sleep.wake();
    }

    pub(crate) fn stop(&self) {
        self.watchdog_sleep.stop();
    }
}

fn watch<W: Watched>(watchdog_sleep: &WatchdogSleep, loops: &[Arc<W>], crowd: &Crowd) {
    watchdog_sleep.enter();
    let mut watcher = Watcher::new(loops, crowd, Instant::now());
    while !watchdog_sleep.is_stopped() {
        // The reserved thread is shared by all loops, so any handle will do.
        if let Some(watched) = loops.first() {
            watched.reserve_leader();
        }
        thread::sleep(watcher.period(Instant::now()));
        let now = Instant::now();
        watcher.check(now, probe::is_at_work);
        if watcher.is_quiet(now) {
            if let Some(watched) = loops.first() {
                watched.release_leader();
            }
            watchdog_sleep.park(|| loops.iter().all(|watched| watched.is_asleep()));
            watcher.woke_up(Instant::now());
        }
    }
    // A reserved thread would keep the pool from ending.
    if let Some(watched) = loops.first() {
        watched.release_leader();
    }
}

/// The observations of the watchdog, and its decisions. It has no clock: the time is an argument.
struct Watcher<'a, W> {
    loops: &'a [Arc<W>],
    crowd: &'a Crowd,
    /// The last turn of each loop.
    seen: Vec<Seen>,
    /// Until when which short period applies.
    after_wait_until: Instant,
    after_work_until: Instant,
    /// When something last happened.
    quiet_since: Instant,
    /// When the window of the crowd began, and the busy time of calls until then.
    window_since: Instant,
    busy_ns_before: u64,
    looks: Looks,
}

/// A turn of a slot, and when it was first seen.
struct Seen {
    turn: u64,
    since: Instant,
}

impl<'a, W: Watched> Watcher<'a, W> {
    fn new(loops: &'a [Arc<W>], crowd: &'a Crowd, now: Instant) -> Self {
        Self {
            loops,
            crowd,
            seen: loops.iter().map(|watched| Seen { turn: watched.turn(), since: now }).collect(),
            after_wait_until: now,
            after_work_until: now,
            quiet_since: now,
            window_since: now,
            busy_ns_before: 0,
            looks: Looks::default(),
        }
    }

    /// Returns how long to sleep until the next check.
    fn period(&self, now: Instant) -> Duration {
        if now < self.after_wait_until {
            PERIOD_AFTER_WAIT
        } else if now < self.after_work_until {
            PERIOD_AFTER_WORK
        } else {
            PERIOD_CALM
        }
    }

    /// Checks every loop. Takes those on which the call of the last check is still running.
    fn check(&mut self, now: Instant, is_at_work: impl Fn(u32) -> Option<bool>) {
        for (watched, last) in self.loops.iter().zip(&mut self.seen) {
            let turn = watched.turn();
            let is_running = turn % 2 == 1;
            if turn != last.turn {
                *last = Seen { turn, since: now };
            } else if is_running {
                let held = now - last.since;
                let is_at_work = is_at_work(watched.leader());
                if must_hand_over(held, is_at_work) && watched.hand_over(turn, held) {
                    let until = match is_at_work {
                        Some(false) => &mut self.after_wait_until,
                        _ => &mut self.after_work_until,
                    };
                    *until = now + WARY_TIME;
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
            // All loops share the pool, so any handle will do.
            if self.loops.first().is_some_and(|watched| watched.look_at_calls(&mut self.looks)) {
                self.quiet_since = now;
            }
        }
    }

    /// Returns whether nothing has happened for so long that the watchdog may park.
    fn is_quiet(&self, now: Instant) -> bool {
        now - self.quiet_since >= QUIET_TIME
    }

    /// Records that a leader has ended the park.
    fn woke_up(&mut self, now: Instant) {
        self.quiet_since = now;
    }
}

/// Returns whether a call that has been running for this long must lose its loop. That is so if its
/// thread waits. A thread that computes or is ready to run gets a little longer.
fn must_hand_over(held: Duration, is_at_work: Option<bool>) -> bool {
    held >= PERIOD_CALM || is_at_work != Some(true)
}

#[cfg(test)]
mod tests;
#[cfg(all(test, not(loom)))]
mod thread_tests;
