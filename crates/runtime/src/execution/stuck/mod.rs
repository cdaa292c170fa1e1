//! Lists the calls that run, finds those that do not return, and tells what their threads wait for.
//!
//! A call on the pool writes its route and start into the slot of its thread. A call on an event
//! loop writes nothing: if it lasts, the watchdog takes the loop from it and enters it in a list
//! here. A thread of its own, the detector, looks at both. It sleeps while no call runs, or all
//! that run were reported. `README.md` in the folder above explains the races.

pub(crate) mod detector;
pub(crate) mod history;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod report;
pub(crate) mod running;
pub(crate) mod slot;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod wait;
pub(crate) mod watched;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::execution::key::RouteId;
use crate::execution::sleep::WatchdogSleep;
use crate::sync::atomic::{Ordering, fence};
use history::{History, nanos};
use slot::{Fate, Seen, ThreadSlot};

/// The calls of one server that are running.
pub(crate) struct Calls {
    /// Tells registries apart. Never 0.
    number: usize,
    born: Instant,
    /// `None` if nothing is reported.
    history: Option<History>,
    threads: Mutex<Vec<Weak<ThreadSlot>>>,
    /// The calls that have lost their loops.
    lost: Mutex<Vec<Lost>>,
    /// Calls that have kept their loops for too long, because no other thread could lead them. Old
    /// entries stay until they are looked at.
    kept: Mutex<Vec<(Turn, Caught)>>,
    /// The calls that have ended after they were reported.
    ended: Mutex<Vec<Ended>>,
    sleep: WatchdogSleep,
}

/// A call on an event loop: the loop, as a number, and its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) event_loop: usize,
    pub(crate) turn: u64,
}

/// A call that has lost its loop.
#[derive(Debug)]
struct Lost {
    of: Turn,
    state: LostState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostState {
    Running(Caught),
    Reported(Caught),
    /// Counted in the report of another call.
    Counted(Caught),
    /// It has returned before the thread that took its loop has entered it in the list.
    Returned,
}

/// What is known of a call that has lost its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) thread: u32,
    pub(crate) route: RouteId,
    pub(crate) since: Instant,
}

/// Which call was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CallId {
    OnPool { slot: usize, number: u64 },
    OnLoop { event_loop: usize, turn: u64 },
}

/// A call that has ended after it was reported.
#[derive(Clone, Copy, Debug)]
struct Ended {
    id: CallId,
    took_ns: u64,
}

impl Calls {
    pub(crate) fn new(stuck_after: Option<Duration>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            born: Instant::now(),
            history: stuck_after.map(History::new),
            threads: Mutex::default(),
            lost: Mutex::default(),
            kept: Mutex::default(),
            ended: Mutex::default(),
            sleep: WatchdogSleep::new(),
        }
    }

    /// Makes the slot of the current thread known.
    #[inline]
    pub(crate) fn register(&self, slot: &Arc<ThreadSlot>) {
        if slot.registry.load(Ordering::Relaxed) != self.number {
            self.register_cold(slot);
        }
    }

    #[cold]
    fn register_cold(&self, slot: &Arc<ThreadSlot>) {
        slot.registry.store(self.number, Ordering::Relaxed);
        let mut threads = self.threads.lock();
        if threads.len() == threads.capacity() {
            threads.retain(|thread| thread.strong_count() > 0);
        }
        // A thread that works for several servers in turn comes here again.
        if !threads.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(slot))) {
            threads.push(Arc::downgrade(slot));
        }
    }

    /// Records that a call begins on this thread, which leads no loop. Returns whether
    /// [`end`](Self::end) must be called.
    pub(crate) fn begin(&self, slot: &Arc<ThreadSlot>, route: RouteId, now: Instant) -> bool {
        self.register(slot);
        if !slot.begin(route, self.ns(now)) {
            return false;
        }
        if self.history.is_some() {
            // Publish, fence, check: either the detector sees the call before it parks, or this
            // thread sees the detector parked.
            fence(Ordering::SeqCst);
            self.sleep.wake();
        }
        true
    }

    /// Records the start of code that may hold this thread for as long as it wants. The code ends
    /// when the result is dropped.
    pub(crate) fn begin_detached(
        &self,
        slot: &Arc<ThreadSlot>,
        route: RouteId,
        now: Instant,
    ) -> DetachedCall {
        self.register(slot);
        let is_noted = slot.begin_detached(route, self.ns(now));
        DetachedCall { slot: is_noted.then(|| Arc::clone(slot)) }
    }

    /// Records that the call has ended.
    pub(crate) fn end(&self, slot: &Arc<ThreadSlot>, route: RouteId, took: Duration) {
        let fate = slot.end();
        let (Some(history), took_ns) = (&self.history, nanos(took)) else { return };
        match fate {
            Fate::Unnoticed => history.ended(route.key, took_ns),
            Fate::Counted => history.ended_counted(route.key, took_ns),
            Fate::Reported(number) => {
                let id = CallId::OnPool { slot: slot.number, number };
                self.tell_of_end(Ended { id, took_ns });
            }
        }
    }

    /// Records that the loop was taken from a running call.
    pub(crate) fn lost(&self, of: Turn, caught: Caught) {
        let mut lost = self.lost.lock();
        if let Some(index) = lost.iter().position(|lost| lost.of == of) {
            // It has returned already.
            lost.swap_remove(index);
            return;
        }
        lost.push(Lost { of, state: LostState::Running(caught) });
        drop(lost);
        fence(Ordering::SeqCst);
        self.sleep.wake();
    }

    /// Records that a call which has lost its loop has returned.
    pub(crate) fn returned(&self, of: Turn, now: Instant) {
        let mut lost = self.lost.lock();
        let Some(index) = lost.iter().position(|lost| lost.of == of) else {
            lost.push(Lost { of, state: LostState::Returned });
            return;
        };
        let state = lost.swap_remove(index).state;
        drop(lost);
        let Some(history) = &self.history else { return };
        let took_ns = |caught: Caught| nanos(now.saturating_duration_since(caught.since));
        match state {
            LostState::Running(caught) => history.ended(caught.route.key, took_ns(caught)),
            LostState::Counted(caught) => {
                history.ended_counted(caught.route.key, took_ns(caught));
            }
            LostState::Reported(caught) => {
                let Turn { event_loop, turn } = of;
                let id = CallId::OnLoop { event_loop, turn };
                self.tell_of_end(Ended { id, took_ns: took_ns(caught) });
            }
            LostState::Returned => debug_assert!(false, "a call returns once"),
        }
    }

    #[cold]
    fn tell_of_end(&self, ended: Ended) {
        self.ended.lock().push(ended);
        fence(Ordering::SeqCst);
        self.sleep.wake();
        // The detector may also sleep until the next call is late.
        self.sleep.unpark();
    }

    /// Ends the detector.
    pub(crate) fn stop(&self) {
        self.sleep.stop();
    }

    /// Returns whether the detector has nothing to wait for.
    fn is_idle(&self) -> bool {
        let is_running =
            |slot: &Weak<ThreadSlot>| slot.upgrade().is_some_and(|slot| self.runs(&slot).is_some());
        let is_late = |lost: &Lost| matches!(lost.state, LostState::Running(_));
        self.ended.lock().is_empty()
            && !self.threads.lock().iter().any(is_running)
            && !self.lost.lock().iter().any(is_late)
    }

    /// Returns the call of this server that a thread runs, unless it was reported.
    fn runs(&self, slot: &ThreadSlot) -> Option<Seen> {
        slot.running().filter(|_| slot.registry.load(Ordering::Relaxed) == self.number)
    }

    fn slots(&self) -> Vec<Arc<ThreadSlot>> {
        self.threads.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the name of a thread by its ID.
    pub(crate) fn name_of_thread(&self, thread: u32) -> Option<String> {
        self.slot_of(thread)?.thread_name.clone()
    }

    fn slot_of(&self, thread: u32) -> Option<Arc<ThreadSlot>> {
        let is_it = |slot: &Arc<ThreadSlot>| thread != 0 && slot.thread == thread;
        self.threads.lock().iter().filter_map(Weak::upgrade).find(is_it)
    }

    /// Returns a time in nanoseconds since this registry was created, as the slots store it.
    fn ns(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.born))
    }
}

/// Code that may hold its thread for as long as it wants. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct DetachedCall {
    /// `None` if the thread runs a call already.
    slot: Option<Arc<ThreadSlot>>,
}

impl Drop for DetachedCall {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            slot.end();
        }
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("number", &self.number).finish_non_exhaustive()
    }
}
