//! Turns on the processors for code that computes on contents as they arrive, fills response
//! bodies, or owns an upgraded connection.
//!
//! Such code has a thread, and may compute as it likes. With hundreds of these threads ready to
//! run, each request of the server stands in line for a processor. So a few of them have a turn at
//! a time, and the others sleep. A thread gives its turn back while its client is slow, and passes
//! it on after a few milliseconds if others wait.
//!
//! A thread that waits for something else, such as a database, keeps its turn, and that must cost
//! the others nothing. So the next in line looks at those that have one, as the watchdog looks at
//! [calls](crate::execution::looks), and estimates how many of them are ready to run. As many have
//! a turn as keep the processors busy: a few if all of them compute, all if they wait. Where the
//! system does not say what a thread does, all of them have one.
//!
//! In the line clients take turns, as elsewhere. If no turn was passed on for a while, a client
//! without a turn gets an extra one. So long computations of one client do not keep other clients
//! from their turns.
//!
//! No wake-up is lost. Everything changes under one lock. A thread that ends a turn, or finds out
//! that there may be more turns, gives the free turns to the first in line and wakes them. It also
//! wakes the thread that is first afterwards, because only the first waits with a time-out. A
//! thread is in the line from the moment at which it finds no free turn until it is given one.

#[cfg(all(test, loom))]
mod models;

use std::fmt;
use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::budget::clients::ClientId;
use crate::budget::fair_queue::{FairQueue, Place};
use crate::execution::key::ExecutionKey;
use crate::execution::looks::{Candidate, Looks, Share};
use crate::execution::probe;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// This many threads per processor may be ready to run. With one, a processor would be idle
/// whenever that thread waits for a moment.
const PER_PROCESSOR: usize = 2;

/// How long a turn lasts if others wait. It ends when the thread has sent something, or waits for
/// its peer.
const TURN: Duration = Duration::from_millis(3);

/// How long the next thread in line waits before it looks at those that have a turn.
const LOOK_AFTER: Duration = Duration::from_millis(5);

/// If no thread has got a turn for this long, one more is given.
const OVERDUE: Duration = Duration::from_millis(100);

/// How long after a look a thread that has a turn looks at the others, if nobody waits in line.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// While the processors are not busy, each look allows one more thread a turn for this many that
/// have one.
const GROWTH: usize = 4;

/// The number of all threads on a system that does not number them.
const NO_NUMBER: u32 = 0;

/// The key of all threads, because looks need not tell them apart by route.
const ALL: ExecutionKey = ExecutionKey::at(0);

/// See [`Turns::of_computing`].
static COMPUTING: OnceLock<Arc<Turns>> = OnceLock::new();

/// The turns of a server.
pub(crate) struct Turns {
    ready_max: usize,
    is_at_work: fn(u32) -> Option<bool>,
    line: Mutex<Line>,
}

struct Line {
    /// The threads whose turn it is, and their clients.
    having: Vec<Member>,
    /// How many may have one, as far as is known.
    having_max: usize,
    waiting: FairQueue<Arc<Waiter>>,
    /// When a waiting thread last got a turn, or when a thread began to wait in an empty line.
    called_at: Instant,
    looks: Looks,
    /// The share of the threads with a turn that is ready to run.
    share: Share,
    looked_at: Instant,
}

/// A thread, and the client that it works for, if that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    thread: u32,
    client: Option<ClientId>,
}

struct Waiter {
    member: Member,
    /// Whether it is this thread's turn. Changes under the lock of the line.
    has_turn: AtomicBool,
    /// Notified when it is this thread's turn, and when the thread is the next in line.
    called: Condvar,
}

/// The turn of one thread, which may be over.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    member: Member,
    since: Instant,
}

impl Turns {
    pub(crate) fn of_this_machine() -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(processors.saturating_mul(PER_PROCESSOR), probe::is_at_work)
    }

    /// Returns the turns of code that computes and never waits, such as a parser, for all servers
    /// of this process. One thread per processor has a turn, whatever the system says that it does:
    /// a thread that takes memory again and again mostly waits for the system's lock on it, and so
    /// do all others that take some.
    pub(crate) fn of_computing() -> &'static Arc<Self> {
        COMPUTING.get_or_init(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            Self::new(processors, |_| Some(true))
        })
    }

    /// Returns the threads that compute or stand in line for it. There are none if no code ever
    /// asked for such a turn.
    pub(crate) fn threads_computing() -> Vec<u32> {
        let Some(turns) = COMPUTING.get() else { return Vec::new() };
        let line = turns.line.lock();
        let waiting = line.waiting.iter().map(|waiter| waiter.member);
        waiting.chain(line.having.iter().copied()).map(|member| member.thread).collect()
    }

    pub(crate) fn new(ready_max: usize, is_at_work: fn(u32) -> Option<bool>) -> Arc<Self> {
        let line = Line {
            having: Vec::new(),
            having_max: ready_max,
            waiting: FairQueue::new(),
            called_at: Instant::now(),
            looks: Looks::default(),
            share: Share::ALL,
            looked_at: Instant::now(),
        };
        Arc::new(Self { ready_max, is_at_work, line: Mutex::new(line) })
    }

    /// Returns the threads that stand in line: each computes as soon as it may.
    pub(crate) fn in_line(&self) -> Vec<u32> {
        self.line.lock().waiting.iter().map(|waiter| waiter.member.thread).collect()
    }

    /// Waits until it is the turn of this thread.
    fn wait(&self, line: MutexGuard<'_, Line>, member: Member) {
        let mut line = line;
        if line.waiting.is_empty() && line.having.len() < line.having_max {
            line.having.push(member);
            return;
        }
        let has_turn = AtomicBool::new(false);
        let waiter = Arc::new(Waiter { member, has_turn, called: Condvar::new() });
        if line.waiting.is_empty() {
            line.called_at = Instant::now();
        }
        line.waiting.push(member.client, Arc::clone(&waiter));
        line.call_next();
        while !waiter.has_turn.load(Ordering::Relaxed) {
            // Only the next in line looks at the others, so only one thread does so at a time.
            if !line.waiting.get_mut(Place::Turn(0)).is_some_and(|next| Arc::ptr_eq(next, &waiter))
            {
                line = waiter.called.wait(line);
                continue;
            }
            let look_at = line.looked_at + LOOK_AFTER;
            let is_late;
            (line, is_late) = waiter.called.wait_until(line, look_at);
            if is_late && !waiter.has_turn.load(Ordering::Relaxed) {
                line = self.look(line, member.thread);
                line.call_next();
                line.call_overdue();
            }
        }
    }

    /// Estimates how many of the threads that have a turn are ready to run, and how many may have
    /// one because of that. The thread that looks does not count, because it runs in any case.
    fn look<'a>(&'a self, mut line: MutexGuard<'a, Line>, thread: u32) -> MutexGuard<'a, Line> {
        line.looked_at = Instant::now();
        // Where threads have no numbers, all have the same, and nothing is known of any.
        let is_other = |other: &u32| *other != thread || thread == NO_NUMBER;
        let others = line.having.iter().map(|having| having.thread).filter(is_other);
        let candidates: Vec<_> = others.map(|thread| Candidate { key: ALL, thread }).collect();
        if candidates.is_empty() {
            return line;
        }
        let mut looks = mem::take(&mut line.looks);
        // Without the lock: threads that wait for it look as if they were at work.
        drop(line);
        let seen = looks.look(&candidates, self.is_at_work);
        let mut line = self.line.lock();
        line.looks = looks;
        let having = line.having.len();
        let ready = seen.get(&ALL).map(|seen| {
            line.share = line.share.after(*seen);
            line.share.times(having)
        });
        line.having_max = having_max(having, ready, self.ready_max);
        line
    }
}

/// Returns how many threads may have a turn if `having` threads have one, and `ready` of these are
/// ready to run, as far as that is known.
fn having_max(having: usize, ready: Option<usize>, ready_max: usize) -> usize {
    let Some(ready) = ready else { return having.max(ready_max) * 2 };
    let max = if ready > ready_max {
        having * ready_max / ready
    } else {
        let more = if ready > ready_max / 2 { 0 } else { having / GROWTH };
        having + ready_max - ready + more
    };
    max.max(ready_max)
}

impl Line {
    /// Gives the free turns to the threads that wait.
    fn call_next(&mut self) {
        while self.having.len() < self.having_max {
            if self.waiting.is_empty() {
                return;
            }
            self.call(Place::Turn(0));
        }
    }

    /// Gives one more turn to a client that has none, if nobody has got one for long.
    fn call_overdue(&mut self) {
        if self.called_at.elapsed() < OVERDUE {
            return;
        }
        let has_none = |waiter: &Arc<Waiter>| {
            let client = waiter.member.client;
            client.is_none() || self.having.iter().all(|having| having.client != client)
        };
        if let Some(at) = self.waiting.first(has_none) {
            self.call(at);
        }
    }

    /// Gives a turn to one of the threads that wait, and notifies the one that is first afterwards.
    fn call(&mut self, at: Place) {
        let Some(called) = self.waiting.take(at) else { return };
        self.called_at = Instant::now();
        self.having.push(called.member);
        called.has_turn.store(true, Ordering::Relaxed);
        called.called.notify_all();
        if let Some(next) = self.waiting.get_mut(Place::Turn(0)) {
            next.called.notify_all();
        }
    }

    /// Ends the turn of this thread.
    fn end(&mut self, member: Member) {
        if let Some(at) = self.having.iter().position(|having| *having == member) {
            self.having.swap_remove(at);
        }
        self.call_next();
    }
}

impl Turn {
    /// Waits for a turn of the current thread, which works for this client.
    pub(crate) fn wait(turns: &Arc<Turns>, client: Option<ClientId>) -> Self {
        Self::of(turns, Member { thread: probe::thread_number(), client })
    }

    fn of(turns: &Arc<Turns>, member: Member) -> Self {
        turns.wait(turns.line.lock(), member);
        Self { turns: Arc::clone(turns), member, since: Instant::now() }
    }

    /// Passes the turn on if it has lasted for long enough and others wait, and waits for the next
    /// one. Called only when the thread has more to do.
    pub(crate) fn pass_on(&mut self) {
        if self.since.elapsed() < TURN {
            return;
        }
        let mut line = self.turns.line.lock();
        if line.looked_at.elapsed() >= LOOK_AGAIN_AFTER {
            line = self.turns.look(line, self.member.thread);
        }
        if !line.waiting.is_empty() || line.having.len() > line.having_max {
            line.end(self.member);
            self.turns.wait(line, self.member);
        }
        self.since = Instant::now();
    }

    /// Gives the turn back while the thread waits for its client, and waits for the next one.
    pub(crate) fn suspend<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.turns.line.lock().end(self.member);
        let result = wait();
        self.turns.wait(self.turns.line.lock(), self.member);
        self.since = Instant::now();
        result
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.line.lock().end(self.member);
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("ready_max", &self.ready_max).finish_non_exhaustive()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("member", &self.member).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
