//! The requests of a guest that has several exchanges at once.

use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

use super::run::{CallOutcome, run_rare};
use super::{Flow, Outcome, Worker};
use crate::budget::permits::Permit;
use crate::engine::connection::Connection;
use crate::engine::exchange::{AnswerTo, Asker, Call};
use crate::execution::key::Route;
use crate::service::request::Request;
use crate::service::response::Response;
use crate::service::tcp::Ask;
use crate::service::{Content, Plan};

impl Worker<'_> {
    /// Answers a request of a guest, while its connection goes on.
    #[cold]
    #[inline(never)]
    pub(super) fn ask(&mut self, mut connection: Box<Connection>, ask: Ask) -> Flow {
        let Ask { mut request, site, slot } = ask;
        self.count_request();
        request.set_peer(connection.peer);
        #[cfg(feature = "tls")]
        request.set_tls(connection.transport.tls_info().map(Arc::clone));
        let plan =
            if site.plans { self.plan(&*site.service, &mut request) } else { Plan::default() };
        let route = plan.route_of(&request);
        if let Content::Refused(response) = plan.content {
            slot.fill(*response);
            return self.refused_one(connection);
        }
        let loop_handle = Arc::clone(connection.loop_handle());
        let runs_here = self.runs_asked_here(&request, route);
        let account = Arc::clone(&connection.account);
        let asker = Asker { loop_handle, peer: connection.peer, account, site, route, slot };
        let call = Call::new(request, AnswerTo::Guest(asker));
        if runs_here {
            return Break(match self.yielded(connection) {
                Outcome::Yielded(connection) => Outcome::Asked(Box::new((connection, call))),
                // The connection has failed, so nobody waits for the answer.
                outcome => outcome,
            });
        }
        let Err((call, full)) = self.admit(Box::new(call)) else { return Continue(connection) };
        let _ = self.refuse_full(*call, &full);
        if let Some(event_loop) = &mut self.lead {
            // The service's response to the refused request may have blocked, so other threads may
            // have led the loop meanwhile.
            event_loop.apply_missed(&mut connection);
        }
        self.refused_one(connection)
    }

    /// Goes on after a refusal. A leader serves its other connections first: otherwise a protocol
    /// that asks again and again would occupy it.
    fn refused_one(&mut self, connection: Box<Connection>) -> Flow {
        if self.lead.is_some() {
            return Break(self.yielded(connection));
        }
        Continue(connection)
    }

    /// Returns whether a leader runs a request of a guest itself. A thread of the pool does not:
    /// it is needed for what the connection sends next.
    fn runs_asked_here(&self, request: &Request, route: Route) -> bool {
        let Some(event_loop) = &self.lead else { return false };
        // A permit would have to be kept while the connection is put back.
        request.permits().is_none()
            && self.engine.routes.runs_here(route, Some(request), || event_loop.others())
    }

    /// Runs the handler of a request that was dispatched for a guest.
    pub(super) fn answer_asked(&mut self, request: Request, asker: Asker, permit: Permit) {
        self.engine.counters.dispatched.increment();
        self.permit = Some(permit);
        if self.engine.routes.is_new(asker.route.key) {
            self.engine.routes.name(asker.route.key, &request);
        }
        self.run_asked(request, asker);
        self.permit = None;
    }

    /// Runs the handler of a request of a guest on the loop.
    pub(super) fn call_asked(&mut self, call: Call) {
        let Call { request, answer_to: AnswerTo::Guest(asker), .. } = call else { return };
        if self.run_asked(request, asker) != CallOutcome::Inline {
            self.buffers.clock.refresh();
        }
    }

    fn run_asked(&mut self, request: Request, asker: Asker) -> CallOutcome {
        let Asker { loop_handle, site, route, slot, .. } = asker;
        let (mut request, mut response) = (Some(request), None);
        let Self { engine, lead, clocks, .. } = self;
        let (_, call_outcome) = run_rare(lead, clocks, engine, &loop_handle, route, &mut || {
            response = request.take().map(|request| site.service.call(request));
        });
        slot.fill(response.unwrap_or_else(|| Response::new(500)));
        call_outcome
    }
}
