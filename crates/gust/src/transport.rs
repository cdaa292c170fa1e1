//! Sockets that do not block, of both kinds.

use std::io;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::target::Address;

/// A connection to the server, open or about to be.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Begins to connect. It is open, or has failed, when it becomes writable.
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(*address)?;
                // A request is written whole: there is nothing to wait for.
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
        }
    }

    /// Why it failed, if it did.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Tcp(stream) => stream.take_error(),
            Self::Unix(stream) => stream.take_error(),
        }
    }

    /// Both directions at once and for good: events come when something changes, and the interest
    /// never does.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(stream) => stream.register(registry, token, interest),
            Self::Unix(stream) => stream.register(registry, token, interest),
        }
    }

    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => receive(stream, buffer),
            Self::Unix(stream) => receive(stream, buffer),
        }
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => send(stream, bytes),
            Self::Unix(stream) => send(stream, bytes),
        }
    }
}

// Straight to the system: the C library's calls are points of cancellation, which costs a tenth of
// our time in a program with threads. On Linux mio has no part in reads and writes.

#[cfg(target_os = "linux")]
#[inline]
fn receive(socket: &impl std::os::fd::AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(socket, buffer, rustix::net::RecvFlags::empty())?.0)
}

#[cfg(target_os = "linux")]
#[inline]
fn send(socket: &impl std::os::fd::AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, rustix::net::SendFlags::NOSIGNAL)?)
}

#[cfg(not(target_os = "linux"))]
fn receive(socket: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<usize> {
    socket.read(buffer)
}

#[cfg(not(target_os = "linux"))]
fn send(socket: &mut impl io::Write, bytes: &[u8]) -> io::Result<usize> {
    socket.write(bytes)
}
