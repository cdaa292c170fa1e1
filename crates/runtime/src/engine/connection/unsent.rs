//! Output: written as far as the socket takes it. The rest is kept with the connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Instant;

use bytes::{Buf, Bytes};

use super::Connection;
use crate::budget::account::Charge;
use crate::budget::memory::SHORT_BYTES;
use crate::buffers::Buffers;
use crate::clock::Pace;
use crate::config::ServerConfig;
use crate::transport::{Transport, is_would_block};

/// Bytes that the socket has not taken yet, in order. The connection does nothing else until they
/// are written.
#[derive(Debug)]
pub(crate) struct Unsent {
    parts: VecDeque<Bytes>,
    pace: Pace,
    /// Their share of the memory budget. It is given back when all parts are written. Shared bytes,
    /// such as a file in memory, are not counted, because they are in memory anyway.
    charge: Charge,
    /// How many bytes of the charge the transport had taken and not sent.
    of_transport: usize,
    /// What the guest keeps in memory for the rest of the response. The guest charges it.
    of_guest: usize,
}

/// The result of writing the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// The socket has taken all bytes.
    All,
    /// Some bytes are kept until the peer reads.
    Some,
    /// Some bytes are kept although the socket may take more: a leader serves its other connections
    /// first.
    Paused,
}

/// Maximum number of bytes written in one turn. Copying them takes the kernel some ten
/// microseconds. A socket on the same machine would take megabytes at once, and all other
/// connections of the loop would wait for that.
const TURN_BYTES: usize = 256 * 1024;

/// The maximum length of short output of a connection that other threads send to. It is less than
/// [`SHORT_BYTES`], because a program may send to all connections at once, and none of them has
/// asked for it.
const SHORT_BYTES_PUSHED: usize = 4 * 1024;

impl Unsent {
    /// Returns when the peer must have taken more bytes.
    pub(crate) fn deadline(&self) -> Instant {
        self.pace.deadline()
    }

    /// Returns the deadline that applies while memory is short.
    pub(crate) fn pressed_deadline(&self) -> Instant {
        self.pace.pressed_deadline()
    }

    /// Writes until the socket takes no more, or the turn is over.
    fn flush(&mut self, transport: &mut Transport, buffers: &mut Buffers) -> io::Result<Flushed> {
        let now = buffers.clock.now();
        let mut left = TURN_BYTES;
        while let Some(part) = self.parts.front_mut() {
            if left == 0 {
                return Ok(Flushed::Paused);
            }
            // The transport may take bytes that it does not send yet. What the peer has made room
            // for is progress, even if the transport takes nothing.
            let before = transport.unsent();
            let result = transport.write(part.get(..left).unwrap_or(part));
            let written = result.as_ref().copied().unwrap_or(0);
            self.pace.advance((before + written).saturating_sub(transport.unsent()), now);
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    left -= written;
                    buffers.moved.written += written as u64;
                    part.advance(written);
                    if part.is_empty() {
                        self.parts.pop_front();
                    }
                }
                Err(error) if is_would_block(&error) => return Ok(Flushed::Some),
                Err(error) => return Err(error),
            }
        }
        let before = transport.unsent();
        if before > 0 {
            let is_left = transport.settle()?;
            self.pace.advance(before.saturating_sub(transport.unsent()), now);
            if is_left {
                return Ok(Flushed::Some);
            }
        }
        Ok(Flushed::All)
    }
}

impl Connection {
    /// Returns whether the peer must take unsent bytes before anything else happens.
    #[inline]
    pub(crate) fn is_writing(&self) -> bool {
        self.unsent.is_some()
    }

    /// Returns whether there is nothing to write.
    #[inline]
    pub(crate) fn is_flushed(&self, buffers: &Buffers) -> bool {
        self.unsent.is_none() && buffers.output.is_empty() && self.transport.unsent() == 0
    }

    /// Writes the output in one go, which is enough for nearly every response. If anything remains
    /// to be done, breaks with the number of bytes of the output that were written, which
    /// [`flush_rest`](Self::flush_rest) needs.
    #[inline(always)]
    pub(crate) fn flush_at_once(&mut self, buffers: &mut Buffers) -> ControlFlow<usize> {
        if self.is_flushed(buffers) {
            return Continue(());
        }
        if self.unsent.is_some() {
            return Break(0);
        }
        let Ok(written) = self.transport.write(&buffers.output) else { return Break(0) };
        buffers.moved.written += written as u64;
        if written < buffers.output.len() || self.transport.unsent() > 0 {
            return Break(written);
        }
        buffers.output.clear();
        Continue(())
    }

    /// Goes on after [`flush_at_once`](Self::flush_at_once), and keeps the bytes that the socket
    /// does not take.
    #[inline(never)]
    pub(crate) fn flush_rest(
        &mut self,
        written: usize,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> io::Result<Flushed> {
        if written > 0 {
            self.keep_unsent(written, &Bytes::new(), buffers, config);
            if self.is_too_much() {
                return self.flush_or_end(buffers);
            }
        }
        self.flush_with(&Bytes::new(), buffers, config)
    }

    /// Writes the output, and keeps the bytes that the socket does not take.
    #[inline]
    pub(crate) fn flush(
        &mut self,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> io::Result<Flushed> {
        match self.flush_at_once(buffers) {
            Continue(()) => Ok(Flushed::All),
            Break(written) => self.flush_rest(written, buffers, config),
        }
    }

    /// Writes the unsent bytes, then the output, then `content`, and keeps the bytes that the
    /// socket does not take.
    #[inline(never)]
    pub(crate) fn flush_with(
        &mut self,
        content: &Bytes,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> io::Result<Flushed> {
        let flushed = self.flush_unsent(buffers)?;
        let output = &mut buffers.output;
        let is_settled = self.transport.unsent() == 0 || flushed != Flushed::All;
        if output.is_empty() && content.is_empty() && is_settled {
            return Ok(flushed);
        }
        if flushed != Flushed::All {
            self.keep_unsent(0, content, buffers, config);
            return if self.is_too_much() { self.flush_or_end(buffers) } else { Ok(flushed) };
        }
        let turn = content.get(..TURN_BYTES).unwrap_or(content);
        let result = if turn.is_empty() {
            self.transport.write(output)
        } else {
            self.transport.write_vectored(&[IoSlice::new(output), IoSlice::new(turn)])
        };
        let written = match result {
            Ok(written) => written,
            Err(error) if is_would_block(&error) => 0,
            Err(error) => return Err(error),
        };
        buffers.moved.written += written as u64;
        let offered = output.len() + turn.len();
        let is_sent = self.transport.unsent() == 0;
        if written == offered && turn.len() == content.len() && is_sent {
            output.clear();
            return Ok(Flushed::All);
        }
        self.keep_unsent(written, content, buffers, config);
        if self.is_too_much() {
            return self.flush_or_end(buffers);
        }
        if written == offered && is_sent { Ok(Flushed::Paused) } else { self.flush_unsent(buffers) }
    }

    /// Returns whether more than a short output is kept for the peer, and there is no memory for
    /// it: the budget is used up, or the client's share of it.
    fn is_too_much(&self) -> bool {
        let own = self.unsent.as_ref().map_or(0, |unsent| unsent.charge.bytes() + unsent.of_guest);
        let short = if self.guest.is_sent_to() { SHORT_BYTES_PUSHED } else { SHORT_BYTES };
        own > short && self.loop_handle.engine.memory.is_used_up()
            || own > SHORT_BYTES_PUSHED && self.account.is_beyond_share()
    }

    /// Writes as much as the socket takes, regardless of turns. Fails if bytes remain, because
    /// there is no memory to keep them in.
    #[cold]
    fn flush_or_end(&mut self, buffers: &mut Buffers) -> io::Result<Flushed> {
        loop {
            match self.flush_unsent(buffers)? {
                Flushed::All => return Ok(Flushed::All),
                Flushed::Paused => {}
                Flushed::Some => return Err(io::ErrorKind::OutOfMemory.into()),
            }
        }
    }

    /// Writes the first `length` unread bytes of the input without copying them, then the output.
    /// Consumes those bytes, and keeps the bytes that the socket does not take.
    #[inline]
    pub(crate) fn send_back(
        &mut self,
        length: usize,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> io::Result<Flushed> {
        let bytes = buffers.input.unread().get(..length).unwrap_or_default();
        let written = if self.unsent.is_none() {
            match self.transport.write(bytes) {
                Ok(written) => written,
                Err(error) if is_would_block(&error) => 0,
                Err(error) => return Err(error),
            }
        } else {
            0
        };
        buffers.moved.written += written as u64;
        let rest = bytes.get(written..).unwrap_or_default();
        if !rest.is_empty() {
            // These bytes precede the output that was produced after them.
            buffers.output.splice(0..0, rest.iter().copied());
        }
        buffers.input.consume(length);
        self.flush(buffers, config)
    }

    #[cold]
    fn keep_unsent(
        &mut self,
        written: usize,
        content: &Bytes,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) {
        let account = &self.account;
        let of_guest = self.guest.charge_reader(account);
        let unsent = self.unsent.get_or_insert_with(|| {
            let pace =
                Pace::new(buffers.clock.now(), config.write_timeout, config.bytes_per_second_min);
            let (parts, charge) = (VecDeque::new(), Charge::default());
            Box::new(Unsent { parts, pace, charge, of_transport: 0, of_guest })
        });
        let of_head = written.min(buffers.output.len());
        let head = Bytes::copy_from_slice(&buffers.output[of_head..]);
        buffers.output.clear();
        let is_own = content.is_unique();
        let content = content.slice((written - of_head)..);
        // What the transport keeps may be charged already.
        let of_transport = self.transport.unsent().max(unsent.of_transport);
        let more_of_transport = of_transport - unsent.of_transport;
        unsent.of_transport = of_transport;
        let own = head.len() + if is_own { content.len() } else { 0 } + more_of_transport;
        unsent.parts.extend([head, content].into_iter().filter(|part| !part.is_empty()));
        unsent.charge.add(account, own);
        unsent.of_guest = of_guest;
    }

    fn flush_unsent(&mut self, buffers: &mut Buffers) -> io::Result<Flushed> {
        let Some(unsent) = &mut self.unsent else { return Ok(Flushed::All) };
        let flushed = unsent.flush(&mut self.transport, buffers)?;
        if flushed == Flushed::All {
            self.unsent = None;
        }
        Ok(flushed)
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests;
