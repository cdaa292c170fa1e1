//! Bodies that are written by blocking code.

use std::fmt;
use std::io::{self, Write};
use std::mem;

use super::{SendError, Sender};

/// The number of bytes that a writer gathers before it sends them.
const BUFFER_BYTES: usize = 8 * 1024;

/// Writes a response body. Writes are gathered into pieces of 8 KiB; [`flush`](Write::flush) sends
/// what was gathered. A write waits while the client is slow, and fails with `BrokenPipe` when it
/// has gone. See [`Pushed::written`](super::Pushed::written).
///
/// ```
/// use filoplume_runtime::pushed::{Pushed, StreamWriter};
/// use std::io::{self, Write};
///
/// fn report(out: &mut StreamWriter) -> io::Result<()> {
///     for line in 0..1000 {
///         writeln!(out, "line {line}")?;
///     }
///     out.flush()
/// }
///
/// let body = Pushed::written(report);
/// # drop(body);
/// ```
pub struct StreamWriter {
    sender: Sender,
    buffer: Vec<u8>,
}

impl StreamWriter {
    /// Returns the sender of the body, for other threads.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.sender.send(mem::take(&mut self.buffer))?;
        }
        Ok(())
    }
}

impl Write for StreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.send()?;
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

impl fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWriter").field("sender", &self.sender).finish_non_exhaustive()
    }
}

/// Runs the program's code, and ends the body as it returns.
pub(super) fn run(sender: Sender, write: impl FnOnce(&mut StreamWriter) -> io::Result<()>) {
    let mut out = StreamWriter { sender, buffer: Vec::new() };
    let result = write(&mut out).and_then(|()| out.flush());
    if let Err(error) = result {
        // A client that has gone is no failure of the program.
        let is_clients = error.get_ref().is_some_and(|within| within.is::<SendError>());
        if !is_clients || out.sender.is_open() {
            out.sender.fail(error);
        }
    }
}
