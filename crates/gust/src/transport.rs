//! Non-blocking sockets: TCP, TLS over TCP, and Unix.

use std::io::{self, Read, Write};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::target::Address;
use crate::tls::{Tls, TlsStream};

/// A connection to the server, open or being opened.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    /// Boxed, because a session is much larger than a socket.
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// Starts to connect. When the socket becomes writable, it is open or has failed.
    pub(crate) fn connect(address: &Address, tls: Option<&Tls>) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(*address)?;
                // Each request is written at once, so there is nothing for the kernel to wait for.
                stream.set_nodelay(true)?;
                match tls {
                    Some(tls) => Ok(Self::Tls(Box::new(tls.begin(stream)?))),
                    None => Ok(Self::Tcp(stream)),
                }
            }
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
        }
    }

    /// Returns why the connect failed, if it did.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Tcp(stream) => stream.take_error(),
            Self::Tls(stream) => stream.socket().take_error(),
            Self::Unix(stream) => stream.take_error(),
        }
    }

    /// Continues the TLS handshake of a connected socket. Returns `WouldBlock` if it has to wait.
    pub(crate) fn shake_hands(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.shake_hands(),
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
        }
    }

    /// Returns whether the TLS session was resumed. `None` without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        match self {
            Self::Tls(stream) => Some(stream.is_resumed()),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Returns whether bytes that were written wait for the socket.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.has_unsent(),
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }

    /// Sends bytes that wait for the socket.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush(),
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
        }
    }

    /// Registers both directions once. Events are edge-triggered, so the interest never changes.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(stream) => stream.register(registry, token, interest),
            Self::Tls(stream) => stream.socket_mut().register(registry, token, interest),
            Self::Unix(stream) => stream.register(registry, token, interest),
        }
    }

    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => receive(stream, buffer),
            Self::Tls(stream) => stream.read(buffer),
            Self::Unix(stream) => receive(stream, buffer),
        }
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => send(stream, bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Unix(stream) => send(stream, bytes),
        }
    }
}

// These functions make the system calls directly. The functions of the C library are cancellation
// points, which costs a tenth of the time in a program with threads. On Linux, mio does not need to
// see reads and writes.

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
fn receive(socket: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    socket.read(buffer)
}

#[cfg(not(target_os = "linux"))]
fn send(socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    socket.write(bytes)
}
