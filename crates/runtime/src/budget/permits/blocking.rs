//! Permits that a handler takes by itself, and for which its thread waits.

use std::fmt;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Permit, PermitWaiter, Permits, Taker};
use crate::clock::TIMEOUT_MAX;
use crate::sync::{Condvar, Mutex};

/// A permit that a handler has taken with [`Permits::take`]. Dropping it releases it.
///
/// ```
/// use filoplume_runtime::Permits;
/// use std::time::Duration;
///
/// let database = Permits::new("database", 1);
/// let held = database.take(Duration::ZERO).expect("it is free");
/// assert_eq!(database.available(), 0);
/// drop(held);
/// assert_eq!(database.available(), 1);
/// ```
#[must_use = "a permit is released when it is dropped"]
pub struct HeldPermit(Permit);

impl Permits {
    /// Takes a permit, and waits for one if none is free or others wait already. Returns `None` if
    /// there is none within the timeout.
    ///
    /// It is for handlers that need a permit for a part of their work only. Above all, a handler
    /// that reads a content while it arrives should take the permit afterwards: with
    /// [`Plan::uses`](crate::Plan::uses) a slow peer would hold the permit until its last byte. A
    /// thread waits here, so prefer `uses` elsewhere. A handler that already holds a permit of the
    /// same kind must not take another one: two handlers that do so may wait for each other.
    ///
    /// ```
    /// use filoplume_runtime::{Permits, Request, Response};
    /// use std::io::copy;
    /// use std::time::Duration;
    ///
    /// fn upload(mut request: Request, database: &Permits) -> Response {
    ///     let Ok(length) = copy(request.body_mut(), &mut std::io::sink()) else {
    ///         return Response::new(400);
    ///     };
    ///     let Some(permit) = database.take(Duration::from_secs(2)) else {
    ///         return Response::new(503);
    ///     };
    ///     // .. the database is told ..
    ///     drop(permit);
    ///     Response::from(format!("{length} bytes"))
    /// }
    /// # let database = Permits::new("database", 1);
    /// # let request = Request::try_from(http::Request::new(vec![b'a'; 50]))?;
    /// # assert_eq!(upload(request, &database).status(), 200);
    /// # let held = database.take(Duration::ZERO);
    /// # assert!(database.take(Duration::ZERO).is_none());
    /// # drop(held);
    /// # assert_eq!(database.available(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take(&self, timeout: Duration) -> Option<HeldPermit> {
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        if timeout.is_zero() {
            return self.try_take(Taker::default()).map(HeldPermit);
        }
        let thread = Arc::new(WaitingThread {
            permits: self.clone(),
            state: Mutex::new(Turn::Awaited),
            has_turn: Condvar::new(),
        });
        let waiter: Weak<dyn PermitWaiter> =
            Arc::downgrade(&(Arc::clone(&thread) as Arc<dyn PermitWaiter>));
        if let Some(permit) = self.take_or_register(&waiter, Taker::default()) {
            return Some(HeldPermit(permit));
        }
        let taken = thread.wait_until(deadline);
        if taken.is_none() {
            self.unregister(&waiter);
        }
        taken.map(HeldPermit)
    }

    /// Returns whether a request waits for a permit.
    pub(crate) fn are_waited_for(&self) -> bool {
        !self.0.state.lock().waiting.is_empty()
    }

    fn unregister(&self, waiter: &Weak<dyn PermitWaiter>) {
        self.0.state.lock().unregister(waiter);
    }
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        if let Some(permits) = mem::take(&mut self.0).put_back() {
            permits.notify(PermitWaiter::permit_is_free_meanwhile);
        }
    }
}

impl fmt::Debug for HeldPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A thread that waits for one permit.
struct WaitingThread {
    permits: Permits,
    /// Locked before the state of the permits, never within that lock.
    state: Mutex<Turn>,
    has_turn: Condvar,
}

enum Turn {
    Awaited,
    Come(Permit),
    /// The thread waits no longer. A notification that comes now leaves the permit to the next
    /// waiter.
    Over,
}

impl WaitingThread {
    fn wait_until(&self, deadline: Instant) -> Option<Permit> {
        let mut state = self.state.lock();
        loop {
            if let Turn::Come(_) = *state {
                let Turn::Come(permit) = mem::replace(&mut *state, Turn::Over) else {
                    return None;
                };
                return Some(permit);
            }
            if Instant::now() >= deadline {
                *state = Turn::Over;
                return None;
            }
            (state, _) = self.has_turn.wait_until(state, deadline);
        }
    }
}

impl PermitWaiter for WaitingThread {
    fn permit_is_free(self: Arc<Self>) {
        let mut state = self.state.lock();
        let Turn::Awaited = *state else { return };
        let this: Weak<dyn PermitWaiter> =
            Arc::downgrade(&(Arc::clone(&self) as Arc<dyn PermitWaiter>));
        // If another thread was faster, this one is registered again.
        if let Some(permit) = self.permits.take_in_turn(&this, Taker::default()) {
            *state = Turn::Come(permit);
            self.has_turn.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    /// Longer than any test waits.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_thread_that_waits_gets_the_permit_that_is_released() {
        let permits = Permits::new("database", 1);
        let first = permits.take(LONG).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| permits.take(LONG).is_some());
            while !permits.are_waited_for() {
                thread::yield_now();
            }
            assert!(permits.take(Duration::ZERO).is_none(), "none is free");
            drop(first);
            assert!(second.join().unwrap());
        });
        assert_eq!(permits.available(), 1);
        assert!(!permits.are_waited_for());
    }

    #[test]
    fn many_threads_take_turns_and_no_permit_is_lost() {
        let permits = Permits::new("database", 2);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        drop(permits.take(LONG).unwrap());
                    }
                });
            }
        });
        assert_eq!(permits.available(), 2);
        assert!(!permits.are_waited_for());
    }

    #[test]
    fn a_thread_that_has_waited_too_long_is_forgotten_and_takes_nothing() {
        let permits = Permits::new("database", 1);
        let first = permits.take(LONG).unwrap();
        assert!(permits.take(Duration::from_millis(1)).is_none());
        assert!(!permits.are_waited_for(), "it is not registered any more");
        drop(first);
        assert_eq!(permits.available(), 1);
        let late = Arc::new(WaitingThread {
            permits: permits.clone(),
            state: Mutex::new(Turn::Over),
            has_turn: Condvar::new(),
        });
        Arc::clone(&late).permit_is_free();
        assert_eq!(permits.available(), 1, "it was notified too late");
    }
}
