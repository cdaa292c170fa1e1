//! A counted resource behind handlers, such as the connections of a database pool: who holds a
//! permit, and who is notified when one is free.
//!
//! Routes of several servers may share permits, and each server has its own queues. So no request
//! waits here. A server whose request gets no permit is registered in the same critical section,
//! and notified as soon as one is free. [`seats`](super::seats) has the queues. A handler that
//! [takes](Permits::take) a permit by itself is registered in the same way, and its thread waits.

mod blocking;
mod holders;
mod takers;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

pub use self::blocking::HeldPermit;
use self::holders::Holders;
use self::takers::Takers;
pub(crate) use self::takers::{HeldBy, RouteOfServer, Taker};
use crate::budget::clients::ClientId;
use crate::sync::Mutex;

/// A number of permits, one for each running request.
///
/// Use it for a scarce resource of handlers, such as connections to a database. A request of a
/// route that [uses](crate::Plan::uses) permits starts when one is free. It holds no thread while
/// it waits, and does not run into the timeout of a connection pool. Clones share the same permits,
/// so several routes and several servers may use them.
///
/// ```
/// use filoplume_runtime::{Permits, Plan, Request, Response, Service};
///
/// struct Notes {
///     /// As many permits as the connection pool has connections.
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
/// A client that is [counted](crate::ServerConfig::connections_per_client_max) takes one more only
/// while it has fewer than twice the free ones: alone it has at most two thirds, 11 of 16. An IPv6
/// network of 48 bits has eight ninths. Further requests of such a client wait, and requests of
/// other clients overtake them.
///
/// A permit is taken before the handler is called, and released when the handler has returned or
/// panicked. A body that is a reader is read later, without a permit.
///
/// A content that its handler reads as it arrives keeps the permit until it has arrived. While
/// other requests wait for permits, the peer of such a content must send as fast as all peers must
/// when threads are scarce: 64 KiB per second, with a pause of a second at most. Otherwise
/// the read fails with `TimedOut`. It is better to have the content collected before
/// ([`Plan::spooled`](crate::Plan)), or to [take](Self::take) the permit afterwards.
#[derive(Clone)]
pub struct Permits(Arc<Shared>);

struct Shared {
    name: Box<str>,
    count: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    holders: Holders,
    takers: Takers,
    /// The servers that got no permit and were not notified since. If a permit is free and this
    /// queue is not empty, a thread is between [`Permits::put_back`] and the end of
    /// [`Permits::notify_waiters`].
    waiting: VecDeque<Weak<dyn PermitWaiter>>,
    /// The servers with requests that wait because their client has its share. They move to
    /// `waiting` as soon as any permit is released.
    at_share: Vec<Weak<dyn PermitWaiter>>,
}

/// A server with requests that wait for permits.
pub(crate) trait PermitWaiter: Send + Sync {
    /// Called when a permit is free. A waiter that leaves the permit is not notified again before
    /// it has asked again.
    fn permit_is_free(self: Arc<Self>);

    /// Like [`permit_is_free`](Self::permit_is_free), on a thread that goes on with something else
    /// instead of looking for work.
    fn permit_is_free_meanwhile(self: Arc<Self>) {
        self.permit_is_free();
    }
}

/// The waiter of a server whose requests never wait for permits.
pub(crate) struct NoWaiter;

impl PermitWaiter for NoWaiter {
    fn permit_is_free(self: Arc<Self>) {}
}

/// A permit, or nothing for a call that needs none. Dropping it releases the permit and notifies
/// the waiters.
#[derive(Default)]
pub(crate) struct Permit(Option<Taken>);

/// Whose share of the permits is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShareOf {
    Client,
    /// The IPv6 network of the client: none of its clients may take a permit.
    Network,
}

struct Taken {
    permits: Permits,
    /// The client that it counts for, if it is counted.
    client: Option<ClientId>,
    /// Where it is in the list of [`Takers`].
    place: usize,
}

impl Permits {
    /// Returns `count` permits. The name is shown in the log and in error messages.
    ///
    /// With a count of 0 no permit is ever free: requests wait for
    /// [`queue_timeout`](crate::ServerConfig::queue_timeout) and are refused.
    pub fn new(name: impl Into<Box<str>>, count: usize) -> Self {
        let state = State {
            free: count,
            holders: Holders::default(),
            takers: Takers::default(),
            waiting: VecDeque::new(),
            at_share: Vec::new(),
        };
        Self(Arc::new(Shared { name: name.into(), count, state: Mutex::new(state) }))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns how many permits there are.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Returns how many permits are free now.
    pub fn available(&self) -> usize {
        self.0.state.lock().free
    }

    /// Takes a permit for a new request. Returns `None` if none is free, others wait, or the client
    /// has its share.
    #[cold]
    pub(crate) fn try_take(&self, taker: Taker) -> Option<Permit> {
        let place = self.0.state.lock().take_if_none_waits(taker)?;
        Some(self.taken(place, taker))
    }

    /// As [`try_take`](Self::try_take), for a request that waits if there is no permit. `waiter` is
    /// notified when it should try again.
    pub(crate) fn take_or_register(
        &self,
        waiter: &Weak<dyn PermitWaiter>,
        taker: Taker,
    ) -> Option<Permit> {
        let mut state = self.0.state.lock();
        let place = state.take_if_none_waits(taker);
        if place.is_none() {
            state.register(waiter, taker.client);
        }
        Some(self.taken(place?, taker))
    }

    /// As [`take_or_register`](Self::take_or_register), for a request whose turn it is.
    pub(crate) fn take_in_turn(
        &self,
        waiter: &Weak<dyn PermitWaiter>,
        taker: Taker,
    ) -> Option<Permit> {
        let mut state = self.0.state.lock();
        let place = state.take(taker);
        if place.is_none() {
            state.register(waiter, taker.client);
        }
        Some(self.taken(place?, taker))
    }

    /// Returns whose share is reached if this client may take no permit although one is free. Then
    /// `waiter` is notified when any is released. Otherwise the requests of the client keep their
    /// turns: it may take a permit as soon as one is free.
    pub(crate) fn share_or_register(
        &self,
        waiter: &Weak<dyn PermitWaiter>,
        client: ClientId,
    ) -> Option<ShareOf> {
        let mut state = self.0.state.lock();
        if !state.is_at_share(Some(client)) {
            return None;
        }
        state.register(waiter, Some(client));
        let may_network = state.holders.network_may_take(client, state.free);
        Some(if may_network { ShareOf::Client } else { ShareOf::Network })
    }

    /// Returns a number that no other permits have while these exist.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns how many permits this client holds.
    pub(crate) fn held_by(&self, client: ClientId) -> usize {
        self.0.state.lock().holders.of(client)
    }

    /// Returns which routes hold the most permits, the largest number first.
    pub(crate) fn held_most(&self) -> Vec<HeldBy> {
        self.0.state.lock().takers.most()
    }

    fn taken(&self, place: usize, taker: Taker) -> Permit {
        Permit(Some(Taken { permits: self.clone(), client: taker.client, place }))
    }

    /// Returns whether both are handles to the same permits.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn put_back(&self, client: Option<ClientId>, place: usize) {
        let mut state = self.0.state.lock();
        state.free += 1;
        state.takers.remove(place);
        if let Some(client) = client {
            state.holders.remove(client);
        }
        // What each client may have depends on the number of free permits.
        for waiter in std::mem::take(&mut state.at_share) {
            state.wait(&waiter);
        }
    }

    /// Notifies the waiters one after the other until no permit is left. Each takes the permits
    /// that it can use. A waiter that asks for more goes to the end of the queue.
    pub(crate) fn notify_waiters(&self) {
        self.notify(PermitWaiter::permit_is_free);
    }

    fn notify(&self, notify: fn(Arc<dyn PermitWaiter>)) {
        // The lock is released while a waiter is notified.
        let next = || self.0.state.lock().next_to_notify();
        while let Some(waiter) = next() {
            if let Some(waiter) = waiter.upgrade() {
                notify(waiter);
            }
        }
    }
}

impl State {
    /// Takes a permit if one is free. Returns its place.
    fn take(&mut self, taker: Taker) -> Option<usize> {
        if self.free == 0 || self.is_at_share(taker.client) {
            return None;
        }
        self.free -= 1;
        if let Some(client) = taker.client {
            self.holders.add(client);
        }
        Some(self.takers.add(taker.route))
    }

    /// Takes a permit unless others wait. A new request must not overtake a waiter that was not
    /// notified yet.
    fn take_if_none_waits(&mut self, taker: Taker) -> Option<usize> {
        if self.waiting.is_empty() { self.take(taker) } else { None }
    }

    /// Returns whether a permit is free that this client may not have.
    fn is_at_share(&self, client: Option<ClientId>) -> bool {
        self.free > 0 && client.is_some_and(|client| !self.holders.may_take(client, self.free))
    }

    /// Registers a waiter for a request that got no permit, unless it is registered already.
    fn register(&mut self, waiter: &Weak<dyn PermitWaiter>, client: Option<ClientId>) {
        if !self.is_at_share(client) {
            self.wait(waiter);
        } else if !self.at_share.iter().any(|other| is_same(other, waiter)) {
            self.at_share.push(Weak::clone(waiter));
        }
    }

    fn wait(&mut self, waiter: &Weak<dyn PermitWaiter>) {
        if !self.waiting.iter().any(|other| is_same(other, waiter)) {
            self.waiting.push_back(Weak::clone(waiter));
        }
    }

    /// Removes a waiter that has stopped waiting.
    fn unregister(&mut self, waiter: &Weak<dyn PermitWaiter>) {
        self.waiting.retain(|other| !is_same(other, waiter));
    }

    fn next_to_notify(&mut self) -> Option<Weak<dyn PermitWaiter>> {
        if self.free == 0 { None } else { self.waiting.pop_front() }
    }
}

fn is_same(one: &Weak<dyn PermitWaiter>, other: &Weak<dyn PermitWaiter>) -> bool {
    one.as_ptr().cast::<()>() == other.as_ptr().cast::<()>()
}

impl Permit {
    /// Releases the permit without a notification. The caller must call
    /// [`Permits::notify_waiters`] on the returned value.
    #[must_use]
    pub(crate) fn put_back(mut self) -> Option<Permits> {
        let Taken { permits, client, place } = self.0.take()?;
        permits.put_back(client, place);
        Some(permits)
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        if let Some(taken) = self.0.take() {
            release_cold(&taken);
        }
    }
}

#[cold]
#[inline(never)]
fn release_cold(taken: &Taken) {
    taken.permits.put_back(taken.client, taken.place);
    taken.permits.notify_waiters();
}

impl PartialEq for Permits {
    /// Returns whether both are handles to the same permits. Equal counts are not enough.
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
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
        let name = self.0.as_ref().map(|taken| taken.permits.name());
        f.debug_tuple("Permit").field(&name).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A waiter that takes as many permits as it wants.
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

        fn ask(self: &Arc<Self>) {
            let this: Weak<dyn PermitWaiter> =
                Arc::downgrade(&(Arc::clone(self) as Arc<dyn PermitWaiter>));
            while self.wants.load(Ordering::Relaxed) > 0 {
                let Some(permit) = self.permits.take_in_turn(&this, Taker::default()) else {
                    return;
                };
                self.wants.fetch_sub(1, Ordering::Relaxed);
                self.taken.lock().push(permit);
            }
        }

        fn has(&self) -> usize {
            self.taken.lock().len()
        }
    }

    impl PermitWaiter for Waiter {
        fn permit_is_free(self: Arc<Self>) {
            self.ask();
        }
    }

    #[test]
    fn each_permit_is_taken_once_and_released_again() {
        let permits = Permits::new("database", 2);
        let one = permits.try_take(Taker::default()).unwrap();
        let two = permits.try_take(Taker::default()).unwrap();
        assert!(permits.try_take(Taker::default()).is_none());
        assert_eq!((permits.available(), permits.count()), (0, 2));
        drop(one);
        assert_eq!(two.put_back().as_ref(), Some(&permits));
        assert_eq!(permits.available(), 2);
        drop(Permit::default());
        assert_eq!(permits.available(), 2, "a request without a permit releases none");
    }

    #[test]
    fn waiters_are_served_in_turns() {
        let permits = Permits::new("database", 1);
        let first = permits.try_take(Taker::default());
        let (one, two) = (Waiter::new(&permits, 2), Waiter::new(&permits, 2));
        one.ask();
        two.ask();
        drop(first);
        assert_eq!((one.has(), two.has()), (1, 0));
        assert!(permits.try_take(Taker::default()).is_none());
        let taken = one.taken.lock().pop();
        drop(taken);
        assert_eq!((one.has(), two.has()), (0, 1), "it is the turn of the other waiter");
        let taken = two.taken.lock().pop();
        drop(taken);
        assert_eq!((one.has(), two.has()), (1, 0));
    }

    #[test]
    fn a_waiter_that_asks_again_is_registered_once() {
        let permits = Permits::new("database", 1);
        let _taken = permits.try_take(Taker::default()).unwrap();
        let waiter = Waiter::new(&permits, 1);
        waiter.ask();
        waiter.ask();
        assert_eq!(permits.0.state.lock().waiting.len(), 1);
    }

    #[test]
    fn a_new_request_does_not_overtake_waiters() {
        let permits = Permits::new("database", 1);
        let first = permits.try_take(Taker::default()).unwrap();
        let waiter = Waiter::new(&permits, 1);
        waiter.ask();
        let released = first.put_back();
        assert_eq!(permits.available(), 1);
        assert!(permits.try_take(Taker::default()).is_none());
        released.unwrap().notify_waiters();
        assert_eq!((waiter.has(), permits.available()), (1, 0));
    }

    #[test]
    fn a_waiter_that_leaves_a_permit_or_is_dropped_passes_it_to_the_next() {
        let permits = Permits::new("database", 1);
        let first = permits.try_take(Taker::default());
        let (gone, idle, last) =
            (Waiter::new(&permits, 1), Waiter::new(&permits, 1), Waiter::new(&permits, 1));
        gone.ask();
        idle.ask();
        last.ask();
        drop(gone);
        idle.wants.store(0, Ordering::Relaxed);
        drop(first);
        assert_eq!((idle.has(), last.has()), (0, 1));
        last.taken.lock().clear();
        assert!(permits.try_take(Taker::default()).is_some(), "no waiter is registered");
    }
}
