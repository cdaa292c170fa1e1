//! Requests that the engine refuses before they are complete.

use std::cell::OnceCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use filoplume_http1::{Headers, InvalidHeader};

use super::Service;
use super::exchange::Timing;
use super::panics::note_caught_panic;
use super::request::Request;
use crate::budget::refusal::Refusal;
use crate::transport::Peer;

/// How much of the first line of an incomplete head is kept.
const LINE_BYTES_MAX: usize = 1024;

/// A request that the engine refused before it was complete: it is malformed, exceeds a limit, did
/// not arrive in time, or came without TLS to an address that expects it. It is given to
/// [`Service::incomplete`], for logs.
///
/// ```
/// use filoplume_runtime::{Incomplete, Request, Response, Service};
///
/// struct Site;
///
/// impl Service for Site {
///     fn call(&self, _: Request) -> Response {
///         Response::from("Hello!")
///     }
///
///     fn incomplete(&self, incomplete: &Incomplete<'_>) {
///         let status = incomplete.reason().status().unwrap_or_default();
///         let line = match incomplete.request() {
///             Some(request) => request.target().to_owned(),
///             None => incomplete.first_line().escape_ascii().to_string(),
///         };
///         eprintln!("{status} {} {line}", incomplete.peer());
///     }
/// }
/// # use filoplume_runtime::{Peer, ServerConfig, answer_in_process};
/// # let input = b"GET /\x01 HTTP/1.1\r\n\r\n";
/// # let answer = answer_in_process(&Site, Peer::Unix, input, &ServerConfig::default());
/// # assert!(answer.starts_with(b"HTTP/1.1 400 "));
/// ```
#[derive(Clone, Copy)]
pub struct Incomplete<'a> {
    reason: Refusal,
    peer: Peer,
    arrived: &'a Arrived,
    timing: Option<Timing>,
    given: &'a GivenId,
}

/// The ID that the service has given to a request that was refused before it was complete, with the
/// name of its header.
#[derive(Default)]
pub(crate) struct GivenId(OnceCell<(Box<str>, Box<str>)>);

impl GivenId {
    /// Returns the header of the response.
    pub(crate) fn header(&self) -> Option<(&str, &str)> {
        self.0.get().map(|(name, id)| (&**name, &**id))
    }
}

/// What had arrived of a request.
pub(crate) enum Arrived {
    /// The beginning of its first line, if that has begun.
    Line(Box<[u8]>),
    /// Its head.
    Head(Request),
}

impl Arrived {
    /// Returns the beginning of the first line of a head.
    pub(crate) fn line_of(head: &[u8]) -> Self {
        // Empty lines before a request are ignored (RFC 9112, section 2.2).
        let begin = head.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(head.len());
        let head = head.get(begin..).unwrap_or_default();
        let end = head.iter().take(LINE_BYTES_MAX).position(|byte| b"\r\n".contains(byte));
        Self::Line(
            head.get(..end.unwrap_or(head.len().min(LINE_BYTES_MAX))).unwrap_or_default().into(),
        )
    }
}

impl<'a> Incomplete<'a> {
    pub(crate) fn new(
        reason: Refusal,
        peer: Peer,
        arrived: &'a Arrived,
        timing: Option<Timing>,
        given: &'a GivenId,
    ) -> Self {
        Self { reason, peer, arrived, timing, given }
    }

    /// Returns the reason: [`Refusal::Request`], [`Refusal::Late`] or [`Refusal::NotTls`]. It knows
    /// the status of the response.
    pub fn reason(&self) -> Refusal {
        self.reason
    }

    /// Returns the peer.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the request without its content, if its head was complete and valid.
    pub fn request(&self) -> Option<&'a Request> {
        match self.arrived {
            Arrived::Head(request) => Some(request),
            Arrived::Line(_) => None,
        }
    }

    /// Returns the beginning of the first line, at most 1 KiB, as the peer sent it. It can contain
    /// anything. Empty if nothing had arrived, or if there is a [request](Self::request).
    pub fn first_line(&self) -> &'a [u8] {
        match self.arrived {
            Arrived::Head(_) => &[],
            Arrived::Line(line) => line,
        }
    }

    /// Returns where the time went until the request was refused. `None` unless the service
    /// [measures](Service::measures).
    pub fn timing(&self) -> Option<Timing> {
        self.timing
    }

    /// Gives the response a header with the ID of the request, by which people find the request in
    /// the log. The first ID that is given is sent.
    ///
    /// ```
    /// use filoplume_runtime::{Incomplete, Request, Response, Service};
    ///
    /// struct Site;
    ///
    /// impl Service for Site {
    ///     fn call(&self, _: Request) -> Response {
    ///         Response::from("Hello!")
    ///     }
    ///
    ///     fn incomplete(&self, incomplete: &Incomplete<'_>) {
    ///         let _ = incomplete.set_request_id("x-request-id", "4f1c");
    ///     }
    /// }
    /// # use filoplume_runtime::{Peer, ServerConfig, answer_in_process};
    /// # let input = b"GET /\x01 HTTP/1.1\r\n\r\n";
    /// # let answer = answer_in_process(&Site, Peer::Unix, input, &ServerConfig::default());
    /// # assert!(String::from_utf8(answer).unwrap().contains("\r\nx-request-id: 4f1c\r\n"));
    /// ```
    ///
    /// # Errors
    ///
    /// The name or the ID is not valid in a header, or the name is one that the engine sets.
    pub fn set_request_id(&self, name: &str, id: &str) -> Result<(), InvalidHeader> {
        Headers::new().append(name, id)?;
        let _ = self.given.0.set((name.into(), id.into()));
        Ok(())
    }

    /// Tells the service. A panic is contained.
    pub(crate) fn tell(&self, service: &dyn Service) {
        if catch_unwind(AssertUnwindSafe(|| service.incomplete(self))).is_err() {
            tracing::error!("`Service::incomplete` panicked");
            note_caught_panic();
        }
    }
}

impl fmt::Debug for Incomplete<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incomplete")
            .field("reason", &self.reason)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line(_) => "Line",
            Self::Head(_) => "Head",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_bounded_and_ends_where_the_line_ends() {
        let line_of = |head: &[u8]| match Arrived::line_of(head) {
            Arrived::Line(line) => line.into_vec(),
            Arrived::Head(_) => unreachable!("it has no request"),
        };
        assert_eq!(line_of(b"GET / HTTP/1.1\r\nHost: a\r\n"), b"GET / HTTP/1.1");
        assert_eq!(line_of(b"\r\n\r\nGET / HTTP/9.9\nHost"), b"GET / HTTP/9.9");
        assert_eq!(line_of(b"GE"), b"GE");
        assert_eq!(line_of(b"\r\n"), b"");
        assert_eq!(line_of(b""), b"");
        assert_eq!(line_of(&[b'a'; 5000]), [b'a'; LINE_BYTES_MAX]);
        let exactly = [&[b'a'; LINE_BYTES_MAX][..], b"\r\n"].concat();
        assert_eq!(line_of(&exactly), [b'a'; LINE_BYTES_MAX]);
    }
}
