//! Contents that a handler reads, and bodies that it gives, piece by piece.

use super::call::run;
use super::{Go, Worker};
use crate::body::{Body, ContentStream, STREAM_TICK};
use crate::clock::Pace;
use crate::connection::Connection;
use crate::connection::unsent::Flushed;
use crate::protocol::http::{Http, Streaming};

impl Worker<'_> {
    /// Lets the handler read the content from the connection.
    #[inline(never)]
    pub(super) fn stream(&mut self, mut connection: Box<Connection>, streaming: Streaming) -> Go {
        match self.flush(&mut connection) {
            Ok(Flushed::All) => {}
            Ok(Flushed::Some) => {
                // The handler would wait for a content whose peer may wait for these answers, and an interim response would
                // come before their end.
                let now = self.buffers.clock.now();
                connection.http.stream_later(streaming, now, &self.engine.config);
                return Go::Away(self.wait_rarely(connection));
            }
            Err(error) => return Go::Away(self.give_up(connection, error)),
        }
        self.end_lease(&mut connection);
        let socket = connection.hold(STREAM_TICK).and_then(|()| connection.transport.try_clone());
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => return Go::Away(self.give_up(connection, error)),
        };
        let Streaming { mut request, route, decoder, prefix, owes_continue } = streaming;
        let config = &self.engine.config;
        let pace = Pace::new(self.buffers.clock.now(), config.content_timeout, config.bytes_per_second_min);
        let unread = self.buffers.input.take_rest();
        #[cfg_attr(
            not(all(test, target_os = "linux")),
            expect(unused_mut, reason = "only tests let it fail")
        )]
        let (mut stream, returns) = ContentStream::new(socket, decoder, prefix, unread, pace, owes_continue);
        #[cfg(all(test, target_os = "linux"))]
        {
            stream.faults.clone_from(&config.faults);
        }
        request.set_body(Body::from_stream(stream));
        self.call(connection, request, route, Some(returns))
    }

    /// Sends the next piece of a body that comes from a reader.
    #[inline(never)]
    pub(super) fn pump(&mut self, mut connection: Box<Connection>) -> Go {
        let Some(route) = connection.http.sending_route() else { return Go::On(connection) };
        let receives = connection.http.sends_what_it_receives();
        if receives && self.lead.is_some() || !self.runs_here(route, None) {
            return self.resume_elsewhere(connection);
        }
        if receives && !connection.is_held() {
            if let Err(error) = connection.hold(STREAM_TICK) {
                return Go::Away(self.give_up(connection, error));
            }
        }
        // The code that runs has the connection's HTTP in hand, and only that.
        let mut http = std::mem::replace(&mut connection.http, Http::new());
        let Self { engine, buffers, lead, clocks, .. } = self;
        let (result, conduct) =
            run(lead, clocks, engine, connection.home(), route, || http.pump(buffers, &engine.config));
        connection.http = http;
        self.take_note(&mut connection, conduct);
        if result.is_err() {
            connection.http.break_off();
        }
        let flushed = self.flush(&mut connection);
        self.go(connection, flushed)
    }
}
