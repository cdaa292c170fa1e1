//! A connection into other hands: the pool's, the program's, or another protocol's.

use std::sync::Arc;
use std::time::Instant;

use super::{Go, Outcome, Worker};
use crate::blocking_stream::BlockingStream;
use crate::body::StreamReturn;
use crate::connection::Connection;
use crate::connection::unsent::Flushed;
use crate::engine::Answerer;
use crate::execution::key::Route;
use crate::incoming::{Exchange, IncomingRequest};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::response::{Response, UpgradeHandler};
use crate::task::{Call, Task};
use crate::tcp::Closed;

/// How long a client is asked to stay away when every queue is full, in seconds.
const RETRY_AFTER: &str = "1";

impl Worker<'_> {
    /// Gives a request to the pool.
    #[inline(never)]
    pub(super) fn dispatch(&mut self, connection: Box<Connection>, call: Call) -> Go {
        let connection = match self.let_go(connection) {
            Ok(connection) => connection,
            Err(outcome) => return Go::Away(outcome),
        };
        self.engine.counters.dispatched.increment();
        let started = self.clocks.is_due().then(Instant::now);
        let submitted = self.engine.pool.submit(Task::Call(connection, Box::new(call)));
        if let Some(started) = started {
            self.engine.routes.note_dispatch(started.elapsed());
        }
        match submitted {
            Ok(()) => Go::Away(Outcome::Away),
            Err(refused) => {
                let Task::Call(connection, call) = refused.task else {
                    unreachable!("the pool gives back what it was given")
                };
                let Call { request, route, stream } = *call;
                drop(request);
                self.overloaded(connection, route, stream)
            }
        }
    }

    /// Gives a request to the program.
    #[inline(never)]
    pub(super) fn enqueue(
        &mut self,
        connection: Box<Connection>,
        request: Request,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Go {
        let connection = match self.let_go(connection) {
            Ok(connection) => connection,
            Err(outcome) => return Go::Away(outcome),
        };
        let engine = Arc::clone(&self.engine);
        let Answerer::Program(queue) = &engine.answerer else {
            return Go::On(connection);
        };
        let exchange = Exchange { connection, route, stream };
        match queue.send(IncomingRequest::new(request, exchange)) {
            Ok(()) => Go::Away(Outcome::Away),
            Err(refused) => {
                let (request, exchange) = refused.into_message().into_parts();
                drop(request);
                self.overloaded(exchange.connection, route, exchange.stream)
            }
        }
    }

    pub(super) fn resume_elsewhere(&mut self, connection: Box<Connection>) -> Go {
        let connection = match self.let_go(connection) {
            Ok(connection) => connection,
            Err(outcome) => return Go::Away(outcome),
        };
        match self.engine.pool.submit(Task::Resume(connection)) {
            Ok(()) => Go::Away(Outcome::Away),
            Err(refused) => {
                let Task::Resume(mut connection) = refused.task else {
                    unreachable!("the pool gives back what it was given")
                };
                // Its response has begun: there is no status left to refuse it with.
                self.engine.refusals.note(Refusal::Overloaded, connection.peer);
                if let Some(tcp) = &mut connection.tcp {
                    tcp.break_off(Closed::Overloaded);
                }
                Go::Away(Outcome::Closed(connection))
            }
        }
    }

    /// Hands a connection over to what comes after a `101`.
    pub(super) fn detach(&mut self, mut connection: Box<Connection>, handler: UpgradeHandler) -> Outcome {
        match self.flush(&mut connection) {
            Ok(Flushed::All) => {}
            Ok(Flushed::Some) => return Outcome::Closed(connection),
            Err(error) => return self.give_up(connection, error),
        }
        let detached = connection.unwatch().and_then(|()| connection.transport.set_waiting());
        let socket = match detached.and_then(|()| connection.transport.try_clone()) {
            Ok(socket) => socket,
            Err(error) => return self.give_up(connection, error),
        };
        let stream = BlockingStream::new(socket, self.buffers.input.take_rest(), connection.place.take());
        if self.engine.pool.submit(Task::Detached(Box::new(move || handler(stream)))).is_ok() {
            self.engine.counters.upgraded.increment();
        } else {
            self.engine.refusals.note(Refusal::Overloaded, connection.peer);
        }
        // This handle goes; the socket lives on in the other one.
        Outcome::Closed(connection)
    }

    /// Readies a connection for another owner: earlier answers are on their way and do not wait
    /// for the next one, and what was read goes with it.
    fn let_go(&mut self, mut connection: Box<Connection>) -> Result<Box<Connection>, Outcome> {
        if let Err(error) = self.flush(&mut connection) {
            return Err(self.give_up(connection, error));
        }
        self.unload(&mut connection);
        Ok(connection)
    }

    /// Every thread is busy and the queue is full: says so at once.
    fn overloaded(
        &mut self,
        connection: Box<Connection>,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Go {
        self.engine.refusals.note(Refusal::Overloaded, connection.peer);
        let mut connection = self.load(connection);
        // It was held to be read by its handler; here it would hold up a loop.
        if let Err(error) = connection.release_hold() {
            return Go::Away(self.give_up(connection, error));
        }
        let mut response = Response::new(503);
        response.add_header("retry-after", RETRY_AFTER).expect("a valid header");
        self.respond(connection, &mut response, route, stream)
    }
}
