//! Calling raw protocols, and sending their output.

use std::io;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::{Arc, Weak};

use super::run::{CallOutcome, Measure, run, run_quick, run_rare};
use super::{Flow, Outcome, Worker};
use crate::engine::connection::Connection;
use crate::protocol::Guest;
use crate::protocol::raw::{Event, Surroundings};
use crate::service::mailbox::WakeConnection;
use crate::service::tcp::{Asked, Borrowed, Closed};

impl Worker<'_> {
    /// Calls the protocol, with the loop in its slot meanwhile, and sends its output.
    #[inline(always)]
    pub(super) fn call_raw(&mut self, mut connection: Box<Connection>, event: Event) -> Flow {
        let Connection { guest, peer, account, loop_handle, token, .. } = &mut *connection;
        let Guest::Raw(raw) = guest else { return Break(Outcome::Closed(connection)) };
        let route = raw.route();
        let is_quick = raw.is_quick(event);
        if !is_quick && !self.runs_here(route, None) {
            return self.resume_on_pool(connection, route);
        }
        let Self { engine, buffers, lead, clocks, .. } = self;
        let crowd = lead.as_ref().map_or(1, |event_loop| event_loop.crowd());
        let mut asked = Asked::default();
        let mut used = 0;
        let code = || {
            let of = Surroundings {
                peer,
                home: &|| Arc::downgrade(loop_handle) as Weak<dyn WakeConnection>,
                token: *token,
                crowd,
                account,
                config: &engine.config,
            };
            used = raw.call(event, of, &mut asked, buffers);
        };
        let (result, call_outcome) = if is_quick {
            (run_quick(engine, code), CallOutcome::Inline)
        } else {
            run(lead, clocks, engine, loop_handle, route, Measure::Never, code)
        };
        self.record_call(&mut connection, call_outcome);
        if self.lead.is_none() && event == Event::Data {
            if let Some(failure) = connection.transport.failure() {
                return Break(self.abandon_messages(connection, failure));
            }
        }
        let Guest::Raw(raw) = &mut connection.guest else {
            return Break(Outcome::Closed(connection));
        };
        if result.is_err() {
            raw.break_off(Closed::Panicked);
            // The output may be an incomplete message.
            self.buffers.output.clear();
            return Continue(connection);
        }
        let Borrowed(sent_back) =
            raw.called(event, used, &mut asked, self.buffers, &self.engine.config);
        // The protocol ends its calls to let others have their turn.
        let gives_way = raw.take_stop() && self.lead.is_some();
        let connection = if sent_back == 0 {
            self.buffers.input.consume(used);
            self.flush_inline(connection)?
        } else {
            let flushed = connection.send_back(sent_back, self.buffers, &self.engine.config);
            self.buffers.input.consume(used - sent_back);
            self.flushed(connection, flushed)?
        };
        if gives_way { Break(self.yielded(connection)) } else { Continue(connection) }
    }

    /// Ends a connection that was reset during a call on the pool. Such calls may take long. The
    /// messages behind this one can be work for hours, and nobody waits for it.
    #[cold]
    fn abandon_messages(&mut self, connection: Box<Connection>, failure: io::Error) -> Outcome {
        self.buffers.output.clear();
        self.give_up(connection, failure)
    }

    /// Tells a raw protocol that its connection has ended. This runs the program's code, which may
    /// block.
    #[cold]
    pub(super) fn end_raw(&mut self, connection: &mut Connection) {
        let Some((protocol, reason, route)) = connection.guest.take_protocol() else { return };
        let Self { engine, lead, clocks, .. } = self;
        let mut protocol = Some(protocol);
        let (_, call_outcome) =
            run_rare(lead, clocks, engine, &connection.loop_handle, route, &mut || {
                // The protocol is also dropped here.
                if let Some(mut protocol) = protocol.take() {
                    protocol.close(reason);
                }
            });
        if call_outcome == CallOutcome::Blocked {
            self.buffers.clock.refresh();
        }
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests;
