//! Bytes on their way out: written as far as the socket takes them, and the rest kept with the
//! connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Instant;

use bytes::{Buf, Bytes};

use super::Connection;
use crate::budget::memory::{Charge, SHORT_BYTES};
use crate::buffers::Buffers;
use crate::clock::Pace;
use crate::config::ServerConfig;
use crate::transport::{Transport, is_would_block};

/// Bytes that the socket did not take, in order. Nothing else is done for a connection before they
/// are gone.
#[derive(Debug)]
pub(crate) struct Unsent {
    parts: VecDeque<Bytes>,
    pace: Pace,
    /// What they take of the budget, until all are gone: a part is freed as a whole. What others
    /// hold too, such as a file in memory, is there anyway.
    charge: Charge,
}

/// What became of the bytes that were to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// The socket has taken them all.
    All,
    /// Some are kept until the peer reads.
    Some,
    /// Some are kept although the socket may take more: a leader looks at its other connections
    /// first.
    Paused,
}

/// Bytes that are given to the socket in one turn. Copying them takes the system some ten
/// microseconds; a socket on the same machine takes megabytes at once, and everybody else on the
/// loop would wait for that.
const TURN_BYTES: usize = 256 * 1024;

impl Unsent {
    /// When the peer must have taken them, as far as it took any.
    pub(crate) fn deadline(&self) -> Instant {
        self.pace.deadline()
    }

    /// The same while memory is short.
    pub(crate) fn pressed_deadline(&self) -> Instant {
        self.pace.pressed_deadline()
    }

    /// Goes on until the socket takes no more, or the turn is over.
    fn flush(&mut self, transport: &mut Transport, now: Instant) -> io::Result<Flushed> {
        let mut left = TURN_BYTES;
        while let Some(part) = self.parts.front_mut() {
            if left == 0 {
                return Ok(Flushed::Paused);
            }
            match transport.write(part.get(..left).unwrap_or(part)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    left -= written;
                    self.pace.advance(written, now);
                    part.advance(written);
                    if part.is_empty() {
                        self.parts.pop_front();
                    }
                }
                Err(error) if is_would_block(&error) => return Ok(Flushed::Some),
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }
}

impl Connection {
    /// Whether the peer must take bytes before anything else.
    #[inline]
    pub(crate) fn is_writing(&self) -> bool {
        self.unsent.is_some()
    }

    /// Whether there is nothing to write.
    #[inline]
    pub(crate) fn is_flushed(&self, buffers: &Buffers) -> bool {
        self.unsent.is_none() && buffers.output.is_empty()
    }

    /// Writes the output; keeps what the socket does not take.
    #[inline(always)]
    pub(crate) fn flush(
        &mut self,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> io::Result<Flushed> {
        if self.unsent.is_none() {
            if let Ok(written) = self.transport.write(&buffers.output) {
                if written == buffers.output.len() {
                    buffers.output.clear();
                    return Ok(Flushed::All);
                }
                self.keep_unsent(written, &Bytes::new(), buffers, config);
            }
        }
        self.flush_with(&Bytes::new(), buffers, config)
    }

    /// Writes what is unsent, then the output, then `content`; keeps what the socket does not take.
    #[inline(never)]
    pub(crate) fn flush_with(
        &mut self,
        content: &Bytes,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> io::Result<Flushed> {
        let flushed = self.flush_unsent(buffers.clock.now())?;
        let output = &mut buffers.output;
        if output.is_empty() && content.is_empty() {
            return Ok(flushed);
        }
        if flushed != Flushed::All {
            self.keep_unsent(0, content, buffers, config);
            return Ok(flushed);
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
        let offered = output.len() + turn.len();
        if written == offered && turn.len() == content.len() {
            output.clear();
            return Ok(Flushed::All);
        }
        self.keep_unsent(written, content, buffers, config);
        if self.is_too_much() {
            return self.flush_or_end(buffers.clock.now());
        }
        if written == offered {
            Ok(Flushed::Paused)
        } else {
            self.flush_unsent(buffers.clock.now())
        }
    }

    /// Whether what is kept takes more than there is for all.
    fn is_too_much(&self) -> bool {
        let own = self.unsent.as_ref().map_or(0, |unsent| unsent.charge.bytes());
        own > SHORT_BYTES && self.home.engine.memory.is_used_up()
    }

    /// Gives the socket all that it takes, without turns. If its peer does not take the rest at
    /// once, there is no memory to keep it in.
    #[cold]
    fn flush_or_end(&mut self, now: Instant) -> io::Result<Flushed> {
        loop {
            match self.flush_unsent(now)? {
                Flushed::All => return Ok(Flushed::All),
                Flushed::Paused => {}
                Flushed::Some => return Err(io::ErrorKind::OutOfMemory.into()),
            }
        }
    }

    /// Writes the first `length` unread bytes of the input, without a copy, then the output.
    /// Consumes them; keeps what the socket does not take.
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
        let rest = bytes.get(written..).unwrap_or_default();
        if !rest.is_empty() {
            // In front of what was said behind them.
            buffers.output.splice(0..0, rest.iter().copied());
        }
        buffers.input.consume(length);
        if self.is_flushed(buffers) { Ok(Flushed::All) } else { self.flush(buffers, config) }
    }

    #[cold]
    fn keep_unsent(
        &mut self,
        written: usize,
        content: &Bytes,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) {
        let unsent = self.unsent.get_or_insert_with(|| {
            let pace =
                Pace::new(buffers.clock.now(), config.write_timeout, config.bytes_per_second_min);
            Box::new(Unsent { parts: VecDeque::new(), pace, charge: Charge::default() })
        });
        let of_head = written.min(buffers.output.len());
        let head = Bytes::copy_from_slice(&buffers.output[of_head..]);
        buffers.output.clear();
        let is_own = content.is_unique();
        let content = content.slice((written - of_head)..);
        let own = head.len() + if is_own { content.len() } else { 0 };
        unsent.parts.extend([head, content].into_iter().filter(|part| !part.is_empty()));
        unsent.charge.add(&self.home.engine.memory, own);
    }

    fn flush_unsent(&mut self, now: Instant) -> io::Result<Flushed> {
        let Some(unsent) = &mut self.unsent else { return Ok(Flushed::All) };
        let flushed = unsent.flush(&mut self.transport, now)?;
        if flushed == Flushed::All {
            self.unsent = None;
        }
        Ok(flushed)
    }
}
