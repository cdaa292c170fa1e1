//! Bodies that are written by blocking code.

use std::fmt;
use std::io::{self, Write};
use std::mem;

use bytes::Bytes;

use super::{SendError, Sender};
use crate::budget::streams::{OpenStream, PRESSED_SILENCE};
use crate::budget::turns::Turn;

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
    /// `None` without a server.
    thread: Option<OfThread>,
}

/// What the thread that writes shares with others.
struct OfThread {
    turn: Turn,
    /// Whether a piece was sent, and nothing was written since.
    has_sent: bool,
    open: OpenStream,
}

impl StreamWriter {
    /// Returns the sender of the body, for other threads.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    fn send(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(mem::take(&mut self.buffer));
        match &mut self.thread {
            Some(thread) => thread.send(&self.sender, &piece)?,
            None => self.sender.send(piece)?,
        }
        Ok(())
    }
}

impl OfThread {
    fn send(&mut self, sender: &Sender, piece: &Bytes) -> Result<(), SendError> {
        self.has_sent = true;
        match sender.try_send(piece.clone()) {
            Err(error) if error.is_temporary() => {
                let open = &self.open;
                self.turn.suspend(|| send_patiently(open, sender, piece))
            }
            result => result,
        }
    }
}

/// Waits for the client. One that takes nothing is cut off while threads are scarce.
fn send_patiently(open: &OpenStream, sender: &Sender, piece: &Bytes) -> Result<(), SendError> {
    loop {
        match sender.send_timeout(piece.clone(), PRESSED_SILENCE) {
            Err(error) if error.is_temporary() && open.is_pressed() => {
                sender.fail("its client took nothing while half of the threads waited for peers");
                return Err(error);
            }
            Err(error) if error.is_temporary() => {}
            result => return result,
        }
    }
}

impl Write for StreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(thread) = self.thread.as_mut().filter(|thread| thread.has_sent) {
            // Code that writes after a piece has more to do. Code that has sent none may be about
            // to end, and passing its turn on would only delay that.
            thread.has_sent = false;
            thread.turn.pass_on();
        }
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
pub(super) fn run(
    sender: Sender,
    open: Option<OpenStream>,
    write: impl FnOnce(&mut StreamWriter) -> io::Result<()>,
) {
    let thread = open.and_then(|open| {
        let turn = open.wait_for_turn()?;
        Some(OfThread { turn, has_sent: false, open })
    });
    let mut out = StreamWriter { sender, buffer: Vec::new(), thread };
    let result = write(&mut out).and_then(|()| out.flush());
    if let Err(error) = result {
        // A client that has gone is no failure of the program.
        let is_clients = error.get_ref().is_some_and(|within| within.is::<SendError>());
        if !is_clients || out.sender.is_open() {
            out.sender.fail(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_fill_the_buffer_are_one_piece() {
        let (sender, _body) = super::super::channel();
        let mut out = StreamWriter { sender, buffer: Vec::new(), thread: None };
        out.write_all(&[0; BUFFER_BYTES / 2]).unwrap();
        assert_eq!(out.sender.waiting(), 0);
        out.write_all(&[0; BUFFER_BYTES / 2]).unwrap();
        assert_eq!((out.sender.waiting(), out.buffer.len()), (BUFFER_BYTES, 0));
        out.write_all(&[0; BUFFER_BYTES - 1]).unwrap();
        out.write_all(&[0; 2]).unwrap();
        assert_eq!((out.sender.waiting(), out.buffer.len()), (2 * BUFFER_BYTES - 1, 2));
    }
}
