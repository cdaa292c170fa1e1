//! A TLS session above a socket.
//!
//! A session belongs to its transport and moves with it. If a second handle is made, for a thread
//! that reads while another one writes, both share it from then on: a reader waits for the socket
//! without a lock on the session, so that it never stops the writer.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::is_would_block;
use super::records::{RECORD_BYTES, RECORD_OVERHEAD, RECORDS_PER_WRITE, Records, Room};
use super::tls_info::TlsInfo;

/// Maximum number of bytes per read of the socket.
const RECEIVE_BYTES: usize = 4 * (RECORD_BYTES + RECORD_OVERHEAD);

/// The room for sealed records.
const SEALED_BYTES: usize = (RECORDS_PER_WRITE + 1) * (RECORD_BYTES + RECORD_OVERHEAD);

/// A TLS session.
pub(crate) enum Session {
    Own(Box<Own>),
    Shared(Arc<Shared>),
}

pub(crate) struct Own {
    records: Records,
    receiving: Receiving,
    sending: Sending,
    /// Whether the next write is the last one.
    ends: bool,
    info: Arc<TlsInfo>,
}

/// A session with two handles. A thread locks `receiving` or `sending` before `records`, and never
/// holds `records` while it waits for the socket.
pub(crate) struct Shared {
    records: Mutex<Records>,
    receiving: Mutex<Receiving>,
    sending: Mutex<Sending>,
    info: Arc<TlsInfo>,
}

/// The state of reads from the socket.
#[derive(Debug, Default)]
struct Receiving {
    /// Whether the last read has filled its buffer.
    may_have_more: bool,
    /// Whether the socket has ended although the session has not.
    is_truncated: bool,
}

/// Sealed records that the socket has not taken yet.
#[derive(Debug, Default)]
struct Sending {
    records: Vec<u8>,
    start: usize,
}

/// What a session needs of its socket.
pub(super) trait Wire {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
    /// How long a read of a blocking socket may wait.
    fn patience(&self) -> Option<Duration>;
}

/// Access to the records of a session, which another thread may use too.
trait Access {
    fn with<T>(&mut self, work: impl FnOnce(&mut Records) -> T) -> T;
}

impl Access for &mut Records {
    fn with<T>(&mut self, work: impl FnOnce(&mut Records) -> T) -> T {
        work(self)
    }
}

impl Access for &Mutex<Records> {
    fn with<T>(&mut self, work: impl FnOnce(&mut Records) -> T) -> T {
        work(&mut self.lock())
    }
}

impl Session {
    /// Continues a connection whose handshake is complete.
    pub(crate) fn new(records: Records, info: TlsInfo) -> Self {
        Self::Own(Box::new(Own {
            records,
            receiving: Receiving::default(),
            sending: Sending::default(),
            ends: false,
            info: Arc::new(info),
        }))
    }

    pub(crate) fn info(&self) -> &Arc<TlsInfo> {
        match self {
            Self::Own(own) => &own.info,
            Self::Shared(shared) => &shared.info,
        }
    }

    /// Makes the session shareable.
    pub(super) fn share(self) -> Self {
        let Self::Own(own) = self else { return self };
        let Own { records, receiving, sending, info, .. } = *own;
        Self::Shared(Arc::new(Shared {
            records: Mutex::new(records),
            receiving: Mutex::new(receiving),
            sending: Mutex::new(sending),
            info,
        }))
    }

    /// Returns a second handle. The session must be [shared](Self::share).
    pub(super) fn second_handle(&self) -> Option<Self> {
        match self {
            Self::Own(_) => None,
            Self::Shared(shared) => Some(Self::Shared(Arc::clone(shared))),
        }
    }

    pub(super) fn read(
        &mut self,
        wire: &impl Wire,
        parts: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        if matches!(self, Self::Own(own) if !own.records.has_more()) {
            self.reply(wire);
        }
        let mut room = Room::new(parts);
        let result = match self {
            Self::Own(own) => receive(&mut own.receiving, &mut own.records, wire, &mut room),
            Self::Shared(shared) => {
                let mut receiving = shared.receiving.lock();
                receive(&mut receiving, &shared.records, wire, &mut room)
            }
        };
        // Content is probably followed by a response, and the replies are sent with that.
        if !matches!((&result, &self), (Ok(1..), Self::Own(_))) {
            self.reply(wire);
        }
        result
    }

    pub(super) fn write(&mut self, wire: &impl Wire, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Own(own) => {
                let last = mem::take(&mut own.ends);
                send(&mut own.sending, &mut own.records, wire, parts, last)
            }
            Self::Shared(shared) => {
                let mut sending = shared.sending.lock();
                send(&mut sending, &shared.records, wire, parts, false)
            }
        }
    }

    /// Announces that the next write is the last one. If it is complete, its content and
    /// `close_notify` are sent at once.
    pub(super) fn end_with_next_write(&mut self) {
        if let Self::Own(own) = self {
            own.ends = true;
        }
    }

    /// Sends what the session sends on its own, such as alerts. If another thread is writing, that
    /// thread sends it with its next bytes.
    fn reply(&mut self, wire: &impl Wire) {
        let result = match self {
            Self::Own(own) if own.records.has_replies() => {
                send(&mut own.sending, &mut own.records, wire, &[], false)
            }
            Self::Shared(shared) if shared.records.lock().has_replies() => {
                let Some(mut sending) = shared.sending.try_lock() else { return };
                send(&mut sending, &shared.records, wire, &[], false)
            }
            _ => return,
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a TLS reply could not be sent");
        }
    }

    /// Sends what the socket has not taken yet. Returns whether some is left. An error must end the
    /// connection: the poller does not report it again.
    pub(super) fn settle(&mut self, wire: &impl Wire) -> io::Result<bool> {
        self.reply(wire);
        let pushed = match self {
            Self::Own(own) => own.sending.push(wire),
            Self::Shared(shared) => shared.sending.lock().push(wire),
        };
        match pushed {
            Err(error) if !is_would_block(&error) => Err(error),
            _ => Ok(self.unsent() > 0),
        }
    }

    /// Sends `close_notify` to the peer. Returns whether some of the data is left, because the
    /// socket did not take it.
    pub(super) fn say_goodbye(&mut self, wire: &impl Wire) -> bool {
        let result = match self {
            Self::Own(own) => {
                let Own { records, sending, .. } = &mut **own;
                records.seal_goodbye(&mut sending.records)
            }
            Self::Shared(shared) => {
                let mut sending = shared.sending.lock();
                shared.records.lock().seal_goodbye(&mut sending.records)
            }
        };
        result.is_ok() && self.settle(wire).unwrap_or(false)
    }

    /// Drops what the socket has not taken yet. Returns whether there was any.
    pub(super) fn abandon(&mut self) -> bool {
        let sending = match self {
            Self::Own(own) => mem::take(&mut own.sending),
            Self::Shared(shared) => mem::take(&mut *shared.sending.lock()),
        };
        !sending.records.is_empty()
    }

    /// The number of sealed bytes that the socket has not taken yet.
    pub(super) fn unsent(&self) -> usize {
        match self {
            Self::Own(own) => own.sending.len(),
            // If another thread is writing right now, that thread finds out itself what is left.
            Self::Shared(shared) => shared.sending.try_lock().map_or(0, |sending| sending.len()),
        }
    }

    /// Returns whether a read may return something that the poller does not report.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Self::Own(own) => own.receiving.may_have_more || own.records.has_more(),
            Self::Shared(shared) => {
                shared.receiving.try_lock().is_some_and(|receiving| receiving.may_have_more)
                    || shared.records.lock().has_more()
            }
        }
    }

    /// Returns the memory of bytes that wait to be read.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Own(own) => own.records.held_bytes(),
            Self::Shared(shared) => shared.records.lock().held_bytes(),
        }
    }
}

/// Reads until there is content, or the socket has none.
fn receive(
    receiving: &mut Receiving,
    mut records: impl Access,
    wire: &impl Wire,
    room: &mut Room<'_, '_>,
) -> io::Result<usize> {
    let mut since: Option<Instant> = None;
    loop {
        let has_ended = records.with(|records| {
            records.read(room);
            records.has_ended()
        });
        if room.filled > 0 || has_ended || room.len() == 0 {
            // The socket may be readable, and the caller takes a short read for the last one. The
            // poller does not report the same readiness again.
            receiving.may_have_more |= since.is_none();
            return Ok(room.filled);
        }
        if receiving.is_truncated {
            return Err(truncated());
        }
        // A blocking socket waits again for each part of a record. A peer that sends single bytes
        // must not prolong that.
        match since {
            None => since = Some(Instant::now()),
            Some(begun) => {
                if wire.patience().is_some_and(|patience| begun.elapsed() > patience) {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
        }
        Scratch::with(|scratch| {
            let limit = room.len().clamp(RECORD_BYTES + RECORD_OVERHEAD, RECEIVE_BYTES);
            let buffer = &mut scratch.received[..limit];
            receiving.may_have_more = false;
            let received = wire.receive(buffer)?;
            receiving.may_have_more = received == limit;
            receiving.is_truncated = received == 0;
            records.with(|records| records.open(&mut buffer[..received], room))
        })?;
        if room.filled > 0 {
            return Ok(room.filled);
        }
    }
}

/// Seals content and sends it. Returns how much of it was sealed: the session keeps what the socket
/// does not take.
fn send(
    sending: &mut Sending,
    mut records: impl Access,
    wire: &impl Wire,
    parts: &[IoSlice<'_>],
    is_last: bool,
) -> io::Result<usize> {
    sending.push(wire)?;
    Scratch::with(|scratch| {
        let Scratch { gathered, sealed, .. } = scratch;
        sealed.clear();
        let content = records.with(|records| records.seal(parts, is_last, gathered, sealed))?;
        if sealed.is_empty() {
            return Ok(content);
        }
        let sent = match wire.send(sealed) {
            Ok(sent) => sent,
            Err(error) if is_would_block(&error) => 0,
            Err(error) => return Err(error),
        };
        if let Some(rest) = sealed.get(sent..).filter(|rest| !rest.is_empty()) {
            *sending = Sending { records: rest.to_vec(), start: 0 };
        }
        Ok(content)
    })
}

impl Sending {
    fn len(&self) -> usize {
        self.records.len() - self.start
    }

    /// Sends all records. Fails if the socket does not take them.
    fn push(&mut self, wire: &impl Wire) -> io::Result<()> {
        while self.start < self.records.len() {
            match wire.send(&self.records[self.start..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => self.start += sent,
            }
        }
        if self.start > 0 {
            *self = Self::default();
        }
        Ok(())
    }
}

/// Returns the error of a socket that ends without `close_notify`: someone may have cut the
/// connection (RFC 8446, section 6.1).
fn truncated() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the connection ended without the peer's close_notify, so it may have been cut",
    )
}

/// The buffers of a thread for sealed records. They belong to no session.
struct Scratch {
    received: Vec<u8>,
    sealed: Vec<u8>,
    gathered: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Scratch {
    fn with<T>(work: impl FnOnce(&mut Self) -> T) -> T {
        let mut scratch = SCRATCH.take().unwrap_or_else(|| {
            Box::new(Self {
                received: vec![0; RECEIVE_BYTES],
                sealed: Vec::with_capacity(SEALED_BYTES),
                gathered: Vec::with_capacity(RECORD_BYTES),
            })
        });
        let result = work(&mut scratch);
        SCRATCH.set(Some(scratch));
        result
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("info", self.info()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom), target_os = "linux", feature = "tls-dev"))]
mod tests;
