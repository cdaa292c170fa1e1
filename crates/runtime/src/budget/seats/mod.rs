//! Who may have a thread of the pool: one seat for each thread, shared by all routes.
//!
//! A route takes seats as long as it has fewer than [`SHARE`] times those that are free, the rule
//! of dynamic thresholds in the buffers of switches. One slow route has eight of nine seats at
//! most, two have eight of seventeen each; what is left is there for whoever has none. So no route
//! takes all threads, and nobody has to say how many each may have. A request that gets no seat
//! waits in the line of its route, as long as it will be served in [time](backlog), and the lines
//! are served in turns.
//!
//! A request that [uses](crate::Permits) a counted resource needs a permit beside its seat, and
//! waits in the same line.
//!
//! All of it is under one lock, held for counts and pushes: what is queued is given back to be run,
//! refused or dropped outside. `README.md` beside this file tells why no request is left waiting.

mod backlog;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Weak;
use std::time::{Duration, Instant};

use self::backlog::Backlog;
use crate::budget::permits::{Nobody, Permit, Permits, Waits};
use crate::execution::key::ExecutionKey;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How many times the free seats a route may have. Eight leaves a ninth of the seats to the others.
const SHARE: usize = 8;

/// How many vital requests have a seat of their own at once. A check of a balancer and one of a
/// supervisor each have some, and a vital route that hangs takes no more threads than that beyond
/// those of the others.
pub(crate) const VITAL_SEATS: usize = 8;

/// What asks for a seat, and may need a permit beside it.
pub(crate) trait Needs {
    /// What it uses, if it has no permit of it yet.
    fn permits(&self) -> Option<&Permits> {
        None
    }

    /// Keeps its permit.
    fn hold(&mut self, permit: Permit) {
        drop(permit);
    }
}

/// The seats, and what waits for one.
pub(crate) struct Seats<T> {
    seats_max: usize,
    waiting_max: usize,
    wait_max: Duration,
    /// Where nanoseconds are counted from.
    born: Instant,
    state: Mutex<State<T>>,
    /// Who is told when a permit is free that a request waits for.
    waiter: Weak<dyn Waits>,
    /// How many wait, for [`Seats::waiting`].
    waiting: AtomicUsize,
    /// Whether any of them waits for a seat, for [`Seats::is_short`].
    is_short: AtomicBool,
}

struct State<T> {
    taken: usize,
    /// Seats of vital requests, beside those that are `taken`.
    vital: usize,
    waiting: usize,
    /// Whether a route that waits had no seat to spare when it was last looked at. The others wait
    /// for permits.
    is_short: bool,
    lines: HashMap<ExecutionKey, Line<T>>,
    /// The lines that are not empty, the one whose turn is next first.
    turns: VecDeque<ExecutionKey>,
    is_closed: bool,
}

/// One route: its seats, and its requests that wait.
struct Line<T> {
    taken: usize,
    waiting: VecDeque<Waiting<T>>,
    backlog: Backlog,
}

struct Waiting<T> {
    item: T,
    since: u64,
}

/// What became of a request that asks for a seat.
#[derive(Debug)]
pub(crate) enum Entered<T> {
    /// It has one, until [`Seats::leave`], and its permit.
    Seated(T),
    /// It waits. It comes back from [`Seats::leave`], [`Seats::next`] or [`Seats::expired`].
    Waits,
    Refused(T, Full),
}

/// Why there is no seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// The seats of the route.
    pub(crate) taken: usize,
    /// The seats of all routes.
    pub(crate) taken_in_all: usize,
    pub(crate) seats_max: usize,
    /// The requests of the route that wait.
    pub(crate) waiting: usize,
    /// How long one more would have waited, if that is known.
    pub(crate) wait: Option<Duration>,
    /// What a request of the route needs beside a seat.
    pub(crate) permits: Option<Permits>,
}

impl<T: Needs> Seats<T> {
    /// Returns so many seats, for which so many requests may wait, for so long.
    pub(crate) fn new(seats_max: usize, waiting_max: usize, wait_max: Duration) -> Self {
        let state = State {
            taken: 0,
            vital: 0,
            waiting: 0,
            is_short: false,
            lines: HashMap::new(),
            turns: VecDeque::new(),
            is_closed: false,
        };
        Self {
            seats_max,
            waiting_max,
            wait_max,
            born: Instant::now(),
            state: Mutex::new(state),
            waiter: Weak::<Nobody>::new(),
            waiting: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
        }
    }

    /// Sets who is told when a permit is free that a request waits for. It calls
    /// [`look`](Self::look) then.
    pub(crate) fn telling(mut self, waiter: Weak<dyn Waits>) -> Self {
        self.waiter = waiter;
        self
    }

    /// Asks for a seat for a request of a route.
    pub(crate) fn enter(&self, key: ExecutionKey, mut item: T) -> Entered<T> {
        let mut state = self.state.lock();
        let State { taken, waiting, is_short, lines, turns, is_closed, .. } = &mut *state;
        let line = lines.entry(key).or_insert_with(|| Line::new(self.wait_max));
        let has_seat = may_take(line.taken, *taken, self.seats_max);
        if line.waiting.is_empty() && has_seat {
            if may_go(&mut item, |permits| permits.take_or_note(&self.waiter)) {
                line.backlog.reset();
                line.taken += 1;
                *taken += 1;
                return Entered::Seated(item);
            }
            if line.taken == 0 {
                // Others have the permits: what the route was served says nothing about how soon it
                // has its turn.
                line.backlog.reset();
            }
        }
        let now = self.now();
        let behind = line.waiting.len();
        if *is_closed
            || *waiting >= self.waiting_max
            || !line.backlog.may_wait(now, behind, line.taken)
        {
            let full = self.full(line, *taken, now, item.permits().cloned());
            return Entered::Refused(item, full);
        }
        if behind == 0 {
            turns.push_back(key);
        }
        line.waiting.push_back(Waiting { item, since: now });
        *waiting += 1;
        *is_short |= !has_seat;
        self.publish(&state);
        Entered::Waits
    }

    /// Takes a seat for something that does not wait for one. Returns whether there was one.
    pub(crate) fn try_enter(&self, key: ExecutionKey) -> bool {
        let mut state = self.state.lock();
        let taken = state.taken;
        let line = state.lines.entry(key).or_insert_with(|| Line::new(self.wait_max));
        let may = line.waiting.is_empty() && may_take(line.taken, taken, self.seats_max);
        if may {
            line.taken += 1;
            state.taken += 1;
        } else {
            state.forget(key);
        }
        may
    }

    /// Takes one of the seats that are kept for vital requests. Returns whether there was one.
    pub(crate) fn enter_vital(&self) -> bool {
        let vital = &mut self.state.lock().vital;
        let may = *vital < VITAL_SEATS;
        *vital += usize::from(may);
        may
    }

    /// Gives one of the seats back that are kept for vital requests. Nobody waits for them.
    pub(crate) fn leave_vital(&self) {
        self.state.lock().vital -= 1;
    }

    /// Takes a seat whether there is one or not, for what cannot be refused any more.
    pub(crate) fn force(&self, key: ExecutionKey) {
        let mut state = self.state.lock();
        state.lines.entry(key).or_insert_with(|| Line::new(self.wait_max)).taken += 1;
        state.taken += 1;
    }

    /// Gives a seat of one route in exchange for one of another. Returns whether that may have it,
    /// and is not to wait.
    pub(crate) fn change(&self, from: ExecutionKey, to: ExecutionKey) -> bool {
        let mut state = self.state.lock();
        let taken = state.taken - 1;
        let line = state.lines.entry(to).or_insert_with(|| Line::new(self.wait_max));
        if !line.waiting.is_empty() || !may_take(line.taken, taken, self.seats_max) {
            state.forget(to);
            return false;
        }
        line.taken += 1;
        state.release(from);
        true
    }

    /// Gives a seat back. Returns a request that has one now, with its route; then ask for the
    /// [next](Self::next) one.
    pub(crate) fn leave(&self, key: ExecutionKey) -> Option<(ExecutionKey, T)> {
        let mut state = self.state.lock();
        state.taken -= 1;
        state.release(key);
        self.seat_next(&mut state)
    }

    /// A request that waited and has a seat now, with its route.
    pub(crate) fn next(&self) -> Option<(ExecutionKey, T)> {
        if self.waiting() == 0 {
            return None;
        }
        self.look()
    }

    /// As [`next`](Self::next), for who was told that a permit is free. The request that asked for
    /// it may still be on its way into its line, under the lock.
    pub(crate) fn look(&self) -> Option<(ExecutionKey, T)> {
        self.seat_next(&mut self.state.lock())
    }

    /// How many requests wait, or waited a moment ago.
    pub(crate) fn waiting(&self) -> usize {
        // Relaxed: who is told a moment too late asks again after its next request.
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether a request waits for a seat, or did a moment ago. Who has one could let it in, unlike
    /// those that wait for permits.
    pub(crate) fn is_short(&self) -> bool {
        // Relaxed: as above.
        self.is_short.load(Ordering::Relaxed)
    }

    /// Takes out what has waited for too long, and says when to look again.
    pub(crate) fn expired(&self) -> (Vec<T>, Option<Duration>) {
        let mut expired = Vec::new();
        if self.waiting() == 0 {
            return (expired, None);
        }
        let mut next: Option<u64> = None;
        let mut state = self.state.lock();
        let wait_max = nanoseconds(self.wait_max);
        let now = self.now();
        let State { waiting, lines, turns, .. } = &mut *state;
        turns.retain(|key| {
            let Some(line) = lines.get_mut(key) else { return false };
            let late =
                line.waiting.iter().take_while(|waiting| now >= waiting.since + wait_max).count();
            expired.extend(line.waiting.drain(..late).map(|waiting| waiting.item));
            let left = line.waiting.front().map(|first| first.since + wait_max - now);
            next = next.into_iter().chain(left).min();
            left.is_some()
        });
        *waiting -= expired.len();
        self.publish(&state);
        (expired, next.map(Duration::from_nanos))
    }

    /// Why this request of a route waits.
    pub(crate) fn why(&self, key: ExecutionKey, item: &T) -> Full {
        let mut state = self.state.lock();
        let taken = state.taken;
        let line = state.lines.entry(key).or_insert_with(|| Line::new(self.wait_max));
        let full = self.full(line, taken, self.now(), item.permits().cloned());
        state.forget(key);
        full
    }

    /// Lets nothing wait from now on, and gives back what does.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.waiting = 0;
        state.turns.clear();
        self.publish(&state);
        state
            .lines
            .values_mut()
            .flat_map(|line| line.waiting.drain(..))
            .map(|waiting| waiting.item)
            .collect()
    }

    fn seat_next(&self, state: &mut State<T>) -> Option<(ExecutionKey, T)> {
        let mut is_short = false;
        for _ in 0..state.turns.len() {
            let key = state.turns.pop_front()?;
            let Some(line) = state.lines.get_mut(&key) else { continue };
            let Some(first) = line.waiting.front_mut() else { continue };
            let has_seat = may_take(line.taken, state.taken, self.seats_max);
            if !has_seat || !may_go(&mut first.item, |permits| permits.take_in_turn(&self.waiter)) {
                is_short |= !has_seat;
                state.turns.push_back(key);
                continue;
            }
            let Some(first) = line.waiting.pop_front() else { continue };
            line.backlog.served(self.now());
            line.taken += 1;
            if line.waiting.is_empty() {
                // There was enough for all: who waits next does so for another reason.
                line.backlog.reset();
            } else {
                state.turns.push_back(key);
            }
            state.taken += 1;
            state.waiting -= 1;
            self.publish(state);
            return Some((key, first.item));
        }
        state.is_short = is_short;
        self.publish(state);
        None
    }

    /// Says to all threads what they look at without the lock. Looked at first: a store takes the
    /// line from all of them.
    fn publish(&self, state: &State<T>) {
        if self.waiting.load(Ordering::Relaxed) != state.waiting {
            self.waiting.store(state.waiting, Ordering::Relaxed);
        }
        let is_short = state.is_short && state.waiting > 0;
        if self.is_short.load(Ordering::Relaxed) != is_short {
            self.is_short.store(is_short, Ordering::Relaxed);
        }
    }

    fn full(
        &self,
        line: &Line<T>,
        taken_in_all: usize,
        now: u64,
        permits: Option<Permits>,
    ) -> Full {
        let waiting = line.waiting.len();
        let wait = line.backlog.wait_for(now, waiting).map(Duration::from_nanos);
        Full { taken: line.taken, taken_in_all, seats_max: self.seats_max, waiting, wait, permits }
    }

    fn now(&self) -> u64 {
        nanoseconds(self.born.elapsed())
    }
}

impl<T> State<T> {
    /// A route has a seat less.
    fn release(&mut self, key: ExecutionKey) {
        if let Some(line) = self.lines.get_mut(&key) {
            line.taken -= 1;
        }
        self.forget(key);
    }

    /// Forgets a route that has nothing.
    fn forget(&mut self, key: ExecutionKey) {
        if self.lines.get(&key).is_some_and(|line| line.taken == 0 && line.waiting.is_empty()) {
            self.lines.remove(&key);
        }
    }
}

impl<T> Line<T> {
    fn new(wait_max: Duration) -> Self {
        Self { taken: 0, waiting: VecDeque::new(), backlog: Backlog::new(nanoseconds(wait_max)) }
    }
}

/// Whether a request has the permit that it needs, or now gets one.
fn may_go<T: Needs>(item: &mut T, take: impl FnOnce(&Permits) -> Option<Permit>) -> bool {
    let Some(permits) = item.permits() else { return true };
    let Some(permit) = take(permits) else { return false };
    item.hold(permit);
    true
}

/// Whether a route with so many seats may have one more.
const fn may_take(taken: usize, taken_in_all: usize, seats_max: usize) -> bool {
    taken < seats_max.saturating_sub(taken_in_all).saturating_mul(SHARE)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken, taken_in_all, seats_max, waiting, .. } = self;
        write!(
            f,
            "it has {taken} of {seats_max} threads, {taken_in_all} are taken, {waiting} of its \
             requests wait"
        )?;
        match &self.permits {
            Some(permits) => {
                write!(
                    f,
                    ", {} of {} permits \"{}\" are free",
                    permits.available(),
                    permits.count(),
                    permits.name()
                )
            }
            None => Ok(()),
        }
    }
}

impl<T: Needs> fmt::Debug for Seats<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seats")
            .field("seats_max", &self.seats_max)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
