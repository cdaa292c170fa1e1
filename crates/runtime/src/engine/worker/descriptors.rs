//! The descriptors that connections hold beside their own. No plain request comes here.

use std::io;
use std::iter;
use std::ops::ControlFlow::Continue;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;

use super::{Flow, Worker};
use crate::budget::descriptors::{HeldDescriptor, Holding};
use crate::budget::refusal::Refusal;
use crate::engine::connection::Connection;
use crate::engine::event_loop::{LoopHandle, Message};
use crate::engine::exchange::ReplyTo;
use crate::engine::listener::is_out_of_descriptors;
use crate::protocol::http::Http;
use crate::service::refused::RETRY_AFTER;
use crate::service::request::Request;
use crate::service::response::Response;

/// How long a thread waits for loops that close connections for its descriptor. They do that within
/// a millisecond, unless a handler has their thread. A longer wait would occupy threads of the pool
/// while descriptors are scarce.
const WAIT_MAX: Duration = Duration::from_millis(100);

impl Worker<'_> {
    /// Counts a descriptor that is going to be held for a connection. If descriptors are scarce,
    /// another connection is closed for it. Returns `None` if none is left, or the client has its
    /// share.
    #[cold]
    pub(super) fn hold_descriptor(&mut self, connection: &Connection) -> Option<HeldDescriptor> {
        let mut until = None;
        loop {
            let connections = self.engine.counters.connections.get();
            match self.engine.descriptors.hold(connections, connection.account.client()) {
                Holding::Within(held) => return Some(held),
                Holding::Lent(held) => {
                    if !self.free_one() {
                        connection.loop_handle.send(Message::Shed(None));
                    }
                    return Some(held);
                }
                // Each round closes a connection. Another thread may have taken the descriptor that
                // was freed.
                Holding::Full if self.free_one() => {}
                Holding::Full if self.lead.is_none() => {
                    let until = *until.get_or_insert_with(|| Instant::now() + WAIT_MAX);
                    if !self.wait_for_one(&connection.loop_handle, until) {
                        return None;
                    }
                }
                Holding::Full => {
                    connection.loop_handle.send(Message::Shed(None));
                    return None;
                }
                Holding::ClientFull => return None,
            }
        }
    }

    /// Closes the connection of this loop that has been idle for the longest time. Returns `false`
    /// if there is none, or this thread leads no loop.
    fn free_one(&mut self) -> bool {
        let now = self.buffers.clock.now();
        let shed = self.lead.as_mut().and_then(|event_loop| event_loop.make_idle_room(now));
        shed.map(|shed| self.close_idle(*shed)).is_some()
    }

    /// Waits until a loop has closed a connection, and asks the loop `own` first. Returns `false`
    /// if no loop has one to close, or the time is over. No loop waits for this thread, so there is
    /// no deadlock.
    fn wait_for_one(&self, own: &Arc<LoopHandle>, until: Instant) -> bool {
        let others = self.engine.loop_handles().filter(|other| !Arc::ptr_eq(other, own));
        for handle in iter::once(Arc::clone(own)).chain(others) {
            let (sender, closed) = crossbeam_channel::unbounded();
            handle.send(Message::Shed(Some(sender)));
            match closed.recv_deadline(until) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        false
    }

    /// Opens a second handle of the connection for a content that is read as it arrives, once there
    /// is a thread for its handler. Returns `false` if no descriptor is left for it.
    #[cold]
    pub(super) fn open_stream(
        &mut self,
        request: &mut Request,
        connection: &mut Connection,
    ) -> io::Result<bool> {
        let Some(held) = self.hold_descriptor(connection) else { return Ok(false) };
        connection.transport.share();
        match connection.transport.second_handle() {
            Ok(handle) => request.body_mut().open_stream(handle, held),
            Err(error) if is_out_of_descriptors(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Begins a response whose body comes from a reader. The reader may have an open file, and
    /// keeps it until the client has read the response. If no descriptor is left for it, the
    /// response is a `503`.
    #[cold]
    #[inline(never)]
    pub(super) fn respond_from_reader(
        &mut self,
        reply_to: ReplyTo,
        response: &mut Response,
    ) -> Flow {
        let connection = &reply_to.connection;
        if connection.guest.as_http().is_some_and(Http::is_head_request) {
            return self.respond_any_rare(reply_to, response);
        }
        let Some(held) = self.hold_descriptor(connection) else {
            self.engine.refusals.note(Refusal::Descriptors, connection.peer);
            *response = Response::new(503);
            let _ = response.set_header("retry-after", RETRY_AFTER.to_string());
            return self.respond_any_rare(reply_to, response);
        };
        let mut connection = self.respond_any_rare(reply_to, response)?;
        if let Some(http) = connection.guest.as_http_mut() {
            http.keep_descriptor(held);
        }
        Continue(connection)
    }
}
