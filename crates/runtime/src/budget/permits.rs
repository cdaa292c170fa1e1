//! A counted resource behind handlers, such as the connections of a pool: who may use one now, and
//! who is told when one is free.
//!
//! Permits may be shared by routes of several servers, each of which has its own lines. So nothing
//! waits here: who gets none is noted in the same critical section, and told as soon as one is
//! free. [`seats`](super::seats) has the lines.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::sync::Mutex;

/// A number of permits, one for each request that is being answered.
///
/// For what handlers use and what there is little of, such as connections to a database: a request
/// of a route that [uses](crate::Plan::uses) them starts when one is free. It holds no thread while
/// it waits, and meets no time-out of a connection pool. Clones are the same permits: several
/// routes, and several servers, may share them.
///
/// ```
/// use filoplume_runtime::{Permits, Plan, Request, Response, Service};
///
/// struct Notes {
///     /// As many as the connection pool has connections.
///     database: Permits,
/// }
///
/// impl Service for Notes {
///     fn plan(&self, request: &mut Request) -> Plan {
///         match request.path() {
///             "/about" => Plan::new(),
///             _ => Plan::new().uses(&self.database),
///         }
///     }
///
///     fn call(&self, request: Request) -> Response {
///         Response::from(format!("what the database knows of {}", request.path()))
///     }
/// }
///
/// let service = Notes { database: Permits::new("database", 16) };
/// assert_eq!(service.database.available(), 16);
/// ```
///
/// A permit is taken before the handler is called, and given back when it has returned or panicked.
/// What reads a response later, such as a body that is a reader, has none.
#[derive(Clone)]
pub struct Permits(Arc<Shared>);

struct Shared {
    name: Box<str>,
    count: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// Who got none, and has not been told yet that there may be one. If a permit is free and
    /// somebody is in here, then a thread is between [`Permits::put_back`] and the end of
    /// [`Permits::tell`].
    waiting: VecDeque<Weak<dyn Waits>>,
}

/// Somebody with requests that wait for permits.
pub(crate) trait Waits: Send + Sync {
    /// A permit is free. Who leaves it is not told again before it has asked again.
    fn permit_is_free(self: Arc<Self>);
}

/// Whom nobody needs to tell.
pub(crate) struct Nobody;

impl Waits for Nobody {
    fn permit_is_free(self: Arc<Self>) {}
}

/// A permit in hand, or nothing for a call that needs none. Dropped, it is free again, and who
/// waits is told.
#[derive(Default)]
pub(crate) struct Permit(Option<Permits>);

impl Permits {
    /// Returns so many permits. The name is for people: in the log, and in what is said about
    /// mistakes.
    ///
    /// Of 0 permits none is ever free: requests wait for
    /// [`queue_timeout`](crate::ServerConfig::queue_timeout) and are refused.
    pub fn new(name: impl Into<Box<str>>, count: usize) -> Self {
        let state = Mutex::new(State { free: count, waiting: VecDeque::new() });
        Self(Arc::new(Shared { name: name.into(), count, state }))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns how many permits there are.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Returns how many permits are free at the moment.
    pub fn available(&self) -> usize {
        self.0.state.lock().free
    }

    /// A permit for a request that has just come, unless there is none or others wait for it.
    #[cold]
    pub(crate) fn try_take(&self) -> Option<Permit> {
        self.0.state.lock().take_behind_others().then(|| Permit(Some(self.clone())))
    }

    /// As [`try_take`](Self::try_take), for a request that waits if there is none: `waiter` is told
    /// then.
    pub(crate) fn take_or_note(&self, waiter: &Weak<dyn Waits>) -> Option<Permit> {
        let mut state = self.0.state.lock();
        let is_taken = state.take_behind_others() || state.note(waiter);
        is_taken.then(|| Permit(Some(self.clone())))
    }

    /// As [`take_or_note`](Self::take_or_note), for a request whose turn it is.
    pub(crate) fn take_in_turn(&self, waiter: &Weak<dyn Waits>) -> Option<Permit> {
        let mut state = self.0.state.lock();
        let is_taken = state.take() || state.note(waiter);
        is_taken.then(|| Permit(Some(self.clone())))
    }

    /// Whether these are the same permits.
    pub(crate) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn put_back(&self) {
        self.0.state.lock().free += 1;
    }

    /// Tells those who wait, one after the other, until no permit is left: each takes what it has
    /// use for. Who was told is last the next time, if it asks for more.
    pub(crate) fn tell(&self) {
        // The lock is not held while somebody is told.
        let next = || self.0.state.lock().next_to_tell();
        while let Some(waiter) = next() {
            if let Some(waiter) = waiter.upgrade() {
                waiter.permit_is_free();
            }
        }
    }
}

impl State {
    fn take(&mut self) -> bool {
        let is_free = self.free > 0;
        self.free -= usize::from(is_free);
        is_free
    }

    /// Who has waited comes first, also if it has not yet come for the permit that is free.
    fn take_behind_others(&mut self) -> bool {
        self.waiting.is_empty() && self.take()
    }

    /// Notes whom to tell, once. Returns `false`.
    fn note(&mut self, waiter: &Weak<dyn Waits>) -> bool {
        let is =
            |other: &Weak<dyn Waits>| other.as_ptr().cast::<()>() == waiter.as_ptr().cast::<()>();
        if !self.waiting.iter().any(is) {
            self.waiting.push_back(Weak::clone(waiter));
        }
        false
    }

    fn next_to_tell(&mut self) -> Option<Weak<dyn Waits>> {
        if self.free == 0 { None } else { self.waiting.pop_front() }
    }
}

impl Permit {
    /// Gives it back and tells nobody. Whoever asked for that calls [`Permits::tell`] of what is
    /// returned.
    #[must_use]
    pub(crate) fn put_back(mut self) -> Option<Permits> {
        let permits = self.0.take()?;
        permits.put_back();
        Some(permits)
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        if let Some(permits) = self.0.take() {
            give_back(&permits);
        }
    }
}

#[cold]
#[inline(never)]
fn give_back(permits: &Permits) {
    permits.put_back();
    permits.tell();
}

impl PartialEq for Permits {
    /// Whether these are the same permits, and not only as many.
    fn eq(&self, other: &Self) -> bool {
        self.are(other)
    }
}

impl Eq for Permits {}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("name", &self.name())
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.0.as_ref().map(Permits::name)).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Somebody who is told, and takes as many as it waits for.
    struct Waiter {
        permits: Permits,
        wants: AtomicUsize,
        taken: Mutex<Vec<Permit>>,
    }

    impl Waiter {
        fn new(permits: &Permits, wants: usize) -> Arc<Self> {
            let waiter = Self {
                permits: permits.clone(),
                wants: wants.into(),
                taken: Mutex::new(Vec::new()),
            };
            Arc::new(waiter)
        }

        fn asks(self: &Arc<Self>) {
            let this: Weak<dyn Waits> = Arc::downgrade(&(Arc::clone(self) as Arc<dyn Waits>));
            while self.wants.load(Ordering::Relaxed) > 0 {
                let Some(permit) = self.permits.take_in_turn(&this) else { return };
                self.wants.fetch_sub(1, Ordering::Relaxed);
                self.taken.lock().push(permit);
            }
        }

        fn has(&self) -> usize {
            self.taken.lock().len()
        }
    }

    impl Waits for Waiter {
        fn permit_is_free(self: Arc<Self>) {
            self.asks();
        }
    }

    #[test]
    fn there_are_as_many_as_were_made_and_each_comes_back() {
        let permits = Permits::new("database", 2);
        let one = permits.try_take().unwrap();
        let two = permits.try_take().unwrap();
        assert!(permits.try_take().is_none());
        assert_eq!((permits.available(), permits.count()), (0, 2));
        drop(one);
        assert_eq!(two.put_back().as_ref(), Some(&permits));
        assert_eq!(permits.available(), 2);
        drop(Permit::default());
        assert_eq!(permits.available(), 2, "what needed none gives none back");
    }

    #[test]
    fn those_who_wait_are_served_in_turns() {
        let permits = Permits::new("database", 1);
        let first = permits.try_take();
        let (one, two) = (Waiter::new(&permits, 2), Waiter::new(&permits, 2));
        one.asks();
        two.asks();
        drop(first);
        assert_eq!((one.has(), two.has()), (1, 0));
        assert!(permits.try_take().is_none());
        let taken = one.taken.lock().pop();
        drop(taken);
        assert_eq!((one.has(), two.has()), (0, 1), "it is the other one's turn");
        let taken = two.taken.lock().pop();
        drop(taken);
        assert_eq!((one.has(), two.has()), (1, 0));
    }

    #[test]
    fn who_comes_does_not_pass_those_who_wait() {
        let permits = Permits::new("database", 1);
        let first = permits.try_take().unwrap();
        let waiter = Waiter::new(&permits, 1);
        waiter.asks();
        let untold = first.put_back();
        assert_eq!(permits.available(), 1);
        assert!(permits.try_take().is_none());
        untold.unwrap().tell();
        assert_eq!((waiter.has(), permits.available()), (1, 0));
    }

    #[test]
    fn who_has_no_use_for_a_permit_or_is_gone_leaves_it_to_the_next() {
        let permits = Permits::new("database", 1);
        let first = permits.try_take();
        let (gone, idle, last) =
            (Waiter::new(&permits, 1), Waiter::new(&permits, 1), Waiter::new(&permits, 1));
        gone.asks();
        idle.asks();
        last.asks();
        drop(gone);
        idle.wants.store(0, Ordering::Relaxed);
        drop(first);
        assert_eq!((idle.has(), last.has()), (0, 1));
        last.taken.lock().clear();
        assert!(permits.try_take().is_some(), "nobody is noted any more");
    }
}
