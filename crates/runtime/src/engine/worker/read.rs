//! Reading from the peer.

use std::io::{self, IoSliceMut};

use super::Worker;
use crate::engine::connection::Connection;
use crate::protocol::Guest;
use crate::transport::is_would_block;

/// The result of a read.
pub(super) enum Filled {
    /// Some bytes. There may be more if they filled the buffer.
    Some {
        may_have_more: bool,
    },
    Nothing,
    End,
}

impl Worker<'_> {
    /// Reads once, into the input or into the content that the guest collects.
    #[inline(always)]
    pub(super) fn fill(&mut self, connection: &mut Connection) -> io::Result<Filled> {
        match &connection.guest {
            Guest::Http(http) if http.expects_head() => self.read_input(connection),
            _ => self.fill_cold(connection),
        }
    }

    #[inline(never)]
    fn fill_cold(&mut self, connection: &mut Connection) -> io::Result<Filled> {
        if matches!(connection.guest, Guest::Http(_)) {
            return self.read_content(connection);
        }
        let before = self.buffers.input.len();
        let filled = self.read_input(connection);
        if let Guest::Raw(raw) = &mut connection.guest {
            raw.has_read(self.buffers.input.len() - before, self.buffers.clock.now());
        }
        filled
    }

    #[inline(always)]
    fn read_input(&mut self, connection: &mut Connection) -> io::Result<Filled> {
        let input = self.buffers.input.spare();
        let room = input.len();
        match connection.transport.read(input) {
            Ok(0) => Ok(Filled::End),
            Ok(read) => {
                self.buffers.input.filled(read);
                self.buffers.moved.read += read as u64;
                Ok(Filled::Some { may_have_more: read == room })
            }
            Err(error) if is_would_block(&error) => Ok(Filled::Nothing),
            // HTTP marks the end of each message itself, so it does not matter how a TLS session
            // ends. A raw protocol is told that its peer may not have sent everything.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && is_http(connection) => {
                Ok(Filled::End)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads directly into the content, if the content takes undecoded bytes.
    fn read_content(&mut self, connection: &mut Connection) -> io::Result<Filled> {
        let Connection { guest, transport, .. } = connection;
        let Some((http, room)) = guest.as_http_mut().and_then(|http| {
            let room = http.content_spare()?.len();
            Some((http, room))
        }) else {
            return self.read_input(connection);
        };
        let Some(content) = http.content_spare() else { return Ok(Filled::Nothing) };
        // Bytes after the content go to the input.
        let parts = &mut [IoSliceMut::new(content), IoSliceMut::new(self.buffers.input.spare())];
        match transport.read_vectored(parts) {
            Ok(0) => Ok(Filled::End),
            Ok(read) => {
                self.buffers.moved.read += read as u64;
                http.content_filled(read.min(room), self.buffers.clock.now());
                let behind = read.saturating_sub(room);
                self.buffers.input.filled(behind);
                Ok(Filled::Some { may_have_more: self.buffers.input.is_full() })
            }
            Err(error) if is_would_block(&error) => Ok(Filled::Nothing),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Filled::End),
            Err(error) => Err(error),
        }
    }

    /// Returns whether bytes were received after the current request: while the server drains, a
    /// further request is answered too. Reads from the socket, because readiness that was missed
    /// while the connection was taken is known only to its loop.
    #[cold]
    pub(super) fn has_more_requests(&mut self, connection: &mut Connection) -> bool {
        if !self.buffers.input.is_empty() {
            return true;
        }
        if connection.is_held() && connection.transport.set_nonblocking().is_err() {
            return false;
        }
        match self.fill(connection) {
            Ok(Filled::Some { may_have_more }) => {
                connection.can_read = may_have_more || connection.has_end;
                true
            }
            Ok(Filled::Nothing) => {
                connection.can_read = false;
                false
            }
            // The next read reports this again.
            Ok(Filled::End) | Err(_) => {
                connection.can_read = true;
                false
            }
        }
    }
}

fn is_http(connection: &Connection) -> bool {
    matches!(connection.guest, Guest::Http(_))
}
