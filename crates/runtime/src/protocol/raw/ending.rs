//! How a raw protocol ends, or leaves its connection to another guest.

use std::sync::Arc;
use std::time::Instant;

use super::{Actor, Event, Raw, Side, Stage};
use crate::buffers::Buffers;
use crate::execution::key::Route;
use crate::protocol::http::Http;
use crate::protocol::{Guest, Step, Successor};
use crate::service::Site;
use crate::service::tcp::{Closed, End, Protocol};

impl Raw {
    #[inline(never)]
    pub(super) fn step_cold(&mut self, buffers: &mut Buffers) -> Step {
        match &self.stage {
            Stage::New => Step::Notify(Event::Open),
            Stage::Open => Step::Again,
            // Closing a socket with unread input, or before further input arrives, resets the
            // connection, and the output may be lost.
            Stage::Closing(_) if self.input == Side::Open && self.expired.is_none() => Step::Linger,
            Stage::Closing(_) => Step::Close,
            Stage::Lingering(..) => {
                buffers.input.clear();
                let is_over = self.expired.is_some() || self.input != Side::Open;
                if is_over { Step::Close } else { Step::Read }
            }
            Stage::Leaving(_) => self.step_leaving(buffers),
        }
    }

    /// Sends the last bytes of other threads, then leaves.
    fn step_leaving(&mut self, buffers: &mut Buffers) -> Step {
        if let Some(mailbox) = self.mailbox.take() {
            if mailbox.queue.take_last(&mut buffers.output) {
                self.stage = Stage::Closing(Closed::ByProtocol);
            }
            return Step::Flush;
        }
        Step::Leave
    }

    pub(crate) fn leave(&mut self) -> Option<Successor> {
        match std::mem::replace(&mut self.stage, Stage::Closing(Closed::Detached)) {
            Stage::Leaving(successor) => Some(*successor),
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// Applies the protocol's request to end.
    pub(super) fn apply_end(&mut self, end: End, event: Event) {
        match end {
            End::Close => self.close(match self.input {
                _ if event == Event::Shutdown => Closed::Shutdown,
                Side::Open if matches!(event, Event::Deadline | Event::MemoryPressure) => {
                    Closed::TimedOut
                }
                Side::Open => Closed::ByProtocol,
                Side::Ended | Side::Told => Closed::ByPeer,
            }),
            End::TooLong => self.close(Closed::TooLong),
            End::Detach(handler) => {
                let thread = Successor::Thread(handler, self.route.key, self.route.id());
                self.stage = Stage::Leaving(Box::new(thread));
            }
            End::Http(site) => self.stage = Stage::Leaving(Box::new(http_successor(site))),
            // Handled by `call` already.
            End::Succeed(_) | End::Succeeded => {}
        }
    }

    pub(super) fn close(&mut self, reason: Closed) {
        if matches!(self.stage, Stage::New | Stage::Open) {
            self.stage = Stage::Closing(reason);
            self.calls = None;
        }
    }

    /// Called when the connection ends at once, for this reason.
    pub(crate) fn break_off(&mut self, reason: Closed) {
        self.stage = Stage::Closing(reason);
        self.input = Side::Told;
    }

    /// Called when the connection is closed to make room for another one.
    pub(crate) fn shed(&mut self) {
        self.close(Closed::Overloaded);
    }

    /// Called when the write direction is shut down. Input is discarded until `until`.
    pub(crate) fn linger(&mut self, until: Instant) {
        if let Stage::Closing(reason) = self.stage {
            self.stage = Stage::Lingering(reason, until);
        }
    }

    /// Takes the protocol out, together with the reason of the end. It gets no more events.
    pub(crate) fn take_protocol(&mut self) -> Option<(Box<dyn Protocol>, Closed, Route)> {
        if let Some(mailbox) = self.mailbox.take() {
            mailbox.queue.close();
        }
        self.held = None;
        self.calls = None;
        let reason = match self.stage {
            Stage::Closing(reason) | Stage::Lingering(reason, _) => reason,
            _ => Closed::Shutdown,
        };
        match std::mem::replace(&mut self.actor, Actor::Gone) {
            Actor::Present(protocol) => Some((protocol, reason, self.route)),
            Actor::Expected(_) | Actor::Gone => None,
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // The protocol is still present if the server has ended by its drain deadline.
        if let Some((mut protocol, reason, _)) = self.take_protocol() {
            protocol.close(reason);
        }
    }
}

/// Returns HTTP with this service, in the state of a new connection.
fn http_successor(site: Arc<Site>) -> Successor {
    Successor::Guest(Guest::Http(Http::new(Some(site))))
}
