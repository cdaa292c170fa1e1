//! Requests that are refused. The service may have a response of its own for them, and its code may
//! block like a handler's.

use std::fmt;
use std::io;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::time::Instant;

use super::run::{CallOutcome, run_rare};
use super::{Flow, Outcome, Worker};
use crate::budget::refusal::Refusal;
use crate::budget::seats::Full;
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::event_loop::LoopHandle;
use crate::engine::exchange::{AnswerTo, Asker, Call, ReplyTo};
use crate::engine::work::Work;
use crate::execution::key::{ExecutionKey, Route};
use crate::protocol::http::{Phase, Streaming};
use crate::service::body::{StreamLeft, Streamed};
use crate::service::incomplete::{GivenId, Incomplete};
use crate::service::refused::{RETRY_AFTER, Refused};
use crate::service::request::Request;
use crate::service::response::Response;

/// The reason that the log and development mode give when one client occupies too many threads.
pub(super) const CLIENT_THREADS: &str = "an eighth of `ServerConfig::threads_max` waits for this \
                                         client, which is the limit per client";

/// As [`CLIENT_THREADS`], for descriptors.
const DESCRIPTORS: &str = "the descriptors that are not reserved are used, or an eighth of them by \
                           this client; the limit of open files of the process decides";

impl Worker<'_> {
    /// Refuses a request for which no thread will be free in time, or that must wait for one and
    /// has no memory for that. Logs which routes occupy the threads.
    #[cold]
    pub(super) fn refuse_full(&mut self, call: Call, full: &Full) -> Flow {
        let peer = match &call.answer_to {
            AnswerTo::Connection(reply_to) => reply_to.connection.peer,
            AnswerTo::Guest(asker) => asker.peer,
        };
        let engine = Arc::clone(&self.engine);
        let memory = full.lacks_memory.then(|| call.memory_usage());
        let held = Held { engine: &engine, route: call.route(), full, memory };
        let refusal = full.refusal();
        engine.refusals.note_because(refusal, peer, || held.to_string());
        let seconds = full.wait.map_or(1, |wait| wait.as_secs().saturating_add(1));
        let refused = Refused::new(refusal, seconds, &held);
        let (request, answer_to, _permit) = call.into_parts();
        match answer_to {
            AnswerTo::Connection(reply_to) => self.overloaded(request, reply_to, &refused),
            AnswerTo::Guest(Asker { loop_handle, site, slot, .. }) => {
                let mut own = None;
                self.run_apart(&loop_handle, &mut || own = refused.ask(&*site.service, &request));
                slot.fill(own.unwrap_or_else(|| refused.empty()));
                Break(Outcome::Moved)
            }
        }
    }

    /// Refuses a request that waited, then continues with its connection.
    #[cold]
    pub(crate) fn refuse_waiting(&mut self, call: Call) -> Outcome {
        let work = Work::Call(Box::new(call));
        let full = self.engine.seats.why(work.key(), &work);
        let Work::Call(call) = work else { return Outcome::Moved };
        let flow = self.refuse_full(*call, &full);
        self.go_on(flow)
    }

    /// Drops a request whose handler has not begun, because its connection has failed: nobody can
    /// receive the response.
    #[cold]
    pub(super) fn abandon(
        &mut self,
        request: Request,
        reply_to: ReplyTo,
        failure: io::Error,
    ) -> Outcome {
        self.engine.counters.abandoned.increment();
        // A content that is still arriving is given back to the connection.
        drop(request);
        self.give_up(reply_to.connection, failure)
    }

    fn overloaded(
        &mut self,
        request: Request,
        mut reply_to: ReplyTo,
        refused: &Refused<'_>,
    ) -> Flow {
        let own = self.own_response(refused, &mut reply_to.connection, &request);
        let mut response = own.unwrap_or_else(|| refused.empty());
        self.refused(&mut reply_to.connection, &mut response, &request, refused);
        // A content that is still arriving is given back to the connection.
        drop(request);
        self.answer_overloaded(reply_to, &mut response)
    }

    /// Refuses a request whose content would need one more thread than its client may occupy.
    #[cold]
    pub(super) fn refuse_stream(
        &mut self,
        mut connection: Box<Connection>,
        streaming: Streaming,
    ) -> Flow {
        let because = || CLIENT_THREADS.to_owned();
        self.engine.refusals.note_because(Refusal::ClientThreads, connection.peer, because);
        let Streaming { request, route, content } = streaming;
        // Only the client knows when its other contents will be complete, so the time is a
        // constant.
        let refused = Refused::new(Refusal::ClientThreads, RETRY_AFTER, &CLIENT_THREADS);
        let own = self.own_response(&refused, &mut connection, &request);
        let mut response = own.unwrap_or_else(|| refused.empty());
        self.refused(&mut connection, &mut response, &request, &refused);
        let Streamed { decoder, owes_continue, .. } = content;
        if let Some(http) = connection.guest.as_http_mut() {
            let left = StreamLeft { decoder, unread: Vec::new(), is_stuck: owes_continue };
            http.end_stream(Some(left), self.buffers, &self.engine.config);
        }
        self.unload(&mut connection);
        let reply_to = ReplyTo { connection, route, stream: None };
        self.answer_overloaded(reply_to, &mut response)
    }

    /// Refuses a request that has its thread, but whose content would need one more descriptor than
    /// there are.
    #[cold]
    pub(super) fn refuse_open(&mut self, request: Request, mut reply_to: ReplyTo) -> Flow {
        let because = || DESCRIPTORS.to_owned();
        let connection = &mut reply_to.connection;
        self.engine.refusals.note_because(Refusal::Descriptors, connection.peer, because);
        let refused = Refused::new(Refusal::Descriptors, RETRY_AFTER, &DESCRIPTORS);
        let own = self.own_response(&refused, connection, &request);
        let mut response = own.unwrap_or_else(|| refused.empty());
        self.refused(&mut reply_to.connection, &mut response, &request, &refused);
        // Gives the content back to the connection, and the permit to the next request.
        drop(request);
        self.permit = None;
        let released = reply_to.connection.release_hold();
        let connection = self.check(reply_to.connection, released)?;
        self.respond_rare(ReplyTo { connection, ..reply_to }, &mut response)
    }

    /// Refuses a request for whose content there is no room. Its connection ends.
    #[cold]
    pub(super) fn refuse_content(
        &mut self,
        mut connection: Box<Connection>,
        request: &Request,
        refusal: Refusal,
    ) -> Flow {
        let engine = Arc::clone(&self.engine);
        let because = match refusal {
            #[cfg(feature = "spool")]
            Refusal::Spool => {
                let client = connection.account.client();
                engine.spool.space.usage(request.content_length(), client).to_string()
            }
            _ => engine.usage(refusal, &connection),
        };
        engine.refusals.note_because(refusal, connection.peer, || because.clone());
        let seconds = engine.retry_after(refusal, request.content_length(), &connection);
        let refused = Refused::new(refusal, seconds, &because);
        let mut own = self.own_response(&refused, &mut connection, request);
        match &mut own {
            Some(response) => self.refused(&mut connection, response, request, &refused),
            None => self.refused(&mut connection, &mut refused.empty(), request, &refused),
        }
        if let Some(http) = connection.guest.as_http_mut() {
            http.refuse_for(seconds, own.as_ref(), self.buffers);
        }
        Continue(connection)
    }

    /// Passes the response to a refused request to the service before it is sent.
    fn refused(
        &mut self,
        connection: &mut Connection,
        response: &mut Response,
        request: &Request,
        refused: &Refused<'_>,
    ) {
        if let Some(http) = connection.guest.as_http_mut().filter(|http| http.measures()) {
            // A request that has not waited is not measured yet.
            http.measure(Phase::Turn, Instant::now());
        }
        self.answered(connection, response, request.route(), Some(refused.reason()));
    }

    /// Returns the service's own response to a refused request of a connection.
    fn own_response(
        &mut self,
        refused: &Refused<'_>,
        connection: &mut Connection,
        request: &Request,
    ) -> Option<Response> {
        let http = connection.guest.as_http()?;
        let site = http.shared_site()?;
        let now = Instant::now();
        let timing = http.measures().then(|| http.timing_until_call(now, now));
        let refused = &refused.timed(timing);
        let mut own = None;
        self.run_about(connection, &mut || own = refused.ask(&*site.service, request));
        own
    }

    /// Answers a request that was refused before it was complete, after the service was told of it.
    #[cold]
    pub(super) fn answer_incomplete(&mut self, connection: &mut Connection, refusal: Refusal) {
        let given = GivenId::default();
        self.tell_of_incomplete(connection, refusal, &given);
        connection.guest.write_refusal(refusal, given.header(), self.buffers);
    }

    /// Tells the service of a request that was refused before it was complete.
    fn tell_of_incomplete(
        &mut self,
        connection: &mut Connection,
        refusal: Refusal,
        given: &GivenId,
    ) {
        let peer = connection.peer;
        let Some((arrived, site)) = connection.guest.take_incomplete() else { return };
        let now = Instant::now();
        let timing = connection
            .guest
            .as_http()
            .filter(|http| http.measures())
            .map(|http| http.timing_until_call(now, now));
        let incomplete = Incomplete::new(refusal, peer, &arrived, timing, given);
        self.run_about(connection, &mut || incomplete.tell(&*site.service));
    }

    /// Runs code of a service about a refused request of a connection.
    fn run_about(&mut self, connection: &mut Connection, code: &mut dyn FnMut()) {
        let loop_handle = Arc::clone(connection.loop_handle());
        if self.run_apart(&loop_handle, code) != CallOutcome::Blocked {
            return;
        }
        if let Some(event_loop) = &mut self.lead {
            // Other threads have led the loop meanwhile.
            event_loop.apply_missed(connection);
        }
    }

    /// Runs code of a service about a refused request, with the loop in its slot meanwhile.
    fn run_apart(&mut self, loop_handle: &LoopHandle, code: &mut dyn FnMut()) -> CallOutcome {
        // All refusals are one route of their own: what they cost says nothing about the handlers.
        let route = Route::learned(ExecutionKey::of_refusals());
        let Self { engine, lead, clocks, .. } = self;
        let (_, call_outcome) = run_rare(lead, clocks, engine, loop_handle, route, code);
        if call_outcome == CallOutcome::Blocked {
            self.buffers.clock.refresh();
        }
        call_outcome
    }

    pub(super) fn answer_overloaded(&mut self, reply_to: ReplyTo, response: &mut Response) -> Flow {
        let mut connection = self.load(reply_to.connection);
        // A handler was going to read from the connection, so its socket may be blocking. Here that
        // would block a loop.
        let released = connection.release_hold();
        let connection = self.check(connection, released)?;
        self.respond_rare(ReplyTo { connection, ..reply_to }, response)
    }
}

impl Engine {
    /// Returns what uses the memory or the descriptors that a content of this connection needs.
    pub(super) fn usage(&self, refusal: Refusal, connection: &Connection) -> String {
        match refusal {
            Refusal::Descriptors => DESCRIPTORS.to_owned(),
            _ => connection.account.usage(),
        }
    }

    /// Returns after how many seconds there may be space for a content of this length.
    fn retry_after(&self, refusal: Refusal, length: Option<u64>, connection: &Connection) -> u64 {
        match refusal {
            #[cfg(feature = "spool")]
            Refusal::Spool => self.spool.space.retry_after(length, connection.account.client()),
            // While memory is short, silent and slow peers lose their memory within a second.
            _ => {
                let _ = (length, connection);
                RETRY_AFTER
            }
        }
    }
}

/// Displays how many of the threads and permits that a route may use are taken, and which routes
/// hold them.
struct Held<'a> {
    engine: &'a Engine,
    route: Route,
    full: &'a Full,
    /// What uses the memory, if the request lacks memory.
    memory: Option<String>,
}

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.engine;
        let name_of = |key| {
            let name = engine.routes.name_of(key, &|number| engine.route_name(number));
            name.unwrap_or_else(|| "a route".to_owned())
        };
        write!(f, "{}: ", name_of(self.route.key))?;
        if let Some(memory) = &self.memory {
            write!(f, "{memory}; ")?;
        }
        write!(f, "{}", self.full)?;
        for (index, (key, seats)) in engine.seats.holders().into_iter().enumerate() {
            let separator = if index == 0 { "; most threads are held by " } else { ", " };
            write!(f, "{separator}{} ({seats})", name_of(key))?;
        }
        let Some((permits, _)) = &self.full.permits else { return Ok(()) };
        for (index, (key, held, since)) in engine.seats.holders_of(permits).enumerate() {
            let separator = if index == 0 { "; most permits are held by " } else { ", " };
            let name = key.map_or_else(|| "others".to_owned(), name_of);
            let oldest = since.elapsed().as_millis();
            write!(f, "{separator}{name} ({held}, the oldest for {oldest} ms)")?;
        }
        Ok(())
    }
}
