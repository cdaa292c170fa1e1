//! The head of a request as bytes.

use http::Method;

use crate::content::{BodyEncoding, ContentLength};
use crate::error::ParseError;
use crate::fields::Headers;
use crate::request::target::{parse_target, validate_host};

/// The head of a request that a client sends, always as HTTP/1.1.
///
/// ```
/// use filoplume_http1::{BodyEncoding, ContentLength, Headers, OutgoingRequest};
/// use http::Method;
///
/// let request = OutgoingRequest {
///     method: &Method::POST,
///     target: "/cats",
///     authority: "example.org",
///     headers: &Headers::new(),
///     content: ContentLength::Known(4),
///     closes: false,
/// };
/// let mut out = Vec::new();
/// assert_eq!(request.write_head(&mut out)?, BodyEncoding::Length(4));
/// assert_eq!(
///     out,
///     b"POST /cats HTTP/1.1\r\nhost: example.org\r\ncontent-length: 4\r\n\r\n"
/// );
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target as it is sent, in one of the four forms.
    pub target: &'a str,
    /// The value of `Host`, unless `headers` has one. May be empty.
    pub authority: &'a str,
    /// The fields. Fields that frame the message or control the connection are not sent: they
    /// follow from `content` and `closes`.
    pub headers: &'a Headers,
    /// What is known about the length of the content.
    pub content: ContentLength,
    /// Whether this is the last request on its connection.
    pub closes: bool,
}

impl OutgoingRequest<'_> {
    /// Appends the head and returns how the caller must write the content.
    ///
    /// # Errors
    ///
    /// Returns an error if the target is not allowed for the method, or if the authority or a
    /// `Host` in `headers` is malformed. Nothing is appended then.
    pub fn write_head(&self, out: &mut Vec<u8>) -> Result<BodyEncoding, ParseError> {
        parse_target(self.method, self.target.as_bytes())?;
        let mut hosts = self.headers.get_all("host");
        let host = hosts.next().unwrap_or(self.authority.as_bytes());
        if hosts.next().is_some() {
            return Err(ParseError::HostRepeated);
        }
        if !host.is_empty() {
            validate_host(host)?;
        }
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        out.extend_from_slice(host);
        out.extend_from_slice(b"\r\n");
        self.headers.write_lines(out, |name, _| {
            !OWN_FIELDS.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
        });
        if self.closes {
            out.extend_from_slice(b"connection: close\r\n");
        }
        let (length, encoding) = self.framing();
        if let Some(length) = length {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        if encoding == BodyEncoding::Chunked {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        out.extend_from_slice(b"\r\n");
        Ok(encoding)
    }

    fn framing(&self) -> (Option<u64>, BodyEncoding) {
        match self.content {
            ContentLength::Known(0) => (Some(0), BodyEncoding::None),
            ContentLength::Known(length) => (Some(length), BodyEncoding::Length(length)),
            ContentLength::Unknown => (None, BodyEncoding::Chunked),
            // A method that usually has content sends a length of zero (RFC 9110 section 8.6).
            ContentLength::None
                if [Method::POST, Method::PUT, Method::PATCH].contains(self.method) =>
            {
                (Some(0), BodyEncoding::None)
            }
            ContentLength::None => (None, BodyEncoding::None),
        }
    }
}

/// Fields that are computed here and not copied from the caller.
const OWN_FIELDS: [&str; 5] =
    ["host", "connection", "keep-alive", "content-length", "transfer-encoding"];
