//! Conditional requests (RFC 9110, 13): what a client has already is not sent again, and what it
//! has not seen it does not overwrite.
//!
//! [`StaticFiles`](crate::StaticFiles) and [`middleware::ETag`](crate::middleware::ETag) evaluate
//! the conditions of `GET` and `HEAD`. A handler that changes something evaluates them itself,
//! before it does:
//!
//! ```
//! use filoplume::conditional::{Conditions, EntityTag, Validators};
//! use filoplume::prelude::*;
//!
//! fn rename(request: Request) -> Result<&'static str> {
//!     let current = Validators::new().etag(EntityTag::strong("v7"));
//!     Conditions::of(request.headers())
//!         .evaluate(request.method(), Some(&current))
//!         .ok()?;
//!     Ok("renamed")
//! }
//!
//! let client = App::new().put("/name", rename).test();
//! client.put("/name").header("if-match", "\"v7\"").send().assert_text("renamed");
//! client.put("/name").header("if-match", "\"v6\"").send().assert_status(412);
//! ```
//!
//! Nothing here reads a clock, a file or a socket.

mod request;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filoplume_runtime::{Headers, Method, Response, StatusCode};

pub use self::request::RequestConditions;

/// The first second that an HTTP-date cannot tell: the year has four digits.
const DATE_END: Duration = Duration::from_secs(253_402_300_800);

/// The fields of a `304` that would describe a content that is not there. `Last-Modified` goes if
/// there is an `ETag`; what says how the answer may be kept stays, and so does what is not about
/// the content (RFC 9110, 15.4.5).
const CONTENT_FIELDS: [&str; 8] = [
    "content-type",
    "content-encoding",
    "content-language",
    "content-disposition",
    "content-length",
    "content-range",
    "accept-ranges",
    "transfer-encoding",
];

/// An entity tag: a name for exactly these bytes, or, if it is weak, for bytes that mean the same
/// (RFC 9110, 8.8.3).
///
/// ```
/// use filoplume::conditional::EntityTag;
///
/// let tag = EntityTag::parse(b"W/\"v7\"").unwrap();
/// assert!(tag.is_weak());
/// assert!(tag.matches_weakly(&EntityTag::strong("v7")));
/// assert!(!tag.matches_strongly(&EntityTag::strong("v7")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityTag {
    /// As it is sent.
    value: Vec<u8>,
    is_weak: bool,
}

impl EntityTag {
    /// Returns a tag that changes with every byte.
    ///
    /// # Panics
    ///
    /// If the text has a quote, a space or a control character. What comes from elsewhere is given
    /// to [`parse`](Self::parse), or hashed first.
    pub fn strong(text: &str) -> Self {
        Self::made(&format!("\"{text}\""))
    }

    /// Returns a tag that stays while the content means the same.
    ///
    /// # Panics
    ///
    /// As [`strong`](Self::strong).
    pub fn weak(text: &str) -> Self {
        Self::made(&format!("W/\"{text}\""))
    }

    fn made(value: &str) -> Self {
        match Self::parse(value.as_bytes()) {
            Some(tag) => tag,
            None => panic!("`{value}` is no entity tag"),
        }
    }

    /// Returns the tag that the value of an `ETag` is, or `None` if it is none.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (tag, rest) = Tag::take(value)?;
        rest.is_empty().then(|| Self { value: value.to_vec(), is_weak: tag.is_weak })
    }

    /// Returns whether it is weak.
    pub fn is_weak(&self) -> bool {
        self.is_weak
    }

    /// Returns the value of an `ETag` with it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.value
    }

    /// Returns whether both name the same bytes (RFC 9110, 8.8.3.2).
    pub fn matches_strongly(&self, other: &Self) -> bool {
        self.tag().matches_strongly(other.tag())
    }

    /// Returns whether both name what means the same (RFC 9110, 8.8.3.2).
    pub fn matches_weakly(&self, other: &Self) -> bool {
        self.tag().matches_weakly(other.tag())
    }

    fn tag(&self) -> Tag<'_> {
        let quoted = if self.is_weak { self.value.get(2..) } else { Some(&*self.value) };
        Tag { is_weak: self.is_weak, quoted: quoted.unwrap_or_default() }
    }
}

/// An entity tag within a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag<'a> {
    is_weak: bool,
    quoted: &'a [u8],
}

impl<'a> Tag<'a> {
    /// Takes a tag off the front: `[ "W/" ] DQUOTE *etagc DQUOTE`. There is no escape: a quote
    /// always ends it.
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (is_weak, rest) = match bytes.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, bytes),
        };
        let inner = rest.strip_prefix(b"\"")?;
        let end = inner.iter().position(|&byte| !is_tag_byte(byte))?;
        if inner.get(end) != Some(&b'"') {
            return None;
        }
        let (quoted, rest) = rest.split_at_checked(end + 2)?;
        Some((Self { is_weak, quoted }, rest))
    }

    fn matches_weakly(self, other: Tag<'_>) -> bool {
        self.quoted == other.quoted
    }

    fn matches_strongly(self, other: Tag<'_>) -> bool {
        !self.is_weak && !other.is_weak && self.quoted == other.quoted
    }
}

/// `etagc` of RFC 9110, 8.8.3.
fn is_tag_byte(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7E | 0x80..)
}

/// What tells one version of a content from another.
///
/// ```
/// use filoplume::conditional::{EntityTag, Validators};
/// use std::time::SystemTime;
///
/// let validators =
///     Validators::new().etag(EntityTag::strong("v7")).last_modified(SystemTime::now());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    etag: Option<EntityTag>,
    /// A whole second.
    last_modified: Option<SystemTime>,
    is_date_strong: bool,
}

impl Validators {
    /// Returns none: all that is known is that there is a content.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns those that a response has: `ETag` and `Last-Modified`.
    ///
    /// ```
    /// use filoplume::Response;
    /// use filoplume::conditional::Validators;
    ///
    /// let mut response = Response::from("a note");
    /// response.set_header("etag", "\"v7\"")?;
    /// assert_eq!(Validators::of(&response).etag_value(), Some(b"\"v7\"".as_slice()));
    /// # Ok::<(), filoplume::InvalidHeader>(())
    /// ```
    pub fn of(response: &Response) -> Self {
        let mut headers = response.headers().get_all("etag");
        let etag = match (headers.next(), headers.next()) {
            (Some(value), None) => EntityTag::parse(value),
            _ => None,
        };
        let last_modified = only_date(response.headers(), "last-modified");
        Self { etag, last_modified, is_date_strong: false }
    }

    /// Sets the entity tag.
    #[must_use]
    pub fn etag(mut self, etag: EntityTag) -> Self {
        self.etag = Some(etag);
        self
    }

    /// Leaves the entity tag out.
    #[must_use]
    pub fn without_etag(mut self) -> Self {
        self.etag = None;
        self
    }

    /// Sets when the content changed. What no HTTP-date can tell, before 1970 and after 9999, is
    /// left out.
    #[must_use]
    pub fn last_modified(mut self, time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).ok().filter(|since| *since < DATE_END);
        self.last_modified = since.map(|since| UNIX_EPOCH + Duration::from_secs(since.as_secs()));
        self
    }

    /// Says that the content is known not to have changed twice in the second of
    /// [`last_modified`](Self::last_modified), so that the date will do for an `If-Range` (RFC
    /// 9110, 8.8.2.2). Default: not known.
    #[must_use]
    pub fn date_is_strong(mut self, is_strong: bool) -> Self {
        self.is_date_strong = is_strong;
        self
    }

    /// Returns the value of an `ETag`, if there is one.
    pub fn etag_value(&self) -> Option<&[u8]> {
        self.etag.as_ref().map(EntityTag::as_bytes)
    }

    /// Returns the value of a `Last-Modified`, if there is one.
    pub fn last_modified_value(&self) -> Option<String> {
        self.last_modified.map(httpdate::fmt_http_date)
    }
}

/// What a request makes its answer depend on.
///
/// ```
/// use filoplume::conditional::{Conditions, EntityTag, Validators, Verdict};
/// use filoplume::{Headers, Method};
///
/// let mut headers = Headers::new();
/// headers.append("if-none-match", "\"v6\", \"v7\"")?;
/// let current = Validators::new().etag(EntityTag::strong("v7"));
/// let verdict = Conditions::of(&headers).evaluate(&Method::GET, Some(&current));
/// assert_eq!(verdict, Verdict::NotModified);
/// # Ok::<(), filoplume::InvalidHeader>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Conditions<'a> {
    if_match: Option<Tags<'a>>,
    if_none_match: Option<Tags<'a>>,
    if_modified_since: Option<SystemTime>,
    if_unmodified_since: Option<SystemTime>,
    if_range: Option<Range<'a>>,
}

/// The value of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags<'a> {
    Any,
    List(Vec<Tag<'a>>),
    Malformed,
}

/// The value of `If-Range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range<'a> {
    Tag(Tag<'a>),
    Date(SystemTime),
    Malformed,
}

/// What becomes of a request with conditions.
///
/// ```
/// use filoplume::conditional::{Conditions, EntityTag, Validators, Verdict};
/// use filoplume::{Headers, Method};
///
/// let mut headers = Headers::new();
/// headers.append("if-match", "\"v6\"")?; // what the client has seen
/// let current = Validators::new().etag(EntityTag::strong("v7")); // what there is now
/// let verdict = Conditions::of(&headers).evaluate(&Method::PUT, Some(&current));
/// assert_eq!(verdict, Verdict::Failed);
/// assert_eq!(verdict.ok().unwrap_err().status_code(), 412);
/// # Ok::<(), filoplume::InvalidHeader>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a condition that is not looked at protects nothing"]
pub enum Verdict {
    /// They hold, or there are none: answer as if they were not there.
    Proceed,
    /// The client has it: `304`.
    NotModified,
    /// They do not hold: `412`.
    Failed,
    /// A list of tags is none, and to guess what it protects would be unsafe: `400`.
    Malformed,
}

impl<'a> Conditions<'a> {
    /// Returns the conditions in the headers of a request.
    ///
    /// Dates that are none are ignored, as RFC 9110 wants (13.1.3, 13.1.4). Of a list of tags that
    /// is none it says nothing: `If-Match` then is [malformed](Verdict::Malformed), because it is
    /// there to prevent something; `If-None-Match` is too, except for `GET` and `HEAD`, where the
    /// whole answer harms nobody.
    pub fn of(headers: &'a Headers) -> Self {
        Self {
            if_match: Tags::of(headers, "if-match"),
            if_none_match: Tags::of(headers, "if-none-match"),
            if_modified_since: only_date(headers, "if-modified-since"),
            if_unmodified_since: only_date(headers, "if-unmodified-since"),
            if_range: Range::of(headers),
        }
    }

    /// Evaluates them in the order of RFC 9110, 13.2.2. `current` is what there is now: `None` if
    /// there is nothing yet.
    ///
    /// To be asked only if the answer would otherwise be a success (13.2.1), and before anything is
    /// changed.
    pub fn evaluate(&self, method: &Method, current: Option<&Validators>) -> Verdict {
        // These neither select nor change a content (13.2.1).
        if [Method::CONNECT, Method::OPTIONS, Method::TRACE].contains(method) {
            return Verdict::Proceed;
        }
        let is_read = [Method::GET, Method::HEAD].contains(method);
        let last_modified = current.and_then(|current| current.last_modified);
        let is_met = match (&self.if_match, self.if_unmodified_since) {
            (Some(Tags::Malformed), _) => return Verdict::Malformed,
            (Some(tags), _) => tags.match_any(current, |tag, etag| tag.matches_strongly(etag)),
            (None, Some(date)) => last_modified.is_none_or(|modified| modified <= date),
            (None, None) => true,
        };
        if !is_met {
            return Verdict::Failed;
        }
        match (&self.if_none_match, self.if_modified_since) {
            (Some(Tags::Malformed), _) if !is_read => Verdict::Malformed,
            (Some(tags), _) if !tags.match_any(current, |tag, etag| tag.matches_weakly(etag)) => {
                Verdict::Proceed
            }
            (Some(_), _) if is_read => Verdict::NotModified,
            (Some(_), _) => Verdict::Failed,
            (None, Some(date))
                if is_read && last_modified.is_some_and(|modified| modified <= date) =>
            {
                Verdict::NotModified
            }
            (None, _) => Verdict::Proceed,
        }
    }

    /// Returns whether a `Range` counts: there is no `If-Range`, or it names exactly what there is
    /// now (RFC 9110, 13.1.5).
    pub fn range_applies(&self, current: &Validators) -> bool {
        match self.if_range {
            None => true,
            Some(Range::Tag(tag)) => {
                current.etag.as_ref().is_some_and(|etag| etag.tag().matches_strongly(tag))
            }
            Some(Range::Date(date)) => {
                current.is_date_strong && current.last_modified == Some(date)
            }
            Some(Range::Malformed) => false,
        }
    }
}

impl<'a> Tags<'a> {
    fn of(headers: &'a Headers, name: &str) -> Option<Self> {
        let mut lines = headers.get_all(name).peekable();
        lines.peek()?;
        let mut tags = Vec::new();
        let mut has_star = false;
        for line in lines {
            let line = line.trim_ascii();
            if line == b"*" && !has_star && tags.is_empty() {
                has_star = true;
            } else if has_star || list(line, &mut tags).is_none() {
                return Some(Self::Malformed);
            }
        }
        Some(if has_star { Self::Any } else { Self::List(tags) })
    }

    fn match_any(
        &self,
        current: Option<&Validators>,
        matches: impl Fn(Tag<'_>, Tag<'_>) -> bool,
    ) -> bool {
        let Some(current) = current else { return false };
        match self {
            Self::Any => true,
            Self::List(tags) => current
                .etag
                .as_ref()
                .is_some_and(|etag| tags.iter().any(|tag| matches(*tag, etag.tag()))),
            Self::Malformed => false,
        }
    }
}

/// Adds the tags of a line of a list; empty elements are allowed (RFC 9110, 5.6.1.2).
fn list<'a>(mut line: &'a [u8], tags: &mut Vec<Tag<'a>>) -> Option<()> {
    loop {
        line = line.trim_ascii_start();
        match line.first() {
            None => return Some(()),
            Some(b',') => line = line.get(1..)?,
            Some(_) => {
                let (tag, rest) = Tag::take(line)?;
                tags.push(tag);
                line = rest.trim_ascii_start();
                if !matches!(line.first(), None | Some(b',')) {
                    return None;
                }
            }
        }
    }
}

impl<'a> Range<'a> {
    fn of(headers: &'a Headers) -> Option<Self> {
        let mut lines = headers.get_all("if-range");
        let value = lines.next()?;
        if lines.next().is_some() {
            return Some(Self::Malformed);
        }
        let value = value.trim_ascii();
        Some(match (Tag::take(value), date(value)) {
            (Some((tag, [])), _) => Self::Tag(tag),
            (None, Some(date)) => Self::Date(date),
            _ => Self::Malformed,
        })
    }
}

/// The date of a field, if it has one value and that is a date.
fn only_date(headers: &Headers, name: &str) -> Option<SystemTime> {
    let mut lines = headers.get_all(name);
    let value = lines.next()?;
    if lines.next().is_some() { None } else { date(value) }
}

fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

/// Makes of the response that would have been sent the `304` that stands for it (RFC 9110, 15.4.5):
/// without content and what describes it, with what says how it may be kept, and with what
/// middleware added.
///
/// ```
/// use filoplume::Response;
/// use filoplume::conditional::not_modified;
///
/// let mut response = Response::from("what the client has already");
/// not_modified(&mut response);
/// assert_eq!(response.status_code(), 304);
/// assert!(!response.headers().contains("content-type"));
/// ```
pub fn not_modified(response: &mut Response) {
    response.status(StatusCode::NOT_MODIFIED.as_u16());
    *response.body_mut() = filoplume_runtime::ResponseBody::Empty;
    let headers = response.headers_mut();
    for name in CONTENT_FIELDS {
        headers.remove(name);
    }
    if headers.contains("etag") {
        headers.remove("last-modified");
    }
}

#[cfg(test)]
mod tests;
