//! A seat in hand: a thread of the pool that a route has.

use std::fmt;
use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::task::{Call, Task};
use crate::engine::worker;
use crate::execution::key::ExecutionKey;

/// The right of a task to a thread. Dropped, it goes to a request that waits, which is then given to the pool.
pub(crate) struct Seat {
    /// `None` only while it is given back.
    engine: Option<Arc<Engine>>,
    key: ExecutionKey,
}

impl Seat {
    /// The seat that a request of this route was just given.
    pub(crate) fn taken(engine: &Arc<Engine>, key: ExecutionKey) -> Self {
        Self { engine: Some(Arc::clone(engine)), key }
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
        engine.pool.submit(Task::Call(call, self)).map_err(|refused| match refused.task {
            Task::Call(call, _) => call,
            _ => unreachable!("the pool gives back what it was given"),
        })
    }

    /// Changes it for one of another route. Returns whether that may have one more.
    pub(crate) fn change(&mut self, key: ExecutionKey) -> bool {
        let may =
            key == self.key || self.engine.as_ref().is_some_and(|engine| engine.seats.change(self.key, key));
        if may {
            self.key = key;
        }
        may
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        let mut next = engine.seats.leave(self.key);
        while let Some((key, call)) = next {
            // A loop, because each seat that is dropped here would ask for the next request within its own drop.
            let seat = Self::taken(&engine, key);
            next = match engine.pool.submit(Task::Call(call, seat)) {
                Ok(()) => engine.seats.next(),
                Err(refused) => {
                    let Task::Call(call, mut seat) = refused.task else { return };
                    seat.engine = None;
                    worker::refuse(*call);
                    engine.seats.leave(key)
                }
            };
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seat").field(&self.key).finish()
    }
}
