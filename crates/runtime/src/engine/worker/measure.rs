//! Measuring exchanges for the service: see
//! [`Service::measures`](crate::service::Service::measures).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::Worker;
use super::call::Told;
use super::run::Measure;
use crate::budget::refusal::Refusal;
use crate::engine::connection::Connection;
use crate::execution::key::Route;
use crate::execution::policy::CallTimes;
use crate::execution::probe::Measured;
use crate::protocol::http::{Answered, Http, Phase};
use crate::service::exchange::{Exchange, Ran};
use crate::service::request::Request;
use crate::service::response::Response;
use crate::service::stopwatch::Stopwatch;

/// Minimum duration of a call without a measured CPU time for which this time is estimated. A
/// shorter call counts as computing.
const ESTIMATED_MIN: Duration = Duration::from_micros(500);

/// What is known of a call that may be measured, before it takes the request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeasuredCall {
    route: Option<u32>,
    is_timed: bool,
}

impl Worker<'_> {
    /// Called before a request waits for a thread of the pool.
    #[inline]
    pub(super) fn measure_queue(&mut self, connection: &mut Connection) {
        if connection.guest.as_http().is_some_and(Http::measures) {
            self.begin_queue(connection);
        }
    }

    #[inline(never)]
    fn begin_queue(&mut self, connection: &mut Connection) {
        self.end_written(connection);
        let woken = self.woken();
        if let Some(http) = connection.guest.as_http_mut() {
            let now = Instant::now();
            let measuring = http.measure(Phase::Turn, woken.unwrap_or(now));
            measuring.is_complete(woken.unwrap_or(now));
            measuring.enter(Phase::Queue, now);
        }
    }

    /// Returns when the poller reported what the loop serves now. `None` for a thread that leads no
    /// loop, because it was not busy with other connections.
    fn woken(&self) -> Option<Instant> {
        self.lead.as_ref().map(|_| self.buffers.clock.now())
    }

    /// Decides how a call is measured.
    #[inline(always)]
    pub(super) fn how_to_measure(
        &mut self,
        connection: &mut Connection,
        request: &mut Request,
        told: Option<&Told>,
    ) -> Measure {
        self.measured_call = MeasuredCall { route: request.route(), is_timed: false };
        if told.is_none() && !connection.guest.as_http().is_some_and(Http::is_measured) {
            return Measure::Sampled;
        }
        self.how_to_measure_cold(connection, request, told)
    }

    /// As [`how_to_measure`](Self::how_to_measure), if the request is timed or its connection has a
    /// measurement. Ends the measurement of an earlier request, whose response waits to be written
    /// together with this one.
    #[cold]
    #[inline(never)]
    fn how_to_measure_cold(
        &mut self,
        connection: &mut Connection,
        request: &mut Request,
        told: Option<&Told>,
    ) -> Measure {
        let is_timed = told.is_some_and(|told| told.is_timed);
        self.measured_call.is_timed = is_timed;
        let is_measured = connection.guest.as_http().is_some_and(Http::is_measured);
        if is_measured {
            self.end_written(connection);
        }
        if let (true, Some(http)) = (is_timed, connection.guest.as_http()) {
            let now = Instant::now();
            let before = http.timing_until_call(self.woken().unwrap_or(now), now);
            request.set_stopwatch(Stopwatch::start(before, now));
        }
        if is_timed || is_measured && connection.guest.as_http().is_some_and(Http::is_measured) {
            return Measure::Always;
        }
        Measure::Sampled
    }

    /// Records the times of a call that has returned, and passes its response to the service.
    #[cold]
    #[inline(never)]
    pub(super) fn called(
        &mut self,
        connection: &mut Connection,
        called: Route,
        response: &mut Option<Response>,
    ) {
        let MeasuredCall { route, is_timed } = self.measured_call;
        let turn_began = self.buffers.clock.now();
        let mut measured = self.clocks.measured.take().unwrap_or_else(|| {
            // The call has lost its loop and was not a sample. It began in the turn of the loop.
            let took = CallTimes { wall: turn_began.elapsed(), waited: None, ran: None };
            Measured { started: turn_began, took, stands_for: 1, was_caught: true }
        });
        let took = &mut measured.took;
        if took.ran.is_none() && took.wall > ESTIMATED_MIN {
            took.ran = self.clocks.ran_at_most();
        }
        if measured.was_caught {
            let waited = took.ran.map(|ran| took.wall.saturating_sub(ran));
            let took = CallTimes { waited: took.waited.or(waited), ..*took };
            self.engine.routes.count_on_loop(called.key, 1, took);
        }
        let was_inline = self.lead.is_some() || measured.was_caught;
        let woken = if was_inline { turn_began } else { measured.started };
        let Some(http) = connection.guest.as_http_mut() else { return };
        let measuring = http.measure(Phase::Turn, woken);
        measuring.is_complete(woken);
        measuring.called(&measured);
        let exchange = measuring.exchange_mut();
        exchange.stands_for = measured.stands_for.max(1);
        exchange.ran = Some(match (measured.was_caught, was_inline) {
            (true, _) => Ran::Caught,
            (false, true) => Ran::OnLoop,
            (false, false) => Ran::OnPool,
        });
        exchange.is_timed = is_timed;
        let response = response.get_or_insert_with(|| Response::new(500));
        let refusal = self.give_thread(connection, called, response);
        self.answered(connection, response, route, refusal);
    }

    /// Passes a refusal to the service, if the call that ended in it was not measured.
    #[cold]
    pub(super) fn refused_late(
        &mut self,
        connection: &mut Connection,
        response: &mut Response,
        refusal: Refusal,
    ) {
        let Some(http) = connection.guest.as_http_mut().filter(|http| http.measures()) else {
            return;
        };
        let ran = if self.lead.is_some() { Ran::OnLoop } else { Ran::OnPool };
        http.measure(Phase::Turn, Instant::now()).exchange_mut().ran = Some(ran);
        self.answered(connection, response, self.measured_call.route, Some(refusal));
    }

    /// Passes a response to the service before it is sent.
    #[cold]
    #[inline(never)]
    pub(super) fn answered(
        &mut self,
        connection: &mut Connection,
        response: &mut Response,
        route: Option<u32>,
        refusal: Option<Refusal>,
    ) {
        let peer = connection.peer;
        let Some(http) = connection.guest.as_http_mut() else { return };
        let Some(mut measuring) = http.take_measuring() else { return };
        let status = response.status();
        measuring.answered(Answered { route, peer, status, refusal }, Instant::now);
        if let Some(site) = http.site() {
            let exchange = measuring.exchange_mut();
            self.contained(|| site.service.answered(response, exchange));
            exchange.status = response.status();
        }
        http.set_measuring(measuring);
        self.has_measured = true;
    }

    /// Called when all output was written: ends the measurement if its response was part of it.
    #[cold]
    #[inline(never)]
    pub(super) fn end_written(&mut self, connection: &mut Connection) {
        self.has_measured = false;
        let Some(http) = connection.guest.as_http_mut() else { return };
        if let Some(mut measuring) = http.take_written() {
            self.completed(http, measuring.end(Instant::now(), false));
        }
    }

    /// Called when a connection ends: ends the measurement of a response that was not written to
    /// its end.
    #[cold]
    #[inline(never)]
    pub(super) fn end_broken(&mut self, connection: &mut Connection) {
        let Some(http) = connection.guest.as_http_mut() else { return };
        if let Some(mut measuring) = http.take_begun() {
            self.completed(http, measuring.end(Instant::now(), true));
        }
    }

    fn completed(&self, http: &Http, exchange: &Exchange) {
        if let Some(site) = http.site() {
            self.contained(|| site.service.completed(exchange));
        }
    }

    /// Runs code of the service that must not block.
    fn contained(&self, code: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(code)).is_err() {
            self.engine.note_panic("the measurement of a request panicked");
        }
    }
}
