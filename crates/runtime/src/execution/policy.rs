//! Decides where the calls of a route run: measurements in, decisions out. No clock, no lock, no
//! atomic, so that tests and the simulator can walk every path.
//!
//! A call that waits on an event loop takes the loop's time away from all connections of that loop.
//! Giving the call to a thread of the pool has a price as well. Each loop keeps a balance per
//! route: a call that waited adds what it took from others, and every call takes off the price that
//! it would have paid on the pool. When the balance is above [`LOSS_MAX`], the route has cost more
//! than its dispatches would have, and it leaves the loops. On the pool the same comparison is made
//! the other way round. `README.md` beside this file has the whole picture, and
//! `docs/decisions/0017` the figures behind the constants.

use std::time::Duration;

/// Calls between two brief looks. The price of a look is a fortieth of a small request.
const CALLS_PER_LOOK: u8 = 16;

/// Calls of a new route that are measured closely, one after the other.
const FIRST_LOOKS: u8 = 16;

/// Close looks after a call that was suspiciously long.
const LOOKS_AFTER_LONG: u8 = 4;

/// Close looks after a call that waited: the next ones may do so, too.
const LOOKS_AFTER_WAIT: u8 = 32;

/// A call that is shorter than this is not suspicious: no way of waiting that a dispatch would pay
/// for is that short.
const LONG: Duration = Duration::from_micros(30);

/// A shorter wait is lost in what the clocks themselves take.
const WAIT_MIN: Duration = Duration::from_micros(20);

/// The most that one call counts for. The watchdog takes the loop from one that takes longer.
const HELD_MAX: Duration = Duration::from_millis(3);

/// A call that is caught right after another one counts for as much as any can: fewer than so many
/// looks were taken between them.
const CAUGHT_IN_A_ROW: u8 = 2;

/// What a loop loses to a route, beyond the price of dispatches, before the route leaves it: 2 ms,
/// in nanoseconds.
const LOSS_MAX: i64 = 2_000_000;

/// What quick calls can save up against that: one call among hundreds that waits, or whose thread
/// is preempted, is cheaper on the loop than all of them on the pool. 4 ms, in nanoseconds.
const CREDIT_MAX: i64 = 4_000_000;

/// A computation from here on counts as if it waited: it is longer than what plain neighbours
/// should wait for. Shorter ones have to be done anyway, and are done best where the request is.
const COMPUTE_LONG: Duration = Duration::from_millis(1);

/// A dispatched call below this was quick, whatever it did.
const QUICK: Duration = Duration::from_micros(15);

/// Where no thread clock tells waiting and computing apart, a dispatched call above this was slow.
const SLOW: Duration = Duration::from_millis(1);

/// The most that one dispatched call counts against going back, in prices. With 10 a route of which
/// one call in ten waits went to and fro; without a bound one call in many thousands would decide.
const SLOW_PRICES_MAX: i64 = 100;

/// Quick calls in a row that first bring a route back to the loops.
const ROW_MIN: u32 = 64;

/// The longest row that relapses lead to.
const ROW_MAX: u32 = 1 << 16;

/// A route whose calls wait longer than this gains nothing on an idle loop: the price of a dispatch
/// no longer shows in its latency.
const ALONE_WAIT_MAX: Duration = Duration::from_millis(1);

/// How one call is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// By the clock on the wall.
    Brief,
    /// By the clocks of its thread, too: how long it waited, and how long it computed.
    Close,
}

/// What a look at a call has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Took {
    /// From its begin to its end.
    pub(crate) wall: Duration,
    /// How much of it the thread neither ran nor could have run. `None` if nobody looked closely,
    /// or the system cannot say.
    pub(crate) waited: Option<Duration>,
    /// How much of it the thread ran, under the same condition. The rest it stood in line for a
    /// processor.
    pub(crate) ran: Option<Duration>,
}

impl Took {
    /// How long it kept a thread from other work that this thread could have done.
    pub(crate) fn held(self) -> Option<Duration> {
        let waited = self.waited?;
        let ran = self.ran.unwrap_or(self.wall.saturating_sub(waited));
        Some(if ran >= COMPUTE_LONG { waited + ran } else { waited })
    }
}

impl Took {
    /// Whether a long call waited for most of its time. `None` if it was quick, or nobody can say.
    pub(crate) fn waits(self) -> Option<bool> {
        match self.waited {
            _ if self.wall < QUICK => None,
            None if self.wall > SLOW => Some(true),
            waited => Some(waited? > self.wall / 2),
        }
    }

    /// The same for a call on the pool. `None` if that cannot be told.
    pub(crate) fn held_on_pool(self) -> Option<Duration> {
        match self.held() {
            _ if self.wall < QUICK => Some(Duration::ZERO),
            None if self.wall > SLOW => Some(self.wall),
            held => held,
        }
    }
}

/// Who else wants a loop when a call begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// Whether other connections are ready already.
    pub(crate) are_ready: bool,
    /// Requests a second that other connections bring.
    pub(crate) per_second: u32,
}

impl Others {
    /// What others lose while a call holds the loop: all of its time if one of them is there, and
    /// the part of it that is left when one comes.
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

/// What one loop knows of one route. Small: every loop has one for each entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnLoop {
    /// Calls to come before the next look.
    left: u8,
    /// Close looks to come, one at each call.
    closely: u8,
    /// Calls are long without waiting: a brief look would tell nothing.
    is_long: bool,
    /// Whether the first looks were planned.
    is_known: bool,
    /// What others have lost to calls of this route, less what dispatches would have cost.
    balance_ns: i32,
}

impl OnLoop {
    /// A call begins. Returns whether it is to be measured: then [`look`](Self::look) says how.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.wrapping_sub(1);
        is_due
    }

    /// How the call that has begun is measured.
    pub(crate) fn look(&mut self) -> Look {
        self.left = 0;
        if !self.is_known {
            self.is_known = true;
            self.closely = FIRST_LOOKS;
        }
        if self.closely > 0 {
            self.closely -= 1;
            return Look::Close;
        }
        if self.is_long { Look::Close } else { Look::Brief }
    }

    /// How many calls the look that has just been taken stands for.
    pub(crate) fn calls_per_look(&self) -> u8 {
        if self.closely > 0 { 1 } else { CALLS_PER_LOOK }
    }

    /// Takes in what a look has shown. Returns whether the route should leave the loops.
    pub(crate) fn looked(&mut self, took: Took, others: Others, price: Duration) -> bool {
        let calls = i64::from(self.calls_per_look());
        self.left = self.calls_per_look() - 1;
        let Some(held) = took.held() else {
            self.glanced(took.wall, price, calls);
            return false;
        };
        if took.waited.is_some_and(|waited| waited >= WAIT_MIN) || held >= COMPUTE_LONG {
            self.closely = LOOKS_AFTER_WAIT;
            self.left = 0;
            return self.add(others.lose(held.min(HELD_MAX)) - nanos(price));
        }
        self.is_long = took.wall >= LONG;
        self.add(-nanos(price) * calls);
        false
    }

    /// A brief look: a long call is looked at more closely the next time.
    fn glanced(&mut self, wall: Duration, price: Duration, calls: i64) {
        if wall >= LONG {
            self.closely = LOOKS_AFTER_LONG;
            self.left = 0;
        } else {
            self.add(-nanos(price) * calls);
        }
    }

    /// The watchdog took the loop from a call after this time, or the call was seen to take it.
    /// Returns whether the route should leave the loops.
    pub(crate) fn caught(&mut self, held: Duration, price: Duration) -> bool {
        // Those that were not looked at since the last look.
        let calls =
            i64::from(CALLS_PER_LOOK.saturating_sub(1 + self.left)) * i64::from(self.closely == 0);
        self.add(-nanos(price) * calls);
        // One after the other they take a leader each, and there are few of those.
        let is_next = self.closely > LOOKS_AFTER_WAIT - CAUGHT_IN_A_ROW;
        self.closely = LOOKS_AFTER_WAIT;
        self.left = 0;
        self.add(nanos(if is_next { HELD_MAX } else { held.min(HELD_MAX) }))
    }

    /// The route has left the loops, or came back: what was is forgotten.
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

/// What all loops and threads together know of one route.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    place: Place,
    /// What its calls hold on average, by the last looks.
    held_ns: i64,
    /// What staying on the pool has cost since a call was last slow, in nanoseconds.
    balance_ns: i64,
    /// The row of quick calls that brings it back.
    row: u32,
    /// Calls on the loops when it last came back.
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

    /// Whether quick calls have brought the route closer to its return.
    pub(crate) fn is_counting(&self) -> bool {
        self.balance_ns > 0
    }

    /// A loop has found that the route should leave. Returns whether that is new.
    pub(crate) fn leave(&mut self, held: Duration, calls_on_loops: u64) -> bool {
        self.note(held);
        if self.place == Place::Pool {
            return false;
        }
        self.place = Place::Pool;
        self.balance_ns = 0;
        // A relapse soon after the return asks for a longer row; one after a long time does not.
        let calls_since = calls_on_loops.saturating_sub(self.calls_at_return);
        let is_relapse = self.row > 0 && calls_since < u64::from(ROW_MAX);
        self.row = if is_relapse { (self.row * 2).min(ROW_MAX) } else { ROW_MIN };
        true
    }

    /// A call did not return: however long its route's calls have taken so far, none runs on a loop
    /// only because that is idle.
    pub(crate) fn caught(&mut self) {
        self.held_ns = self.held_ns.max(2 * nanos(ALONE_WAIT_MAX));
    }

    /// Takes in a call that was measured on the pool, or on a loop that was idle. Returns whether
    /// it brought the route back.
    pub(crate) fn looked(&mut self, took: Took, price: Duration, calls_on_loops: u64) -> bool {
        let Some(held) = took.held_on_pool() else { return false };
        self.note(held);
        self.count(held, price, calls_on_loops)
    }

    /// Counts a call on the pool that held its thread for so long. Returns whether it brought the
    /// route back.
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

    /// Below how many requests a second of others a call still runs on its loop, if nobody else is
    /// ready there: [`ALWAYS`] for a route of the loops, 0 for one that never does. A power of two,
    /// so that it seldom changes.
    pub(crate) fn others_max(&self, price: Duration) -> u32 {
        if self.place == Place::Loop {
            return ALWAYS;
        }
        if self.held_ns > nanos(ALONE_WAIT_MAX) {
            return 0;
        }
        // A call costs others `held * (per_second * held / 2)`; this is where that is the price.
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

/// The bound of a route whose calls run on the loops, however many others there are.
pub(crate) const ALWAYS: u32 = u32::MAX;

/// The same for a route that was never called.
pub(crate) const NEVER_CALLED: u32 = u32::MAX - 1;

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
