//! The records of a TLS session, in memory: opens what the peer has sent, and seals what is sent to
//! it. rustls keeps no buffers here. It works on those of the thread, so that a session that waits
//! holds nothing but its keys.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

use rustls::CommonState;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, WriteTraffic};

/// Maximum number of plaintext bytes in a record (RFC 8446, section 5.1).
pub(super) const RECORD_BYTES: usize = 16 * 1024;

/// Maximum number of bytes that a record adds to its plaintext: header, nonce, padding and tag. TLS
/// 1.2 allows 2048 in addition to the header (RFC 5246, section 6.2.3).
pub(super) const RECORD_OVERHEAD: usize = 2048 + 5;

/// Maximum number of records that are sealed for one write. There are fewer system calls than
/// records, and the bytes stay in the processor's cache.
pub(super) const RECORDS_PER_WRITE: usize = 4;

/// Maximum number of bytes that the session may send on its own before the peer takes some: alerts
/// and key updates. A peer that provokes more gets no service.
const REPLIES_MAX: usize = 16 * 1024;

/// Maximum number of reads in a row with complete records but no content. OpenSSL's limit is 32 for
/// single records.
const EMPTY_READS_MAX: u32 = 64;

/// Maximum number of bytes of records that belong to one incomplete handshake message. The messages
/// that clients send after the handshake are shorter, and a message in tiny records takes many
/// times its length.
const HELD_BYTES_MAX: usize = 32 * 1024;

/// The alert for a message that cannot be read, for which rustls sends none (RFC 8446, section 6).
const DECODE_ERROR: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 50];

/// The length of a record's header.
const HEADER_BYTES: usize = 5;

/// The records of a TLS connection, from its first byte on.
pub(crate) struct Records {
    connection: UnbufferedServerConnection,
    /// Received bytes that are not opened yet: the beginning of a record, or of a handshake message
    /// in several records.
    incoming: Vec<u8>,
    /// How many bytes of `incoming` are complete records, which belong to such a message.
    held: usize,
    /// Content that the reader had no room for.
    content: Vec<u8>,
    content_start: usize,
    /// Records that the session sends on its own.
    replies: Vec<u8>,
    has_ended: bool,
    /// Whether something of the peer could not be opened. rustls expects to see the held bytes
    /// again, which are gone then, so it must not be used any more.
    has_failed: bool,
    has_said_goodbye: bool,
    empty_reads: u32,
}

/// The room of a reader, in several parts.
pub(super) struct Room<'a, 'b> {
    parts: &'a mut [IoSliceMut<'b>],
    part: usize,
    offset: usize,
    pub(super) filled: usize,
}

impl<'a, 'b> Room<'a, 'b> {
    pub(super) fn new(parts: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { parts, part: 0, offset: 0, filled: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() - self.filled
    }

    /// Takes as many bytes as there is room for. Returns their number.
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        let before = self.filled;
        while let (false, Some(part)) = (bytes.is_empty(), self.parts.get_mut(self.part)) {
            let room = &mut part[self.offset..];
            let length = room.len().min(bytes.len());
            room[..length].copy_from_slice(&bytes[..length]);
            bytes = &bytes[length..];
            self.offset += length;
            self.filled += length;
            if self.offset == part.len() {
                self.part += 1;
                self.offset = 0;
            }
        }
        self.filled - before
    }
}

/// Where opened records go.
struct Opening<'a> {
    connection: &'a mut UnbufferedServerConnection,
    content: &'a mut Vec<u8>,
    replies: &'a mut Vec<u8>,
    has_ended: &'a mut bool,
}

impl Records {
    pub(crate) fn new(connection: UnbufferedServerConnection) -> Self {
        Self {
            connection,
            incoming: Vec::new(),
            held: 0,
            content: Vec::new(),
            content_start: 0,
            replies: Vec::new(),
            has_ended: false,
            has_failed: false,
            has_said_goodbye: false,
            empty_reads: 0,
        }
    }

    /// Continues the handshake. `input` has everything that was received and not used up. Returns
    /// how much of it is used up now. Appends what the peer must be sent to `output`, even if it
    /// fails.
    pub(crate) fn shake_hands(
        &mut self,
        input: &mut [u8],
        output: &mut Vec<u8>,
    ) -> io::Result<usize> {
        let result = self.process(input, &mut Room::new(&mut []));
        if result.is_err() && self.replies.is_empty() && self.state().protocol_version().is_none() {
            self.replies.extend_from_slice(&DECODE_ERROR);
        }
        output.append(&mut self.replies);
        if self.content.len() > RECORD_BYTES && self.connection.is_handshaking() {
            return Err(invalid("the peer sends content before the handshake is complete"));
        }
        result
    }

    /// Returns whether the handshake is not complete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns how many bytes of the input rustls has already seen, although they are not used up.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Keeps what was received and not used up, and what the peer must still be sent.
    pub(crate) fn keep(&mut self, received: Vec<u8>, replies: &mut Vec<u8>) {
        self.incoming = received;
        self.replies.extend_from_slice(replies);
        replies.clear();
    }

    pub(crate) fn state(&self) -> &CommonState {
        &self.connection
    }

    /// Returns whether there is something to read without the socket.
    pub(super) fn has_more(&self) -> bool {
        !self.content.is_empty() || self.has_ended
    }

    /// Returns whether the peer has sent `close_notify`, so that nothing more follows.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether the session has to send something of its own.
    pub(super) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Returns the memory of bytes that wait to be read.
    pub(super) fn held_bytes(&self) -> usize {
        self.incoming.capacity() + self.content.capacity()
    }

    /// Reads what is already received.
    pub(super) fn read(&mut self, room: &mut Room<'_, '_>) {
        let taken = room.take(&self.content[self.content_start..]);
        self.content_start += taken;
        if self.content_start == self.content.len() {
            // Freed: a connection that waits has no buffer.
            self.content = Vec::new();
            self.content_start = 0;
        }
    }

    /// Opens what was just received.
    pub(super) fn open(&mut self, received: &mut [u8], room: &mut Room<'_, '_>) -> io::Result<()> {
        let mut received = received;
        let before = room.filled + self.content.len();
        let mut has_opened = false;
        while !self.incoming.is_empty() && !received.is_empty() {
            // Completes the record that has begun. The others need no copy, unless this one belongs
            // to a handshake message that goes on in them.
            let missing =
                if self.held > 0 { received.len() } else { missing(&self.incoming, received) };
            let (first, rest) = received.split_at_mut(missing);
            self.incoming.extend_from_slice(first);
            received = rest;
            let mut incoming = std::mem::take(&mut self.incoming);
            let used = self.process(&mut incoming, room)?;
            has_opened |= used > 0;
            incoming.drain(..used);
            self.incoming = incoming;
        }
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
            let used = self.process(received, room)?;
            has_opened |= used > 0;
            self.incoming.extend_from_slice(&received[used..]);
        }
        let is_empty = has_opened && before == room.filled + self.content.len();
        self.empty_reads = if is_empty { self.empty_reads + 1 } else { 0 };
        if self.held > HELD_BYTES_MAX {
            return Err(invalid("a handshake message comes in too many records"));
        }
        if self.empty_reads > EMPTY_READS_MAX || self.replies.len() > REPLIES_MAX {
            return Err(invalid("the peer sends records without content"));
        }
        Ok(())
    }

    /// Opens all complete records. Returns how many bytes of them are used up. If it fails, the
    /// bytes are gone, and so is the session.
    fn process(&mut self, bytes: &mut [u8], room: &mut Room<'_, '_>) -> io::Result<usize> {
        if self.has_failed {
            return Err(invalid("the session has failed"));
        }
        let opened = self.process_all(bytes, room);
        if opened.is_err() {
            self.has_failed = true;
            self.held = 0;
        }
        opened
    }

    fn process_all(&mut self, bytes: &mut [u8], room: &mut Room<'_, '_>) -> io::Result<usize> {
        let complete = self.held + complete(&bytes[self.held..]);
        let Self { connection, content, replies, has_ended, .. } = self;
        let mut used = 0;
        let mut opening = Opening { connection, content, replies, has_ended };
        while let Some(discard) = opening.step(&mut bytes[used..], room)? {
            used += discard;
        }
        self.held = complete.saturating_sub(used);
        Ok(used)
    }

    /// Seals the session's own records and up to [`RECORDS_PER_WRITE`] records of content into
    /// `out`. If `is_last` is set and they have all the content, `close_notify` follows them.
    /// Returns how many bytes of content they have. After a failure there may be an alert only.
    pub(super) fn seal(
        &mut self,
        parts: &[IoSlice<'_>],
        is_last: bool,
        gathered: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> io::Result<usize> {
        let mut pieces = Pieces { parts, part: 0, offset: 0 };
        if self.has_failed && !pieces.is_over() {
            return Err(invalid("the session has failed"));
        }
        out.append(&mut self.replies);
        self.replies = Vec::new();
        let mut sealed = 0;
        if pieces.is_over() {
            return Ok(0);
        }
        self.with_traffic(out, |traffic, out| {
            for _ in 0..RECORDS_PER_WRITE {
                let piece = pieces.next(gathered);
                if piece.is_empty() {
                    break;
                }
                let start = out.len();
                // A key update that is due precedes the record.
                out.resize(start + piece.len() + 2 * RECORD_OVERHEAD, 0);
                let result = traffic.encrypt(piece, &mut out[start..]);
                out.truncate(start + *result.as_ref().unwrap_or(&0));
                result.map_err(io::Error::other)?;
                sealed += piece.len();
            }
            Ok(())
        })?;
        if is_last && pieces.is_over() {
            self.seal_goodbye(out)?;
        }
        Ok(sealed)
    }

    /// Seals `close_notify`, which says that nothing more follows. Does nothing the second time. A
    /// session that has failed says nothing more than its alert (RFC 8446, section 6.2).
    pub(super) fn seal_goodbye(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if std::mem::replace(&mut self.has_said_goodbye, true) {
            return Ok(());
        }
        out.append(&mut self.replies);
        if self.has_failed {
            return Ok(());
        }
        self.with_traffic(out, |traffic, out| {
            let start = out.len();
            out.resize(start + RECORD_OVERHEAD, 0);
            let result = traffic.queue_close_notify(&mut out[start..]);
            out.truncate(start + *result.as_ref().unwrap_or(&0));
            result.map(drop).map_err(io::Error::other)
        })
    }

    fn with_traffic(
        &mut self,
        out: &mut Vec<u8>,
        work: impl FnOnce(&mut WriteTraffic<'_, ServerSide>, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        // rustls continues after the bytes that it has seen, so it must see them again.
        let Self { connection, incoming, held, .. } = self;
        let mut seen = &mut incoming[..*held];
        loop {
            let status = connection.process_tls_records(seen);
            match status.state.map_err(failed)? {
                ConnectionState::WriteTraffic(mut traffic) => return work(&mut traffic, out),
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out)?,
                ConnectionState::TransmitTlsData(mut sent) => {
                    if let Some(mut traffic) = sent.may_encrypt_app_data() {
                        let result = work(&mut traffic, out);
                        sent.done();
                        return result;
                    }
                    sent.done();
                }
                // The peer has ended its direction. Ours goes on.
                ConnectionState::PeerClosed => {}
                _ => return Err(invalid("the session can send nothing")),
            }
            seen = &mut incoming[..*held];
        }
    }
}

/// The side of a connection, as rustls names it.
type ServerSide = rustls::server::ServerConnectionData;

impl Opening<'_> {
    /// Takes one step. Returns how many bytes it has used up, or `None` if more are needed.
    fn step(&mut self, bytes: &mut [u8], room: &mut Room<'_, '_>) -> io::Result<Option<usize>> {
        let status = self.connection.process_tls_records(bytes);
        let mut discard = status.discard;
        match status.state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(failed)?;
                    discard += record.discard;
                    // What there is room for goes to the reader, unless earlier content waits.
                    let taken = if self.content.is_empty() { room.take(record.payload) } else { 0 };
                    self.content.extend_from_slice(&record.payload[taken..]);
                }
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, self.replies)?,
            Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
            Ok(ConnectionState::PeerClosed) => *self.has_ended = true,
            Ok(ConnectionState::Closed) => {
                *self.has_ended = true;
                return Ok(None);
            }
            Ok(ConnectionState::WriteTraffic(_) | ConnectionState::BlockedHandshake)
                if discard == 0 =>
            {
                return Ok(None);
            }
            Ok(_) if discard > 0 => {}
            Ok(_) => return Err(invalid("the session is in an unknown state")),
            Err(error) => {
                // The records that the peer must still be sent end with the alert that tells it the
                // reason. rustls returns them before it looks at the bytes, which it must not look
                // at again.
                let rest = &mut bytes[discard..];
                while self.connection.wants_write() {
                    let Ok(ConnectionState::EncodeTlsData(mut data)) =
                        self.connection.process_tls_records(rest).state
                    else {
                        break;
                    };
                    encode(&mut data, self.replies)?;
                }
                return Err(failed(error));
            }
        }
        Ok(Some(discard))
    }
}

/// Appends a record that rustls has prepared.
fn encode<Side>(data: &mut EncodeTlsData<'_, Side>, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) else { return Ok(()) };
    out.resize(start + size.required_size, 0);
    data.encode(&mut out[start..]).map(drop).map_err(io::Error::other)
}

/// Returns the length of the complete records at the start.
pub(crate) fn complete(bytes: &[u8]) -> usize {
    let mut end = 0;
    while let Some(length) = record_length(&bytes[end..]) {
        if length > bytes.len() - end {
            break;
        }
        end += length;
    }
    end
}

/// Returns the length of the first record with its header, if the header is complete.
fn record_length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(3..HEADER_BYTES)?;
    Some(HEADER_BYTES + usize::from(u16::from_be_bytes([length[0], length[1]])))
}

/// Returns how many of the `received` bytes complete the record that has `begun`, at least one.
fn missing(begun: &[u8], received: &[u8]) -> usize {
    let mut header = [0; HEADER_BYTES];
    let both = begun.iter().chain(received).take(HEADER_BYTES);
    let known = both.zip(&mut header).map(|(byte, known)| *known = *byte).count();
    let Some(length) = record_length(&header[..known]) else { return received.len() };
    length.saturating_sub(begun.len()).clamp(1, received.len())
}

/// The content of a write, in pieces of one record each.
struct Pieces<'a> {
    parts: &'a [IoSlice<'a>],
    part: usize,
    offset: usize,
}

impl<'a> Pieces<'a> {
    /// Returns the rest of the current part.
    fn rest(&mut self) -> &'a [u8] {
        while let Some(part) = self.parts.get(self.part) {
            if self.offset < part.len() {
                return &part[self.offset..];
            }
            self.part += 1;
            self.offset = 0;
        }
        &[]
    }

    fn is_over(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Returns the next piece. Short parts are gathered, so that a head and a short content share a
    /// record.
    fn next<'b>(&mut self, gathered: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        let rest = self.rest();
        if rest.len() >= RECORD_BYTES || self.part + 1 >= self.parts.len() {
            let piece = rest.get(..RECORD_BYTES).unwrap_or(rest);
            self.offset += piece.len();
            return piece;
        }
        gathered.clear();
        while gathered.len() < RECORD_BYTES {
            let rest = self.rest();
            if rest.is_empty() {
                break;
            }
            let piece = rest.get(..RECORD_BYTES - gathered.len()).unwrap_or(rest);
            gathered.extend_from_slice(piece);
            self.offset += piece.len();
        }
        gathered
    }
}

/// Wraps an error of rustls.
fn failed(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("held", &self.held).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom), target_os = "linux", feature = "tls-dev"))]
mod tests;
