//! One connection, from its bytes to its next wait.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use super::{Go, Outcome, Worker};
use crate::connection::Connection;
use crate::connection::transport::{Peer, is_would_block};
use crate::connection::unsent::Flushed;
use crate::protocol::http::Step;
use crate::protocol::proxy::ProxyError;
use crate::refusal::Refusal;

/// Reads and pieces of a body in a row before a leader looks at its other connections.
pub(super) const ROUNDS_MAX: u32 = 4;

/// What a read brought.
pub(super) enum Filled {
    /// Bytes; there may be more if all the room was used.
    Some {
        may_have_more: bool,
    },
    Nothing,
    End,
}

impl Worker<'_> {
    /// Works on a connection until it has to wait.
    pub(crate) fn serve(&mut self, mut connection: Box<Connection>) -> Outcome {
        if connection.tcp.is_some() {
            return self.serve_tcp(connection);
        }
        if connection.is_writing() {
            match self.flush(&mut connection) {
                Ok(Flushed::All) => {}
                Ok(Flushed::Some) => return self.wait_rarely(connection),
                Err(error) => return self.give_up(connection, error),
            }
        }
        let mut rounds = 0;
        loop {
            let config = &self.engine.config;
            if connection.http.expects_head() && !self.buffers.input.is_empty() {
                if let Some(head) = connection.http.next_plain_head(self.buffers, config) {
                    match self.request(connection, head) {
                        Go::On(next) => connection = next,
                        Go::Away(outcome) => return outcome,
                    }
                    continue;
                }
                if let Some(head) = connection.http.next_other_head(self.buffers, config) {
                    match self.request_rarely(connection, head) {
                        Go::On(next) => connection = next,
                        Go::Away(outcome) => return outcome,
                    }
                    continue;
                }
            }
            let go = match connection.http.step(self.buffers) {
                Step::Read => {
                    match self.flush_now(&mut connection) {
                        Ok(Flushed::All) => {}
                        Ok(Flushed::Some) => return self.wait_rarely(connection),
                        Err(error) => return self.give_up(connection, error),
                    }
                    if !connection.can_read && !self.keeps(&mut connection) {
                        return self.wait(connection);
                    }
                    if self.lead.is_some() && rounds == ROUNDS_MAX {
                        return self.yielded(connection);
                    }
                    rounds += 1;
                    match self.read(&mut connection) {
                        Ok(Filled::Some { may_have_more }) => {
                            connection.can_read = may_have_more || connection.has_end;
                        }
                        Ok(Filled::Nothing) => {
                            connection.can_read = false;
                            return self.wait_rarely(connection);
                        }
                        Ok(Filled::End) => connection.http.end_of_input(),
                        Err(error) => return self.give_up(connection, error),
                    }
                    continue;
                }
                Step::Again => Go::On(connection),
                Step::Peer(address) => {
                    if !self.is_named(&mut connection, address) {
                        return Outcome::Closed(connection);
                    }
                    Go::On(connection)
                }
                Step::RefuseProxy(error) => return self.refuse_proxy(connection, error),
                Step::Call(request, route) => self.call_collected(connection, request, route),
                Step::Stream(streaming) => self.stream(connection, *streaming),
                Step::Pump if self.lead.is_some() && rounds == ROUNDS_MAX => return self.yielded(connection),
                Step::Pump => {
                    rounds += 1;
                    self.pump(connection)
                }
                Step::Linger => self.linger(connection),
                Step::Close => match self.flush(&mut connection) {
                    Ok(Flushed::All) => return Outcome::Closed(connection),
                    Ok(Flushed::Some) => return self.wait_rarely(connection),
                    Err(error) => return self.give_up(connection, error),
                },
            };
            match go {
                Go::On(next) => connection = next,
                Go::Away(outcome) => return outcome,
            }
        }
    }

    /// Closes without a word: who does not begin as agreed may not speak HTTP either.
    #[cold]
    pub(super) fn refuse_proxy(&self, connection: Box<Connection>, error: ProxyError) -> Outcome {
        tracing::debug!(%error, "a PROXY header is refused");
        self.engine.refusals.note(Refusal::ProxyHeader, connection.peer);
        Outcome::Closed(connection)
    }

    /// A proxy has said whom it speaks for. Returns whether that client may have one more connection.
    #[cold]
    pub(super) fn is_named(&self, connection: &mut Connection, address: SocketAddr) -> bool {
        connection.peer = Peer::Tcp(address);
        let Some(clients) = &self.engine.clients else { return true };
        connection.place = clients.admit(address.ip());
        if connection.place.is_none() {
            self.engine.refusals.note(Refusal::ClientConnections, connection.peer);
        }
        connection.place.is_some()
    }

    /// Counts a refusal that was noted by the protocol.
    #[cold]
    pub(super) fn note_refusal(&self, connection: &mut Connection) {
        if let Some(refusal) = connection.http.take_refusal() {
            self.engine.refusals.note(refusal, connection.peer);
        }
    }

    /// Ends our direction and goes on reading what the peer still sends.
    fn linger(&mut self, mut connection: Box<Connection>) -> Go {
        self.note_refusal(&mut connection);
        match self.flush(&mut connection) {
            Ok(Flushed::All) => {}
            Ok(Flushed::Some) => return Go::Away(self.wait_rarely(connection)),
            Err(error) => return Go::Away(self.give_up(connection, error)),
        }
        if let Err(error) = connection.transport.shutdown_write() {
            return Go::Away(self.give_up(connection, error));
        }
        connection.http.linger(self.buffers.clock.now() + self.engine.config.linger_timeout);
        connection.can_read = true;
        Go::On(connection)
    }

    #[inline(never)]
    pub(super) fn flush(&mut self, connection: &mut Connection) -> io::Result<Flushed> {
        self.flush_now(connection)
    }

    /// As [`flush`](Self::flush), laid into the way of every request.
    #[inline(always)]
    pub(super) fn flush_now(&mut self, connection: &mut Connection) -> io::Result<Flushed> {
        if connection.is_flushed(self.buffers) {
            return Ok(Flushed::All);
        }
        connection.flush(self.buffers, &self.engine.config)
    }

    /// Whether anything was received behind the request at hand: while the server drains, that is answered too. Looks
    /// at the socket itself, because what came while the connection was away is known to its loop only.
    #[cold]
    pub(super) fn has_more_requests(&mut self, connection: &mut Connection) -> bool {
        if !self.buffers.input.is_empty() {
            return true;
        }
        if connection.is_held() && connection.transport.set_nonblocking().is_err() {
            return false;
        }
        match self.read(connection) {
            Ok(Filled::Some { may_have_more }) => {
                connection.can_read = may_have_more || connection.has_end;
                true
            }
            Ok(Filled::Nothing) => {
                connection.can_read = false;
                false
            }
            // Met again by the next read.
            Ok(Filled::End) | Err(_) => {
                connection.can_read = true;
                false
            }
        }
    }

    #[inline(always)]
    fn read(&mut self, connection: &mut Connection) -> io::Result<Filled> {
        if !connection.http.expects_head() {
            return self.read_content(connection);
        }
        self.read_input(connection)
    }

    #[inline(always)]
    pub(super) fn read_input(&mut self, connection: &mut Connection) -> io::Result<Filled> {
        let input = self.buffers.input.spare();
        let room = input.len();
        match connection.transport.read(input) {
            Ok(0) => Ok(Filled::End),
            Ok(read) => {
                self.buffers.input.filled(read);
                Ok(Filled::Some { may_have_more: read == room })
            }
            Err(error) if is_would_block(&error) => Ok(Filled::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Reads into the content at hand, if it takes bytes as they come.
    #[inline(never)]
    fn read_content(&mut self, connection: &mut Connection) -> io::Result<Filled> {
        let Some(content) = connection.http.content_spare() else {
            return self.read_input(connection);
        };
        // What follows the content in the same read goes to the input.
        let room = content.len();
        let parts = &mut [IoSliceMut::new(content), IoSliceMut::new(self.buffers.input.spare())];
        match connection.transport.read_vectored(parts) {
            Ok(0) => Ok(Filled::End),
            Ok(read) => {
                connection.http.content_filled(read.min(room));
                let behind = read.saturating_sub(room);
                self.buffers.input.filled(behind);
                Ok(Filled::Some { may_have_more: self.buffers.input.is_full() })
            }
            Err(error) if is_would_block(&error) => Ok(Filled::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Leaves a connection to its peer.
    #[inline(always)]
    pub(super) fn wait(&mut self, mut connection: Box<Connection>) -> Outcome {
        self.end_lease(&mut connection);
        let has_input = !self.buffers.input.is_empty();
        if let Some(unsent) = &connection.unsent {
            connection.deadline = unsent.deadline();
        } else {
            if self.engine.is_draining() && connection.http.is_idle() && !has_input {
                return Outcome::Closed(connection);
            }
            let now = self.buffers.clock.now();
            if let Some(deadline) = connection.http.deadline(now, has_input, &self.engine.config) {
                connection.deadline = deadline;
            }
        }
        self.leave(connection)
    }

    /// Leaves a connection whose deadline is set.
    #[inline(always)]
    pub(super) fn leave(&mut self, mut connection: Box<Connection>) -> Outcome {
        self.unload(&mut connection);
        match connection.watch(connection.is_writing()) {
            Ok(()) => Outcome::Parked(connection),
            Err(error) => self.give_up(connection, error),
        }
    }

    #[inline(never)]
    pub(super) fn wait_rarely(&mut self, connection: Box<Connection>) -> Outcome {
        if connection.tcp.is_some() { self.wait_tcp(connection) } else { self.wait(connection) }
    }

    /// Lets the loop's other connections have their turn.
    pub(super) fn yielded(&mut self, mut connection: Box<Connection>) -> Outcome {
        if let Err(error) = self.flush(&mut connection).and_then(|_| connection.watch(false)) {
            return self.give_up(connection, error);
        }
        self.unload(&mut connection);
        Outcome::Yielded(connection)
    }
}
