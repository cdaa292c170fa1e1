//! Serving one connection until it has to wait: carrying out the steps of its guest.

use std::convert::Infallible;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::{Duration, Instant};

#[cfg(feature = "spool")]
use super::lined::Lined;
use super::read::Filled;
use super::{Flow, Outcome, Worker};
use crate::budget::refusal::Refusal;
use crate::engine::connection::Connection;
use crate::engine::connection::unsent::Flushed;
use crate::protocol::proxy::ProxyError;
use crate::protocol::raw::Event;
use crate::protocol::{Guest, Step, Waiting};
use crate::service::turn::{TURN, turn_in};
use crate::transport::Peer;

/// Maximum number of reads and body pieces in a row before a leader serves its other connections.
const ROUNDS_MAX: u32 = 4;

/// The clock is read once for this many requests of a pipeline.
const REQUESTS_PER_CHECK: u64 = 8;

/// As [`REQUESTS_PER_CHECK`], where turns are shorter because of a crowd.
const REQUESTS_PER_CHECK_IN_CROWD: u64 = 2;

/// How long a head that has begun, or the first one of a connection, may take while the server
/// drains. Its request is not accepted yet, and a head normally arrives within a few round trips.
const DRAIN_HEAD_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection lingers at most while the server drains. The last bytes of a response
/// normally arrive within a few round trips.
const DRAIN_LINGER_TIMEOUT: Duration = Duration::from_secs(1);

impl Worker<'_> {
    /// Serves a connection until it has to wait.
    pub(crate) fn serve(&mut self, connection: Box<Connection>) -> Outcome {
        let Break(outcome) = self.steps(connection);
        outcome
    }

    /// Serves a connection until it has to wait, unless `flow` has an outcome already.
    pub(super) fn serve_on(&mut self, flow: Flow) -> Outcome {
        match flow {
            Continue(connection) => self.serve(connection),
            Break(outcome) => outcome,
        }
    }

    /// Carries out the guest's steps in a loop. A complete head needs no step, because most
    /// requests consist only of a head.
    #[inline(always)]
    fn steps(&mut self, mut connection: Box<Connection>) -> ControlFlow<Outcome, Infallible> {
        if connection.is_writing() {
            // The measurement of the response may have begun on another thread.
            self.has_measured = true;
            connection = self.flush(connection)?;
        }
        let mut rounds = 0;
        let mut turn_ends = None;
        loop {
            if let Guest::Http(http) = &mut connection.guest {
                if http.expects_head() {
                    if self.buffers.input.is_empty() {
                        connection = self.read(connection, &mut rounds)?;
                        continue;
                    }
                    if let Some(head) = http.next_head(self.buffers, &self.engine.config) {
                        connection = self.request(connection, head)?;
                        if !self.buffers.input.is_empty() {
                            if connection.is_writing() {
                                // A pool thread has written the response already. What the
                                // peer did not take is sent before its next request is answered.
                                connection = self.flush(connection)?;
                            }
                            if self.has_had_its_turn(&mut turn_ends) {
                                return Break(self.yielded(connection));
                            }
                        }
                        continue;
                    }
                }
            }
            connection = self.step(connection, &mut rounds)?;
        }
    }

    /// Returns whether a leader has answered the requests of one pipeline for long enough. Each
    /// request may be too short for the watchdog, and one read may contain thousands.
    #[inline(never)]
    fn has_had_its_turn(&mut self, turn_ends: &mut Option<Instant>) -> bool {
        let Some(event_loop) = &self.lead else { return false };
        let turn = turn_in(event_loop.crowd());
        let per_check = if turn < TURN { REQUESTS_PER_CHECK_IN_CROWD } else { REQUESTS_PER_CHECK };
        if event_loop.requests % per_check != 0 {
            return false;
        }
        self.buffers.clock.refresh();
        let now = self.buffers.clock.now();
        now >= *turn_ends.get_or_insert(now + turn)
    }

    /// Carries out one step. Most requests need none.
    #[inline(never)]
    fn step(&mut self, mut connection: Box<Connection>, rounds: &mut u32) -> Flow {
        match connection.guest.step(self.buffers) {
            Step::Again => Continue(connection),
            Step::Read => self.read(connection, rounds),
            Step::Flush => {
                // Other threads may send as fast as the peer reads.
                let connection = self.begin_round(connection, rounds)?;
                self.flush(connection)
            }
            Step::Wait => self.wait(connection),
            Step::Linger => self.linger(connection),
            Step::Close => {
                let mut connection = self.flush_last(connection)?;
                if connection.transport.farewell() {
                    return self.wait(connection);
                }
                Break(Outcome::Closed(connection))
            }
            Step::Leave => {
                let connection = self.flush(connection)?;
                self.replace_guest(connection)
            }
            Step::ClientKnown(address) => {
                if !self.admit_client(&mut connection, address) {
                    return Break(Outcome::Closed(connection));
                }
                self.replace_guest(connection)
            }
            #[cfg(feature = "tls")]
            Step::Handshake => self.advance_handshake(connection),
            #[cfg(feature = "tls")]
            Step::Secure => self.secure(connection),
            Step::RefuseProxy(error) => Break(self.refuse_proxy(connection, error)),
            Step::Call(request, route) => self.call_cold(connection, request, route, None),
            Step::Ask(ask) => self.ask(connection, *ask),
            Step::RefuseContent(request, refusal) => {
                self.refuse_content(connection, &request, refusal)
            }
            #[cfg(feature = "spool")]
            Step::Spool => {
                self.end_lease(&mut connection);
                self.stand_in_line(connection, Lined::Spool)
            }
            Step::Stream(streaming) => self.stream(connection, *streaming),
            Step::Pump => {
                let connection = self.begin_round(connection, rounds)?;
                self.pump(connection)
            }
            Step::Pushed { has_more } => self.pushed(connection, has_more, rounds),
            Step::AwaitPush => self.await_push(connection),
            Step::PushFailed(failed) => Continue(self.push_failed(connection, &failed)),
            Step::Notify(event) => self.notify_raw(connection, event, rounds),
        }
    }

    /// Reads from the peer, or parks the connection if nothing has arrived.
    #[inline(always)]
    fn read(&mut self, connection: Box<Connection>, rounds: &mut u32) -> Flow {
        let mut connection = self.flush_inline(connection)?;
        if !connection.can_read
            && !connection.transport.has_more()
            && (self.lead.is_some() || !self.keeps(&mut connection))
        {
            return self.wait(connection);
        }
        let mut connection = self.begin_round(connection, rounds)?;
        match self.fill(&mut connection) {
            Ok(Filled::Some { may_have_more }) => {
                connection.can_read = may_have_more || connection.has_end;
                Continue(connection)
            }
            Ok(Filled::Nothing) => {
                connection.can_read = false;
                self.wait_cold(connection)
            }
            Ok(Filled::End) => {
                connection.guest.end_of_input();
                Continue(connection)
            }
            Err(error) => Break(self.give_up(connection, error)),
        }
    }

    /// Calls a raw protocol, on this thread or on a pool thread.
    #[inline(always)]
    fn notify_raw(
        &mut self,
        mut connection: Box<Connection>,
        event: Event,
        rounds: &mut u32,
    ) -> Flow {
        // These events need no input, so they count as a round.
        if matches!(event, Event::Open | Event::Drained | Event::Notified) {
            connection = self.begin_round(connection, rounds)?;
        }
        self.call_raw(connection, event)
    }

    /// Counts one more read or body piece. After [`ROUNDS_MAX`] of them a leader serves its other
    /// connections first.
    #[inline(always)]
    pub(super) fn begin_round(&mut self, connection: Box<Connection>, rounds: &mut u32) -> Flow {
        if self.lead.is_none() {
            // This thread may continue with its connection for a long time, so it counts now.
            self.count_moved();
        } else if *rounds == ROUNDS_MAX {
            return Break(self.yielded(connection));
        }
        *rounds += 1;
        Continue(connection)
    }

    /// Closes without a response: a peer that omits the PROXY header is not trusted to speak HTTP.
    #[cold]
    fn refuse_proxy(&self, connection: Box<Connection>, error: ProxyError) -> Outcome {
        tracing::debug!(%error, "a PROXY header is refused");
        self.engine.refusals.note(Refusal::ProxyHeader, connection.peer);
        Outcome::Closed(connection)
    }

    /// Records the client's address from the PROXY header. Returns `false` if that client already
    /// has its maximum of connections.
    #[cold]
    fn admit_client(&self, connection: &mut Connection, address: Option<SocketAddr>) -> bool {
        let Some(address) = address else { return true };
        connection.peer = Peer::Tcp(address);
        let Ok(counts_for) = self.engine.admit(connection.peer) else {
            self.engine.refusals.note_full_client(connection.peer);
            return false;
        };
        connection.count_for(counts_for);
        true
    }

    /// Counts a refusal that the guest has recorded.
    #[cold]
    pub(super) fn note_refusal(&self, connection: &mut Connection) -> Option<Refusal> {
        let refusal = connection.guest.take_refusal()?;
        let error = connection.guest.take_error().unwrap_or_default();
        self.engine.refusals.note_because(refusal, connection.peer, || error);
        Some(refusal)
    }

    /// Shuts down the write direction, and continues to read what the peer still sends.
    fn linger(&mut self, mut connection: Box<Connection>) -> Flow {
        if let Some(refusal) = self.note_refusal(&mut connection) {
            self.answer_incomplete(&mut connection, refusal);
        }
        let mut connection = self.flush_last(connection)?;
        let ended = connection.transport.shutdown(Shutdown::Write);
        let mut connection = self.check(connection, ended)?;
        let mut timeout = self.engine.config.linger_timeout;
        if self.engine.is_draining() {
            timeout = timeout.min(DRAIN_LINGER_TIMEOUT);
        }
        connection.guest.linger(self.buffers.clock.now() + timeout);
        connection.can_read = true;
        Continue(connection)
    }

    /// Sends the output. Breaks if the peer must read first or has disconnected.
    #[inline(never)]
    pub(super) fn flush(&mut self, connection: Box<Connection>) -> Flow {
        self.flush_inline(connection)
    }

    /// As [`flush`](Self::flush), for output that nothing follows.
    fn flush_last(&mut self, mut connection: Box<Connection>) -> Flow {
        if !connection.is_writing() && !self.buffers.output.is_empty() {
            connection.transport.farewell_with_next_write();
        }
        self.flush(connection)
    }

    /// As [`flush`](Self::flush), inlined into the path of every request.
    #[inline(always)]
    pub(super) fn flush_inline(&mut self, mut connection: Box<Connection>) -> Flow {
        match connection.flush_at_once(self.buffers) {
            Continue(()) => self.all_flushed(connection),
            Break(written) => self.flush_rest(connection, written),
        }
    }

    #[inline(never)]
    fn flush_rest(&mut self, mut connection: Box<Connection>, written: usize) -> Flow {
        let flushed = connection.flush_rest(written, self.buffers, &self.engine.config);
        self.flushed(connection, flushed)
    }

    #[inline]
    pub(super) fn flush_output(&mut self, connection: &mut Connection) -> io::Result<Flushed> {
        connection.flush(self.buffers, &self.engine.config)
    }

    #[inline(always)]
    fn all_flushed(&mut self, mut connection: Box<Connection>) -> Flow {
        if self.has_measured {
            self.end_written(&mut connection);
        }
        Continue(connection)
    }

    /// Continues if everything is sent.
    #[inline(always)]
    pub(super) fn flushed(
        &mut self,
        connection: Box<Connection>,
        flushed: io::Result<Flushed>,
    ) -> Flow {
        match flushed {
            Ok(Flushed::All) => self.all_flushed(connection),
            Ok(Flushed::Some) => self.wait_cold(connection),
            Ok(Flushed::Paused) => self.go_on_writing(connection),
            Err(error) => Break(self.give_up(connection, error)),
        }
    }

    /// Writes more. A leader does so in the connection's next turn, because other connections wait
    /// for theirs.
    #[inline(never)]
    fn go_on_writing(&mut self, mut connection: Box<Connection>) -> Flow {
        if self.lead.is_some() {
            return self.wait_for_turn(connection);
        }
        let mut flushed = Ok(Flushed::Paused);
        while let Ok(Flushed::Paused) = flushed {
            // The pace counts from the last bytes that the peer has taken.
            self.buffers.clock.refresh();
            flushed = self.flush_output(&mut connection);
        }
        self.flushed(connection, flushed)
    }

    /// Lets a connection that could continue wait for its next turn.
    pub(super) fn wait_for_turn(&mut self, connection: Box<Connection>) -> Flow {
        match self.wait_cold(connection) {
            Break(Outcome::Parked(connection)) => Break(Outcome::Yielded(connection)),
            flow => flow,
        }
    }

    /// Continues unless a system call has failed.
    pub(super) fn check(&mut self, connection: Box<Connection>, result: io::Result<()>) -> Flow {
        match result {
            Ok(()) => Continue(connection),
            Err(error) => Break(self.give_up(connection, error)),
        }
    }

    /// Parks a connection until its peer or another thread sends something. Continues instead if
    /// the server drains and the connection ends.
    #[inline(always)]
    pub(super) fn wait(&mut self, mut connection: Box<Connection>) -> Flow {
        self.end_lease(&mut connection);
        let has_input = !self.buffers.input.is_empty();
        if let Some(unsent) = &connection.unsent {
            connection.deadline = unsent.deadline();
            connection.guest.stall(&connection.account);
        } else if self.engine.is_draining() {
            #[cfg(unix)]
            if self.engine.may_hand_over(&connection) {
                self.renew_deadline(&mut connection, has_input);
                if self.engine.hands_over(&connection, has_input) {
                    return Break(self.hand_over(connection));
                }
            }
            if self.drain(&mut connection, has_input) {
                return Continue(connection);
            }
        } else {
            self.renew_deadline(&mut connection, has_input);
        }
        self.unload(&mut connection);
        #[cfg(feature = "tls")]
        self.charge_held(&mut connection);
        let settled = connection.transport.settle();
        match settled.and_then(|is_left| connection.watch(is_left | connection.is_writing())) {
            Ok(()) => Break(Outcome::Parked(connection)),
            Err(error) => Break(self.give_up(connection, error)),
        }
    }

    /// Called while the server drains, before the connection waits. Returns whether the connection
    /// ends instead, because it is idle. Shortens the deadline of a head that is expected.
    #[cold]
    fn drain(&self, connection: &mut Connection, has_input: bool) -> bool {
        if connection.guest.drain(has_input) {
            return true;
        }
        self.renew_deadline(connection, has_input);
        if connection.guest.waits_for(has_input) == Waiting::Head {
            // Never later than before: further bytes must not restart the time.
            connection.deadline =
                connection.deadline.min(self.buffers.clock.now() + DRAIN_HEAD_TIMEOUT);
        }
        false
    }

    /// Sets the deadline for the peer to send more, unless the guest keeps the current one.
    #[inline(always)]
    fn renew_deadline(&self, connection: &mut Connection, has_input: bool) {
        let clock = &self.buffers.clock;
        if let Some(deadline) = connection.guest.deadline(clock, has_input, &self.engine.config) {
            connection.deadline = deadline;
        }
    }

    /// As [`wait`](Self::wait), not inlined. In Rust the function says whether it is inlined, not
    /// its caller. The path of a plain request inlines `wait`; all other paths share this copy.
    #[inline(never)]
    pub(super) fn wait_cold(&mut self, connection: Box<Connection>) -> Flow {
        self.wait(connection)
    }

    /// Yields to the loop's other connections.
    #[inline(never)]
    pub(super) fn yielded(&mut self, mut connection: Box<Connection>) -> Outcome {
        let flushed = self.flush_output(&mut connection);
        if let Err(error) = flushed.and_then(|_| connection.watch(false)) {
            return self.give_up(connection, error);
        }
        // A transfer that never has to wait makes progress too: its deadline must not be that of
        // its last wait.
        match &connection.unsent {
            Some(unsent) => connection.deadline = unsent.deadline(),
            None => self.renew_deadline(&mut connection, !self.buffers.input.is_empty()),
        }
        if let Some(http) = connection.guest.as_http_mut() {
            http.measure_yield(self.buffers.clock.now());
        }
        self.unload(&mut connection);
        Outcome::Yielded(connection)
    }
}
