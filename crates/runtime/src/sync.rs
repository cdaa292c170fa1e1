//! The synchronisation primitives, in one place, so that the same code also runs under loom.
//!
//! Normally these are the primitives of `parking_lot` and `std`. With `--cfg loom` they are loom's,
//! and a model explores every interleaving. Values that are not shared between threads, and
//! counters for metrics, may use `std` directly, because each loom primitive multiplies the
//! interleavings.

#[cfg(not(loom))]
mod real {
    use std::time::Instant;

    pub(crate) use crossbeam_channel as channel;
    pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};
    pub(crate) use std::sync::{Arc, atomic};
    pub(crate) use std::thread;

    /// Blocks until another thread unparks this one or the deadline has passed. May return early.
    pub(crate) fn park_until(deadline: Instant) {
        thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    /// Returns whether the deadline has passed.
    pub(crate) fn has_passed(deadline: Instant) -> bool {
        Instant::now() >= deadline
    }

    /// A condition variable whose `wait` moves the guard, like loom's.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        /// Returns the guard, and whether the deadline has passed.
        pub(crate) fn wait_until<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            deadline: Instant,
        ) -> (MutexGuard<'a, T>, bool) {
            let timed_out = self.0.wait_until(&mut guard, deadline).timed_out();
            (guard, timed_out)
        }
    }
}

#[cfg(loom)]
pub(crate) mod channel;

#[cfg(loom)]
mod modelled {
    use std::time::Instant;

    pub(crate) use loom::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic};
    pub(crate) use loom::thread;

    /// Loom has no clock: a deadline may pass at any moment, so here it always has just passed.
    /// What other threads do before, between and after is then a matter of scheduling, which loom
    /// explores.
    pub(crate) fn has_passed(_deadline: Instant) -> bool {
        true
    }

    /// Returns at once. Callers must handle an early return anyway.
    pub(crate) fn park_until(_deadline: Instant) {}

    /// Loom's mutex without its `Result`, like `parking_lot`'s.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no thread of a model panics while it holds a lock")
        }
    }

    /// Loom's lock without its `Result`.
    #[derive(Debug)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("no thread of a model panics while it holds a lock")
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("no thread of a model panics while it holds a lock")
        }
    }

    /// Never times out. A lost notification becomes a deadlock, which loom reports.
    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).expect("no thread of a model panics while it holds a lock")
        }

        pub(crate) fn wait_until<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            _deadline: Instant,
        ) -> (MutexGuard<'a, T>, bool) {
            (self.wait(guard), false)
        }
    }
}

#[cfg(loom)]
pub(crate) use modelled::*;
#[cfg(not(loom))]
pub(crate) use real::*;
