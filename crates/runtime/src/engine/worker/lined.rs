//! Steps of connections that may take long: the pool does a few of each kind at a time. Clients
//! take turns. Threads for these steps are added to those for handlers, so neither keeps the other
//! waiting.

use std::ops::ControlFlow::Break;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Flow, Outcome, Worker, follow};
use crate::budget::line::{Entered, Line};
use crate::budget::refusal::Refusal;
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::event_loop::Message;
use crate::engine::task::Task;

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lined {
    /// A step of a TLS handshake is computed.
    #[cfg(feature = "tls")]
    Handshake,
    /// A part of a content is written to its file.
    #[cfg(feature = "spool")]
    Spool,
}

impl Lined {
    fn line(self, engine: &Engine) -> &Line<Box<Connection>> {
        match self {
            #[cfg(feature = "tls")]
            Self::Handshake => &engine.handshakes.line,
            #[cfg(feature = "spool")]
            Self::Spool => &engine.spool.line,
        }
    }

    fn refusal(self) -> Refusal {
        match self {
            #[cfg(feature = "tls")]
            Self::Handshake => Refusal::Handshakes,
            #[cfg(feature = "spool")]
            Self::Spool => Refusal::Spool,
        }
    }

    /// Returns whether a step that has waited need not be done, because its peer has closed its
    /// direction: no peer can complete a handshake without sending more.
    fn is_in_vain(self, connection: &Connection) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Self::Handshake => connection.transport.has_ended(),
            #[cfg(feature = "spool")]
            Self::Spool => {
                let _ = connection;
                false
            }
        }
    }

    fn work(self, worker: &mut Worker<'_>, connection: Box<Connection>) -> Outcome {
        match self {
            #[cfg(feature = "tls")]
            Self::Handshake => worker.compute(connection),
            #[cfg(feature = "spool")]
            Self::Spool => worker.write_part(connection),
        }
    }
}

impl Worker<'_> {
    /// Gives a step of a connection to the pool.
    pub(super) fn stand_in_line(&mut self, connection: Box<Connection>, what: Lined) -> Flow {
        let connection = self.flush_and_unload(connection)?;
        let client = connection.account.client().map(|client| client.client());
        match what.line(&self.engine).enter(client, connection) {
            Entered::Run(connection) => submit(&self.engine, what, connection),
            Entered::Waiting => {}
            Entered::Replaced(connection) => {
                self.engine.refusals.note_closed(what.refusal(), connection.peer, String::new);
                close(connection);
            }
            Entered::Refused(connection) => {
                self.engine.refusals.note_closed(what.refusal(), connection.peer, String::new);
                return Break(Outcome::Closed(connection));
            }
        }
        Break(Outcome::Moved)
    }
}

/// Does a step on a thread of the pool, then the steps that have waited in the same line. One
/// thread does them all, because waking another one for each step costs more than the system calls
/// of a handshake.
pub(crate) fn do_in_line(what: Lined, connection: Box<Connection>) {
    let engine = Arc::clone(&connection.loop_handle().engine);
    let mut next = Some(connection);
    while let Some(connection) = next {
        let step = AssertUnwindSafe(|| {
            follow(connection, None, |worker, connection| what.work(worker, connection));
        });
        if catch_unwind(step).is_err() {
            // The others in the line still have their turn.
            engine.note_panic("a panic outside of a handler's call: its connection is lost");
        }
        next = next_in_line(what, &engine);
    }
}

/// Returns the next connection whose turn it is. Closes those whose peers have gone.
fn next_in_line(what: Lined, engine: &Engine) -> Option<Box<Connection>> {
    loop {
        let next = what.line(engine).next()?;
        if !what.is_in_vain(&next) {
            return Some(next);
        }
        close(next);
    }
}

/// Gives a step to the pool. Closes its connection, and those that wait, if the pool takes none.
fn submit(engine: &Arc<Engine>, what: Lined, connection: Box<Connection>) {
    let mut next = Some(connection);
    while let Some(connection) = next {
        let Err(refused) = engine.pool.submit_urgent(Task::Lined(what, connection)) else { return };
        let Task::Lined(_, connection) = refused.task else {
            unreachable!("the pool gives back what it was given")
        };
        engine.refusals.note_closed(what.refusal(), connection.peer, String::new);
        close(connection);
        next = what.line(engine).next();
    }
}

/// Closes a connection from outside of a worker. It may belong to any loop.
fn close(connection: Box<Connection>) {
    let (loop_handle, token) = (Arc::clone(connection.loop_handle()), connection.token());
    // The program's code may be dropped with it.
    let dropped = catch_unwind(AssertUnwindSafe(|| connection.close()));
    loop_handle.send(Message::Closed(token));
    if dropped.is_err() {
        loop_handle.engine.note_panic("the drop of a connection panicked");
    }
}
