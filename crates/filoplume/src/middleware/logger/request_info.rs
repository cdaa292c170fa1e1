//! What a line says about its request.

use std::net::IpAddr;
use std::time::SystemTime;

use filoplume_runtime::{Incomplete, Method, Peer, Request, Version};

use super::{Format, Logger};
use crate::core::context::Context;
use crate::middleware::{TraceContext, TraceId};

/// The logged properties of a request, collected before it is passed on.
pub(super) struct RequestInfo {
    pub(super) at: SystemTime,
    /// `None` if nothing like a request line has arrived.
    pub(super) line: Option<RequestLine>,
    pub(super) peer: Peer,
    pub(super) client: Option<IpAddr>,
    /// Only set if the format has these fields.
    pub(super) referer: Option<String>,
    pub(super) user_agent: Option<String>,
    pub(super) trace_id: Option<TraceId>,
}

/// The request line, as far as it is known.
pub(super) struct RequestLine {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) version: Option<Version>,
}

impl RequestInfo {
    pub(super) fn of(logger: &Logger, request: &Request, context: Context<'_>) -> Self {
        let header = |name| match logger.output.format {
            Format::Short => None,
            Format::Combined | Format::Json => {
                request.headers().get(name).map(|value| String::from_utf8_lossy(value).into_owned())
            }
        };
        let target = if logger.writes_query { request.target() } else { request.path() };
        Self {
            at: SystemTime::now(),
            line: Some(RequestLine {
                method: request.method().clone(),
                target: target.to_owned(),
                version: Some(request.version()),
            }),
            peer: request.peer(),
            client: context.client_ip(request),
            referer: header("referer").map(|referer| logger.shown(referer)),
            user_agent: header("user-agent"),
            trace_id: request.extensions().get().map(TraceContext::trace_id),
        }
    }

    /// Describes a request whose head was not valid or not complete.
    pub(super) fn of_incomplete(
        logger: &Logger,
        incomplete: &Incomplete<'_>,
        context: Context<'_>,
    ) -> Self {
        let peer = incomplete.peer();
        Self {
            at: SystemTime::now(),
            line: RequestLine::read(incomplete.first_line())
                .map(|line| RequestLine { target: logger.shown(line.target), ..line }),
            peer,
            client: context.settings.proxies.client_of_connection(peer),
            referer: None,
            user_agent: None,
            trace_id: None,
        }
    }
}

impl Logger {
    /// Returns a URL without its query, if it is to be left out.
    fn shown(&self, mut url: String) -> String {
        if !self.writes_query {
            url.truncate(url.find(['?', '#']).unwrap_or(url.len()));
        }
        url
    }
}

impl RequestLine {
    /// Reads what looks like a request line, or like the beginning of one. Other input, such as a
    /// TLS handshake, is of no use to a reader of the log.
    fn read(line: &[u8]) -> Option<Self> {
        let mut parts = line.split(|byte| *byte == b' ');
        let method = Method::from_bytes(parts.next()?).ok()?;
        let target = String::from_utf8_lossy(parts.next()?).into_owned();
        let is_target = target.starts_with('/') || target.starts_with("http") || target == "*";
        let version = match (parts.next(), parts.next()) {
            (Some(b"HTTP/1.0"), None) => Some(Version::Http10),
            (Some(b"HTTP/1.1"), None) => Some(Version::Http11),
            _ => None,
        };
        is_target.then_some(Self { method, target, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[u8]) -> Option<(String, String, Option<Version>)> {
        let RequestLine { method, target, version } = RequestLine::read(line)?;
        Some((method.to_string(), target, version))
    }

    #[test]
    fn a_request_line_is_read_as_far_as_it_is_one() {
        let get = |target: &str, version| Some(("GET".to_owned(), target.to_owned(), version));
        assert_eq!(read(b"GET /a?b HTTP/1.1"), get("/a?b", Some(Version::Http11)));
        assert_eq!(read(b"GET /a HTTP/1.0"), get("/a", Some(Version::Http10)));
        assert_eq!(read(b"GET /a HTTP/9.9"), get("/a", None));
        assert_eq!(read(b"GET /a b HTTP/1.1"), get("/a", None));
        assert_eq!(read(b"GET /a"), get("/a", None));
        assert_eq!(read(b"GET http://a/ HTTP/1.1"), get("http://a/", Some(Version::Http11)));
        assert_eq!(read(b"GET * HTTP/1.1"), get("*", Some(Version::Http11)));
        for other in [&b""[..], b"GE", b"GET", b"GET  / HTTP/1.1", b"\x16\x03\x01 /", b"EHLO mail"]
        {
            assert_eq!(read(other), None, "{}", other.escape_ascii());
        }
    }
}
