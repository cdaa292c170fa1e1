//! Conditional requests (RFC 9110, 13). They avoid sending content that the client already has, and
//! prevent clients from overwriting changes that they have not seen.
//!
//! [`StaticFiles`](crate::StaticFiles) and [`middleware::ETag`](crate::middleware::ETag) evaluate
//! the conditions of `GET` and `HEAD`. A handler that changes something evaluates them itself,
//! before the change:
//!
//! ```
//! use filoplume::conditional::{EntityTag, RequestConditions, Validators};
//! use filoplume::prelude::*;
//!
//! fn rename(conditions: RequestConditions) -> Result<&'static str> {
//!     let current = Validators::new().etag(EntityTag::strong("v7"));
//!     conditions.check(Some(&current))?;
//!     Ok("renamed")
//! }
//!
//! let client = App::new().put("/name", rename).test();
//! client.put("/name").header("if-match", "\"v7\"").send().assert_text("renamed");
//! client.put("/name").header("if-match", "\"v6\"").send().assert_status(412);
//! ```
//!
//! This module does not access the clock, files or sockets.

mod entity_tag;
mod request;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filoplume_runtime::{Headers, Method, Response, StatusCode};

pub use self::entity_tag::EntityTag;
use self::entity_tag::Tag;
pub use self::request::RequestConditions;

/// The first second that an HTTP-date cannot express: its year has four digits.
const DATE_END: Duration = Duration::from_secs(253_402_300_800);

/// The fields that a `304` omits, because they describe content that it does not have.
/// `Last-Modified` is omitted if there is an `ETag`. Fields about caching, and fields that are not
/// about the content, stay (RFC 9110, 15.4.5).
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

/// The validators of a content, which distinguish its versions.
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
    /// In whole seconds.
    last_modified: Option<SystemTime>,
    is_date_strong: bool,
}

impl Validators {
    /// Returns empty validators: the content exists, and nothing else is known of it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the validators of a response: `ETag` and `Last-Modified`.
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

    /// Removes the entity tag.
    #[must_use]
    pub fn without_etag(mut self) -> Self {
        self.etag = None;
        self
    }

    /// Sets the time of the last change. Times that an HTTP-date cannot express, before 1970 or
    /// after 9999, are ignored.
    #[must_use]
    pub fn last_modified(mut self, time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).ok().filter(|since| *since < DATE_END);
        self.last_modified = since.map(|since| UNIX_EPOCH + Duration::from_secs(since.as_secs()));
        self
    }

    /// Sets whether the content is known not to have changed twice within the second of
    /// [`last_modified`](Self::last_modified). If so, the date can be used in an `If-Range` (RFC
    /// 9110, 8.8.2.2). Default: `false`.
    #[must_use]
    pub fn date_is_strong(mut self, is_strong: bool) -> Self {
        self.is_date_strong = is_strong;
        self
    }

    /// Returns the value for an `ETag` header, if there is one.
    pub fn etag_value(&self) -> Option<&[u8]> {
        self.etag.as_ref().map(EntityTag::as_bytes)
    }

    /// Returns the value for a `Last-Modified` header, if there is one.
    pub fn last_modified_value(&self) -> Option<String> {
        self.last_modified.map(httpdate::fmt_http_date)
    }
}

/// The conditions of a request.
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
    if_range: Option<IfRange<'a>>,
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
enum IfRange<'a> {
    Tag(Tag<'a>),
    Date(SystemTime),
    Malformed,
}

/// The result of evaluating conditions.
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
/// assert_eq!(verdict.ok().unwrap_err().status(), 412);
/// # Ok::<(), filoplume::InvalidHeader>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a condition that is not looked at protects nothing"]
pub enum Verdict {
    /// The conditions hold, or there are none: process the request normally.
    Proceed,
    /// The client already has the content: respond with `304`.
    NotModified,
    /// The conditions fail: respond with `412`.
    Failed,
    /// A list of tags is malformed, and ignoring it could be unsafe: respond with `400`.
    Malformed,
}

impl<'a> Conditions<'a> {
    /// Returns the conditions in the headers of a request.
    ///
    /// Invalid dates are ignored, as RFC 9110 requires (13.1.3, 13.1.4). The RFC does not define
    /// what to do with malformed lists of tags. A malformed `If-Match` results in
    /// [`Malformed`](Verdict::Malformed), because its purpose is to prevent the request from being
    /// processed. So does a malformed `If-None-Match`, except for `GET` and `HEAD`, for which a
    /// full response is harmless.
    pub fn of(headers: &'a Headers) -> Self {
        Self {
            if_match: Tags::of(headers, "if-match"),
            if_none_match: Tags::of(headers, "if-none-match"),
            if_modified_since: only_date(headers, "if-modified-since"),
            if_unmodified_since: only_date(headers, "if-unmodified-since"),
            if_range: IfRange::of(headers),
        }
    }

    /// Evaluates the conditions in the order of RFC 9110, 13.2.2. `current` has the validators of
    /// the current content; it is `None` if there is none.
    ///
    /// Call it only if the response would otherwise be a success (13.2.1), and before anything is
    /// changed.
    pub fn evaluate(&self, method: &Method, current: Option<&Validators>) -> Verdict {
        // These methods neither select nor change content (13.2.1).
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

    /// Returns whether a `Range` applies: there is no `If-Range`, or it identifies exactly the
    /// current content (RFC 9110, 13.1.5).
    pub fn range_applies(&self, current: &Validators) -> bool {
        match self.if_range {
            None => true,
            Some(IfRange::Tag(tag)) => {
                current.etag.as_ref().is_some_and(|etag| etag.tag().matches_strongly(tag))
            }
            Some(IfRange::Date(date)) => {
                current.is_date_strong && current.last_modified == Some(date)
            }
            Some(IfRange::Malformed) => false,
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

/// Adds the tags in one line of a list. Empty elements are allowed (RFC 9110, 5.6.1.2).
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

impl<'a> IfRange<'a> {
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

/// Returns whether a request asks for a range if the content still has a certain date.
#[cfg(feature = "compression")]
pub(crate) fn is_range_dated(headers: &Headers) -> bool {
    headers.contains("range") && matches!(IfRange::of(headers), Some(IfRange::Date(_)))
}

/// Returns the date in a field, if the field has a single value that is a date.
fn only_date(headers: &Headers, name: &str) -> Option<SystemTime> {
    let mut lines = headers.get_all(name);
    let value = lines.next()?;
    if lines.next().is_some() { None } else { date(value) }
}

fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

/// Turns a response into the `304` that replaces it (RFC 9110, 15.4.5). Removes the content and the
/// fields that describe it. Fields about caching, and fields that middleware added, stay.
///
/// ```
/// use filoplume::Response;
/// use filoplume::conditional::not_modified;
///
/// let mut response = Response::from("what the client has already");
/// not_modified(&mut response);
/// assert_eq!(response.status(), 304);
/// assert!(!response.headers().contains("content-type"));
/// ```
pub fn not_modified(response: &mut Response) {
    response.set_status(StatusCode::NOT_MODIFIED.as_u16());
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
