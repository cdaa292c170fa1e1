//! The transport of a connection with a TLS session.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;

use super::session::{Session, Wire};
use super::tls_info::TlsInfo;
use super::{Socket, Transport};

impl Transport {
    /// Continues in a session whose handshake is complete.
    pub(crate) fn secure(&mut self, session: Session) {
        self.session = Some(session);
    }

    /// Returns what the handshake has established, if there is a session.
    pub(crate) fn tls_info(&self) -> Option<&Arc<TlsInfo>> {
        self.session.as_ref().map(Session::info)
    }

    /// Returns the memory of bytes that were received and not yet read.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.session.as_ref().map_or(0, Session::held_bytes)
    }

    #[inline(never)]
    pub(super) fn read_session(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.in_session(|session, wire| session.read(wire, parts)).unwrap_or(Ok(0))
    }

    #[inline(never)]
    pub(super) fn write_session(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.in_session(|session, wire| session.write(wire, parts)).unwrap_or(Ok(0))
    }

    #[inline(never)]
    pub(super) fn settle_session(&mut self) -> io::Result<bool> {
        self.in_session(Session::settle).unwrap_or(Ok(false))
    }

    #[cold]
    pub(super) fn end_session(&mut self) -> bool {
        self.in_session(Session::say_goodbye).unwrap_or(false)
    }

    /// Tells the peer that the connection ends, if the socket takes it at once.
    pub(crate) fn farewell_at_once(&mut self) {
        if self.session.is_some() && self.set_nonblocking().is_ok() {
            self.farewell();
        }
    }

    /// Announces that the next write is the last one, if it is complete.
    #[cold]
    pub(super) fn end_session_with_next_write(&mut self) {
        if let Some(session) = &mut self.session {
            session.end_with_next_write();
        }
    }

    /// Uses the session and the socket at once.
    fn in_session<T>(&mut self, work: impl FnOnce(&mut Session, &Self) -> T) -> Option<T> {
        let mut session = self.session.take()?;
        let result = work(&mut session, self);
        self.session = Some(session);
        Some(result)
    }
}

impl Wire for Transport {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Self::receive(self, buffer)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Self::send(self, bytes)
    }

    fn patience(&self) -> Option<Duration> {
        each!(&self.socket, socket => {
            let socket = SockRef::from(socket);
            // A read of a non-blocking socket ends by itself. Windows does not tell the mode.
            #[cfg(unix)]
            if socket.nonblocking().unwrap_or(true) {
                return None;
            }
            socket.read_timeout().ok().flatten()
        })
    }
}
