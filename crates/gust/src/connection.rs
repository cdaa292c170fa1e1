//! One connection and its socket: connecting, writing, reading and closing.

use std::io;

use mio::{Registry, Token};

use crate::exchange::{Exchange, Flow};
use crate::plan::Plan;
use crate::retry::Retry;
use crate::tally::{ErrorKind, Tally};
use crate::transport::Stream;
use crate::units::Nanos;
use crate::websocket::{Opened, Opening, WebSocket};

/// Most reads from one connection before other connections are handled, so that a server that sends
/// without end does not block the thread.
const READS_PER_EVENT_MAX: u32 = 16;

/// One connection, which is opened again after it was closed.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) link: Link,
    pub(crate) exchange: Exchange,
    /// How many times it was opened.
    pub(crate) opened: u64,
    retry: Retry,
    /// Whether it is in the queue of connections that may get a request.
    pub(crate) is_available: bool,
}

/// The state of the socket.
#[derive(Debug)]
pub(crate) enum Link {
    /// There is no socket, and none is opened before `until`.
    Closed {
        until: Nanos,
    },
    Connecting {
        stream: Stream,
        since: Nanos,
        /// The handshake of a WebSocket.
        opening: Option<Opening>,
    },
    Open(Stream),
}

/// Buffers that the connections of a thread share.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) input: Box<[u8]>,
    pub(crate) gathered: Vec<u8>,
}

/// The result of reading from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The socket is empty.
    Drained,
    /// There may be more to read, after other connections were handled.
    MayHaveMore,
    /// The connection has ended or takes no further request, without an error.
    Closed,
}

impl Connection {
    pub(crate) fn new(plan: &Plan, opens_at: Nanos) -> Self {
        Self {
            link: Link::Closed { until: opens_at },
            exchange: Exchange::new(plan),
            opened: 0,
            retry: Retry::default(),
            is_available: false,
        }
    }

    pub(crate) fn connect(
        &mut self,
        plan: &Plan,
        registry: &Registry,
        token: Token,
        now: Nanos,
    ) -> io::Result<()> {
        let mut stream = Stream::connect(&plan.address, plan.tls.as_ref())?;
        stream.register(registry, token)?;
        let opening = plan.websocket.as_ref().map(|_| Opening::default());
        self.link = Link::Connecting { stream, since: now, opening };
        Ok(())
    }

    /// Continues to connect when the socket becomes ready. Returns the time at which the connect
    /// was started, or `None` if it needs further events. `clock` returns the time at which those
    /// messages arrived that the server sent together with the end of the handshake.
    pub(crate) fn finish_connect(
        &mut self,
        plan: &Plan,
        clock: impl Fn() -> Nanos,
        tally: &mut Tally,
    ) -> io::Result<Option<Nanos>> {
        let Link::Connecting { stream, since, opening } = &mut self.link else { return Ok(None) };
        let since = *since;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        let is_resumed = match stream.shake_hands() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            result => result.map(|()| stream.is_resumed())?,
        };
        let opened = match (opening, &plan.websocket) {
            (Some(opening), Some(websocket)) => match open(stream, opening, websocket)? {
                None => return Ok(None),
                opened => opened,
            },
            _ => None,
        };
        if let Some(is_resumed) = is_resumed {
            tally.handshake(since, is_resumed);
        }
        let Link::Connecting { stream, .. } =
            std::mem::replace(&mut self.link, Link::Closed { until: 0 })
        else {
            return Ok(None);
        };
        self.link = Link::Open(stream);
        self.opened += 1;
        self.retry.opened(self.exchange.answered);
        if let Some(Opened { decoder, mut rest }) = opened {
            self.exchange.open(decoder);
            if self.exchange.receive(plan, &mut rest, clock(), tally) != Ok(Flow::Open) {
                return Err(io::Error::other("the server closed the WebSocket at once"));
            }
        }
        Ok(Some(since))
    }

    /// Closes the connection and returns the number of lost requests.
    pub(crate) fn close(&mut self, tally: &Tally, until: Nanos) -> u64 {
        self.link = Link::Closed { until };
        self.exchange.restart(tally)
    }

    /// Returns how long to wait before the closed connection is opened again.
    pub(crate) fn pause_after_close(&mut self) -> Nanos {
        self.retry.pause_after_close(self.exchange.answered)
    }

    /// Returns how long to wait after a failed attempt to connect.
    pub(crate) fn pause_after_failure(&mut self) -> Nanos {
        self.retry.pause_after_failure()
    }

    /// Returns whether the connection is open and held: see [`Exchange::is_held`].
    pub(crate) fn is_held(&self) -> bool {
        self.is_open() && self.exchange.is_held()
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.link, Link::Open(_))
    }

    /// Returns whether something waits to be written.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        let is_kept = || matches!(&self.link, Link::Open(stream) if stream.has_unsent());
        self.exchange.has_unsent() || is_kept()
    }

    /// Writes unsent requests until the socket accepts no more.
    #[inline]
    pub(crate) fn flush(
        &mut self,
        plan: &Plan,
        scratch: &mut Scratch,
        tally: &mut Tally,
    ) -> Result<(), ErrorKind> {
        let Link::Open(stream) = &mut self.link else { return Ok(()) };
        if stream.has_unsent() {
            match stream.flush() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(ErrorKind::Reset),
            }
        }
        while self.exchange.has_unsent() {
            let bytes = self.exchange.unsent_bytes(plan, &mut scratch.gathered);
            let length = bytes.len();
            match stream.write(bytes) {
                Ok(written) => {
                    tally.slice.bytes_sent += written as u64;
                    self.exchange.note_written(plan, written);
                    if written < length {
                        // An event will report when there is room again.
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

    /// Reads until the socket is empty or other connections have to be handled. `clock` returns the
    /// time of each read. `on_read` is called after each read with that time, and may start new
    /// requests.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        plan: &Plan,
        scratch: &mut Scratch,
        tally: &mut Tally,
        ends: bool,
        clock: impl Fn() -> Nanos,
        mut on_read: impl FnMut(&mut Exchange, &mut Tally, Nanos),
    ) -> Result<Received, ErrorKind> {
        for _ in 0..READS_PER_EVENT_MAX {
            let Link::Open(stream) = &mut self.link else { return Ok(Received::Drained) };
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
                        io::ErrorKind::WouldBlock => return Ok(Received::Drained),
                        io::ErrorKind::Interrupted => continue,
                        // An alert, or a record that cannot be decrypted.
                        io::ErrorKind::InvalidData => return Err(ErrorKind::Malformed),
                        _ => return Err(ErrorKind::Reset),
                    }
                }
            };
            let now = clock();
            tally.slice.bytes_received += read as u64;
            let flow =
                self.exchange.receive(plan, &mut scratch.input[..kept + read], now, tally)?;
            if flow == Flow::Closing {
                return Ok(Received::Closed);
            }
            on_read(&mut self.exchange, tally, now);
            if self.exchange.has_unsent() {
                self.flush(plan, scratch, tally)?;
            }
            // A read that does not fill the buffer has emptied the socket, unless the end of the
            // stream follows.
            if kept + read < scratch.input.len() && !ends {
                return Ok(Received::Drained);
            }
        }
        Ok(Received::MayHaveMore)
    }
}

/// Continues the handshake of a WebSocket. Returns `None` if it has to wait for the socket.
fn open(
    stream: &mut Stream,
    opening: &mut Opening,
    websocket: &WebSocket,
) -> io::Result<Option<Opened>> {
    /// Answers to handshakes are short.
    const READ_BYTES: usize = 4096;

    while !opening.unsent(websocket).is_empty() || stream.has_unsent() {
        let result = match opening.unsent(websocket) {
            [] => stream.flush().map(|()| 0),
            unsent => stream.write(unsent),
        };
        match result {
            Ok(written) => opening.note_written(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let mut buffer = [0; READ_BYTES];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server closed the connection during the WebSocket handshake",
                ));
            }
            Ok(read) => {
                let opened =
                    opening.receive(websocket, &buffer[..read]).map_err(io::Error::other)?;
                if opened.is_some() {
                    return Ok(opened);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

impl Scratch {
    pub(crate) fn new(input_bytes: usize) -> Self {
        Self { input: vec![0; input_bytes].into_boxed_slice(), gathered: Vec::new() }
    }
}
