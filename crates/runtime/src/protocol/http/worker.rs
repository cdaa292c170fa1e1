//! A thread at work on connections: it reads, has requests planned and answered, writes, and puts
//! the connection where it waits.
//!
//! The same code runs for a leader, who has an event loop in hand, and for a follower, who has
//! not. A leader becomes a follower when its loop is taken while a handler runs.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use filoplume_http1::{CloseReason, RequestHead};

use super::{Flushed, Http, Responded, Step, Streaming};
use crate::body::{Body, ContentStream, STREAM_TICK, StreamReturn};
use crate::buffers::{Buffers, OUTPUT_BYTES};
use crate::clock::Pace;
use crate::connection::transport::is_would_block;
use crate::connection::{Connection, LEASE_QUIET};
use crate::engine::{Answerer, Engine};
use crate::event_loop::{EventLoop, LoopHandle, Message, Readiness, Turn};
use crate::incoming::{Exchange, IncomingRequest};
use crate::request::Request;
use crate::response::{Response, UpgradeHandler};
use crate::service::{Content, Plan, Route};
use crate::task::{Call, Task};
use crate::upgrade::Upgraded;

/// How long a client is asked to stay away when every queue is full, in seconds.
const RETRY_AFTER: &str = "1";

/// Blocking requests in a row on one connection after which its thread keeps it.
const LEASE_ROW: u8 = 2;

/// The longest memory of blocking requests: that many quick ones end a lease.
const BLOCKED_ROW_MAX: u8 = 16;

/// Reads and pieces of a body in a row before a leader looks at its other connections.
const ROUNDS_MAX: u32 = 4;

/// A thread's means: its buffers, and the loop if it leads one.
pub(crate) struct Worker<'a> {
    engine: Arc<Engine>,
    buffers: &'a mut Buffers,
    lead: Option<Box<EventLoop>>,
    /// Why the last connection was given up, for whoever waits for a response to be sent.
    error: Option<io::Error>,
}

/// Where a connection is when its thread turns away.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Here: its peer must move first.
    Parked(Box<Connection>),
    /// Here: it could go on, but others wait.
    Yielded(Box<Connection>),
    /// Here, and to be closed.
    Closed(Box<Connection>),
    /// In other hands.
    Away,
}

/// Whether a thread goes on with the connection in its hand.
enum Go {
    On(Box<Connection>),
    Away(Outcome),
}

/// What a read brought.
enum Filled {
    /// Bytes; there may be more if all the room was used.
    Some {
        may_have_more: bool,
    },
    Nothing,
    End,
}

/// How a handler's code came back.
struct Ran<R> {
    /// `None` if it panicked.
    result: Option<R>,
    conduct: Conduct,
}

/// How long a handler's code took, as far as anyone looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conduct {
    /// It ran on the event loop and returned in time.
    Inline,
    /// It ran on a thread of the pool and did not block.
    Quick,
    /// It blocked its thread.
    Blocked,
}

/// Leads until the loop is taken or has ended.
pub(crate) fn lead(event_loop: Box<EventLoop>) {
    let mut buffers = Buffers::take();
    let engine = Arc::clone(&event_loop.handle().engine);
    let mut worker = Worker { engine, buffers: &mut buffers, lead: Some(event_loop), error: None };
    while let Some(event_loop) = &mut worker.lead {
        match event_loop.next(&mut worker.buffers.clock) {
            Turn::Serve(connection, readiness) => worker.serve_ready(connection, readiness),
            Turn::Again => {}
            Turn::Ended => break,
        }
    }
    drop(worker);
    buffers.give_back();
}

/// Works on one connection without leading. Returns why it was given up, if it was.
pub(crate) fn follow(
    connection: Box<Connection>,
    work: impl FnOnce(&mut Worker<'_>, Box<Connection>) -> Outcome,
) -> Option<io::Error> {
    let mut buffers = Buffers::take();
    let engine = Arc::clone(&connection.home().engine);
    let mut worker = Worker { engine, buffers: &mut buffers, lead: None, error: None };
    let connection = worker.load(connection);
    let outcome = work(&mut worker, connection);
    worker.put(outcome);
    let error = worker.error.take();
    drop(worker);
    buffers.give_back();
    error
}

/// Runs code of the handler's. A leader lays its loop into the slot meanwhile, from where it can
/// be taken; a follower takes the time.
#[inline(always)]
fn run<R>(
    lead: &mut Option<Box<EventLoop>>,
    engine: &Engine,
    home: &LoopHandle,
    route: Route,
    code: impl FnOnce() -> R,
) -> Ran<R> {
    let (result, conduct) = if let Some(mut event_loop) = lead.take() {
        event_loop.running = route.key;
        home.slot.lend(event_loop);
        let result = catch_unwind(AssertUnwindSafe(code));
        *lead = home.slot.take();
        let conduct = match lead {
            Some(event_loop) => {
                event_loop.has_been_quick(route.key);
                Conduct::Inline
            }
            None => Conduct::Blocked,
        };
        (result, conduct)
    } else {
        let started = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(code));
        let observed = engine.learned.observed(route.key, started.elapsed());
        if observed.is_inline_again {
            engine.counters.routes_forgotten.increment();
        }
        (result, if observed.has_blocked { Conduct::Blocked } else { Conduct::Quick })
    };
    if result.is_err() {
        engine.counters.panics.increment();
        tracing::error!("a handler panicked");
    }
    Ran { result: result.ok(), conduct }
}

impl Worker<'_> {
    /// Works on a connection that its loop found ready.
    #[inline]
    fn serve_ready(&mut self, connection: Box<Connection>, readiness: Readiness) {
        let mut connection = self.load(connection);
        let outcome = match readiness {
            Readiness::Io | Readiness::Drain => {
                connection.can_read = true;
                self.serve(connection)
            }
            Readiness::IoAndEnd => {
                connection.can_read = true;
                connection.has_end = true;
                self.serve(connection)
            }
            Readiness::Expired if connection.deadline > self.buffers.clock.now() => {
                self.wait_rarely(connection)
            }
            Readiness::Expired => {
                self.engine.counters.timed_out.increment();
                let has_input = !self.buffers.input.is_empty();
                connection.http.expire(has_input, self.buffers);
                self.serve(connection)
            }
        };
        self.put(outcome);
    }

    /// Answers a request that was dispatched, then goes on with its connection.
    pub(crate) fn answer(&mut self, connection: Box<Connection>, call: Call) -> Outcome {
        let Call { request, route, stream } = call;
        match self.call_here(connection, request, route, stream) {
            Go::On(connection) => self.serve(connection),
            Go::Away(outcome) => outcome,
        }
    }

    /// Sends the answer that the program gave, then goes on with the connection.
    pub(crate) fn finish(
        &mut self,
        connection: Box<Connection>,
        response: Response,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Outcome {
        match self.respond(connection, response, route, stream) {
            Go::On(connection) => self.serve(connection),
            Go::Away(outcome) => outcome,
        }
    }

    /// Works on a connection until it has to wait.
    pub(crate) fn serve(&mut self, mut connection: Box<Connection>) -> Outcome {
        if connection.http.is_writing() {
            match self.flush(&mut connection) {
                Ok(Flushed::All) => {}
                Ok(Flushed::Some) => return self.wait_rarely(connection),
                Err(error) => return self.give_up(connection, error),
            }
        }
        let mut rounds = 0;
        loop {
            let config = &self.engine.config;
            if connection.http.expects_head() {
                if let Some(head) = connection.http.next_head(self.buffers, config) {
                    match self.request(connection, head) {
                        Go::On(next) => connection = next,
                        Go::Away(outcome) => return outcome,
                    }
                    continue;
                }
            }
            let go = match connection.http.step(self.buffers) {
                Step::Read => {
                    match self.flush(&mut connection) {
                        Ok(Flushed::All) => {}
                        Ok(Flushed::Some) => return self.wait_rarely(connection),
                        Err(error) => return self.give_up(connection, error),
                    }
                    if !connection.can_read && !self.keeps(&mut connection) {
                        return self.wait(connection);
                    }
                    if self.lead.is_some() && rounds == ROUNDS_MAX {
                        return self.yielded(connection);
                    }
                    rounds += 1;
                    match self.read(&mut connection) {
                        Ok(Filled::Some { may_have_more }) => {
                            connection.can_read = may_have_more || connection.has_end;
                        }
                        Ok(Filled::Nothing) => {
                            connection.can_read = false;
                            return self.wait_rarely(connection);
                        }
                        Ok(Filled::End) => connection.http.end_of_input(),
                        Err(error) => return self.give_up(connection, error),
                    }
                    continue;
                }
                Step::Again => Go::On(connection),
                Step::Call(request, route) => self.call_collected(connection, request, route),
                Step::Stream(streaming) => self.stream(connection, *streaming),
                Step::Pump if self.lead.is_some() && rounds == ROUNDS_MAX => return self.yielded(connection),
                Step::Pump => {
                    rounds += 1;
                    self.pump(connection)
                }
                Step::Linger => self.linger(connection),
                Step::Close => match self.flush(&mut connection) {
                    Ok(Flushed::All) => return Outcome::Closed(connection),
                    Ok(Flushed::Some) => return self.wait_rarely(connection),
                    Err(error) => return self.give_up(connection, error),
                },
            };
            match go {
                Go::On(next) => connection = next,
                Go::Away(outcome) => return outcome,
            }
        }
    }

    /// Ends our direction and goes on reading what the peer still sends.
    fn linger(&mut self, mut connection: Box<Connection>) -> Go {
        match self.flush(&mut connection) {
            Ok(Flushed::All) => {}
            Ok(Flushed::Some) => return Go::Away(self.wait_rarely(connection)),
            Err(error) => return Go::Away(self.give_up(connection, error)),
        }
        if let Err(error) = connection.transport.shutdown_write() {
            return Go::Away(self.give_up(connection, error));
        }
        connection.http.linger(self.buffers.clock.now() + self.engine.config.linger_timeout);
        connection.can_read = true;
        Go::On(connection)
    }

    /// Has a request planned, and answered if it has no content.
    #[inline(always)]
    fn request(&mut self, mut connection: Box<Connection>, head: RequestHead) -> Go {
        match &mut self.lead {
            Some(event_loop) => event_loop.requests += 1,
            None => self.engine.counters.requests.increment(),
        }
        let mut request = Request::new(head, connection.peer);
        let plan = match &self.engine.answerer {
            Answerer::Service(service) => catch_unwind(AssertUnwindSafe(|| service.plan(&mut request))),
            Answerer::Program(_) => Ok(Plan::default()),
        };
        let plan = plan.unwrap_or_else(|_| {
            self.engine.counters.panics.increment();
            tracing::error!(path = request.path(), "the plan of a request panicked");
            Plan::refuse(Response::new(500))
        });
        let route = plan.route_of(&request);
        let config = &self.engine.config;
        if let Content::Refused(response) = plan.content {
            return self.refuse(connection, &request, *response, route);
        }
        if !request.head().framing().has_content() {
            return self.call(connection, request, route, None);
        }
        let content_bytes_max = plan.content_bytes_max.unwrap_or(config.content_bytes_max);
        let http = &mut connection.http;
        http.begin_content(request, route, &plan.content, content_bytes_max, self.buffers, config);
        Go::On(connection)
    }

    /// Answers without the content being read.
    #[inline(never)]
    fn refuse(
        &mut self,
        mut connection: Box<Connection>,
        request: &Request,
        response: Response,
        route: Route,
    ) -> Go {
        connection.http.leave_unread(request, self.buffers, &self.engine.config);
        self.respond(connection, response, route, None)
    }

    /// Has a request answered: by the program, on the pool, or here.
    #[inline(always)]
    fn call(
        &mut self,
        connection: Box<Connection>,
        request: Request,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Go {
        if matches!(self.engine.answerer, Answerer::Program(_)) {
            return self.enqueue(connection, request, route, stream);
        }
        if self.lead.is_some() && (stream.is_some() || self.engine.learned.dispatches(route)) {
            return self.dispatch(connection, Call { request, route, stream });
        }
        self.call_here(connection, request, route, stream)
    }

    #[inline(never)]
    fn call_collected(&mut self, connection: Box<Connection>, request: Request, route: Route) -> Go {
        self.call(connection, request, route, None)
    }

    #[inline(always)]
    fn call_here(
        &mut self,
        mut connection: Box<Connection>,
        request: Request,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Go {
        let Answerer::Service(service) = &self.engine.answerer else {
            return Go::On(connection);
        };
        let ran = run(&mut self.lead, &self.engine, connection.home(), route, || service.call(request));
        self.take_note(&mut connection, ran.conduct);
        let response = ran.result.unwrap_or_else(|| Response::new(500));
        self.respond(connection, response, route, stream)
    }

    /// Remembers for a lease whether the connection's requests block, and that time has passed.
    #[inline(always)]
    fn take_note(&mut self, connection: &mut Connection, conduct: Conduct) {
        match conduct {
            Conduct::Inline => return,
            Conduct::Quick => connection.blocked_row = connection.blocked_row.saturating_sub(1),
            Conduct::Blocked => connection.blocked_row = (connection.blocked_row + 1).min(BLOCKED_ROW_MAX),
        }
        self.buffers.clock.refresh();
    }

    /// Gives a request to the pool.
    #[inline(never)]
    fn dispatch(&mut self, connection: Box<Connection>, call: Call) -> Go {
        let connection = match self.let_go(connection) {
            Ok(connection) => connection,
            Err(outcome) => return Go::Away(outcome),
        };
        self.engine.counters.dispatched.increment();
        match self.engine.pool.submit(Task::Call(connection, Box::new(call))) {
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
    fn enqueue(
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
        self.engine.counters.overloaded.increment();
        let connection = self.load(connection);
        let mut response = Response::new(503);
        response.add_header("retry-after", RETRY_AFTER).expect("a valid header");
        self.respond(connection, response, route, stream)
    }

    /// Lets the handler read the content from the connection.
    #[inline(never)]
    fn stream(&mut self, mut connection: Box<Connection>, streaming: Streaming) -> Go {
        if let Err(error) = self.flush(&mut connection) {
            return Go::Away(self.give_up(connection, error));
        }
        let socket = connection.hold(STREAM_TICK).and_then(|()| connection.transport.try_clone());
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => return Go::Away(self.give_up(connection, error)),
        };
        let Streaming { mut request, route, decoder, prefix, owes_continue } = streaming;
        let config = &self.engine.config;
        let pace = Pace::new(self.buffers.clock.now(), config.content_timeout, config.bytes_per_second_min);
        let unread = self.buffers.input.take_rest();
        let (stream, returns) = ContentStream::new(socket, decoder, prefix, unread, pace, owes_continue);
        request.set_body(Body::from_stream(stream));
        self.call(connection, request, route, Some(returns))
    }

    /// Encodes a response and begins to send it.
    #[inline(always)]
    fn respond(
        &mut self,
        mut connection: Box<Connection>,
        response: Response,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Go {
        if self.engine.is_draining() {
            connection.http.close_after_response(CloseReason::Shutdown);
        }
        let config = &self.engine.config;
        let flushed = match connection.http.respond(response, route, stream, self.buffers, config) {
            Responded::Encoded if self.buffers.output.len() < OUTPUT_BYTES => return Go::On(connection),
            Responded::Encoded => self.flush(&mut connection),
            Responded::Large(content) => {
                connection.http.flush_all(&content, &connection.transport, self.buffers, config)
            }
            Responded::Upgrade(handler) => return Go::Away(self.detach(connection, handler)),
        };
        self.go(connection, flushed)
    }

    /// Goes on once everything is written.
    fn go(&mut self, connection: Box<Connection>, flushed: io::Result<Flushed>) -> Go {
        match flushed {
            Ok(Flushed::All) => Go::On(connection),
            Ok(Flushed::Some) => Go::Away(self.wait_rarely(connection)),
            Err(error) => Go::Away(self.give_up(connection, error)),
        }
    }

    /// Sends the next piece of a body that comes from a reader.
    #[inline(never)]
    fn pump(&mut self, mut connection: Box<Connection>) -> Go {
        let Some(route) = connection.http.sending_route() else { return Go::On(connection) };
        let receives = connection.http.sends_what_it_receives();
        if self.lead.is_some() && (receives || self.engine.learned.dispatches(route)) {
            return self.resume_elsewhere(connection);
        }
        if receives && !connection.is_held() {
            if let Err(error) = connection.hold(STREAM_TICK) {
                return Go::Away(self.give_up(connection, error));
            }
        }
        // The code that runs has the connection's HTTP in hand, and only that.
        let mut http = std::mem::replace(&mut connection.http, Http::new());
        let Self { engine, buffers, lead, .. } = self;
        let ran = run(lead, engine, connection.home(), route, || http.pump(buffers, &engine.config));
        connection.http = http;
        self.take_note(&mut connection, ran.conduct);
        if ran.result.is_none() {
            connection.http.break_off();
        }
        let flushed = self.flush(&mut connection);
        self.go(connection, flushed)
    }

    fn resume_elsewhere(&mut self, connection: Box<Connection>) -> Go {
        let connection = match self.let_go(connection) {
            Ok(connection) => connection,
            Err(outcome) => return Go::Away(outcome),
        };
        match self.engine.pool.submit(Task::Resume(connection)) {
            Ok(()) => Go::Away(Outcome::Away),
            Err(refused) => {
                let Task::Resume(connection) = refused.task else {
                    unreachable!("the pool gives back what it was given")
                };
                // Its response has begun: there is no status left to refuse it with.
                self.engine.counters.overloaded.increment();
                Go::Away(Outcome::Closed(connection))
            }
        }
    }

    /// Hands a connection over to what comes after a `101`.
    fn detach(&mut self, mut connection: Box<Connection>, handler: UpgradeHandler) -> Outcome {
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
        let upgraded = Upgraded::new(socket, self.buffers.input.take_rest());
        if self.engine.pool.submit(Task::Detached(Box::new(move || handler(upgraded)))).is_ok() {
            self.engine.counters.upgraded.increment();
        } else {
            self.engine.counters.overloaded.increment();
        }
        // This handle goes; the socket lives on in the other one.
        Outcome::Closed(connection)
    }

    #[inline(always)]
    fn flush(&mut self, connection: &mut Connection) -> io::Result<Flushed> {
        if connection.http.is_flushed(self.buffers) {
            return Ok(Flushed::All);
        }
        connection.http.flush(&connection.transport, self.buffers, &self.engine.config)
    }

    #[inline]
    fn read(&mut self, connection: &mut Connection) -> io::Result<Filled> {
        let input = self.buffers.input.spare();
        let (room, result) = match connection.http.content_spare() {
            None => (input.len(), connection.transport.read(input)),
            Some(content) => {
                // What follows the content in the same read goes to the input.
                let room = content.len();
                let parts = &mut [IoSliceMut::new(content), IoSliceMut::new(input)];
                let result = connection.transport.read_vectored(parts);
                return self.filled_content(connection, room, result);
            }
        };
        match result {
            Ok(0) => Ok(Filled::End),
            Ok(read) => {
                self.buffers.input.filled(read);
                Ok(Filled::Some { may_have_more: read == room })
            }
            Err(error) if is_would_block(&error) => Ok(Filled::Nothing),
            Err(error) => Err(error),
        }
    }

    fn filled_content(
        &mut self,
        connection: &mut Connection,
        room: usize,
        result: io::Result<usize>,
    ) -> io::Result<Filled> {
        match result {
            Ok(0) => Ok(Filled::End),
            Ok(read) => {
                connection.http.content_filled(read.min(room));
                let behind = read.saturating_sub(room);
                self.buffers.input.filled(behind);
                Ok(Filled::Some { may_have_more: self.buffers.input.is_full() })
            }
            Err(error) if is_would_block(&error) => Ok(Filled::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Whether this thread keeps a connection that waits for its next request: it has blocked its
    /// thread again and again, and nobody else waits for one.
    fn keeps(&mut self, connection: &mut Connection) -> bool {
        let engine = &self.engine;
        if self.lead.is_some()
            || connection.blocked_row < LEASE_ROW
            || !self.buffers.input.is_empty()
            || !connection.http.is_reading_request()
            || engine.pool.is_anyone_waiting()
            || engine.is_draining()
        {
            return false;
        }
        if !connection.is_leased {
            if connection.hold(LEASE_QUIET).is_err() {
                return false;
            }
            connection.is_leased = true;
            engine.counters.leases.increment();
            engine.counters.leased.increment();
        }
        true
    }

    fn end_lease(&self, connection: &mut Connection) {
        if std::mem::take(&mut connection.is_leased) {
            self.engine.counters.leased.decrement();
        }
    }

    /// Leaves a connection to its peer.
    #[inline(always)]
    fn wait(&mut self, mut connection: Box<Connection>) -> Outcome {
        self.end_lease(&mut connection);
        let has_input = !self.buffers.input.is_empty();
        if self.engine.is_draining() && connection.http.is_idle() && !has_input {
            return Outcome::Closed(connection);
        }
        let now = self.buffers.clock.now();
        if let Some(deadline) = connection.http.deadline(now, has_input, &self.engine.config) {
            connection.deadline = deadline;
        }
        self.unload(&mut connection);
        match connection.watch(connection.http.is_writing()) {
            Ok(()) => Outcome::Parked(connection),
            Err(error) => self.give_up(connection, error),
        }
    }

    #[inline(never)]
    fn wait_rarely(&mut self, connection: Box<Connection>) -> Outcome {
        self.wait(connection)
    }

    /// Lets the loop's other connections have their turn.
    fn yielded(&mut self, mut connection: Box<Connection>) -> Outcome {
        if let Err(error) = self.flush(&mut connection).and_then(|_| connection.watch(false)) {
            return self.give_up(connection, error);
        }
        self.unload(&mut connection);
        Outcome::Yielded(connection)
    }

    fn give_up(&mut self, mut connection: Box<Connection>, error: io::Error) -> Outcome {
        tracing::debug!(%error, peer = %connection.peer, "a connection broke");
        self.end_lease(&mut connection);
        self.error = Some(error);
        Outcome::Closed(connection)
    }

    /// Takes up what a connection had left over.
    #[inline(always)]
    fn load(&mut self, mut connection: Box<Connection>) -> Box<Connection> {
        if connection.leftover.is_empty() {
            self.buffers.input.clear();
        } else {
            self.buffers.input.load(&connection.leftover);
            connection.leftover = Vec::new();
        }
        connection
    }

    /// Leaves with a connection what was read and not used.
    #[inline]
    fn unload(&mut self, connection: &mut Connection) {
        if !self.buffers.input.is_empty() {
            connection.leftover = self.buffers.input.take_rest();
        }
    }

    /// Puts a connection where it waits from now on.
    #[inline]
    fn put(&mut self, outcome: Outcome) {
        self.buffers.output.clear();
        match (outcome, &mut self.lead) {
            (Outcome::Away, _) => {}
            (Outcome::Parked(connection), Some(event_loop)) => {
                event_loop.park(connection, self.buffers.clock.now());
            }
            (Outcome::Yielded(connection), Some(event_loop)) => {
                event_loop.requeue(connection, self.buffers.clock.now());
            }
            (Outcome::Parked(connection) | Outcome::Yielded(connection), None) => {
                let home = Arc::clone(connection.home());
                home.send(Message::Home(connection));
            }
            (Outcome::Closed(mut connection), lead) => {
                if let Some(CloseReason::Refused(_)) = connection.http.close_reason() {
                    self.engine.counters.refused.increment();
                }
                if std::mem::take(&mut connection.is_leased) {
                    self.engine.counters.leased.decrement();
                }
                let home = Arc::clone(connection.home());
                let token = connection.token();
                drop(connection);
                match lead {
                    Some(event_loop) => event_loop.release(token),
                    None => home.send(Message::Gone(token)),
                }
            }
        }
    }
}

impl fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("leads", &self.lead.is_some()).finish_non_exhaustive()
    }
}
