//! Checks of what a socket has received, without reading it.

use std::io;
use std::mem::MaybeUninit;

use socket2::SockRef;

#[cfg(feature = "tls")]
use super::is_would_block;
use super::{Socket, Transport};

impl Transport {
    /// Returns whether the socket has received bytes that are not yet read.
    pub(crate) fn has_unread(&self) -> bool {
        self.has_more() || self.peek().is_ok_and(|peeked| peeked > 0)
    }

    /// Returns whether the peer has ended its direction, or the connection has failed. An end
    /// behind bytes that are not yet read is not seen.
    #[cfg(feature = "tls")]
    pub(crate) fn has_ended(&self) -> bool {
        match self.peek() {
            Ok(peeked) => peeked == 0,
            Err(error) => !is_would_block(&error) && error.kind() != io::ErrorKind::Interrupted,
        }
    }

    /// Returns why the connection has failed, if it has, even if there are unread bytes. The system
    /// reports the error once.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        each!(&self.socket, socket => SockRef::from(socket).take_error()).ok().flatten()
    }

    fn peek(&self) -> io::Result<usize> {
        let mut byte = [MaybeUninit::uninit()];
        each!(&self.socket, socket => SockRef::from(socket).peek(&mut byte))
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_end_of_a_peer_is_seen_behind_what_was_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut transport = Transport::tcp(mio::net::TcpStream::from_std(stream));
        assert!(!transport.has_ended() && !transport.has_unread());
        peer.write_all(b"x").unwrap();
        while !transport.has_unread() {}
        drop(peer);
        assert!(!transport.has_ended());
        assert_eq!(transport.read(&mut [0]).unwrap(), 1);
        while !transport.has_ended() {}
        assert!(!transport.has_unread());
    }
}
