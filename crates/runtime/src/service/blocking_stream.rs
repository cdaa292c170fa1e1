//! A socket that the engine has given up: after a `101`, or when the connection was accepted.

use std::fmt;
use std::io::{self, Cursor, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::budget::descriptors::HeldDescriptor;
use crate::budget::streams::{OpenStream, PRESSED_SILENCE};
use crate::budget::turns::Turn;
use crate::transport::{Transport, is_would_block};

/// How long a read waits before it checks whether threads are scarce.
const TICK: Duration = Duration::from_secs(1);

/// A connection that one thread owns: reads and writes block. Bytes that the peer sent after its
/// upgrade request are read first. The stream is given to the handlers of
/// [`Response::upgrade`](crate::Response::upgrade), [`tcp::blocking`](crate::tcp::blocking) and
/// [`tcp::Io::detach`](crate::tcp::Io::detach).
///
/// A read or write waits for
/// [`blocking_stream_timeout`](crate::ServerConfig::blocking_stream_timeout) at most, two minutes
/// by default, because a silent peer must not hold a thread for ever. After that it returns the
/// error that the standard library's sockets return: `WouldBlock` on Unix, `TimedOut` on Windows.
/// The connection stays usable. A handler that returns the error closes it.
///
/// The connections that requests have upgraded hold at most half of
/// [`threads_max`](crate::ServerConfig::threads_max) together. Further requests get a `503` instead
/// of their `101`. A raw service may use all threads. While that many threads wait for peers, a
/// read returns `TimedOut`, on every system, when its peer has been silent for two seconds.
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
    /// Bytes that arrived before the stream began. Freed when they are read.
    unread: Cursor<Vec<u8>>,
    shared: Arc<Shared>,
    /// The turn of the thread that uses this handle. A second handle has none before its first
    /// read.
    turn: Option<Turn>,
    /// Whether this handle has written since it was last read from.
    has_written: bool,
    /// The descriptor of this handle.
    held: HeldDescriptor,
}

/// Code that a thread runs with a connection that it owns. Its arguments are the connection, the
/// stream that counts the thread, and how long reads and writes may wait.
pub(crate) type OnThread = Box<dyn FnOnce(Detached, OpenStream, Option<Duration>) + Send>;

/// A thread that is reserved for such code until its connection is there. Called with the
/// connection, it returns whether the thread gets it. If this is dropped, the thread is free again.
pub(crate) type ReservedThread = Box<dyn FnOnce(Detached) -> bool + Send>;

/// A connection that the engine gives up.
pub(crate) struct Detached {
    pub(crate) transport: Transport,
    /// What the peer sent after its upgrade request.
    pub(crate) unread: Vec<u8>,
    pub(crate) held: HeldDescriptor,
}

/// Returns a handler of the program as code for a thread of its own. A program that never calls
/// this does not contain what such code needs.
pub(crate) fn on_thread(handler: impl FnOnce(BlockingStream) + Send + 'static) -> OnThread {
    Box::new(move |detached, open, timeout| {
        let turn = open.wait_for_turn();
        handler(BlockingStream::new(detached, open, timeout, turn));
    })
}

/// What the handles of a connection share.
struct Shared {
    /// The connection counts for its client and among the streams as long as any handle lives.
    open: OpenStream,
    /// How many waits of the socket make up the timeout of a read. 0 means that there is no
    /// timeout.
    read_ticks: AtomicU32,
}

impl BlockingStream {
    fn new(
        detached: Detached,
        open: OpenStream,
        read_timeout: Option<Duration>,
        turn: Option<Turn>,
    ) -> Self {
        let Detached { transport, unread, held } = detached;
        // One wait of the socket is the whole timeout, because the socket already has that timeout.
        let shared = Arc::new(Shared { open, read_ticks: AtomicU32::new(1) });
        let unread = Cursor::new(unread);
        let stream = Self { transport, unread, shared, turn, has_written: false, held };
        // If this fails, the socket keeps its timeout.
        let _ = stream.set_read_timeout(read_timeout);
        stream
    }

    /// Sets how long a read may wait, for all handles of the connection. `None` means no timeout.
    ///
    /// # Errors
    ///
    /// If the duration is less than a microsecond, or the system refuses it.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        check_timeout(timeout)?;
        let (tick, ticks) = ticks_of(timeout);
        self.transport.set_read_timeout(Some(tick))?;
        self.shared.read_ticks.store(ticks, Ordering::Relaxed);
        Ok(())
    }

    /// Sets how long a write may wait, for all handles of the connection. `None` means no timeout.
    ///
    /// # Errors
    ///
    /// If the duration is less than a microsecond, or the system refuses it.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        check_timeout(timeout)?;
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
        let (shared, held) = (Arc::clone(&self.shared), self.held.another());
        let (unread, turn) = (Cursor::default(), None);
        Ok(Self { transport, unread, shared, turn, has_written: false, held })
    }

    fn unread_bytes(&self) -> usize {
        let read = usize::try_from(self.unread.position()).unwrap_or(usize::MAX);
        self.unread.get_ref().len().saturating_sub(read)
    }

    /// Closes the write direction.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        self.transport.shutdown(Shutdown::Write)
    }

    /// Reads from the socket, and waits for a turn to handle what has arrived: hundreds of threads
    /// may compute on what their peers send.
    fn receive_in_turn(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.has_written = false;
        let read = match self.turn.take() {
            Some(mut turn) => {
                let read = turn.suspend(|| self.receive(buffer));
                self.turn = Some(turn);
                read
            }
            None => {
                let read = self.receive(buffer);
                self.turn = self.shared.open.wait_for_turn();
                read
            }
        }?;
        self.shared.open.count_read(read);
        Ok(read)
    }

    /// Reads from the socket. Waits until the timeout is over, or the peer has been silent for too
    /// long while threads are scarce.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (mut waited, pressed) = (0, ticks_of(Some(PRESSED_SILENCE)).1);
        loop {
            let error = match self.transport.read(buffer) {
                Err(error) if is_would_block(&error) => error,
                result => return result,
            };
            waited += 1;
            let ticks = self.shared.read_ticks.load(Ordering::Relaxed);
            if ticks != 0 && waited >= ticks {
                return Err(error);
            }
            if waited >= pressed && self.shared.open.is_pressed() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

/// The system takes a timeout that is shorter than its unit for none.
fn check_timeout(timeout: Option<Duration>) -> io::Result<()> {
    if timeout.is_some_and(|timeout| timeout < Duration::from_micros(1)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(())
}

/// Divides a timeout into waits. Returns the length of each and their number, or 0 if there is no
/// timeout.
fn ticks_of(timeout: Option<Duration>) -> (Duration, u32) {
    let Some(timeout) = timeout else { return (TICK, 0) };
    let ticks = timeout.as_millis().div_ceil(TICK.as_millis()).max(1);
    u32::try_from(ticks).map_or((TICK, 0), |ticks| (timeout / ticks, ticks))
}

impl Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unread_bytes() == 0 {
            return self.receive_in_turn(buffer);
        }
        let length = self.unread.read(buffer)?;
        if self.unread_bytes() == 0 {
            self.unread = Cursor::default();
        }
        Ok(length)
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Code that writes again after an answer has more to do, such as handling further messages
        // that have arrived.
        if let Some(turn) = self.turn.as_mut().filter(|_| self.has_written) {
            turn.pass_on();
        }
        self.has_written = true;
        let written = self.transport.write(bytes);
        written.inspect(|written| self.shared.open.count_written(*written))
    }

    fn flush(&mut self) -> io::Result<()> {
        // A socket has sent what it has taken. A session may have more to send.
        if self.transport.settle()? { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }
}

#[cfg(feature = "tls")]
impl Drop for BlockingStream {
    fn drop(&mut self) {
        // The last handle tells the peer of the end, unless its handler has panicked.
        if Arc::strong_count(&self.shared) == 1 && !std::thread::panicking() {
            self.transport.farewell_at_once();
        }
    }
}

impl fmt::Debug for BlockingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingStream")
            .field("unread", &self.unread_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_whole_number_of_waits() {
        let of = |milliseconds| ticks_of(Some(Duration::from_millis(milliseconds)));
        assert!(check_timeout(Some(Duration::from_nanos(999))).is_err());
        assert!(
            check_timeout(Some(Duration::from_micros(1))).is_ok() && check_timeout(None).is_ok()
        );
        assert_eq!(of(300), (Duration::from_millis(300), 1));
        assert_eq!(of(1000), (TICK, 1));
        assert_eq!(of(1500), (Duration::from_millis(750), 2));
        assert_eq!(of(120_000), (TICK, 120));
        assert_eq!(ticks_of(None), (TICK, 0));
        assert_eq!(ticks_of(Some(Duration::MAX)), (TICK, 0));
    }
}
