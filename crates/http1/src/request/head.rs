//! The head of a request as a plain value.

use std::fmt;

use http::Method;

use crate::error::ParseError;
use crate::fields::{Facts, HeadParts, Headers, Span, Storage};
use crate::framing::Framing;
use crate::request::framing::FieldFacts;
use crate::request::target::parse_target;
use crate::version::Version;

/// The head of a request: request line, fields, and what follows from them.
///
/// The head owns its bytes. On drop, its buffers return to a small pool of the thread.
///
/// ```
/// use filoplume_http1::{Framing, Limits, parse_request_head};
///
/// let input = b"POST /cats?tail=long HTTP/1.1\r\nHost: example.org\r\n\
///     Content-Length: 4\r\n\r\nmeow";
/// let (head, used) = parse_request_head(input, &Limits::default())?.expect("the head is whole");
/// assert_eq!(head.method(), http::Method::POST);
/// assert_eq!((head.path(), head.query()), ("/cats", Some("tail=long")));
/// assert_eq!(head.authority(), Some("example.org"));
/// assert_eq!(head.framing(), Framing::Length(4));
/// assert_eq!(&input[used..], b"meow");
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
pub struct RequestHead {
    headers: Headers,
    /// Everything except the fields, once it is no longer stored with `headers`.
    detached: Option<Box<Detached>>,
}

/// The parts of a head that stay when the caller replaces the fields.
struct Detached {
    parts: HeadParts,
    target: Box<str>,
}

impl RequestHead {
    /// Returns the head of `GET /` without fields. This does not allocate.
    pub const fn empty() -> Self {
        Self { headers: Headers::new(), detached: None }
    }

    /// Returns a head made in this process, e.g. to test a handler. It has no fields.
    ///
    /// ```
    /// use filoplume_http1::{RequestHead, Version};
    ///
    /// let head = RequestHead::new(http::Method::GET, "/cats?tail=long", Version::Http11)?;
    /// assert_eq!(head.path(), "/cats");
    /// # Ok::<(), filoplume_http1::ParseError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the target is not allowed for the method.
    pub fn new(method: Method, target: &str, version: Version) -> Result<Self, ParseError> {
        Self::from_parts(method, target, version, Headers::new())
    }

    /// Returns a head made in this process, with fields. The fields have the same meaning as in a
    /// received request, but `Host` may be absent.
    ///
    /// # Errors
    ///
    /// Returns an error if the target is not allowed for the method, or if a received request with
    /// these fields would be refused.
    pub fn from_parts(
        method: Method,
        target: &str,
        version: Version,
        headers: Headers,
    ) -> Result<Self, ParseError> {
        if target.len() > Span::ARENA_BYTES_MAX {
            return Err(ParseError::TargetTooLong);
        }
        let parts = parse_target(&method, target.as_bytes())?;
        let mut facts = FieldFacts::default();
        for (name, value) in headers.iter_bytes() {
            facts.note(version, name, value)?;
        }
        let facts = facts.finish(version, false)?;
        let parts = HeadParts { method, version, facts, target: parts };
        Ok(Self { headers, detached: Some(Box::new(Detached { parts, target: target.into() })) })
    }

    /// Returns a head whose parts and target are stored with its fields.
    #[inline]
    pub(crate) fn from_storage(storage: Box<Storage>) -> Self {
        Self { headers: Headers::from_storage(storage), detached: None }
    }

    #[inline]
    pub(crate) fn parts(&self) -> &HeadParts {
        match &self.detached {
            Some(detached) => &detached.parts,
            None => self.headers.parts(),
        }
    }

    /// Returns the facts that follow from the fields.
    #[inline]
    pub(crate) fn facts(&self) -> &Facts {
        &self.parts().facts
    }

    /// Returns the method. It is case-sensitive: `get` is not `GET`.
    #[inline]
    pub fn method(&self) -> &Method {
        &self.parts().method
    }

    /// Returns the target as it was sent.
    #[inline]
    pub fn target(&self) -> &str {
        match &self.detached {
            Some(detached) => &detached.target,
            None => self.headers.target(),
        }
    }

    /// Returns the path, not decoded. It is `/` for an absolute form without a path, `*` for the
    /// asterisk form, and empty for the authority form of `CONNECT`.
    #[inline]
    pub fn path(&self) -> &str {
        let (parts, target) = self.parts_and_target();
        if parts.target.path.is_empty() && parts.method != Method::CONNECT {
            return "/";
        }
        parts.target.path.of_text(target)
    }

    /// Returns the parts and the target with a single check of where they are stored.
    #[inline]
    fn parts_and_target(&self) -> (&HeadParts, &str) {
        match &self.detached {
            Some(detached) => (&detached.parts, &detached.target),
            None => self.headers.parts_and_target(),
        }
    }

    /// Returns the query, which follows the first question mark of the target, not decoded.
    #[inline]
    pub fn query(&self) -> Option<&str> {
        self.parts().target.query.map(|query| query.of_text(self.target()))
    }

    /// Returns the host, with the port if there is one. If the target has an authority, it
    /// overrides `Host` (RFC 9112 section 3.2.2). The value is never empty.
    pub fn authority(&self) -> Option<&str> {
        match self.parts().target.authority {
            Some(authority) => Some(authority.of_text(self.target())),
            None => self.headers.get_str("host").filter(|host| !host.is_empty()),
        }
    }

    /// Returns the version of the request.
    #[inline]
    pub fn version(&self) -> Version {
        self.parts().version
    }

    /// Returns the fields.
    #[inline]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Returns a mutable reference to the fields. Changes do not affect [`framing`](Self::framing)
    /// and other results of parsing the head.
    pub fn headers_mut(&mut self) -> &mut Headers {
        // The caller may replace the storage that also holds the other parts.
        self.detach();
        &mut self.headers
    }

    /// Replaces the method. [`framing`](Self::framing) does not change.
    pub fn set_method(&mut self, method: Method) {
        self.detach().parts.method = method;
    }

    fn detach(&mut self) -> &mut Detached {
        self.detached.get_or_insert_with(|| {
            let (parts, target) = (self.headers.parts().clone(), self.headers.target().into());
            Box::new(Detached { parts, target })
        })
    }

    /// Returns how the content ends (RFC 9112 section 6.3).
    #[inline]
    pub fn framing(&self) -> Framing {
        self.parts().facts.framing
    }

    /// Returns whether the peer waits for `100 Continue` before it sends the content (RFC 9110
    /// section 10.1.1).
    #[inline]
    pub fn expects_continue(&self) -> bool {
        self.parts().facts.expects_continue
    }

    /// Returns the value of `Upgrade` if `Connection` lists it and the version allows it (RFC 9110
    /// section 7.8).
    pub fn wants_upgrade(&self) -> Option<&str> {
        if !self.parts().facts.connection_has_upgrade {
            return None;
        }
        self.headers.get_str("upgrade").filter(|protocols| !protocols.is_empty())
    }

    /// Returns how many bytes of memory the head takes: about twice its length, or more if its
    /// buffers were used for a longer head before. A server can count them while a request waits.
    pub fn memory(&self) -> usize {
        let detached = self.detached.as_ref();
        let detached = detached
            .map_or(0, |detached| size_of::<Detached>().saturating_add(detached.target.len()));
        self.headers.memory().saturating_add(detached)
    }

    /// Returns whether the peer allows another request on this connection (RFC 9112 section 9.3).
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.parts().facts.is_persistent
    }
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", self.method())
            .field("target", &self.target())
            .field("version", &self.version())
            .field("headers", &self.headers)
            .field("facts", &self.parts().facts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::request::parse::parse_request_head;

    fn parse(input: &str) -> RequestHead {
        parse_request_head(input.as_bytes(), &Limits::default()).unwrap().unwrap().0
    }

    #[test]
    fn the_memory_of_a_head_includes_all_of_its_bytes() {
        assert_eq!(RequestHead::empty().memory(), 0);
        let long = "x".repeat(3000);
        let input = format!("GET /{long} HTTP/1.1\r\nHost: t\r\nA: {long}\r\n\r\n");
        let mut head = parse(&input);
        let memory = head.memory();
        // The target is stored twice.
        assert!((9000..30_000).contains(&memory), "{memory}");
        head.headers_mut();
        assert!(head.memory() > memory + 3000, "{}", head.memory());
    }

    /// Checks target, path, query and authority.
    #[track_caller]
    fn check(line: &str, path: &str, query: Option<&str>, authority: Option<&str>) {
        let head = parse(&format!("{line} HTTP/1.1\r\nHost: there\r\n\r\n"));
        let (method, target) = line.split_once(' ').unwrap();
        let made = RequestHead::from_parts(
            Method::from_bytes(method.as_bytes()).unwrap(),
            target,
            Version::Http11,
            head.headers().clone(),
        )
        .unwrap();
        for head in [head, made] {
            assert_eq!(head.target(), target);
            assert_eq!((head.path(), head.query(), head.authority()), (path, query, authority));
        }
    }

    #[test]
    fn each_form_of_a_target_has_its_parts() {
        check("GET /", "/", None, Some("there"));
        check("GET /a/b?c=d?e", "/a/b", Some("c=d?e"), Some("there"));
        check("GET /a?", "/a", Some(""), Some("there"));
        check("GET http://here", "/", None, Some("here"));
        check("GET http://here?q", "/", Some("q"), Some("here"));
        check("GET https://here:1/a?b", "/a", Some("b"), Some("here:1"));
        check("OPTIONS *", "*", None, Some("there"));
        check("CONNECT here:1", "", None, Some("here:1"));
    }

    #[test]
    fn an_empty_host_is_no_authority() {
        assert_eq!(parse("GET / HTTP/1.1\r\nHost:\r\n\r\n").authority(), None);
        assert_eq!(parse("GET / HTTP/1.0\r\n\r\n").authority(), None);
    }

    #[test]
    fn changing_the_fields_does_not_change_the_target() {
        let mut head = parse("GET /a?b HTTP/1.1\r\nHost: there\r\nX: y\r\n\r\n");
        let taken = std::mem::take(head.headers_mut());
        assert_eq!(taken.get_str("x"), Some("y"));
        head.headers_mut().append("host", "elsewhere").unwrap();
        assert_eq!((head.target(), head.path(), head.query()), ("/a?b", "/a", Some("b")));
        assert_eq!(head.authority(), Some("elsewhere"));
        head.headers_mut().clear();
        assert_eq!(head.target(), "/a?b");
    }

    #[test]
    fn replacing_the_method_changes_nothing_else() {
        let mut head = parse(
            "POST /a?b HTTP/1.1\r\nHost: there\r\nContent-Length: 3\r\nConnection: close\r\n\r\n",
        );
        head.set_method(Method::PUT);
        assert_eq!(*head.method(), Method::PUT);
        assert_eq!((head.target(), head.authority()), ("/a?b", Some("there")));
        assert_eq!((head.framing(), head.is_persistent()), (Framing::Length(3), false));
    }

    #[test]
    fn a_head_made_in_process_is_checked_like_a_received_one() {
        let mut headers = Headers::new();
        headers.append("content-length", "3").unwrap();
        let head =
            RequestHead::from_parts(Method::POST, "/", Version::Http11, headers.clone()).unwrap();
        assert_eq!(head.framing(), Framing::Length(3));
        headers.append("transfer-encoding", "chunked").unwrap();
        let refused =
            RequestHead::from_parts(Method::POST, "/", Version::Http11, headers).unwrap_err();
        assert_eq!(refused, ParseError::AmbiguousLength);
        assert_eq!(
            RequestHead::new(Method::GET, "/a b", Version::Http11).unwrap_err(),
            ParseError::TargetInvalid
        );
    }

    #[test]
    fn debug_shows_the_request_line_the_fields_and_the_facts() {
        let shown =
            format!("{:?}", parse("PUT /a?b HTTP/1.1\r\nHost: there\r\nContent-Length: 3\r\n\r\n"));
        for part in ["PUT", "/a?b", "Http11", "there", "Length(3)"] {
            assert!(shown.contains(part), "{shown}");
        }
    }
}
