//! The TLS handshake, on addresses that demand one. The bytes after it belong to the next guest,
//! encrypted in the session.

use std::sync::Arc;
use std::time::Instant;

use super::{Guest, Step, Successor};
use crate::budget::refusal::Refusal;
use crate::buffers::Buffers;
use crate::service::Site;
use crate::service::incomplete::Arrived;
use crate::tls::handshake::{Handshake as Tls, Opening};
use crate::transport::session::Session;

/// The response to a request without TLS, with its head.
const NOT_TLS: &[u8] = include_bytes!("not_tls.http");

/// A peer that must complete a handshake first.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// The guest after the handshake.
    next: Option<Guest>,
    tls: Tls,
    stage: Stage,
    /// Whether nothing more arrives: the peer has closed its direction, or was too slow.
    is_over: bool,
    refusal: Option<Refusal>,
    /// Why the handshake failed, for the log.
    error: Option<String>,
    /// What has arrived of a request without TLS.
    arrived: Option<Box<Arrived>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Shaking,
    Complete,
    /// The peer is told the reason. Its input is discarded, so that it can read the reason.
    Failed,
    Lingering(Instant),
}

impl Handshake {
    pub(crate) fn before(next: Guest, tls: Tls) -> Self {
        Self {
            next: Some(next),
            tls,
            stage: Stage::Shaking,
            is_over: false,
            refusal: None,
            error: None,
            arrived: None,
        }
    }

    #[inline(never)]
    pub(crate) fn step(&mut self, buffers: &mut Buffers) -> Step {
        match self.stage {
            Stage::Complete => return Step::Secure,
            Stage::Failed if self.is_over => return Step::Close,
            Stage::Failed => return Step::Linger,
            Stage::Lingering(_) => buffers.input.clear(),
            Stage::Shaking => {
                let input = buffers.input.unread();
                if !self.tls.has_begun()
                    && input.first().map(|byte| Opening::of(*byte)) == Some(Opening::PlainHttp)
                {
                    self.arrived = Some(Box::new(Arrived::line_of(input)));
                    self.fail(Refusal::NotTls);
                    return Step::Again;
                }
                if self.tls.can_advance(input) {
                    return Step::Handshake;
                }
            }
        }
        // The buffer is many times as long as a handshake, so a full one is an error.
        if self.is_over || buffers.input.is_full() { Step::Close } else { Step::Read }
    }

    /// Returns whether [`advance`](Self::advance) would delay an event loop's other peers.
    pub(crate) fn is_costly(&self) -> bool {
        self.tls.is_costly()
    }

    /// Computes the next step of the handshake, after [`Step::Handshake`].
    pub(crate) fn advance(&mut self, buffers: &mut Buffers) {
        let Buffers { input, output, .. } = buffers;
        match self.tls.advance(input.unread_mut(), output) {
            Ok(used) => {
                input.consume(used);
                if self.tls.is_complete() {
                    self.stage = Stage::Complete;
                }
            }
            Err(error) => {
                self.error = Some(error.to_string());
                self.fail(Refusal::Handshake);
            }
        }
    }

    fn fail(&mut self, refusal: Refusal) {
        self.refusal = Some(refusal);
        self.stage = Stage::Failed;
    }

    /// Returns the session, after [`Step::Secure`]. The session takes over the rest of the input,
    /// and the output: tickets, for which the client does not wait.
    pub(crate) fn finish(&mut self, buffers: &mut Buffers) -> Option<Session> {
        self.tls.finish(buffers.input.take_rest(), &mut buffers.output)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.stage == Stage::Complete
    }

    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    pub(crate) fn expire(&mut self) {
        self.is_over = true;
        if self.stage == Stage::Shaking {
            self.fail(Refusal::LateHandshake);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        if let Stage::Lingering(until) = self.stage { Some(until) } else { None }
    }

    pub(crate) fn linger(&mut self, until: Instant) {
        self.stage = Stage::Lingering(until);
    }

    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    /// Writes the response to a request without TLS, with a header of the service.
    pub(crate) fn write_refusal(
        refusal: Refusal,
        header: Option<(&str, &str)>,
        buffers: &mut Buffers,
    ) {
        if refusal != Refusal::NotTls {
            return;
        }
        let out = &mut buffers.output;
        let line_end = NOT_TLS.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let (status_line, rest) = NOT_TLS.split_at(line_end);
        out.extend_from_slice(status_line);
        if let Some((name, value)) = header {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(rest);
    }

    /// Takes the cause of the refusal, if it is known.
    pub(crate) fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    /// Takes what has arrived of a request without TLS, and the service that it was meant for.
    pub(crate) fn take_incomplete(&mut self) -> Option<(Box<Arrived>, Arc<Site>)> {
        let Some(Guest::Http(http)) = &self.next else { return None };
        Some((self.arrived.take()?, http.shared_site()?))
    }

    pub(crate) fn leave(&mut self) -> Option<Successor> {
        self.next.take().map(Successor::Guest)
    }
}

#[cfg(all(test, feature = "tls-dev"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;
    use crate::protocol::http::Http;
    use crate::tls::acceptor::Acceptor;

    #[test]
    fn a_handshake_that_another_thread_has_completed_continues_without_input() {
        let acceptor = Acceptor::new(crate::tls::Tls::development().unwrap()).unwrap();
        let next = Guest::Http(Http::new(None));
        let mut guest = Guest::Handshake(Box::new(Handshake::before(next, Tls::new(acceptor))));
        assert!(!guest.is_ready());
        let Guest::Handshake(handshake) = &mut guest else { return };
        handshake.stage = Stage::Complete;
        assert!(guest.is_ready());
    }
}
