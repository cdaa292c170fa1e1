//! One request, from its head to its response.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use filoplume_http1::{CloseReason, RequestHead};

use super::{Go, Outcome, Worker};
use crate::body::StreamReturn;
use crate::buffers::OUTPUT_BYTES;
use crate::connection::Connection;
use crate::engine::{Answerer, Engine};
use crate::event_loop::{EventLoop, LoopHandle};
use crate::execution::key::Route;
use crate::execution::policy::{Others, Place};
use crate::execution::probe::{CALLS_PER_CLOSE_LOOK, Clocks, Probe};
use crate::protocol::http::Responded;
use crate::request::Request;
use crate::response::Response;
use crate::service::{Content, Plan, Service, Site};
use crate::task::Call;

/// A call on the pool that takes longer has probably waited: for its connection, a lease may pay.
const BLOCKED_MIN: Duration = Duration::from_micros(50);

/// How long a handler's code took, as far as anyone looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conduct {
    /// It ran on the event loop and returned in time.
    Inline,
    /// It ran on a thread of the pool and did not block.
    Quick,
    /// It blocked its thread.
    Blocked,
}

/// Runs code of the handler's. A leader lays its loop into the slot meanwhile, from where it can
/// be taken. Calls are measured now and then. What the code has to say it leaves with its caller.
#[inline(always)]
pub(super) fn run(
    lead: &mut Option<Box<EventLoop>>,
    clocks: &mut Clocks,
    engine: &Engine,
    home: &LoopHandle,
    route: Route,
    code: impl FnOnce(),
) -> (thread::Result<()>, Conduct) {
    let (result, conduct) = if let Some(mut event_loop) = lead.take() {
        let is_due = event_loop.begin_call(route.key);
        let look = if is_due { Some(begin_look(&mut event_loop, clocks, route)) } else { None };
        let turn = home.slot.lend(event_loop);
        let result = catch_unwind(AssertUnwindSafe(code));
        let looked = look.map(|(probe, others)| (clocks.end(&probe), others));
        let conduct = match home.slot.take() {
            Some((mut event_loop, taken_turn)) if taken_turn == turn => {
                if let Some((took, others)) = looked {
                    let on_loop = event_loop.route_mut(route.key);
                    engine.count_move(engine.routes.looked_on_loop(route.key, on_loop, took, others));
                }
                *lead = Some(event_loop);
                Conduct::Inline
            }
            // The loop that is there is back from others: it was taken, and lent again by its new leader.
            Some((event_loop, _)) => {
                event_loop.handle().led_by(clocks.thread());
                *lead = Some(event_loop);
                Conduct::Blocked
            }
            None => Conduct::Blocked,
        };
        (result, conduct)
    } else {
        let is_due = clocks.is_due();
        let probe = clocks.begin_on_pool(is_due);
        let result = catch_unwind(AssertUnwindSafe(code));
        let took = clocks.end_on_pool(&probe);
        let is_back = if is_due {
            engine.crowd.add_busy(took.wall * CALLS_PER_CLOSE_LOOK);
            engine.routes.looked_on_pool(route.key, took, u64::from(CALLS_PER_CLOSE_LOOK))
        } else {
            engine.routes.ran_on_pool(route.key, took)
        };
        engine.count_move(is_back.then_some(Place::Loop));
        (result, if took.wall > BLOCKED_MIN { Conduct::Blocked } else { Conduct::Quick })
    };
    if result.is_err() {
        engine.counters.panics.increment();
        tracing::error!("a handler panicked");
    }
    (result, conduct)
}

/// Begins to measure a call that a loop is about to be lent for, and notes who else wants the loop.
#[cold]
fn begin_look(event_loop: &mut EventLoop, clocks: &Clocks, route: Route) -> (Probe, Others) {
    let look = event_loop.route_mut(route.key).look();
    (clocks.begin(look), event_loop.others())
}

/// Who answers the requests of a connection. `None` if the program does.
#[inline(always)]
fn site_of<'a>(engine: &'a Engine, connection: &'a Connection) -> Option<&'a Site> {
    match &engine.answerer {
        Answerer::Service(site) => Some(site),
        Answerer::Program(_) => None,
        Answerer::Tcp(_) => connection.site.as_deref(),
    }
}

impl Worker<'_> {
    /// Has a request planned, and answered if it has no content.
    #[inline(always)]
    pub(super) fn request(&mut self, mut connection: Box<Connection>, head: RequestHead) -> Go {
        match &mut self.lead {
            Some(event_loop) => event_loop.requests += 1,
            None => self.engine.counters.requests.increment(),
        }
        let mut request = Request::new(head, connection.peer);
        let plan = match site_of(&self.engine, &connection) {
            Some(site) if site.plans => self.plan(&*site.service, &mut request),
            _ => Plan::default(),
        };
        let route = plan.route_of(&request);
        let config = &self.engine.config;
        if let Content::Refused(response) = plan.content {
            return self.refuse(connection, &request, response, route);
        }
        if !request.head().framing().has_content() {
            return self.call(connection, request, route, None);
        }
        let content_bytes_max = plan.content_bytes_max.unwrap_or(config.content_bytes_max);
        let http = &mut connection.http;
        http.begin_content(request, route, &plan.content, content_bytes_max, self.buffers, config);
        Go::On(connection)
    }

    /// As [`request`](Self::request), out of the common way: there a head comes in registers.
    #[inline(never)]
    pub(super) fn request_rarely(&mut self, connection: Box<Connection>, head: RequestHead) -> Go {
        self.request(connection, head)
    }

    fn plan(&self, service: &dyn Service, request: &mut Request) -> Plan {
        let plan = catch_unwind(AssertUnwindSafe(|| service.plan(request))).unwrap_or_else(|_| {
            self.engine.counters.panics.increment();
            tracing::error!(path = request.path(), "the plan of a request panicked");
            Plan::refuse(Response::new(500))
        });
        request.set_route(plan.route);
        plan
    }

    /// Answers without the content being read.
    #[inline(never)]
    fn refuse(
        &mut self,
        mut connection: Box<Connection>,
        request: &Request,
        mut response: Box<Response>,
        route: Route,
    ) -> Go {
        connection.http.leave_unread(request, self.buffers, &self.engine.config);
        self.respond(connection, &mut response, route, None)
    }

    /// Has a request answered: by the program, on the pool, or here.
    #[inline(always)]
    pub(super) fn call(
        &mut self,
        connection: Box<Connection>,
        request: Request,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Go {
        if matches!(self.engine.answerer, Answerer::Program(_)) {
            return self.enqueue(connection, request, route, stream);
        }
        if stream.is_some() && self.lead.is_some() || !self.runs_here(route, Some(&request)) {
            return self.dispatch(connection, Call { request, route, stream });
        }
        self.call_here(connection, request, route, stream)
    }

    #[inline(never)]
    pub(super) fn call_collected(
        &mut self,
        connection: Box<Connection>,
        request: Request,
        route: Route,
    ) -> Go {
        self.call(connection, request, route, None)
    }

    /// Whether this thread runs a call of the route itself: always, unless it leads a loop that others want.
    #[inline(always)]
    pub(super) fn runs_here(&self, route: Route, request: Option<&Request>) -> bool {
        let Some(event_loop) = &self.lead else { return true };
        self.engine.routes.runs_here(route, request, || event_loop.others())
    }

    #[inline(always)]
    fn call_here(
        &mut self,
        mut connection: Box<Connection>,
        request: Request,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Go {
        if self.lead.is_none() && self.engine.routes.may_block(route) {
            // Earlier answers do not wait for a handler that blocks. An error is met again when this answer is written.
            let _ = connection.flush_with(&Bytes::new(), self.buffers, &self.engine.config);
        }
        // Filled in place and lent from here on: a response is large enough that each move of it shows.
        let mut response = None;
        if self.lead.is_none() && self.engine.routes.is_new(route.key) {
            self.engine.routes.name(route.key, &request);
        }
        let Self { engine, lead, clocks, .. } = self;
        let Some(site) = site_of(engine, &connection) else { return Go::On(connection) };
        let (_, conduct) = run(lead, clocks, engine, connection.home(), route, || {
            response = Some(site.service.call(request));
        });
        self.take_note(&mut connection, conduct);
        let response = response.get_or_insert_with(|| Response::new(500));
        self.respond(connection, response, route, stream)
    }

    /// Remembers for a lease whether the connection's requests block, and that time has passed.
    #[inline(always)]
    pub(super) fn take_note(&mut self, connection: &mut Connection, conduct: Conduct) {
        match conduct {
            Conduct::Inline => return,
            Conduct::Quick => connection.note_for_lease(false),
            Conduct::Blocked => {
                connection.note_for_lease(true);
                if let Some(event_loop) = &mut self.lead {
                    // Others have led meanwhile, and this connection was away for them.
                    event_loop.tell_missed(connection);
                }
            }
        }
        self.buffers.clock.refresh();
    }

    /// Answers a request that was dispatched, then goes on with its connection.
    pub(crate) fn answer(&mut self, connection: Box<Connection>, call: Call) -> Outcome {
        let Call { request, route, stream } = call;
        let go = self.call_here(connection, request, route, stream);
        self.go_on(go)
    }

    /// Sends the answer that the program gave, then goes on with the connection.
    pub(crate) fn finish(
        &mut self,
        connection: Box<Connection>,
        mut response: Response,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Outcome {
        let go = self.respond(connection, &mut response, route, stream);
        self.go_on(go)
    }

    /// Goes on with a connection whose response has begun.
    fn go_on(&mut self, go: Go) -> Outcome {
        let mut connection = match go {
            Go::On(connection) => connection,
            Go::Away(outcome) => return outcome,
        };
        // The handler has read its content: reads need not wait any more.
        let is_read = !connection.lease.is_on() && !connection.http.sends_what_it_receives();
        let released = if is_read { connection.release_hold() } else { Ok(()) };
        match released {
            Ok(()) => self.serve(connection),
            Err(error) => self.give_up(connection, error),
        }
    }

    /// Encodes a response and begins to send it.
    #[inline(always)]
    pub(super) fn respond(
        &mut self,
        mut connection: Box<Connection>,
        response: &mut Response,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
    ) -> Go {
        if self.engine.is_draining() && !self.has_more_requests(&mut connection) {
            connection.http.close_after_response(CloseReason::Shutdown);
        }
        let config = &self.engine.config;
        let flushed = match connection.http.respond(response, route, stream, self.buffers, config) {
            Responded::Encoded if self.buffers.output.len() < OUTPUT_BYTES => return Go::On(connection),
            Responded::Encoded => self.flush(&mut connection),
            Responded::Large(content) => connection.flush_with(&content, self.buffers, config),
            Responded::Upgrade(handler) => return Go::Away(self.detach(connection, handler)),
        };
        self.go(connection, flushed)
    }
}
