//! A service made of a closure over lines.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::{Io, Protocol, Reply, TcpService};
use crate::transport::Peer;

/// The default of [`Lines::line_bytes_max`].
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Returns a service that answers each line with the result of `answer`, as a line. Lines end with
/// LF or CR LF, which `answer` does not see. Answers end with LF. When the peer ends, the bytes
/// after the last line end are a line too. If a line is longer than 8 KiB the connection is closed;
/// [`Lines::line_bytes_max`] sets another bound.
///
/// ```
/// use filoplume_runtime::{Server, tcp};
/// use std::io::{Write, read_to_string};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn_tcp(tcp::lines(|line| line.to_ascii_uppercase().into()))?;
///
/// let mut client = std::net::TcpStream::connect(server.local_addr().unwrap())?;
/// client.write_all(b"one\r\ntwo\nthree")?;
/// client.shutdown(std::net::Shutdown::Write)?;
/// assert_eq!(read_to_string(client)?, "ONE\nTWO\nTHREE\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lines<F>(answer: F) -> Lines<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    Lines { answer: Arc::new(answer), line_bytes_max: LINE_BYTES_MAX }
}

/// The service that [`lines()`] returns.
///
/// ```
/// use filoplume_runtime::tcp;
///
/// let service = tcp::lines(|line| line.into()).line_bytes_max(512);
/// # drop(service);
/// ```
pub struct Lines<F> {
    answer: Arc<F>,
    line_bytes_max: usize,
}

impl<F> Lines<F> {
    /// Sets the maximum length of a line without its line end. Default: 8 KiB.
    #[must_use]
    pub fn line_bytes_max(mut self, bytes: usize) -> Self {
        self.line_bytes_max = bytes;
        self
    }
}

impl<F> TcpService for Lines<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    fn accept(&self, _peer: Peer) -> Box<dyn Protocol> {
        Box::new(LinesProtocol {
            answer: Arc::clone(&self.answer),
            line_bytes_max: self.line_bytes_max,
            searched: 0,
            has_ended: false,
        })
    }
}

struct LinesProtocol<F> {
    answer: Arc<F>,
    line_bytes_max: usize,
    /// The number of bytes of the current line that were already searched for its end.
    searched: usize,
    has_ended: bool,
}

impl<F> LinesProtocol<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    fn answer(&mut self, line: &[u8], io: &mut Io<'_>) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > self.line_bytes_max {
            self.has_ended = true;
            return io.refuse_as_too_long();
        }
        let reply = (self.answer)(line);
        if let Some(reply) = reply.bytes {
            io.send(&reply);
            io.send(b"\n");
        }
        if reply.closes {
            self.has_ended = true;
            io.close();
        }
    }
}

impl<F> Protocol for LinesProtocol<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let turn_ends = Instant::now() + io.turn();
        let mut used = 0;
        while !self.has_ended {
            let rest = bytes.get(used..).unwrap_or_default();
            let new = rest.get(self.searched..).unwrap_or_default();
            let Some(length) = new.iter().position(|&byte| byte == b'\n') else {
                self.searched = rest.len();
                break;
            };
            let length = self.searched + length;
            self.answer(&rest[..length], io);
            used += length + 1;
            self.searched = 0;
            let may_stop = !self.has_ended && used < bytes.len();
            if may_stop && io.has_done_enough(turn_ends) {
                io.resume();
                break;
            }
        }
        used
    }

    fn end(&mut self, rest: &[u8], io: &mut Io<'_>) {
        if !rest.is_empty() && !self.has_ended {
            self.answer(rest, io);
        }
        io.close();
    }

    fn unread_bytes_max(&self) -> usize {
        // One more for the CR, which may be the last byte that has arrived.
        self.line_bytes_max.saturating_add(1)
    }
}

impl<F> fmt::Debug for Lines<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("line_bytes_max", &self.line_bytes_max)
            .finish_non_exhaustive()
    }
}
