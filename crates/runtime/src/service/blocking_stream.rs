//! A socket that the engine has given up: after a `101`, or when the connection was accepted.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::streams::OpenStream;
use crate::transport::Transport;

/// A connection that one thread owns: reads and writes block. Bytes that the peer sent behind its
/// upgrade request are read first. It is given to the handlers of
/// [`Response::upgrade`](crate::Response::upgrade), [`tcp::blocking`](crate::tcp::blocking) and
/// [`tcp::Io::detach`](crate::tcp::Io::detach).
///
/// A read or write waits for
/// [`blocking_stream_timeout`](crate::ServerConfig::blocking_stream_timeout) at most, two minutes
/// by default, because a silent peer must not hold a thread for ever. After that it returns the
/// error that the standard library's sockets return: `WouldBlock` on Unix, `TimedOut` on Windows.
/// The connection stays usable. A handler that returns the error closes it.
///
/// ```
/// use filoplume_runtime::{BlockingStream, Response};
/// use std::io::{Read, Write};
/// use std::time::Duration;
///
/// /// Sends every byte back.
/// fn echo(mut socket: BlockingStream) -> std::io::Result<()> {
///     socket.set_read_timeout(Some(Duration::from_secs(60)))?;
///     let mut bytes = [0; 1024];
///     loop {
///         match socket.read(&mut bytes)? {
///             0 => return Ok(()),
///             count => socket.write_all(&bytes[..count])?,
///         }
///     }
/// }
///
/// let mut response = Response::upgrade(|socket| drop(echo(socket)));
/// response.set_header("upgrade", "echo")?;
/// assert_eq!(response.status(), 101);
/// # Ok::<(), filoplume_runtime::InvalidHeader>(())
/// ```
pub struct BlockingStream {
    transport: Transport,
    unread: Vec<u8>,
    /// The connection counts for its client and among the streams as long as any handle lives.
    open: Arc<OpenStream>,
}

impl BlockingStream {
    pub(crate) fn new(transport: Transport, unread: Vec<u8>, open: OpenStream) -> Self {
        Self { transport, unread, open: Arc::new(open) }
    }

    /// Sets how long a read may wait, for all handles of the connection. `None` means no timeout.
    ///
    /// # Errors
    ///
    /// If the duration is zero or the system refuses it.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.transport.set_read_timeout(timeout)
    }

    /// Sets how long a write may wait, for all handles of the connection. `None` means no timeout.
    ///
    /// # Errors
    ///
    /// If the duration is zero or the system refuses it.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.transport.set_write_timeout(timeout)
    }

    /// Returns a second handle, so that one thread can read while another writes. Bytes that were
    /// read ahead stay with this handle.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let transport = self.transport.second_handle()?;
        Ok(Self { transport, unread: Vec::new(), open: Arc::clone(&self.open) })
    }

    /// Closes the write direction.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        self.transport.shutdown(Shutdown::Write)
    }
}

impl Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_empty() {
            return self.transport.read(buffer).inspect(|read| self.open.count_read(*read));
        }
        let length = self.unread.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.unread[..length]);
        self.unread.drain(..length);
        Ok(length)
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.write(bytes).inspect(|written| self.open.count_written(*written))
    }

    fn flush(&mut self) -> io::Result<()> {
        // A socket has sent what it has taken. A session may have more to send.
        if self.transport.settle() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }
}

#[cfg(feature = "tls")]
impl Drop for BlockingStream {
    fn drop(&mut self) {
        // The last handle tells the peer of the end, unless its handler was broken off.
        if Arc::strong_count(&self.open) == 1 && !std::thread::panicking() {
            self.transport.farewell_at_once();
        }
    }
}

impl fmt::Debug for BlockingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingStream").field("unread", &self.unread.len()).finish_non_exhaustive()
    }
}
