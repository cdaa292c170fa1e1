//! The socket of a connection: TCP or Unix. It is non-blocking under a poller and blocking on a
//! lease.
//!
//! A TLS [`session`] lies above the socket. Reads, writes and the end of the connection pass
//! through it: [`has_more`](Transport::has_more), [`settle`](Transport::settle),
//! [`farewell`](Transport::farewell) and [`abandon`](Transport::abandon) exist for its sake. Its
//! handshake is the connection's first guest, `protocol/handshake`. A write that returns an error
//! has sent nothing and is retried with the same bytes.

/// Evaluates `$body` with the concrete socket in `$socket`.
macro_rules! each {
    ($transport:expr, $socket:ident => $body:expr) => {
        match $transport {
            Socket::Tcp($socket) => $body,
            #[cfg(unix)]
            Socket::Unix($socket) => $body,
        }
    };
}

mod peek;
mod peer;
#[cfg(feature = "tls")]
pub(crate) mod records;
mod send_file;
#[cfg(feature = "tls")]
pub(crate) mod session;
pub(crate) mod splice;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
pub(crate) mod tls_info;

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
#[cfg(unix)]
use std::os::fd::AsFd;
#[cfg(all(test, target_os = "linux"))]
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
#[cfg(unix)]
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
#[cfg(target_os = "linux")]
use rustix::net::{RecvFlags, SendFlags};
use socket2::SockRef;

#[cfg(all(test, target_os = "linux"))]
use crate::faults::{Call, Plan, Watched};

pub use self::peer::Peer;

/// A connected socket. Reads and writes retry when a signal interrupts them.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Socket,
    #[cfg(feature = "tls")]
    session: Option<session::Session>,
    /// Whether another handle of the socket may be open.
    is_shared: bool,
    /// Whether dropping the socket resets the connection, so that the peer does not take the end of
    /// the connection for the end of a content.
    resets: bool,
    #[cfg(all(test, target_os = "linux"))]
    faults: Option<Box<Faulty>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Transport {
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        Self::plain(Socket::Tcp(stream))
    }

    #[cfg(unix)]
    pub(crate) fn unix(stream: UnixStream) -> Self {
        Self::plain(Socket::Unix(stream))
    }

    fn plain(socket: Socket) -> Self {
        Self {
            socket,
            #[cfg(feature = "tls")]
            session: None,
            is_shared: false,
            resets: false,
            #[cfg(all(test, target_os = "linux"))]
            faults: None,
        }
    }

    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            return self.read_session(&mut [IoSliceMut::new(buffer)]);
        }
        self.receive(buffer)
    }

    #[inline(always)]
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        retry(|| {
            #[cfg(all(test, target_os = "linux"))]
            let buffer = {
                let length = self.before(Call::Read, buffer.len())?;
                &mut buffer[..length]
            };
            each!(&self.socket, socket => receive(socket, buffer))
        })
    }

    pub(crate) fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            return self.read_session(parts);
        }
        retry(|| {
            #[cfg(all(test, target_os = "linux"))]
            {
                let whole: usize = parts.iter().map(|part| part.len()).sum();
                if self.before(Call::Read, whole)? < whole {
                    return each!(&self.socket, socket => receive(socket, &mut parts[0][..1]));
                }
            }
            each!(&self.socket, socket => (&*socket).read_vectored(parts))
        })
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            return self.write_session(&[IoSlice::new(bytes)]);
        }
        self.send(bytes)
    }

    #[inline(always)]
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        retry(|| {
            #[cfg(all(test, target_os = "linux"))]
            let bytes = &bytes[..self.before(Call::Write, bytes.len())?];
            each!(&self.socket, socket => send(socket, bytes))
        })
    }

    pub(crate) fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            return self.write_session(parts);
        }
        retry(|| {
            #[cfg(all(test, target_os = "linux"))]
            {
                let whole: usize = parts.iter().map(|part| part.len()).sum();
                if self.before(Call::Write, whole)? < whole {
                    return each!(&self.socket, socket => send(socket, &parts[0][..1]));
                }
            }
            each!(&self.socket, socket => (&*socket).write_vectored(parts))
        })
    }

    pub(crate) fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        #[cfg(all(test, target_os = "linux"))]
        self.note_watched(registry, token, interest);
        each!(&mut self.socket, socket => registry.register(socket, token, interest))
    }

    pub(crate) fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        #[cfg(all(test, target_os = "linux"))]
        self.note_watched(registry, token, interest);
        each!(&mut self.socket, socket => registry.reregister(socket, token, interest))
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        #[cfg(all(test, target_os = "linux"))]
        if let Some(faulty) = &self.faults {
            faulty.watched.by_nobody();
        }
        each!(&mut self.socket, socket => registry.deregister(socket))
    }

    /// Shuts a direction down. After a shutdown of the write direction the peer reads what was
    /// written, then the end.
    pub(crate) fn shutdown(&mut self, direction: Shutdown) -> io::Result<()> {
        #[cfg(all(test, target_os = "linux"))]
        self.before(Call::Shutdown, 0)?;
        #[cfg(feature = "tls")]
        if direction == Shutdown::Write {
            self.farewell();
        }
        each!(&self.socket, socket => socket.shutdown(direction))
    }

    /// Returns whether a read may return data that the poller does not report, because it was
    /// received together with earlier data. A plain socket buffers nothing.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.session {
            return session.has_more();
        }
        false
    }

    /// Returns how many bytes the transport has taken and not yet sent. A plain socket takes only
    /// what the system sends.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.session {
            return session.unsent();
        }
        0
    }

    /// Sends the transport's own data before the connection waits. Returns whether some of it is
    /// left, because the socket did not take it. A plain socket has no such data.
    #[inline]
    pub(crate) fn settle(&mut self) -> io::Result<bool> {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            return self.settle_session();
        }
        Ok(false)
    }

    /// Tells the peer that the connection ends. Returns the same as [`settle`](Self::settle). A
    /// plain socket ends with its close.
    #[inline]
    pub(crate) fn farewell(&mut self) -> bool {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            // A connection that is reset must not look complete.
            return !self.resets && self.end_session();
        }
        false
    }

    /// Announces that the next write is the last one before [`farewell`](Self::farewell), which is
    /// then sent with it.
    #[inline]
    pub(crate) fn farewell_with_next_write(&mut self) {
        #[cfg(feature = "tls")]
        if self.session.is_some() && !self.resets {
            self.end_session_with_next_write();
        }
    }

    /// Drops the data that [`settle`](Self::settle) could not send. Returns whether there was any.
    #[inline]
    pub(crate) fn abandon(&mut self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.abandon();
        }
        false
    }

    /// Sets whether dropping the connection resets it. A reset tells the peer that a content is
    /// incomplete if neither a length nor a last chunk does (RFC 9112, sections 6.3 and 8).
    pub(crate) fn set_resets(&mut self, resets: bool) {
        self.resets = resets;
    }

    /// Makes the socket blocking, with `timeout` for reads and writes. `None` means no timeout.
    pub(crate) fn set_blocking(&self, timeout: impl Into<Option<Duration>>) -> io::Result<()> {
        let timeout = timeout.into();
        each!(&self.socket, socket => {
            let socket = SockRef::from(socket);
            socket.set_read_timeout(timeout)?;
            socket.set_write_timeout(timeout)?;
            socket.set_nonblocking(false)
        })
    }

    /// Returns whether nothing lies above the socket.
    #[cfg(unix)]
    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_self, reason = "there is no TLS"))]
    pub(crate) fn is_plain(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.session.is_none();
        #[cfg(not(feature = "tls"))]
        true
    }

    /// Returns the socket, to pass it on to another process.
    #[cfg(unix)]
    pub(crate) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        each!(&self.socket, socket => AsFd::as_fd(socket))
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        each!(&self.socket, socket => SockRef::from(socket).set_nonblocking(true))
    }

    /// Sets how long each read may wait. `None` means no timeout.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = in_units_of_the_system(timeout);
        each!(&self.socket, socket => SockRef::from(socket).set_read_timeout(timeout))
    }

    /// Sets how long each write may wait. `None` means no timeout.
    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = in_units_of_the_system(timeout);
        each!(&self.socket, socket => SockRef::from(socket).set_write_timeout(timeout))
    }

    /// Prepares the transport for a second handle. A session is shared from now on.
    pub(crate) fn share(&mut self) {
        self.is_shared = true;
        #[cfg(feature = "tls")]
        {
            self.session = self.session.take().map(session::Session::share);
        }
    }

    /// Returns whether another handle of the socket may be open.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Opens a second handle, for a thread that reads while another one writes, after
    /// [`share`](Self::share). Only the transport may do that, because a session above the socket
    /// has to be shared as well.
    pub(crate) fn second_handle(&self) -> io::Result<Self> {
        let clone = |socket: SockRef<'_>| socket.try_clone();
        #[cfg_attr(
            not(any(feature = "tls", all(test, target_os = "linux"))),
            expect(unused_mut, reason = "only tests make it fail")
        )]
        let mut handle = match &self.socket {
            Socket::Tcp(socket) => Self::tcp(TcpStream::from_std(clone(socket.into())?.into())),
            #[cfg(unix)]
            Socket::Unix(socket) => Self::unix(UnixStream::from_std(clone(socket.into())?.into())),
        };
        #[cfg(feature = "tls")]
        if let Some(session) = &self.session {
            let second = session.second_handle();
            handle.session = Some(second.ok_or(io::ErrorKind::Unsupported)?);
        }
        #[cfg(all(test, target_os = "linux"))]
        if let Some(faulty) = &self.faults {
            handle.fail_as(&faulty.plan);
        }
        Ok(handle)
    }
}

/// Returns a timeout of at least a microsecond. The system takes a shorter one for none.
fn in_units_of_the_system(timeout: Option<Duration>) -> Option<Duration> {
    timeout.map(|timeout| timeout.max(Duration::from_micros(1)))
}

impl Drop for Transport {
    fn drop(&mut self) {
        if self.resets {
            // If this fails, the connection is already closed.
            each!(&self.socket, socket => {
                let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
            });
        }
    }
}

/// Makes calls fail according to a plan.
#[cfg(all(test, target_os = "linux"))]
#[derive(Debug)]
struct Faulty {
    plan: Arc<Plan>,
    watched: Watched,
}

#[cfg(all(test, target_os = "linux"))]
impl Transport {
    /// Makes calls fail from now on.
    pub(crate) fn fail_as(&mut self, plan: &Arc<Plan>) {
        self.faults =
            Some(Box::new(Faulty { plan: Arc::clone(plan), watched: Watched::default() }));
    }

    fn note_watched(&self, registry: &Registry, token: Token, interest: Interest) {
        if let Some(faulty) = &self.faults {
            faulty.watched.by(registry, token, interest);
        }
    }

    fn before(&self, call: Call, length: usize) -> io::Result<usize> {
        let Some(faulty) = &self.faults else { return Ok(length) };
        let result = faulty.plan.before(call, length);
        if result.as_ref().map_or_else(is_would_block, |moved| *moved < length) {
            each!(&self.socket, socket => faulty.watched.tell_again(socket));
        }
        result
    }
}

/// Reads without the C library, in which each call is a cancellation point of the thread. That cost
/// about a hundred instructions per request.
#[cfg(target_os = "linux")]
#[inline]
fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(socket, buffer, RecvFlags::empty())?.0)
}

/// Writes like [`receive`] reads. A write to a closed connection returns an error and raises no
/// signal.
#[cfg(target_os = "linux")]
#[inline]
fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

#[cfg(not(target_os = "linux"))]
fn receive(mut socket: impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    socket.read(buffer)
}

#[cfg(not(target_os = "linux"))]
fn send(mut socket: impl Write, bytes: &[u8]) -> io::Result<usize> {
    socket.write(bytes)
}

/// Returns whether an error of a read or write means that the call would block. Windows reports a
/// timeout when a read or write with a timeout has waited long enough. Elsewhere a timeout is the
/// end of a connection whose peer has not answered for long.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || (cfg!(windows) && error.kind() == io::ErrorKind::TimedOut)
}

/// Returns whether an error of the socket means that the peer is gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::WriteZero
    )
}

#[inline(always)]
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(all(test, not(loom), target_os = "linux", feature = "tls-dev"))]
pub(crate) mod tests;
