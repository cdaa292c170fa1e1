//! Decides where the calls of a route run, from measurements alone. It has no clock, no lock and no
//! atomic, so that tests and the simulator can reach every path.
//!
//! A call that waits on an event loop delays all connections of that loop. Passing the call to a
//! thread of the pool has a price as well. Each loop keeps a balance per route: a call that waited
//! adds the time that it took from others, and every call subtracts the price that it would have
//! paid on the pool. When the balance exceeds [`LOSS_MAX`], the route has cost more than its
//! dispatches would have, and it leaves the loops. On the pool the opposite comparison is made.
//! `README.md` beside this file has the overview, and `docs/decisions/0017` the figures behind the
//! constants.

use std::time::Duration;

/// The number of calls per brief sample. A sample costs a fortieth of a small request.
const CALLS_PER_SAMPLE: u8 = 16;

/// The number of first calls of a new route that are all sampled closely.
const FIRST_SAMPLES: u8 = 16;

/// The number of close samples after a suspiciously long call.
const SAMPLES_AFTER_LONG: u8 = 4;

/// The number of close samples after a call that waited, because the next ones may wait too.
const SAMPLES_AFTER_WAIT: u8 = 32;

/// A shorter call is not suspicious: a wait that is worth a dispatch is never that short.
const LONG: Duration = Duration::from_micros(30);

/// A shorter wait is within the error of the clocks.
const WAIT_MIN: Duration = Duration::from_micros(20);

/// The maximum time that one call counts. The watchdog takes the loop from longer calls.
const HELD_MAX: Duration = Duration::from_millis(3);

/// A call that is caught right after another one counts for the maximum. It is right after another
/// one if fewer than this many samples were taken between them.
const CAUGHT_IN_A_ROW: u8 = 2;

/// The loss beyond the price of dispatches at which a route leaves a loop: 2 ms, in nanoseconds.
const LOSS_MAX: i64 = 2_000_000;

/// The maximum credit that quick calls earn against that loss. If one call among hundreds waits, or
/// its thread is preempted, it is cheaper on the loop than all of them on the pool. 4 ms, in
/// nanoseconds.
const CREDIT_MAX: i64 = 4_000_000;

/// A computation of at least this length counts like a wait, because it is longer than small
/// requests should be delayed. Shorter ones have to be done anyway, best on the thread that has the
/// request.
const COMPUTE_LONG: Duration = Duration::from_micros(200);

/// A dispatched call below this was quick, whatever it did.
const QUICK: Duration = Duration::from_micros(15);

/// Without a thread clock that separates waiting from computing, a dispatched call above this was
/// slow.
const SLOW: Duration = Duration::from_millis(1);

/// The maximum that one dispatched call counts against a return to the loops, in prices. With 10, a
/// route with one waiting call in ten moved back and forth. Without a bound, one call in many
/// thousands would decide.
const SLOW_PRICES_MAX: i64 = 100;

/// The number of quick calls in a row after which a route first returns to the loops.
const ROW_MIN: u32 = 64;

/// The maximum of that number after relapses.
const ROW_MAX: u32 = 1 << 16;

/// A route whose calls wait longer than this gains nothing on an idle loop: the price of a dispatch
/// no longer matters for its latency.
const ALONE_WAIT_MAX: Duration = Duration::from_millis(1);

/// How one call is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    /// With the wall clock.
    Brief,
    /// With the clocks of the thread as well: how long it waited, and how long it computed.
    Close,
}

/// The measured times of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallTimes {
    /// From its start to its end.
    pub(crate) wall: Duration,
    /// How long the thread neither ran nor was ready to run. `None` if this was not measured or the
    /// system does not say.
    pub(crate) waited: Option<Duration>,
    /// How long the thread ran, under the same condition. During the rest it was ready to run but
    /// had no processor.
    pub(crate) ran: Option<Duration>,
}

impl CallTimes {
    /// Returns how long the call kept its thread from other work that this thread could have done.
    pub(crate) fn held(self) -> Option<Duration> {
        let waited = self.waited?;
        let ran = self.ran.unwrap_or(self.wall.saturating_sub(waited));
        Some(if ran >= COMPUTE_LONG { waited + ran } else { waited })
    }
}

impl CallTimes {
    /// Returns whether a long call waited for most of its time. `None` if it was quick or this is
    /// unknown.
    pub(crate) fn waits(self) -> Option<bool> {
        match self.waited {
            _ if self.wall < QUICK => None,
            None if self.wall > SLOW => Some(true),
            waited => Some(waited? > self.wall / 2),
        }
    }

    /// As [`held`](Self::held), for a call on the pool. `None` if this is unknown.
    pub(crate) fn held_on_pool(self) -> Option<Duration> {
        match self.held() {
            _ if self.wall < QUICK => Some(Duration::ZERO),
            None if self.wall > SLOW => Some(self.wall),
            held => held,
        }
    }
}

/// The demand of other connections for the loop when a call begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// Whether other connections are already ready.
    pub(crate) are_ready: bool,
    /// The requests per second of other connections.
    pub(crate) per_second: u32,
}

impl Others {
    /// Returns the time that others lose while a call holds the loop. They lose all of it if one of
    /// them is ready. Otherwise they lose the part that is left when one arrives.
    fn lose(self, held: Duration) -> i64 {
        let held_ns = nanos(held);
        if self.are_ready {
            return held_ns;
        }
        let arrivals_per_million = i64::from(self.per_second).saturating_mul(held_ns) / 1000;
        let share_per_million = (arrivals_per_million / 2).min(1_000_000);
        held_ns.saturating_mul(share_per_million) / 1_000_000
    }
}

/// The measurements of one route on one loop. It is small because every loop has one for each
/// entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnLoop {
    /// Calls until the next sample.
    left: u8,
    /// The number of further calls that are all sampled closely.
    close_left: u8,
    /// Whether calls are long without waiting. A brief sample would not show a wait then.
    is_long: bool,
    /// Whether the first samples were scheduled.
    is_known: bool,
    /// The time that others lost to calls of this route, minus the price of the dispatches.
    balance_ns: i32,
}

impl OnLoop {
    /// Begins a call. Returns whether it must be measured. [`next_sample`](Self::next_sample) then
    /// returns how.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.wrapping_sub(1);
        is_due
    }

    /// Returns how the current call is measured.
    pub(crate) fn next_sample(&mut self) -> Sample {
        self.left = 0;
        if !self.is_known {
            self.is_known = true;
            self.close_left = FIRST_SAMPLES;
        }
        if self.close_left > 0 {
            self.close_left -= 1;
            return Sample::Close;
        }
        if self.is_long { Sample::Close } else { Sample::Brief }
    }

    /// Returns how many calls the next sample stands for: itself, and those since the last one.
    pub(crate) fn next_stands_for(&self) -> u8 {
        if self.is_known && self.close_left == 0 { CALLS_PER_SAMPLE } else { 1 }
    }

    /// Returns after how many calls the next sample is taken.
    fn calls_per_sample(&self) -> u8 {
        if self.close_left > 0 { 1 } else { CALLS_PER_SAMPLE }
    }

    /// Records a sample. Returns whether the route should leave the loops.
    pub(crate) fn record(&mut self, took: CallTimes, others: Others, price: Duration) -> bool {
        let calls = i64::from(self.calls_per_sample());
        self.left = self.calls_per_sample() - 1;
        let Some(held) = took.held() else {
            self.record_brief(took.wall, price, calls);
            return false;
        };
        if took.waited.is_some_and(|waited| waited >= WAIT_MIN) || held >= COMPUTE_LONG {
            self.close_left = SAMPLES_AFTER_WAIT;
            self.left = 0;
            return self.add(others.lose(held.min(HELD_MAX)) - nanos(price));
        }
        self.is_long = took.wall >= LONG;
        self.add(-nanos(price) * calls);
        false
    }

    /// Records a brief sample. After a long call the next ones are sampled closely.
    fn record_brief(&mut self, wall: Duration, price: Duration, calls: i64) {
        if wall >= LONG {
            self.close_left = SAMPLES_AFTER_LONG;
            self.left = 0;
        } else {
            self.add(-nanos(price) * calls);
        }
    }

    /// Records that the watchdog took the loop from a call after this time, or that the call itself
    /// was found to be this long. Returns whether the route should leave the loops.
    pub(crate) fn caught(&mut self, held: Duration, price: Duration) -> bool {
        // The calls since the last sample.
        let calls = i64::from(CALLS_PER_SAMPLE.saturating_sub(1 + self.left))
            * i64::from(self.close_left == 0);
        self.add(-nanos(price) * calls);
        // Each catch in a row occupies another leader, and there are few of them.
        let is_next = self.close_left > SAMPLES_AFTER_WAIT - CAUGHT_IN_A_ROW;
        self.close_left = SAMPLES_AFTER_WAIT;
        self.left = 0;
        self.add(nanos(if is_next { HELD_MAX } else { held.min(HELD_MAX) }))
    }

    /// Resets the measurements after the route has left the loops or returned.
    pub(crate) fn start_over(&mut self) {
        *self = Self::default();
    }

    fn add(&mut self, nanos: i64) -> bool {
        let balance =
            (i64::from(self.balance_ns) + nanos).clamp(-CREDIT_MAX, 2 * LOSS_MAX + CREDIT_MAX);
        self.balance_ns = i32::try_from(balance).unwrap_or(i32::MAX);
        balance >= LOSS_MAX
    }
}

/// Where the calls of a route run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Loop,
    Pool,
}

/// The measurements of one route on all loops and threads.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    place: Place,
    /// The average time that its calls hold a thread, by the last samples.
    held_ns: i64,
    /// The cost of staying on the pool since a call was last slow, in nanoseconds.
    balance_ns: i64,
    /// The number of quick calls in a row after which the route returns.
    row: u32,
    /// The number of calls on the loops when it last returned.
    calls_at_return: u64,
}

impl Default for Shared {
    fn default() -> Self {
        Self { place: Place::Loop, held_ns: 0, balance_ns: 0, row: 0, calls_at_return: 0 }
    }
}

impl Shared {
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Returns whether quick calls have brought the route closer to its return.
    pub(crate) fn is_counting(&self) -> bool {
        self.balance_ns > 0
    }

    /// Records that a loop asks the route to leave. Returns whether it was still on the loops.
    pub(crate) fn leave(&mut self, held: Duration, calls_on_loops: u64) -> bool {
        self.note(held);
        if self.place == Place::Pool {
            return false;
        }
        self.place = Place::Pool;
        self.balance_ns = 0;
        // A relapse soon after the return requires a longer row. A late relapse does not.
        let calls_since = calls_on_loops.saturating_sub(self.calls_at_return);
        let is_relapse = self.row > 0 && calls_since < u64::from(ROW_MAX);
        self.row = if is_relapse { (self.row * 2).min(ROW_MAX) } else { ROW_MIN };
        true
    }

    /// Records that a call did not return. The route then does not run on idle loops either,
    /// however short its calls were so far.
    pub(crate) fn caught(&mut self) {
        self.held_ns = self.held_ns.max(2 * nanos(ALONE_WAIT_MAX));
    }

    /// Records a sample of a call on the pool, or on an idle loop. Returns whether the route
    /// returns to the loops.
    pub(crate) fn record(&mut self, took: CallTimes, price: Duration, calls_on_loops: u64) -> bool {
        let Some(held) = took.held_on_pool() else { return false };
        self.note(held);
        self.count(held, price, calls_on_loops)
    }

    /// Counts a call on the pool that held its thread for this long. Returns whether the route
    /// returns to the loops.
    pub(crate) fn count(&mut self, held: Duration, price: Duration, calls_on_loops: u64) -> bool {
        if self.place == Place::Loop {
            return false;
        }
        let price = nanos(price);
        self.balance_ns =
            (self.balance_ns + price - nanos(held).min(SLOW_PRICES_MAX * price)).max(0);
        let is_back = self.balance_ns >= price * i64::from(self.row);
        if is_back {
            self.place = Place::Loop;
            self.calls_at_return = calls_on_loops;
        }
        is_back
    }

    /// Returns the rate of other requests per second below which a call still runs on its loop if
    /// no other connection is ready there. It is [`ALWAYS`] for a route on the loops, and 0 for a
    /// route that never runs there. It is a power of two, so that it seldom changes.
    pub(crate) fn others_max(&self, price: Duration) -> u32 {
        if self.place == Place::Loop {
            return ALWAYS;
        }
        if self.held_ns > nanos(ALONE_WAIT_MAX) {
            return 0;
        }
        // A call costs others `held * (per_second * held / 2)`. This is the rate at which that
        // equals the price.
        let held = self.held_ns.max(nanos(WAIT_MIN));
        let per_second = (2_000_000_000 * nanos(price) / held).saturating_mul(1) / held;
        let per_second = u32::try_from(per_second).unwrap_or(u32::MAX >> 1).max(1);
        1 << per_second.ilog2()
    }

    fn note(&mut self, held: Duration) {
        let held = nanos(held.min(Duration::from_secs(60)));
        self.held_ns =
            if self.held_ns == 0 { held } else { self.held_ns + (held - self.held_ns) / 8 };
    }
}

/// The bound of a route whose calls run on the loops at any rate of other requests.
pub(crate) const ALWAYS: u32 = u32::MAX;

/// The bound of a route that was never called.
pub(crate) const NEVER_CALLED: u32 = u32::MAX - 1;

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
