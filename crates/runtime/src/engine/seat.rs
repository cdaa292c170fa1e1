//! A seat: the right of a request to a thread of the pool. Free seats go to waiting requests.

use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::budget::clients::ClientConnection;
use crate::budget::memory::WakeLoops;
use crate::budget::permits::{PermitWaiter, Permits};
use crate::budget::seats::SeatRequest;
use crate::engine::Engine;
use crate::engine::task::Task;
use crate::engine::work::Work;
use crate::engine::worker;
use crate::execution::key::{ExecutionKey, Route};

/// The right of a task to a thread of the pool. When it is dropped, the next waiting request gets
/// the seat and is submitted to the pool.
pub(crate) struct Seat {
    /// `None` only if the seat is already given back.
    engine: Option<Arc<Engine>>,
    kind: SeatKind,
    /// The client that it counts for, if clients are counted.
    client: Option<Arc<ClientConnection>>,
}

/// Which limit a seat counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeatKind {
    Route(ExecutionKey),
    /// One of the seats that are reserved for vital requests of all routes.
    Vital,
}

impl Seat {
    /// Wraps a seat that was just taken from `Engine::seats` for this work.
    pub(crate) fn taken(engine: &Arc<Engine>, work: &Work) -> Self {
        Self::new(engine, SeatKind::Route(work.key()), work.client())
    }

    /// Takes one of the seats that are reserved for vital requests.
    pub(crate) fn try_take_vital(
        engine: &Arc<Engine>,
        client: Option<&Arc<ClientConnection>>,
    ) -> Option<Self> {
        engine.seats.enter_vital(client).then(|| Self::new(engine, SeatKind::Vital, client))
    }

    /// Takes a seat even beyond the limit, for a thread that already serves its connection.
    pub(crate) fn force(
        engine: &Arc<Engine>,
        key: ExecutionKey,
        client: Option<&Arc<ClientConnection>>,
    ) -> Self {
        engine.seats.force(key, client);
        Self::new(engine, SeatKind::Route(key), client)
    }

    /// Takes a seat if one is free now.
    pub(crate) fn try_take(
        engine: &Arc<Engine>,
        key: ExecutionKey,
        client: Option<&Arc<ClientConnection>>,
    ) -> Option<Self> {
        let is_taken = engine.seats.try_enter(key, client);
        is_taken.then(|| Self::new(engine, SeatKind::Route(key), client))
    }

    fn new(engine: &Arc<Engine>, kind: SeatKind, client: Option<&Arc<ClientConnection>>) -> Self {
        Self { engine: Some(Arc::clone(engine)), kind, client: client.map(Arc::clone) }
    }

    /// Submits work to the pool. Gives it back if the pool refuses it.
    pub(crate) fn run(self, work: Work) -> Result<(), Work> {
        let engine = self.engine.clone();
        let Some(engine) = engine else { return Err(work) };
        let is_vital = self.kind == SeatKind::Vital;
        let task = Task::Work(work, self);
        let submitted =
            if is_vital { engine.pool.submit_urgent(task) } else { engine.pool.submit(task) };
        submitted.map_err(|refused| match refused.task {
            Task::Work(work, _) => work,
            _ => unreachable!("the pool gives back what it was given"),
        })
    }

    /// Returns the engine, unless the seat is already given back.
    pub(crate) fn engine(&self) -> Option<&Arc<Engine>> {
        self.engine.as_ref()
    }

    /// Returns whether requests of its route wait for processor time. A thread that goes on with
    /// another request would overtake them.
    pub(crate) fn is_limited(&self) -> bool {
        match (self.kind, &self.engine) {
            (SeatKind::Route(key), Some(engine)) => engine.seats.is_limited(key),
            _ => false,
        }
    }

    /// Returns whether this is a reserved seat for vital requests. A lease must not occupy one.
    pub(crate) fn is_vital(&self) -> bool {
        self.kind == SeatKind::Vital
    }

    /// Exchanges it for a seat of another route, or of another client of the same proxy. Returns
    /// `false`, and keeps the seat, if that route or client may not have one more.
    pub(crate) fn change(&mut self, route: Route, client: Option<&Arc<ClientConnection>>) -> bool {
        let SeatKind::Route(key) = self.kind else { return route.is_vital };
        let id = |client: &Arc<ClientConnection>| client.client();
        if route.key == key && client.map(id) == self.client.as_ref().map(id) {
            return true;
        }
        let (from, to) = ((key, self.client.as_ref()), (route.key, client));
        let Some(engine) = self.engine.as_ref().filter(|engine| engine.seats.change(from, to))
        else {
            return false;
        };
        self.kind = SeatKind::Route(route.key);
        self.client = client.map(Arc::clone);
        // A request that came meanwhile may get the seat that was given up.
        start_waiting(engine, engine.seats.next());
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        match self.kind {
            SeatKind::Route(key) => {
                start_waiting(&engine, engine.seats.leave(key, self.client.as_ref()));
            }
            SeatKind::Vital => engine.seats.leave_vital(self.client.as_ref()),
        }
    }
}

impl PermitWaiter for Engine {
    fn permit_is_free(self: Arc<Self>) {
        start_waiting(&self, self.seats.next_locked());
    }

    fn permit_is_free_meanwhile(self: Arc<Self>) {
        Arc::clone(&self).permit_is_free();
        // A task may wait for a busy worker, but not for long. Workers check that after a task, and
        // leaders before they sleep. This thread may be neither.
        if self.pool.has_queued() {
            self.wake_loops();
        }
    }
}

/// Submits work that has got a seat to the pool, then all other waiting work that may have one.
pub(crate) fn start_waiting(engine: &Arc<Engine>, mut next: Option<(ExecutionKey, Work)>) {
    let mut put_back: Vec<Permits> = Vec::new();
    while let Some((key, work)) = next {
        let seat = Seat::taken(engine, &work);
        // A loop instead of recursion: each seat and each permit that is dropped here would start
        // the next request within its own drop.
        next = match engine.pool.submit(Task::Work(work, seat)) {
            Ok(()) => engine.seats.next(),
            Err(refused) => {
                let Task::Work(work, mut seat) = refused.task else { return };
                seat.engine = None;
                match work {
                    Work::Call(mut call) => {
                        put_back.extend(mem::take(&mut call.permit).put_back());
                        worker::refuse(*call);
                    }
                    Work::Resume(connection, _) => worker::break_off(connection),
                }
                engine.seats.leave(key, seat.client.as_ref())
            }
        };
    }
    // Requests of other servers may wait for these permits.
    put_back.iter().for_each(Permits::notify_waiters);
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seat").field(&self.kind).finish()
    }
}
