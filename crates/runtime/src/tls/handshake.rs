//! A handshake, in memory: takes what the client has sent and returns what must be sent to it.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::acceptor::Acceptor;
use super::certificates::take_asked_for;
use crate::transport::records::{Records, complete};
use crate::transport::session::Session;
use crate::transport::tls_info::TlsInfo;

/// The first byte of a connection that begins with a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 0x16;

/// A handshake that is not complete.
pub(crate) struct Handshake {
    acceptor: Arc<Acceptor>,
    records: Option<Box<Records>>,
    server_name: Option<Box<str>>,
}

/// What the first byte of a connection says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Tls,
    /// A letter: the method of a request without TLS.
    PlainHttp,
    Unknown,
}

impl Opening {
    pub(crate) fn of(byte: u8) -> Self {
        match byte {
            HANDSHAKE => Self::Tls,
            b'A'..=b'Z' | b'a'..=b'z' => Self::PlainHttp,
            _ => Self::Unknown,
        }
    }
}

impl Handshake {
    pub(crate) fn new(acceptor: Arc<Acceptor>) -> Self {
        Self { acceptor, records: None, server_name: None }
    }

    /// Returns whether the input has a complete record that was not processed yet, or a header that
    /// is not one of a record.
    pub(crate) fn can_advance(&self, input: &[u8]) -> bool {
        let held = self.records.as_ref().map_or(0, |records| records.held());
        input.get(held..).is_some_and(|fresh| complete(fresh) > 0 || is_implausible(fresh))
    }

    /// Returns whether the next step computes for so long that it would delay the connections of an
    /// event loop: a signature, a key exchange, or the verification of a certificate.
    pub(crate) fn is_costly(&self) -> bool {
        let is_cheap = self.records.as_ref().is_some_and(|records| {
            // With TLS 1.3, all of that is done for the first flight of the server, except the
            // verification of a client's certificate.
            let state = records.state();
            state.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3)
                && state.negotiated_key_exchange_group().is_some()
                && !self.acceptor.asks_clients()
        });
        !is_cheap
    }

    /// Takes a step. Returns how many bytes of the input are used up. Appends what the client must
    /// be sent to `output`, even if the handshake fails.
    pub(crate) fn advance(&mut self, input: &mut [u8], output: &mut Vec<u8>) -> io::Result<usize> {
        let records = match &mut self.records {
            Some(records) => records,
            empty => {
                let begun = self.acceptor.begin().map_err(io::Error::other)?;
                empty.insert(Box::new(Records::new(begun)))
            }
        };
        let used = records.shake_hands(input, output);
        if let Some(name) = take_asked_for() {
            self.server_name = Some(name);
        }
        used
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.records.is_some()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.records.as_ref().is_some_and(|records| !records.is_handshaking())
    }

    /// Returns the session, if the handshake is complete. `received` is what was received after the
    /// handshake, and `output` what must still be sent to the client. The session takes both.
    pub(crate) fn finish(&mut self, received: Vec<u8>, output: &mut Vec<u8>) -> Option<Session> {
        if !self.is_complete() {
            return None;
        }
        let mut records = *self.records.take()?;
        records.keep(received, output);
        let info = TlsInfo::new(records.state(), self.server_name.take());
        Some(Session::new(records, info))
    }
}

/// Returns whether these bytes cannot be the header of a record. rustls refuses such a record
/// without its rest.
fn is_implausible(record: &[u8]) -> bool {
    let &[kind, major, _, high, _, ..] = record else { return false };
    !(0x14..=0x17).contains(&kind) || major != 3 || high > 0x48
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("has_begun", &self.has_begun()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_implausible_by_its_kind_its_version_or_its_length() {
        for (header, expected) in [
            ([0x16, 3, 1, 0x48, 0xff], false),
            ([0x16, 3, 1, 0x49, 0], true),
            ([0x14, 3, 3, 0, 1], false),
            ([0x17, 3, 3, 0, 1], false),
            ([0x13, 3, 3, 0, 1], true),
            ([0x18, 3, 3, 0, 1], true),
            ([0x16, 2, 3, 0, 1], true),
        ] {
            assert_eq!(is_implausible(&header), expected, "{header:x?}");
        }
        assert!(!is_implausible(&[0, 0, 0, 0xff]), "nothing is known yet");
    }
}
