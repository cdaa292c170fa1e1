//! One request, from its head to its response.

use std::io;
use std::ops::ControlFlow::{Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use filoplume_http1::{CloseReason, RequestHead};

use super::run::{CallOutcome, Measure, run};
use super::{Flow, Outcome, Worker};
use crate::budget::permits::{Permit, Permits};
use crate::buffers::OUTPUT_BYTES;
use crate::engine::cancel::watch_client;
use crate::engine::connection::Connection;
use crate::engine::connection::unsent::Flushed;
use crate::engine::exchange::ReplyTo;
use crate::engine::seat::Seat;
use crate::execution::key::{ExecutionKey, Route};
use crate::execution::routes::RouteSource;
use crate::protocol::http::{ContentPlan, Http, Responded};
use crate::service::body::StreamReturn;
use crate::service::early_hints::InterimWriter;
use crate::service::latch::Latch;
use crate::service::request::Request;
use crate::service::response::{Response, ResponseBody};
use crate::service::{Content, Plan, Service};

/// What connects a running handler with its client.
pub(super) struct Told {
    cancel: Option<Arc<Latch>>,
    interim: Option<Arc<InterimWriter>>,
    pub(super) is_timed: bool,
}

impl Worker<'_> {
    /// Plans a request, and calls its handler if it has no content.
    #[inline(always)]
    pub(super) fn request(&mut self, mut connection: Box<Connection>, head: RequestHead) -> Flow {
        self.count_request();
        let mut lent = None;
        let request = lent.insert(Request::new(head, connection.peer));
        #[cfg(feature = "tls")]
        request.set_tls(connection.transport.tls_info().map(Arc::clone));
        if connection.is_proxy {
            connection.act_for(request);
        }
        let has_content = request.head().framing().has_content();
        let route = match connection.guest.as_http().and_then(|http| http.site()) {
            Some(site) if site.plans => {
                let plan = self.plan(&*site.service, request);
                let route = plan.route_of(request);
                if has_content || matches!(plan.content, Content::Refused(_)) {
                    return self.begin_content(connection, lent, route, plan);
                }
                route
            }
            _ => {
                let route = Route::learned(ExecutionKey::of_path(request.path()));
                if has_content {
                    return self.begin_content(connection, lent, route, Plan::default());
                }
                route
            }
        };
        self.call::<false>(connection, &mut lent, route, None)
    }

    #[inline(always)]
    pub(super) fn count_request(&mut self) {
        match &mut self.lead {
            Some(event_loop) => event_loop.requests += 1,
            None => self.engine.counters.requests.increment(),
        }
    }

    /// Refuses a request, or begins to receive its content, as planned.
    #[inline(never)]
    fn begin_content(
        &mut self,
        mut connection: Box<Connection>,
        request: Option<Request>,
        route: Route,
        plan: Plan,
    ) -> Flow {
        let Some(mut request) = request else { return Continue(connection) };
        if let Content::Refused(response) = plan.content {
            return self.refuse(connection, &request, response, route);
        }
        let Connection { guest, account, .. } = &mut *connection;
        if plan.holds_memory {
            request.set_account(account);
        }
        if let Some(http) = guest.as_http_mut() {
            let config = &self.engine.config;
            let is_crowded = self.engine.streams.are_crowded();
            let content_plan = ContentPlan::of(&plan, config, is_crowded, account);
            #[cfg(feature = "spool")]
            let content_plan = content_plan.on_disk(&self.engine.spool.space, account.client());
            http.begin_content(request, route, &content_plan, self.buffers, config);
        }
        Continue(connection)
    }

    pub(super) fn plan(&self, service: &dyn Service, request: &mut Request) -> Plan {
        let mut plan =
            catch_unwind(AssertUnwindSafe(|| service.plan(request))).unwrap_or_else(|_| {
                self.engine.note_panic("the plan of a request panicked");
                Plan::refuse(Response::new(500))
            });
        request.set_route(plan.route);
        if plan.is_cancellable {
            request.make_cancellable();
        }
        if plan.sends_hints {
            request.allow_hints();
        }
        if plan.is_timed {
            request.make_timed();
        }
        if plan.permits.is_some() {
            request.set_permits(plan.permits.take());
        }
        plan
    }

    /// Responds without reading the content.
    #[inline(never)]
    fn refuse(
        &mut self,
        mut connection: Box<Connection>,
        request: &Request,
        mut response: Box<Response>,
        route: Route,
    ) -> Flow {
        if let Some(http) = connection.guest.as_http_mut() {
            http.leave_unread(request, self.buffers, &self.engine.config);
        }
        self.respond_rare(ReplyTo { connection, route, stream: None }, &mut response)
    }

    /// Calls the program for a request, on the pool or on this thread. The request is passed by
    /// reference and taken where it is used: it is so large that each move is measurable. For a
    /// plain request the rest of the path has its own copy; all `IS_RARE` calls share one copy.
    #[inline(always)]
    fn call<const IS_RARE: bool>(
        &mut self,
        mut connection: Box<Connection>,
        request: &mut Option<Request>,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Flow {
        if let Some(latch) = request.as_ref().and_then(Request::cancel_latch) {
            connection = self.watch_client(connection, latch)?;
        }
        let is_streamed = stream.is_some();
        let reply_to = ReplyTo { connection, route, stream };
        if reply_to.connection.guest.as_http().is_some_and(|http| http.site().is_none()) {
            return self.enqueue(take(request), reply_to);
        }
        let runs_here = match &self.lead {
            Some(event_loop) => {
                let called = request.as_ref().map(|request| request as _);
                !is_streamed && self.engine.routes.runs_here(route, called, || event_loop.others())
            }
            None => self.has_seat_for(route, &reply_to.connection),
        };
        if !runs_here {
            return self.dispatch(take(request), reply_to);
        }
        let permits = request.as_ref().and_then(Request::permits);
        if permits.is_some_and(|permits| !self.takes_permit(permits, &reply_to)) {
            return self.dispatch(take(request), reply_to);
        }
        if IS_RARE {
            self.call_here_rare(request, reply_to)
        } else {
            self.call_here(request, reply_to)
        }
    }

    /// Tells a handler when its client has gone, from now until it returns.
    #[cold]
    #[inline(never)]
    fn watch_client(&mut self, mut connection: Box<Connection>, latch: &Arc<Latch>) -> Flow {
        let watched = connection.watch_end();
        let connection = self.check(connection, watched)?;
        let (token, has_end) = (connection.token(), connection.has_end);
        match &mut self.lead {
            Some(event_loop) if !has_end => event_loop.watch_client(token, Arc::clone(latch)),
            _ => watch_client(connection.loop_handle(), token, has_end, latch),
        }
        Continue(connection)
    }

    /// Prepares what few handlers use beside their request. For most requests, a single test finds
    /// that none of it is used.
    #[cold]
    #[inline(never)]
    fn begin_rare(&mut self, connection: &mut Connection, request: &Request) -> Option<Box<Told>> {
        let told = Told {
            cancel: request.cancel_latch().cloned(),
            interim: request.interim_writer().cloned(),
            is_timed: request.is_timed(),
        };
        if let Some(interim) = &told.interim {
            self.open_interim(connection, interim);
        }
        let is_needed = told.cancel.is_some() || told.interim.is_some() || told.is_timed;
        is_needed.then(|| Box::new(told))
    }

    /// Called when the handler has returned: it can no longer send interim responses, and is not
    /// told any more when its client has gone.
    #[cold]
    #[inline(never)]
    fn end_rare(&mut self, token: usize, told: Told) {
        if let Some(interim) = told.interim {
            interim.close();
        }
        let Some(latch) = told.cancel else { return };
        latch.seal();
        // If this thread leads no loop, the connection's loop does so when the connection is back.
        if let Some(event_loop) = &mut self.lead {
            event_loop.unwatch_client(token);
        }
    }

    #[inline(never)]
    pub(super) fn call_cold(
        &mut self,
        connection: Box<Connection>,
        request: Request,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Flow {
        self.call::<true>(connection, &mut Some(request), route, stream)
    }

    /// Returns whether this thread runs a call of the route itself. A thread that leads no loop
    /// always does.
    #[inline(always)]
    pub(super) fn runs_here(&self, route: Route, called: Option<&dyn RouteSource>) -> bool {
        let Some(event_loop) = &self.lead else { return true };
        self.engine.routes.runs_here(route, called, || event_loop.others())
    }

    /// Returns whether this pool thread may continue with a request of this route. Waiting requests
    /// come first: otherwise clients that keep their connections open would keep their threads as
    /// well.
    #[inline(never)]
    fn has_seat_for(&mut self, route: Route, connection: &Connection) -> bool {
        let client = connection.account.client();
        match &mut self.seat {
            Some(_) if self.engine.seats.would_overtake(route.key) => false,
            Some(seat) => seat.change(route, client),
            None => {
                self.seat = Some(Seat::force(&self.engine, route.key, client));
                true
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn takes_permit(&mut self, permits: &Permits, reply_to: &ReplyTo) -> bool {
        self.permit = reply_to.try_take(permits);
        self.permit.is_some()
    }

    #[cold]
    #[inline(never)]
    fn give_permit_back(&mut self) {
        self.permit = None;
    }

    #[inline(never)]
    fn call_here_rare(&mut self, request: &mut Option<Request>, mut reply_to: ReplyTo) -> Flow {
        if let (true, Some(streamed)) = (reply_to.stream.is_some(), request.as_mut()) {
            match self.open_stream(streamed, &mut reply_to.connection) {
                Ok(true) => {}
                Ok(false) => return self.refuse_open(take(request), reply_to),
                Err(error) => return Break(self.give_up(reply_to.connection, error)),
            }
        }
        self.call_here(request, reply_to)
    }

    #[inline(always)]
    fn call_here(&mut self, request: &mut Option<Request>, mut reply_to: ReplyTo) -> Flow {
        let ReplyTo { connection, route, .. } = &mut reply_to;
        let route = *route;
        if self.lead.is_none() {
            if let Err(error) = self.begin_on_pool(connection, request.as_ref(), route) {
                self.give_permit_back();
                return Break(self.give_up(reply_to.connection, error));
            }
        }
        let told = match request {
            Some(request) if request.has_rare() => self.begin_rare(connection, request),
            _ => None,
        };
        // Filled in place and passed by reference: a response is so large that each move is
        // measurable.
        let mut response = None;
        let measures = connection.guest.as_http().is_some_and(Http::measures);
        let measure = match request {
            Some(request) if measures => self.how_to_measure(connection, request, told.as_deref()),
            _ => Measure::Never,
        };
        if let Some(site) = connection.guest.as_http().and_then(|http| http.site()) {
            let Self { engine, lead, clocks, .. } = self;
            let (_, call_outcome) =
                run(lead, clocks, engine, &connection.loop_handle, route, measure, || {
                    if let Some(request) = request.take() {
                        response = Some(site.service.call(request));
                    }
                });
            if call_outcome != CallOutcome::Inline {
                if measure != Measure::Never {
                    self.called(connection, route, &mut response);
                }
                self.record_call(connection, call_outcome);
            }
        }
        if self.permit.is_some() {
            self.give_permit_back();
        }
        if let Some(told) = told {
            self.end_rare(reply_to.connection.token(), *told);
        }
        let response = response.get_or_insert_with(|| Response::new(500));
        self.respond(reply_to, response)
    }

    /// Lets the handler send interim responses until it returns, unless earlier responses still
    /// wait for the client.
    #[cold]
    #[inline(never)]
    fn open_interim(&mut self, connection: &mut Connection, interim: &InterimWriter) {
        // An error occurs again when the response is written.
        if !matches!(self.flush_output(connection), Ok(Flushed::All)) {
            return;
        }
        let held = self.hold_descriptor(connection);
        // Hints are of use only to a client that has to wait, so they may be left out.
        let Some(held) = held else { return };
        connection.transport.share();
        if let Ok(transport) = connection.transport.second_handle() {
            interim.open(transport, held);
        }
    }

    /// Prepares a call on a pool thread. An error means that the client has gone: the other
    /// requests of its pipeline must not occupy the thread.
    #[inline(never)]
    fn begin_on_pool(
        &mut self,
        connection: &mut Connection,
        request: Option<&Request>,
        route: Route,
    ) -> io::Result<()> {
        if self.engine.routes.may_block(route) {
            // Earlier responses must not wait for a handler that blocks.
            connection.flush_with(&Bytes::new(), self.buffers, &self.engine.config)?;
        }
        if let Some(request) = request.filter(|_| self.engine.routes.is_new(route.key)) {
            self.engine.routes.name(route.key, request);
        }
        Ok(())
    }

    /// Records whether the connection's request blocked, for its lease, and refreshes the clock.
    #[inline(always)]
    pub(super) fn record_call(&mut self, connection: &mut Connection, call_outcome: CallOutcome) {
        match call_outcome {
            CallOutcome::Inline | CallOutcome::InlineMeasured => return,
            CallOutcome::Quick => connection.note_for_lease(false),
            CallOutcome::Blocked => {
                connection.note_for_lease(true);
                if let Some(event_loop) = &mut self.lead {
                    // Other threads have led the loop meanwhile, and the connection was taken all
                    // the time.
                    event_loop.apply_missed(connection);
                }
            }
        }
        self.buffers.clock.refresh();
    }

    /// Answers a request that was dispatched, then continues with its connection.
    pub(crate) fn answer(
        &mut self,
        request: Request,
        reply_to: ReplyTo,
        permit: Permit,
    ) -> Outcome {
        self.permit = Some(permit);
        let flow = self.call_here_rare(&mut Some(request), reply_to);
        self.go_on(flow)
    }

    /// Sends the program's response, then continues with the connection.
    pub(crate) fn finish(&mut self, mut response: Response, reply_to: ReplyTo) -> Outcome {
        let flow = self.respond_rare(reply_to, &mut response);
        self.go_on(flow)
    }

    /// Continues with a connection whose response has begun.
    pub(super) fn go_on(&mut self, flow: Flow) -> Outcome {
        let mut connection = match flow {
            Continue(connection) => connection,
            Break(outcome) => return outcome,
        };
        // The handler has read its content, so reads need not block any more.
        let sends_what_it_receives =
            connection.guest.as_http().is_some_and(|http| http.sends_what_it_receives());
        let is_read = !connection.lease.is_on() && !sends_what_it_receives;
        let released = if is_read { connection.release_hold() } else { Ok(()) };
        let flow = self.check(connection, released);
        self.serve_on(flow)
    }

    /// As [`respond`](Self::respond), for the rare paths.
    pub(super) fn respond_rare(&mut self, reply_to: ReplyTo, response: &mut Response) -> Flow {
        if !response.body().is_here() {
            return self.respond_later(reply_to, response);
        }
        self.respond_any_rare(reply_to, response)
    }

    /// As `respond_any`, for the rare paths: one copy for all of them.
    #[inline(never)]
    pub(super) fn respond_any_rare(&mut self, reply_to: ReplyTo, response: &mut Response) -> Flow {
        self.respond_any(reply_to, response)
    }

    /// Encodes a response and begins to send it.
    #[inline(always)]
    fn respond(&mut self, reply_to: ReplyTo, response: &mut Response) -> Flow {
        if !response.body().is_here() {
            return self.respond_later(reply_to, response);
        }
        self.respond_any(reply_to, response)
    }

    /// Begins a response whose body is still to come.
    #[cold]
    #[inline(never)]
    fn respond_later(&mut self, reply_to: ReplyTo, response: &mut Response) -> Flow {
        if let ResponseBody::Pushed(_) = response.body() {
            return self.respond_on_thread(reply_to, response);
        }
        self.respond_from_reader(reply_to, response)
    }

    #[inline(always)]
    fn respond_any(&mut self, reply_to: ReplyTo, response: &mut Response) -> Flow {
        let ReplyTo { mut connection, route, stream } = reply_to;
        // While the content is being read, new input belongs to the content.
        let is_being_read = stream.as_ref().is_some_and(|returns| !returns.is_left());
        let closes = self.engine.is_stopping()
            && !self.keeps_for_successor(&connection)
            && (is_being_read || !self.has_more_requests(&mut connection));
        let Some(http) = connection.guest.as_http_mut() else {
            return Break(Outcome::Closed(connection));
        };
        if closes {
            http.close_after_response(CloseReason::Shutdown);
        }
        let config = &self.engine.config;
        match http.respond(response, route, stream, self.buffers, config) {
            Responded::Encoded if self.buffers.output.len() < OUTPUT_BYTES => Continue(connection),
            Responded::Encoded => self.flush(connection),
            Responded::Begun => {
                connection.transport.set_resets(http.is_cut_short());
                if http.is_pushing() {
                    let event_loop = Arc::downgrade(&connection.loop_handle);
                    http.attach(event_loop, connection.token);
                    http.count_pushed(self.engine.streams.open_pushed());
                }
                Continue(connection)
            }
            Responded::NeedsThread(stream) => {
                self.respond_on_thread(ReplyTo { connection, route, stream }, response)
            }
            Responded::Large(content) => {
                let flushed = connection.flush_with(&content, self.buffers, config);
                self.flushed(connection, flushed)
            }
        }
    }
}

/// Takes a request that was passed by reference.
#[inline(always)]
fn take(request: &mut Option<Request>) -> Request {
    request.take().expect("a request is taken once")
}
