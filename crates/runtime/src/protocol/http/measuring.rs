//! Measuring one exchange: which phase it is in, and how long the earlier ones took.
//!
//! A request that waits for anything is measured from the moment it begins to wait: for the rest of
//! its bytes, for a thread, or in its handler. The others are measured by samples, which begin when
//! the handler is called.

use std::time::Instant;

use http::StatusCode;

use super::{Http, Stage};
use crate::budget::refusal::Refusal;
use crate::execution::probe::Measured;
use crate::service::exchange::{Exchange, QueuedFor, Timing};
use crate::transport::Peer;

/// An exchange that is being measured.
#[derive(Debug)]
pub(crate) struct Measuring {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    exchange: Exchange,
}

/// The phases of an exchange that are measured as they pass. The handler reports its own times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Head,
    Content,
    Turn,
    Queue,
    Handler,
    Write,
}

impl Measuring {
    pub(crate) fn begin(phase: Phase, since: Instant) -> Self {
        let exchange = Exchange {
            route: None,
            status: StatusCode::OK,
            peer: Peer::Unix,
            timing: Timing::default(),
            stands_for: 1,
            is_timed: false,
            ran: None,
            queued_for: None,
            refusal: None,
            is_broken: false,
            note: None,
        };
        Self { phase, since, exchange }
    }

    /// Ends the current phase and begins the next one.
    pub(crate) fn enter(&mut self, next: Phase, now: Instant) {
        let timing = &mut self.exchange.timing;
        let phase = match self.phase {
            Phase::Head => &mut timing.head,
            Phase::Content => &mut timing.content,
            Phase::Turn => &mut timing.turn,
            Phase::Queue => &mut timing.queue,
            Phase::Handler => &mut timing.waiting,
            Phase::Write => &mut timing.write,
        };
        *phase += now.saturating_duration_since(self.since);
        self.phase = next;
        self.since = self.since.max(now);
    }

    /// Ends the wait for the peer at `woken`, when the loop was told of the rest of the request, or
    /// left the request for later.
    pub(crate) fn is_complete(&mut self, woken: Instant) {
        if matches!(self.phase, Phase::Head | Phase::Content) {
            self.enter(Phase::Turn, woken);
        }
    }

    /// Called when the handler has returned.
    pub(crate) fn called(&mut self, measured: &Measured) {
        self.enter(Phase::Handler, measured.started);
        let took = measured.took;
        let computing = took.ran.unwrap_or(took.wall).min(took.wall);
        let timing = &mut self.exchange.timing;
        timing.computing = computing;
        timing.waiting = took.wall.saturating_sub(computing);
        self.phase = Phase::Write;
        self.since = self.since.max(measured.started) + took.wall;
    }

    /// Returns the phases until now if the handler is called now.
    fn until_call(&self, woken: Instant, now: Instant) -> Timing {
        let exchange = self.exchange.clone();
        let mut called = Self { phase: self.phase, since: self.since, exchange };
        called.is_complete(woken);
        called.enter(Phase::Handler, now);
        called.exchange.timing
    }

    pub(crate) fn exchange_mut(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    /// Called when the response was written, or will not be written any more. Returns the exchange.
    pub(crate) fn end(&mut self, now: Instant, is_broken: bool) -> &Exchange {
        self.enter(Phase::Write, now);
        self.exchange.is_broken = is_broken;
        &self.exchange
    }
}

impl Http {
    /// Returns whether the current exchange is being measured.
    #[inline(always)]
    pub(crate) fn is_measured(&self) -> bool {
        self.measuring.is_some()
    }

    pub(crate) fn take_measuring(&mut self) -> Option<Box<Measuring>> {
        self.measuring.take()
    }

    pub(crate) fn set_measuring(&mut self, measuring: Box<Measuring>) {
        self.measuring = Some(measuring);
    }

    /// Records what the request of the current exchange waits for.
    pub(crate) fn note_queued(&mut self, queued_for: QueuedFor) {
        if let Some(measuring) = &mut self.measuring {
            measuring.exchange.queued_for = Some(queued_for);
        }
    }

    /// Returns whether the service wants measurements.
    #[inline]
    pub(crate) fn measures(&self) -> bool {
        self.site().is_some_and(|site| site.measures)
    }

    /// Returns the measurement of the current exchange. Begins one if there is none.
    pub(crate) fn measure(&mut self, phase: Phase, since: Instant) -> &mut Measuring {
        self.measuring.get_or_insert_with(|| Box::new(Measuring::begin(phase, since)))
    }

    /// Returns the phases before the handler, which is called now. The loop was told of the request
    /// at `woken`.
    pub(crate) fn timing_until_call(&self, woken: Instant, now: Instant) -> Timing {
        match &self.measuring {
            Some(measuring) => measuring.until_call(woken, now),
            None => Measuring::begin(Phase::Turn, woken).until_call(woken, now),
        }
    }

    /// Called when the request is not complete and the connection waits for the rest of it.
    pub(super) fn measure_wait(&mut self, phase: Phase, now: Instant) {
        if !self.measures() {
            return;
        }
        match &mut self.measuring {
            Some(measuring) if measuring.phase == phase => {}
            // The content follows its head. After a turn of other connections the request may still
            // be incomplete.
            Some(measuring) if matches!(measuring.phase, Phase::Head | Phase::Turn) => {
                measuring.enter(phase, now);
            }
            Some(_) => {}
            None => self.measuring = Some(Box::new(Measuring::begin(phase, now))),
        }
    }

    /// Called when the connection could go on reading its request, and lets others go first. From
    /// now on the request does not wait for its client.
    #[inline]
    pub(crate) fn measure_yield(&mut self, now: Instant) {
        if let Some(measuring) = &mut self.measuring {
            measuring.is_complete(now);
        }
    }

    /// Takes the measurement of a response that has no further bytes: it is encoded completely, or
    /// the engine closes the connection after what is encoded. Returns `None` while content is
    /// still received or a body is still sent.
    pub(crate) fn take_written(&mut self) -> Option<Box<Measuring>> {
        let is_written = !matches!(self.stage, Stage::Receiving(_) | Stage::Sending(_));
        self.measuring.take_if(|measuring| is_written && measuring.phase == Phase::Write)
    }

    /// Takes the measurement of an exchange whose response has begun. Drops that of a request
    /// without a response.
    pub(crate) fn take_begun(&mut self) -> Option<Box<Measuring>> {
        self.measuring.take().filter(|measuring| measuring.phase == Phase::Write)
    }
}

/// Describes a response for the measurement.
#[derive(Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) route: Option<u32>,
    pub(crate) peer: Peer,
    pub(crate) status: StatusCode,
    pub(crate) refusal: Option<Refusal>,
}

impl Measuring {
    /// Called when the response is known, and is going to be written.
    pub(crate) fn answered(&mut self, answered: Answered, now: impl FnOnce() -> Instant) {
        let Answered { route, peer, status, refusal } = answered;
        if self.phase != Phase::Write {
            // The request is refused without a call.
            self.enter(Phase::Write, now());
        }
        let exchange = &mut self.exchange;
        (exchange.route, exchange.peer, exchange.status) = (route, peer, status);
        exchange.refusal = refusal;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::config::ServerConfig;
    use crate::execution::policy::CallTimes;
    use crate::service::request::Request;
    use crate::service::response::Response;
    use crate::service::{Service, Site};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn each_phase_gets_the_time_between_two_changes() {
        let start = Instant::now();
        let at = |ms: u32| start + MS * ms;
        let mut measuring = Measuring::begin(Phase::Head, at(0));
        measuring.enter(Phase::Content, at(1));
        measuring.is_complete(at(3));
        measuring.enter(Phase::Queue, at(7));
        let took = CallTimes { wall: MS * 48, waited: None, ran: Some(MS * 16) };
        measuring.called(&Measured { started: at(15), took, stands_for: 1, was_caught: false });
        let exchange = measuring.end(at(15 + 48 + 64), false);
        let expected = Timing {
            head: MS,
            content: MS * 2,
            turn: MS * 4,
            queue: MS * 8,
            computing: MS * 16,
            waiting: MS * 32,
            write: MS * 64,
        };
        assert_eq!(exchange.timing, expected);
        assert_eq!(exchange.timing.total(), at(127) - at(0));
    }

    /// The rest of a head may be there when a connection that has read enough yields to others.
    /// That time is no wait for the client, but the time after it is.
    #[test]
    fn a_request_that_yields_does_not_wait_for_its_client() {
        struct Measured;

        impl Service for Measured {
            fn call(&self, _: Request) -> Response {
                Response::default()
            }

            fn measures(&self) -> bool {
                true
            }
        }

        let start = Instant::now();
        let at = |ms: u32| start + MS * ms;
        let config = ServerConfig::default();
        let mut http = Http::new(Some(Arc::new(Site::new(Measured))));
        // It yields with a part of a head, then waits for the rest, then yields again.
        for (began, yields) in [(0, true), (2, false), (6, true)] {
            http.deadline_cold(at(began), true, &config);
            if yields {
                http.measure_yield(at(began));
            }
        }
        let mut measuring = http.take_measuring().expect("it is measured");
        measuring.is_complete(at(14));
        measuring.enter(Phase::Queue, at(14));
        let timing = measuring.end(at(14), false).timing;
        assert_eq!((timing.turn, timing.head), (MS * (2 + 8), MS * 4));
    }

    #[test]
    fn a_clock_that_was_read_earlier_makes_no_phase_negative() {
        let start = Instant::now();
        let mut measuring = Measuring::begin(Phase::Turn, start + MS);
        measuring.enter(Phase::Queue, start);
        measuring.enter(Phase::Handler, start + MS * 2);
        let exchange = measuring.end(start + MS * 2, true);
        assert_eq!((exchange.timing.turn, exchange.timing.queue), (Duration::ZERO, MS));
        assert!(exchange.is_broken);
    }
}
