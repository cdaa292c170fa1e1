//! An event that happens at most once: a flag, threads that wait for it, and callbacks.
//!
//! One lock decides between the thread that sets the latch, threads that register or remove
//! callbacks, and the thread that seals it. A callback is in exactly one place: registered, running
//! on one thread, or gone. That is why each of them runs at most once, and why removing one can
//! wait until it is not running any more.

#[cfg(all(test, loom))]
mod models;

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, thread};

type Callback = Box<dyn FnOnce() + Send>;

/// An event that happens at most once.
pub(crate) struct Latch {
    /// Written under the lock, read without it.
    is_set: AtomicBool,
    state: Mutex<State>,
    /// Notified when the latch is set, and when a callback has returned.
    changed: Condvar,
}

struct State {
    phase: Phase,
    /// The callbacks that have not begun, in the order in which they were registered.
    callbacks: BTreeMap<u64, Callback>,
    next_number: u64,
    /// The callback that runs, and its thread.
    running: Option<(u64, thread::ThreadId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Set,
    /// It cannot be set any more, and no callback begins any more.
    Sealed,
}

/// The result of setting a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// It was set or sealed before.
    TooLate,
    /// It is set, and there are no callbacks.
    Alone,
    /// It is set. The caller must have the callbacks run with
    /// [`run_callbacks`](Latch::run_callbacks).
    WithCallbacks,
}

/// The result of a registration.
#[derive(Debug)]
pub(crate) enum Registered {
    /// The callback runs when the latch is set.
    Waiting(Registration),
    /// The latch was set before. The callback has run on this thread.
    Ran,
    /// The latch was sealed before. The callback was dropped.
    TooLate,
}

/// A registered callback. Dropping this removes it, and waits until it returns if it is running.
pub(crate) struct Registration {
    latch: Arc<Latch>,
    number: u64,
}

impl Latch {
    pub(crate) fn new() -> Self {
        Self {
            is_set: AtomicBool::new(false),
            state: Mutex::new(State {
                phase: Phase::Open,
                callbacks: BTreeMap::new(),
                next_number: 0,
                running: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Returns whether the latch is set.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Sets the latch, unless it is set or sealed.
    #[must_use]
    pub(crate) fn set(&self) -> Set {
        let set = {
            let mut state = self.state.lock();
            if state.phase != Phase::Open {
                return Set::TooLate;
            }
            state.phase = Phase::Set;
            self.is_set.store(true, Ordering::Release);
            if state.callbacks.is_empty() { Set::Alone } else { Set::WithCallbacks }
        };
        self.changed.notify_all();
        set
    }

    /// Prevents callbacks from beginning from now on. One that is running is not waited for.
    pub(crate) fn seal(&self) {
        let callbacks = {
            let mut state = self.state.lock();
            state.phase = Phase::Sealed;
            mem::take(&mut state.callbacks)
        };
        self.changed.notify_all();
        // Outside of the lock: what they own may use this latch.
        drop(callbacks);
    }

    /// Runs the callbacks one after the other. Returns how many of them panicked. Returns at once
    /// if another thread runs them.
    pub(crate) fn run_callbacks(&self) -> usize {
        let mut panics = 0;
        while let Some(callback) = self.begin_callback() {
            panics += usize::from(catch_unwind(AssertUnwindSafe(callback)).is_err());
            self.state.lock().running = None;
            self.changed.notify_all();
        }
        panics
    }

    fn begin_callback(&self) -> Option<Callback> {
        let mut state = self.state.lock();
        if state.phase != Phase::Set || state.running.is_some() {
            return None;
        }
        let (number, callback) = state.callbacks.pop_first()?;
        state.running = Some((number, thread::current().id()));
        Some(callback)
    }

    /// Registers a callback. If the latch is set, runs it at once on this thread.
    pub(crate) fn register(
        self: &Arc<Self>,
        callback: impl FnOnce() + Send + 'static,
    ) -> Registered {
        {
            let mut state = self.state.lock();
            match state.phase {
                Phase::Open => {
                    let number = state.next_number;
                    state.next_number += 1;
                    state.callbacks.insert(number, Box::new(callback));
                    return Registered::Waiting(Registration { latch: Arc::clone(self), number });
                }
                Phase::Set => {}
                Phase::Sealed => return Registered::TooLate,
            }
        }
        callback();
        Registered::Ran
    }

    /// Waits until the latch is set or the deadline has passed. Returns whether it is set.
    pub(crate) fn wait_until(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.phase == Phase::Open {
            let timed_out;
            (state, timed_out) = self.changed.wait_until(state, deadline);
            if timed_out {
                break;
            }
        }
        drop(state);
        self.is_set()
    }
}

impl Registration {
    /// Leaves the callback registered.
    pub(crate) fn keep(mut self) {
        // No callback has this number.
        self.number = u64::MAX;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.latch.state.lock();
        let callback = state.callbacks.remove(&self.number);
        // A callback that drops its own registration must not wait for itself.
        while state.running.is_some_and(|(number, thread)| {
            number == self.number && thread != thread::current().id()
        }) {
            state = self.latch.changed.wait(state);
        }
        drop(state);
        drop(callback);
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// A latch, and a function that returns callbacks that count their calls.
    fn counted() -> (Arc<Latch>, Arc<AtomicUsize>, impl Fn() -> Callback) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let callback = move || -> Callback {
            let calls = Arc::clone(&counter);
            Box::new(move || _ = calls.fetch_add(1, Ordering::SeqCst))
        };
        (Arc::new(Latch::new()), calls, callback)
    }

    #[test]
    fn callbacks_run_once_and_in_order() {
        let latch = Arc::new(Latch::new());
        let (sender, receiver) = mpsc::channel();
        let registered: Vec<_> = (0..3)
            .map(|number| {
                let sender = sender.clone();
                latch.register(move || sender.send(number).unwrap())
            })
            .collect();
        assert_eq!(latch.set(), Set::WithCallbacks);
        assert_eq!(latch.set(), Set::TooLate, "it is set only once");
        assert_eq!(latch.run_callbacks(), 0);
        assert_eq!(latch.run_callbacks(), 0);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        drop(registered);
    }

    #[test]
    fn a_removed_callback_does_not_run_and_a_kept_one_does() {
        let (latch, calls, callback) = counted();
        drop(latch.register(callback()));
        let Registered::Waiting(kept) = latch.register(callback()) else { panic!("it is open") };
        kept.keep();
        assert_eq!(latch.set(), Set::WithCallbacks);
        latch.run_callbacks();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_latch_that_is_set_runs_a_callback_on_the_registering_thread() {
        let (latch, calls, callback) = counted();
        assert_eq!(latch.set(), Set::Alone);
        assert!(matches!(latch.register(callback()), Registered::Ran));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert!(latch.wait_until(Instant::now()));
    }

    #[test]
    fn a_sealed_latch_runs_nothing_and_is_never_set() {
        let (latch, calls, callback) = counted();
        let registered = latch.register(callback());
        latch.seal();
        assert_eq!(latch.set(), Set::TooLate);
        assert!(!latch.is_set());
        assert!(matches!(latch.register(callback()), Registered::TooLate));
        latch.run_callbacks();
        drop(registered);
        assert_eq!(calls.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_callback_that_waits_when_the_latch_is_sealed_never_begins() {
        let (latch, calls, callback) = counted();
        let registered = latch.register(callback());
        assert_eq!(latch.set(), Set::WithCallbacks);
        latch.seal();
        latch.run_callbacks();
        assert!(latch.is_set(), "it still tells what has happened");
        drop(registered);
        assert_eq!(calls.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_panic_in_a_callback_is_counted_and_the_others_run() {
        let (latch, calls, callback) = counted();
        let panicking = latch.register(|| panic!("on purpose"));
        let registered = latch.register(callback());
        assert_eq!(latch.set(), Set::WithCallbacks);
        assert_eq!(latch.run_callbacks(), 1);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        drop((panicking, registered));
    }

    #[test]
    fn a_registration_does_not_wait_for_the_callback_of_another_one() {
        let (latch, _, callback) = counted();
        let (begun, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let running = latch.register(move || {
            begun.send(()).unwrap();
            _ = released.recv();
        });
        let other = latch.register(callback());
        assert_eq!(latch.set(), Set::WithCallbacks);
        let runner = thread::spawn({
            let latch = Arc::clone(&latch);
            move || latch.run_callbacks()
        });
        has_begun.recv().unwrap();
        let (tell, is_dropped) = mpsc::channel();
        thread::spawn(move || {
            drop(other);
            tell.send(())
        });
        let dropped = is_dropped.recv_timeout(Duration::from_secs(30));
        drop(release);
        runner.join().unwrap();
        drop(running);
        assert_eq!(dropped, Ok(()));
    }

    #[test]
    fn a_registration_waits_for_its_running_callback() {
        let latch = Arc::new(Latch::new());
        let (begun, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let has_ended = Arc::new(AtomicBool::new(false));
        let registered = latch.register({
            let has_ended = Arc::clone(&has_ended);
            move || {
                begun.send(()).unwrap();
                released.recv().unwrap();
                has_ended.store(true, Ordering::SeqCst);
            }
        });
        assert_eq!(latch.set(), Set::WithCallbacks);
        let runner = thread::spawn({
            let latch = Arc::clone(&latch);
            move || latch.run_callbacks()
        });
        has_begun.recv_timeout(Duration::from_secs(10)).unwrap();
        release.send(()).unwrap();
        drop(registered);
        assert!(has_ended.load(Ordering::SeqCst));
        runner.join().unwrap();
    }

    #[test]
    fn a_callback_may_drop_its_own_registration() {
        let latch = Arc::new(Latch::new());
        let own = Arc::new(Mutex::new(None));
        let registered = latch.register({
            let own = Arc::clone(&own);
            move || drop(own.lock().take())
        });
        *own.lock() = Some(registered);
        assert_eq!(latch.set(), Set::WithCallbacks);
        assert_eq!(latch.run_callbacks(), 0);
        assert!(own.lock().is_none());
    }
}
