//! A seat in hand: a thread of the pool that a route has; and how those that are free are handed
//! out.

use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::budget::permits::{Permits, Waits};
use crate::engine::Engine;
use crate::engine::task::{Call, Task};
use crate::engine::worker;
use crate::execution::key::{ExecutionKey, Route};

/// The right of a task to a thread. Dropped, it goes to a request that waits, which is then given
/// to the pool.
pub(crate) struct Seat {
    /// `None` only while it is given back.
    engine: Option<Arc<Engine>>,
    of: Of,
}

/// Whose seat it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Route(ExecutionKey),
    /// One of those that are kept for vital requests of all routes.
    Vital,
}

impl Seat {
    /// The seat that a request of this route was just given.
    pub(crate) fn taken(engine: &Arc<Engine>, key: ExecutionKey) -> Self {
        Self { engine: Some(Arc::clone(engine)), of: Of::Route(key) }
    }

    /// One of those that are kept for vital requests.
    pub(crate) fn try_take_vital(engine: &Arc<Engine>) -> Option<Self> {
        engine.seats.enter_vital().then(|| Self { engine: Some(Arc::clone(engine)), of: Of::Vital })
    }

    /// One beyond what the route may have, for what cannot be refused any more.
    pub(crate) fn force(engine: &Arc<Engine>, key: ExecutionKey) -> Self {
        engine.seats.force(key);
        Self::taken(engine, key)
    }

    /// One for something that does not wait.
    pub(crate) fn try_take(engine: &Arc<Engine>, key: ExecutionKey) -> Option<Self> {
        engine.seats.try_enter(key).then(|| Self::taken(engine, key))
    }

    /// Has a request run by a thread of the pool. Gives it back if there is none to be had.
    pub(crate) fn run(self, call: Box<Call>) -> Result<(), Box<Call>> {
        let engine = self.engine.clone();
        let Some(engine) = engine else { return Err(call) };
        let is_vital = self.of == Of::Vital;
        let task = Task::Call(call, self);
        let submitted =
            if is_vital { engine.pool.submit_urgent(task) } else { engine.pool.submit(task) };
        submitted.map_err(|refused| match refused.task {
            Task::Call(call, _) => call,
            _ => unreachable!("the pool gives back what it was given"),
        })
    }

    /// Whether others may need it more than a connection that only might ask again.
    pub(crate) fn is_vital(&self) -> bool {
        self.of == Of::Vital
    }

    /// Changes it for one that a request of another route needs. Returns whether that may have one
    /// more.
    pub(crate) fn change(&mut self, route: Route) -> bool {
        let Of::Route(key) = self.of else { return route.is_vital };
        let may = route.key == key
            || self.engine.as_ref().is_some_and(|engine| engine.seats.change(key, route.key));
        if may {
            self.of = Of::Route(route.key);
        }
        may
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        match self.of {
            Of::Route(key) => hand_out(&engine, engine.seats.leave(key)),
            Of::Vital => engine.seats.leave_vital(),
        }
    }
}

impl Waits for Engine {
    fn permit_is_free(self: Arc<Self>) {
        hand_out(&self, self.seats.look());
    }
}

/// Gives a request that has a seat now to the pool, and then all others that may have one.
pub(crate) fn hand_out(engine: &Arc<Engine>, mut next: Option<(ExecutionKey, Box<Call>)>) {
    let mut put_back: Vec<Permits> = Vec::new();
    while let Some((key, call)) = next {
        // A loop, because each seat that is dropped here would ask for the next request within its
        // own drop, and each permit too.
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
    // Other servers may wait for them.
    put_back.iter().for_each(Permits::tell);
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seat").field(&self.of).finish()
    }
}
