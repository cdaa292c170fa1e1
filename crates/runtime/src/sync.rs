//! The synchronisation primitives, in one place, so that the same code runs under loom.
//!
//! Built as usual these are `parking_lot` and `std`. Built with `--cfg loom` they are loom's, which
//! lets a model walk through every interleaving. What is not shared between threads, and what only
//! counts for the metrics, may use `std` directly: each loom primitive multiplies the
//! interleavings.

#[cfg(not(loom))]
mod real {
    use std::time::Instant;

    pub(crate) use crossbeam_channel as channel;
    pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};
    pub(crate) use std::sync::{Arc, atomic};
    pub(crate) use std::thread;

    /// Blocks until someone unparks this thread or the deadline has passed; may return early.
    pub(crate) fn park_until(deadline: Instant) {
        thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    /// Whether a deadline has been reached.
    pub(crate) fn has_passed(deadline: Instant) -> bool {
        Instant::now() >= deadline
    }

    /// A condition variable whose guard moves, as loom's does.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        /// The guard again, and whether the deadline has passed.
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

    /// Loom has no clock: a deadline may pass at any moment, so here it has always just passed.
    /// Everything that another thread can do before, between and after is then a matter of
    /// scheduling, which loom explores.
    pub(crate) fn has_passed(_deadline: Instant) -> bool {
        true
    }

    /// Returns at once: whoever parks until a deadline must cope with returning early.
    pub(crate) fn park_until(_deadline: Instant) {}

    /// Loom's mutex without its `Result`, like `parking_lot`'s.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("nothing panics while it holds a lock in a model")
        }
    }

    /// Loom's lock, as the mutex.
    #[derive(Debug)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("nothing panics while it holds a lock in a model")
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("nothing panics while it holds a lock in a model")
        }
    }

    /// Never times out: a lost notification shows up as a deadlock, which loom reports.
    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait_until<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            _deadline: Instant,
        ) -> (MutexGuard<'a, T>, bool) {
            (self.0.wait(guard).expect("nothing panics while it holds a lock in a model"), false)
        }
    }
}

#[cfg(loom)]
pub(crate) use modelled::*;
#[cfg(not(loom))]
pub(crate) use real::*;
