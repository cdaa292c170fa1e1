//! The tasks of the engine's thread pool.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

#[cfg(feature = "spool")]
use crate::budget::spool::Stored;
use crate::engine::Engine;
#[cfg(any(feature = "tls", feature = "spool"))]
use crate::engine::connection::Connection;
use crate::engine::event_loop::EventLoop;
use crate::engine::seat::{Seat, start_waiting};
use crate::engine::work::Work;
use crate::engine::worker;
use crate::execution::key::RouteId;
use crate::execution::probe::Clocks;

/// A task for a pool thread.
pub(crate) enum Task {
    /// Lead an event loop.
    Lead(Box<EventLoop>),
    /// Do work that may block.
    Work(Work, Seat),
    /// Start waiting requests that may have seats now.
    StartWaiting(Arc<Engine>),
    /// Run the callbacks of handlers whose clients have gone.
    Cancel(Arc<Engine>),
    /// Do a step of a connection, then the steps of other connections in the same line.
    #[cfg(any(feature = "tls", feature = "spool"))]
    Lined(worker::Lined, Box<Connection>),
    /// Close the long file of a content, then the other files that wait to be closed.
    #[cfg(feature = "spool")]
    CloseFile(Arc<Engine>, Box<Stored>),
    /// Run a handler that has taken over a connection, or fills a pushed body.
    Detached(Box<dyn FnOnce() + Send>, RouteId, Seat),
}

impl Task {
    pub(crate) fn run(self) {
        match self {
            Self::Lead(event_loop) => worker::lead(event_loop),
            Self::Work(Work::Call(call), seat) => worker::answer(*call, seat),
            Self::Work(Work::Resume(connection, _), seat) => {
                worker::follow(connection, Some(seat), |worker, connection| {
                    worker.serve(connection)
                });
            }
            Self::StartWaiting(engine) => start_waiting(&engine, engine.seats.next()),
            Self::Cancel(engine) => engine.run_cancels(),
            #[cfg(any(feature = "tls", feature = "spool"))]
            Self::Lined(what, connection) => worker::do_in_line(what, connection),
            #[cfg(feature = "spool")]
            Self::CloseFile(engine, stored) => engine.close_files(stored),
            Self::Detached(run, route, seat) => run_detached(run, route, &seat),
        }
    }
}

fn run_detached(run: Box<dyn FnOnce() + Send>, route: RouteId, seat: &Seat) {
    let Some(engine) = seat.engine() else { return run() };
    let _listed = engine.calls.begin_detached(Clocks::default().slot(), route, Instant::now());
    // Nothing else counts a panic of this code: the response of its handler was sent before.
    let _ = worker::run_counted(engine, run);
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lead(_) => "Lead",
            Self::Work(..) => "Work",
            Self::StartWaiting(_) => "StartWaiting",
            Self::Cancel(_) => "Cancel",
            #[cfg(any(feature = "tls", feature = "spool"))]
            Self::Lined(..) => "Lined",
            #[cfg(feature = "spool")]
            Self::CloseFile(..) => "CloseFile",
            Self::Detached(..) => "Detached",
        })
    }
}
