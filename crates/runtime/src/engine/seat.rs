//! A seat: the right of a request to a thread of the pool. Free seats go to waiting requests.

use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::budget::permits::{PermitWaiter, Permits};
use crate::engine::Engine;
use crate::engine::exchange::Call;
use crate::engine::task::Task;
use crate::engine::worker;
use crate::execution::key::{ExecutionKey, Route};

/// The right of a task to a thread of the pool. When it is dropped, the next waiting request gets
/// the seat and is submitted to the pool.
pub(crate) struct Seat {
    /// `None` only if the seat is already given back.
    engine: Option<Arc<Engine>>,
    kind: SeatKind,
}

/// Which limit a seat counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeatKind {
    Route(ExecutionKey),
    /// One of the seats that are reserved for vital requests of all routes.
    Vital,
}

impl Seat {
    /// Wraps a seat that was just taken from `Engine::seats` for a request of this route.
    pub(crate) fn taken(engine: &Arc<Engine>, key: ExecutionKey) -> Self {
        Self { engine: Some(Arc::clone(engine)), kind: SeatKind::Route(key) }
    }

    /// Takes one of the seats that are reserved for vital requests.
    pub(crate) fn try_take_vital(engine: &Arc<Engine>) -> Option<Self> {
        engine
            .seats
            .enter_vital()
            .then(|| Self { engine: Some(Arc::clone(engine)), kind: SeatKind::Vital })
    }

    /// Takes a seat even beyond the limit, for work that cannot be refused any more.
    pub(crate) fn force(engine: &Arc<Engine>, key: ExecutionKey) -> Self {
        engine.seats.force(key);
        Self::taken(engine, key)
    }

    /// Takes a seat if one is free now.
    pub(crate) fn try_take(engine: &Arc<Engine>, key: ExecutionKey) -> Option<Self> {
        engine.seats.try_enter(key).then(|| Self::taken(engine, key))
    }

    /// Submits a request to the pool. Gives it back if the pool refuses it.
    pub(crate) fn run(self, call: Box<Call>) -> Result<(), Box<Call>> {
        let engine = self.engine.clone();
        let Some(engine) = engine else { return Err(call) };
        let is_vital = self.kind == SeatKind::Vital;
        let task = Task::Call(call, self);
        let submitted =
            if is_vital { engine.pool.submit_urgent(task) } else { engine.pool.submit(task) };
        submitted.map_err(|refused| match refused.task {
            Task::Call(call, _) => call,
            _ => unreachable!("the pool gives back what it was given"),
        })
    }

    /// Returns the engine, unless the seat is already given back.
    pub(crate) fn engine(&self) -> Option<&Arc<Engine>> {
        self.engine.as_ref()
    }

    /// Returns whether this is a reserved seat for vital requests. A lease must not occupy one.
    pub(crate) fn is_vital(&self) -> bool {
        self.kind == SeatKind::Vital
    }

    /// Exchanges it for a seat of another route. Returns `false`, and keeps the seat, if that route
    /// may not have one more.
    pub(crate) fn change(&mut self, route: Route) -> bool {
        let SeatKind::Route(key) = self.kind else { return route.is_vital };
        let may = route.key == key
            || self.engine.as_ref().is_some_and(|engine| engine.seats.change(key, route.key));
        if may {
            self.kind = SeatKind::Route(route.key);
        }
        may
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        match self.kind {
            SeatKind::Route(key) => start_waiting(&engine, engine.seats.leave(key)),
            SeatKind::Vital => engine.seats.leave_vital(),
        }
    }
}

impl PermitWaiter for Engine {
    fn permit_is_free(self: Arc<Self>) {
        start_waiting(&self, self.seats.next_locked());
    }
}

/// Submits a request that has got a seat to the pool, then all other waiting requests that may have
/// one.
pub(crate) fn start_waiting(engine: &Arc<Engine>, mut next: Option<(ExecutionKey, Box<Call>)>) {
    let mut put_back: Vec<Permits> = Vec::new();
    while let Some((key, call)) = next {
        // A loop instead of recursion: each seat and each permit that is dropped here would start
        // the next request within its own drop.
        next = match engine.pool.submit(Task::Call(call, Seat::taken(engine, key))) {
            Ok(()) => engine.seats.next(),
            Err(refused) => {
                let Task::Call(mut call, mut seat) = refused.task else { return };
                seat.engine = None;
                put_back.extend(mem::take(&mut call.permit).put_back());
                worker::refuse(*call);
                engine.seats.leave(key)
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
