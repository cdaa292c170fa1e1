//! The head of a response as a plain value. It borrows the bytes that it was parsed from.

use std::fmt;

use http::{Method, StatusCode};

use crate::error::ParseError;
use crate::fields::Headers;
use crate::response::framing::{FieldFacts, ResponseFraming};
use crate::syntax::trim_ows;
use crate::version::Version;

/// The head of a response: status line, fields, and what follows from them.
///
/// ```
/// use filoplume_http1::{Limits, parse_response_head};
///
/// let input = b"HTTP/1.1 404 Not Found\r\nServer: cat\r\nContent-Length: 0\r\n\r\n";
/// let (head, used) = parse_response_head(input, &http::Method::GET, &Limits::default())?
///     .expect("the head is whole");
/// assert_eq!(
///     (head.status().as_u16(), head.field("server")),
///     (404, Some(b"cat".as_slice()))
/// );
/// assert!(head.is_persistent() && used == input.len());
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    version: Version,
    framing: ResponseFraming,
    is_persistent: bool,
    /// The complete head with its empty line. Every line ends in CR LF.
    bytes: &'a [u8],
}

impl<'a> ResponseHead<'a> {
    /// Returns the status.
    #[inline]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the version of the response.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns how the content ends.
    #[inline]
    pub fn framing(&self) -> ResponseFraming {
        self.framing
    }

    /// Returns whether another response to the same request follows. This is so for 1xx except 101.
    #[inline]
    pub fn is_interim(&self) -> bool {
        self.status.is_informational() && self.status != StatusCode::SWITCHING_PROTOCOLS
    }

    /// Returns whether another request may be sent on this connection (RFC 9112 section 9.3).
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Returns the head that follows from the status, the fields and the method of the request.
    #[inline]
    pub(crate) fn from_facts(
        version: Version,
        status: StatusCode,
        facts: &FieldFacts,
        method: &Method,
        bytes: &'a [u8],
    ) -> Result<Self, ParseError> {
        let framing = facts.framing(method, status)?;
        let is_persistent = facts.is_persistent(version, framing);
        Ok(Self { status, version, framing, is_persistent, bytes })
    }

    /// Returns whether two heads parsed from the same bytes are equal.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.status, self.version, self.framing) == (other.status, other.version, other.framing)
            && (self.is_persistent, self.bytes) == (other.is_persistent, other.bytes)
    }

    /// Returns the bytes of the complete head, as received.
    #[inline]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the same head borrowing other bytes, which must be equal.
    #[inline]
    pub(crate) fn with_bytes<'b>(&self, bytes: &'b [u8]) -> ResponseHead<'b> {
        ResponseHead { bytes, ..*self }
    }

    /// Returns the fields in order of arrival. Names are as received, values are trimmed.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let lines = self.bytes.split(|&byte| byte == b'\n').skip(1);
        lines.filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&byte| byte == b':')?;
            let (name, value) = line.split_at_checked(colon)?;
            Some((name, trim_ows(value.get(1..).unwrap_or_default())))
        })
    }

    /// Returns the value of the first field with this name, ignoring case.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        let mut fields = self.fields();
        fields
            .find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }
}

/// Shows all fields. The values of [secret](crate::Headers::is_secret) fields are hidden.
impl fmt::Debug for ResponseHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut headers = Headers::new();
        for (name, value) in self.fields() {
            // A field that `Headers` refuses is left out.
            let _ = std::str::from_utf8(name).map(|name| headers.append(name, value));
        }
        f.debug_struct("ResponseHead")
            .field("status", &self.status)
            .field("version", &self.version)
            .field("framing", &self.framing)
            .field("is_persistent", &self.is_persistent)
            .field("headers", &headers)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::response::parse::parse_response_head;

    #[test]
    fn debug_shows_the_fields_and_hides_secrets() {
        const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nSet-Cookie: s3same\r\nX: yyyyy\r\n\r\n";
        let (head, _) =
            parse_response_head(HEAD, &Method::GET, &Limits::default()).unwrap().unwrap();
        let shown = format!("{head:?}");
        assert!(shown.contains("status: 200") && shown.contains("yyyyy"), "{shown}");
        assert!(shown.contains("Set-Cookie") && !shown.contains("s3same"), "{shown}");
    }

    /// Tests `is_same`, which compares the results of both parsers under debug assertions.
    #[test]
    fn heads_are_the_same_only_if_all_parts_are_equal() {
        fn read(head: &str) -> ResponseHead<'_> {
            parse_response_head(head.as_bytes(), &Method::GET, &Limits::default())
                .unwrap()
                .unwrap()
                .0
        }
        const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: yyyyy\r\n\r\n";
        assert!(read(HEAD).is_same(&read(HEAD)));
        for other in [
            "HTTP/1.1 201 OK\r\nContent-Length: 5\r\nX: yyyyy\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nX: yyyyy\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX: yyyyy\r\n\r\n",
        ] {
            // Compares one part at a time: the bytes are those of the first head.
            assert!(!read(HEAD).is_same(&read(other).with_bytes(HEAD.as_bytes())), "{other:?}");
        }
        assert!(
            !read(HEAD).is_same(&read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: zzzzz\r\n\r\n"))
        );
        let closing = ResponseHead { is_persistent: false, ..read(HEAD) };
        assert!(!closing.is_same(&read(HEAD)));
    }
}
