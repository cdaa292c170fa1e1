//! Contents that handlers read, and bodies that they produce, piece by piece.

use std::io;
use std::ops::ControlFlow::{Break, Continue};

use super::run::run_rare;
use super::{Flow, Outcome, Worker};
use crate::clock::Pace;
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::connection::unsent::Flushed;
use crate::execution::key::Route;
use crate::protocol::Guest;
use crate::protocol::http::{FileSent, Streaming};
use crate::service::body::{Body, ContentStream, STREAM_TICK};
use crate::service::{Site, warn_of_failed_body};

/// How many bytes of a file are read when its socket takes no more. They wait for the client like
/// those of any other response.
const WAITING_BYTES: usize = 16 * 1024;

impl Worker<'_> {
    /// Calls the handler with a content that it reads from the connection.
    #[inline(never)]
    pub(super) fn stream(&mut self, mut connection: Box<Connection>, streaming: Streaming) -> Flow {
        let flushed = self.flush_output(&mut connection);
        let is_left = matches!(flushed, Ok(Flushed::Some | Flushed::Paused));
        if let (true, Some(http)) = (is_left, connection.guest.as_http_mut()) {
            // The handler would wait for the content, and the peer may wait for earlier responses.
            // An interim response would also be sent before these are complete.
            http.stream_later(streaming, self.buffers.clock.now(), &self.engine.config);
            return self.flushed(connection, flushed);
        }
        let mut connection = self.flushed(connection, flushed)?;
        self.end_lease(&mut connection);
        let held = connection.hold(STREAM_TICK);
        let connection = self.check(connection, held)?;
        let Some(open) = self.engine.streams.open(connection.account.client()) else {
            return self.refuse_stream(connection, streaming);
        };
        let Streaming { mut request, route, content } = streaming;
        let config = &self.engine.config;
        let pace = Pace::new(
            self.buffers.clock.now(),
            config.content_timeout,
            config.bytes_per_second_min,
        );
        let unread = self.buffers.input.take_rest();
        let (stream, returns) = ContentStream::new(open, content, unread, pace);
        request.set_stream(Body::from_stream(stream), &returns);
        self.call_cold(connection, request, route, Some(returns))
    }

    /// Sends the next piece of a body that comes from a reader.
    #[inline(never)]
    pub(super) fn pump(&mut self, mut connection: Box<Connection>) -> Flow {
        let Some(http) = connection.guest.as_http() else {
            return Break(Outcome::Closed(connection));
        };
        let receives = http.sends_what_it_receives();
        let Some(route) = http.sending_route() else { return Continue(connection) };
        if receives && self.lead.is_some() || !self.runs_here(route, None) {
            return self.resume_on_pool(connection, route);
        }
        if receives && !connection.is_held() {
            let held = connection.hold(STREAM_TICK);
            connection = self.check(connection, held)?;
        }
        // Earlier output goes first, and with a blocking socket `send_file` would wait.
        let sends_file = connection.is_flushed(self.buffers) && !connection.is_held();
        let Connection { guest: Guest::Http(http), loop_handle, transport, .. } = &mut *connection
        else {
            return Break(Outcome::Closed(connection));
        };
        let Self { engine, buffers, lead, clocks, .. } = self;
        let (result, call_outcome) =
            run_rare(lead, clocks, engine, loop_handle, route, &mut || {
                let moved = &mut buffers.moved;
                let sent = if sends_file {
                    http.send_file(|file, offset, length| {
                        let sent = transport.send_file(file, offset, length);
                        sent.inspect(|sent| moved.written += *sent as u64)
                    })
                } else {
                    FileSent::Unsupported
                };
                let failed = match sent {
                    FileSent::Some => None,
                    FileSent::Failed(error) => Some(error),
                    FileSent::WouldBlock => http.pump(WAITING_BYTES, buffers, &engine.config),
                    FileSent::Unsupported => http.pump(usize::MAX, buffers, &engine.config),
                };
                if let Some(error) = failed {
                    tell_of_failed_body(engine, http.site(), route, &error);
                }
            });
        if result.is_err() {
            http.break_off();
        }
        transport.set_resets(http.is_cut_short());
        self.record_call(&mut connection, call_outcome);
        // The measurement of the response may have begun on another thread.
        self.has_measured = true;
        self.flush(connection)
    }
}

/// Reports that a response whose head was sent could not be completed. The service logs it, because
/// it may know more about the route than the engine.
#[cold]
pub(super) fn tell_of_failed_body(
    engine: &Engine,
    site: Option<&Site>,
    route: Route,
    error: &io::Error,
) {
    let name_of = |number| site.and_then(|site| site.service.route_name(number));
    let name = engine.routes.name_of(route.key, &name_of);
    match site {
        Some(site) => site.service.body_failed(name.as_deref(), error),
        None => warn_of_failed_body(name.as_deref(), error),
    }
}
