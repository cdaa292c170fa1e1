//! The PROXY header before the first protocol, on listeners that expect one.

use super::proxy::parse_proxy_header;
use super::{Guest, Step, Successor};
use crate::buffers::Buffers;

/// A connection whose first bytes must be a PROXY header.
#[derive(Debug)]
pub(crate) struct Preamble {
    /// The guest after the header.
    next: Option<Guest>,
    /// Whether nothing more arrives: the peer has closed its direction, or was too slow.
    is_over: bool,
}

impl Preamble {
    pub(crate) fn before(next: Guest) -> Self {
        Self { next: Some(next), is_over: false }
    }

    #[inline(never)]
    pub(crate) fn step(&mut self, buffers: &mut Buffers) -> Step {
        match parse_proxy_header(buffers.input.unread()) {
            Ok(None) if self.is_over => Step::Close,
            Ok(None) => Step::Read,
            Ok(Some(header)) => {
                buffers.input.consume(header.len);
                Step::ClientKnown(header.source)
            }
            Err(error) => Step::RefuseProxy(error),
        }
    }

    /// Returns whether HTTP follows.
    #[cfg(unix)]
    pub(crate) fn precedes_http(&self) -> bool {
        matches!(self.next, Some(Guest::Http(_)))
    }

    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    pub(crate) fn leave(&mut self) -> Option<Successor> {
        self.next.take().map(Successor::Guest)
    }
}
