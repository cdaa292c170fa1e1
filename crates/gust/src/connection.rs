//! One connection and its socket: opening, writing, reading, and what becomes of it.

use std::io;

use mio::{Registry, Token};

use crate::exchange::{Exchange, Flow};
use crate::plan::Plan;
use crate::retry::Retry;
use crate::tally::{ErrorKind, Tally};
use crate::transport::Stream;
use crate::units::Nanos;

/// Reads in a row from one connection before the others have their turn: a server that floods must
/// not stop the clock.
const READS_IN_A_ROW: u32 = 16;

/// A place for one connection after the other.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) link: Link,
    pub(crate) exchange: Exchange,
    /// How often it was opened.
    pub(crate) opened: u64,
    retry: Retry,
    /// Whether it stands in the line of those who may be given a request.
    pub(crate) is_in_line: bool,
}

/// What there is of the socket.
#[derive(Debug)]
pub(crate) enum Link {
    /// There is none, and none is wanted before this moment.
    Closed {
        until: Nanos,
    },
    Connecting {
        stream: Stream,
        since: Nanos,
    },
    Open(Stream),
}

/// Memory that all connections of a thread use in turn.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) input: Box<[u8]>,
    pub(crate) gathered: Vec<u8>,
}

/// How far reading went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The socket is empty.
    All,
    /// There may be more, when the others have had their turn.
    Some,
    /// The connection is finished, in order.
    Closed,
}

impl Connection {
    pub(crate) fn new(plan: &Plan, opens_at: Nanos) -> Self {
        Self {
            link: Link::Closed { until: opens_at },
            exchange: Exchange::new(plan),
            opened: 0,
            retry: Retry::default(),
            is_in_line: false,
        }
    }

    pub(crate) fn connect(
        &mut self,
        plan: &Plan,
        registry: &Registry,
        token: Token,
        now: Nanos,
    ) -> io::Result<()> {
        let mut stream = Stream::connect(&plan.address)?;
        stream.register(registry, token)?;
        self.link = Link::Connecting { stream, since: now };
        Ok(())
    }

    /// The socket is writable for the first time: it is open now, or has failed. Returns when it
    /// was begun.
    pub(crate) fn finish_connect(&mut self) -> io::Result<Option<Nanos>> {
        let Link::Connecting { stream, since } = &self.link else { return Ok(None) };
        let since = *since;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        let Link::Connecting { stream, .. } =
            std::mem::replace(&mut self.link, Link::Closed { until: 0 })
        else {
            return Ok(None);
        };
        self.link = Link::Open(stream);
        self.opened += 1;
        self.retry.opened(self.exchange.answered);
        Ok(Some(since))
    }

    /// Closes it. Requests on their way are lost; returns how many.
    pub(crate) fn close(&mut self, tally: &Tally, until: Nanos) -> u64 {
        self.link = Link::Closed { until };
        self.exchange.restart(tally)
    }

    /// How long to wait before it is opened again, once it was closed.
    pub(crate) fn pause_after_close(&mut self) -> Nanos {
        self.retry.pause_after_close(self.exchange.answered)
    }

    /// How long to wait before the next attempt, after one that failed.
    pub(crate) fn pause_after_failure(&mut self) -> Nanos {
        self.retry.pause_after_failure()
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.link, Link::Open(_))
    }

    /// Writes what was begun, as far as the socket takes it.
    #[inline]
    pub(crate) fn flush(
        &mut self,
        plan: &Plan,
        scratch: &mut Scratch,
        tally: &mut Tally,
    ) -> Result<(), ErrorKind> {
        let Link::Open(stream) = &mut self.link else { return Ok(()) };
        while self.exchange.has_unsent() {
            let bytes = self.exchange.to_write(plan, &mut scratch.gathered);
            let length = bytes.len();
            match stream.write(bytes) {
                Ok(written) => {
                    tally.slice.bytes_sent += written as u64;
                    self.exchange.wrote(plan, written);
                    if written < length {
                        // The next event says when there is room again.
                        return Ok(());
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(ErrorKind::Reset),
                },
            }
        }
        Ok(())
    }

    /// Reads what came, until the socket is empty or the others have waited long enough. `clock`
    /// tells the moment of each read, and `go_on` is called after each with that moment: it may
    /// begin new requests.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        plan: &Plan,
        scratch: &mut Scratch,
        tally: &mut Tally,
        ends: bool,
        clock: impl Fn() -> Nanos,
        mut go_on: impl FnMut(&mut Exchange, &mut Tally, Nanos),
    ) -> Result<Received, ErrorKind> {
        for _ in 0..READS_IN_A_ROW {
            let Link::Open(stream) = &mut self.link else { return Ok(Received::All) };
            let kept = self.exchange.restore(&mut scratch.input);
            let read = match stream.read(&mut scratch.input[kept..]) {
                Ok(0) => {
                    self.exchange.put_back(&scratch.input[..kept]);
                    self.exchange.peer_closed(plan, clock(), tally)?;
                    return Ok(Received::Closed);
                }
                Ok(read) => read,
                Err(error) => {
                    self.exchange.put_back(&scratch.input[..kept]);
                    match error.kind() {
                        io::ErrorKind::WouldBlock => return Ok(Received::All),
                        io::ErrorKind::Interrupted => continue,
                        _ => return Err(ErrorKind::Reset),
                    }
                }
            };
            let now = clock();
            tally.slice.bytes_received += read as u64;
            let flow = self.exchange.receive(plan, &scratch.input[..kept + read], now, tally)?;
            if flow == Flow::Closing {
                return Ok(Received::Closed);
            }
            go_on(&mut self.exchange, tally, now);
            if self.exchange.has_unsent() {
                self.flush(plan, scratch, tally)?;
            }
            // A read that leaves room has emptied the socket, unless its end is there as well.
            if kept + read < scratch.input.len() && !ends {
                return Ok(Received::All);
            }
        }
        Ok(Received::Some)
    }
}

impl Scratch {
    pub(crate) fn new(input_bytes: usize) -> Self {
        Self { input: vec![0; input_bytes].into_boxed_slice(), gathered: Vec::new() }
    }
}
