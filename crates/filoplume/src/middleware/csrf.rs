//! Protection against cross-site request forgery (CSRF).

mod token;

use std::error::Error as StdError;
use std::fmt;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use filoplume_runtime::{Body, Method, Request, Response};
use percent_encoding::percent_decode_str;

pub use self::token::CsrfToken;
use self::token::is_token_of;
use crate::client::is_over_tls;
use crate::core::context::Context;
use crate::core::error::{Error, Result};
#[cfg(feature = "form")]
use crate::core::extract::CheckedField;
use crate::core::extract::reject;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::{CONTENT_BYTES_MAX, RouteOptions};
use crate::core::takes::Takes;
use crate::extract::ContentRejection;
use crate::log::{Throttle, log_without_subscriber};
use crate::semantics::origin::check_origin;
use crate::session::Session;

/// The header in which scripts send the token.
pub(crate) const HEADER: &str = "x-csrf-token";

/// The field in which forms send the token.
pub(crate) const FIELD: &str = "_csrf";

/// How much of a multipart form is searched for the token. The field comes first, and its part has
/// some 250 bytes.
const MULTIPART_BYTES_MAX: usize = 2048;

/// Refuses requests that another site makes a browser send in the name of its user (cross-site
/// request forgery, CSRF).
///
/// `GET`, `HEAD`, `OPTIONS` and `TRACE` pass, because their handlers must not change anything. For
/// other methods, `Sec-Fetch-Site`, or `Origin` if that is missing, must not name another site. For
/// a request over HTTPS, on its connection or according to a trusted proxy, the `http` page of the
/// same host is another site. The request must also contain the token of the session, in the form
/// field `_csrf` or in the header `X-CSRF-Token`. Otherwise the response is a `403`. The handler
/// can still read the content.
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::{Csrf, CsrfToken, Sessions};
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |token: CsrfToken| {
///         Html(format!("<form method=post>{}<button>Buy</button></form>", token.field()))
///     })
///     .post("/", || "bought")
///     .with(Sessions::in_cookie(Key::generate()))
///     .with(Csrf::new());
/// let client = app.test();
/// client.post("/").send().assert_status(403);
/// ```
///
/// The token belongs to the session ([`CsrfToken`]), so [`Sessions`](super::Sessions) must be added
/// before this middleware. [`Session::renew`] changes the token. If a proxy changes `Host`, name
/// the origin of the site with [`trust`](Self::trust).
///
/// A form does not start a session for a visitor without one. The token is then bound to a random
/// secret in a signed cookie (a signed double-submit cookie). The cookie is named after the
/// session's cookie: `__Host-session-csrf`, which other hosts of the domain cannot set. A new
/// session takes over the secret, so that open pages stay valid. From then on the cookie is
/// ignored.
///
/// A [`Form`](crate::extract::Form) is extracted without the field `_csrf`, so that its type may
/// deny unknown fields. In `multipart/form-data` the token must be the first field, so that files
/// need not be read to find it.
///
/// Browsers send `Secure` cookies over HTTPS only. Over plain HTTP no cookie comes with a form, and
/// each form is a `403`: use [`App::development`](crate::App::development) on your own machine.
///
/// API clients do not need this protection: put their routes into a router without it, or
/// exclude them with [`unless`](Self::unless).
pub struct Csrf {
    trusted: Vec<String>,
    /// Invalid arguments, reported when the app starts.
    mistakes: Vec<String>,
    unless: Option<Unless>,
    /// Whether the log says already that cookies do not arrive.
    has_warned: AtomicBool,
}

type Unless = Box<dyn Fn(&Request) -> bool + Send + Sync>;

impl Csrf {
    /// Returns middleware that accepts requests of this site only.
    pub fn new() -> Self {
        Self {
            trusted: Vec::new(),
            mistakes: Vec::new(),
            unless: None,
            has_warned: AtomicBool::new(false),
        }
    }

    /// Also accepts requests from pages of another origin, such as `https://admin.example.org`.
    /// They need the token as well. An app with an invalid origin does not start.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::middleware::{Csrf, CsrfToken, Sessions};
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/token", |token: CsrfToken| token.to_string())
    ///     .post("/", || "bought")
    ///     .with(Sessions::in_cookie(Key::generate()))
    ///     .with(Csrf::new().trust("https://admin.example.org"));
    /// let client = app.test();
    /// let token = client.get("/token").send().text().to_owned();
    /// let post = client
    ///     .post("/")
    ///     .header("origin", "https://admin.example.org")
    ///     .header("x-csrf-token", &token);
    /// post.send().assert_text("bought");
    /// ```
    #[must_use]
    pub fn trust(mut self, origin: impl Into<String>) -> Self {
        let origin = origin.into().trim_end_matches('/').to_ascii_lowercase();
        // Pages in a sandbox have the origin `null`. They need the token as well.
        let checked = if origin == "null" { Ok(()) } else { check_origin(&origin) };
        if let Err(mistake) = checked {
            // The message of the check is for middleware that can allow all origins.
            let mistake = if origin.contains('*') { "name each origin" } else { mistake };
            self.mistakes
                .push(format!("Csrf: `{}` is not an origin: {mistake}", origin.escape_debug()));
        }
        self.trusted.push(origin);
        self
    }

    /// Excludes some requests from the check, such as those of other servers.
    ///
    /// ```
    /// use filoplume::middleware::Csrf;
    ///
    /// let csrf = Csrf::new().unless(|request| request.path().starts_with("/hooks/"));
    /// ```
    #[must_use]
    pub fn unless(mut self, unless: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.unless = Some(Box::new(unless));
        self
    }

    /// Returns the error for a form that came without any cookie of this site. Without HTTPS the
    /// reason may be that the cookies are `Secure`: then each form of each browser is refused. The
    /// log says so only once, because a robot can send such forms as well.
    #[cold]
    fn without_cookie(&self, request: &Request, session: &Session) -> Error {
        let error = Error::forbidden("no cookie of this site came with the form");
        if !is_dropped_by_browsers(session.presented().is_secure, is_over_tls(request)) {
            return error;
        }
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let text = format!("{error}: {SecureCookies}");
            tracing::warn!("{text}");
            log_without_subscriber(&text);
        }
        error.with_source(SecureCookies)
    }

    fn is_cross_site(&self, request: &Request, context: &Context<'_>) -> bool {
        let origin = request.headers().get("origin").map(String::from_utf8_lossy);
        if origin.as_deref().is_some_and(|origin| {
            self.trusted.iter().any(|trusted| origin.eq_ignore_ascii_case(trusted))
        }) {
            return false;
        }
        // Scripts cannot set this header. `none`: the user typed the address, or opened a bookmark.
        let mut site = request.headers().get_all("sec-fetch-site").peekable();
        if site.peek().is_some() {
            return !site.all(|site| site == b"same-origin" || site == b"none");
        }
        // A browser without `Sec-Fetch-Site` always sends `Origin`. For other clients the token
        // decides.
        origin.is_some_and(|origin| !context.client(request).is_own_origin(&origin, request))
    }
}

/// Returns whether browsers drop a cookie that comes like this.
fn is_dropped_by_browsers(is_secure: bool, is_over_tls: bool) -> bool {
    is_secure && !is_over_tls
}

/// Returns the error for a request of a page of another site. The log says how to allow it, and so
/// does the response in development mode. The log line is throttled, because any site can cause it.
#[cold]
fn foreign_page(request: &Request) -> Error {
    static LOG: Throttle = Throttle::new();
    let origin = request.headers().get("origin").map(String::from_utf8_lossy);
    let foreign = ForeignPage(origin.unwrap_or_default().escape_debug().to_string());
    if let Some(left_out) = LOG.admit() {
        let left_out_field = left_out.field();
        tracing::info!(origin = foreign.0, left_out = left_out_field, "Csrf refuses: {foreign}");
        log_without_subscriber(&format!("Csrf refuses: {foreign}{left_out}"));
    }
    Error::forbidden("the request comes from a page of another site").with_source(foreign)
}

/// The origin of a page that may not send the request.
#[derive(Debug)]
struct ForeignPage(String);

impl fmt::Display for ForeignPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(origin) = self;
        write!(
            f,
            "a page of `{origin}` sent the request: if that site is yours, name it with \
             `Csrf::trust`; `Cors` does not do that"
        )
    }
}

impl StdError for ForeignPage {}

/// Why a form may come without a cookie: it came over plain HTTP, and the cookies are `Secure`.
#[derive(Debug)]
struct SecureCookies;

impl fmt::Display for SecureCookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`Secure` cookies need HTTPS, or `App::development(true)` on your machine")
    }
}

impl StdError for SecureCookies {}

impl Default for Csrf {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for Csrf {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let is_safe = matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE
        );
        if is_safe || self.unless.as_ref().is_some_and(|unless| unless(&request)) {
            return Ok(next.run(request));
        }
        if self.is_cross_site(&request, &next.context()) {
            return Err(foreign_page(&request));
        }
        let session = Session::of(&request)?;
        let Some(given) = request_token(&mut request, &next.context())? else {
            return Err(Error::forbidden(format!(
                "the CSRF token is missing: send it in the form field `{FIELD}`, which is the \
                 first one of a form with files, or in the header `{HEADER}`"
            )));
        };
        let secret = session.csrf_secret()?;
        if !secret.is_some_and(|secret| is_token_of(&given, &secret)) {
            if session.presented().session.is_none() && session.presented().form.is_none() {
                return Err(self.without_cookie(&request, &session));
            }
            return Err(Error::forbidden(
                "the CSRF token is not that of this session: load the page again, and send its \
                 form again",
            ));
        }
        #[cfg(feature = "form")]
        request.extensions_mut().insert(CheckedField(FIELD));
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.require::<Session>(
            "`Csrf` needs sessions: add `.with(Sessions::new(store, key))` before \
             `.with(Csrf::new())`",
        );
        options.provide::<CsrfToken>();
        for mistake in &self.mistakes {
            options.mistake(mistake);
        }
        // The middleware reads forms.
        options.take(Takes::Content);
    }
}

impl fmt::Debug for Csrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Csrf").field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

/// Returns the token that a request contains.
fn request_token(request: &mut Request, context: &Context<'_>) -> Result<Option<String>> {
    if let Some(token) = request.header(HEADER) {
        return Ok(Some(token.to_owned()));
    }
    if request.content_was_read() {
        return Err(reject(ContentRejection::AlreadyRead));
    }
    let content_type = request.header("content-type").unwrap_or_default().to_owned();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/x-www-form-urlencoded" => {
            let bytes_max = context.content_bytes_max().unwrap_or(CONTENT_BYTES_MAX);
            let is_long = request.body().len().is_some_and(|length| length > bytes_max);
            if is_long || request.body().as_slice().is_none() {
                // The content is still arriving: it is collected, and the handler reads it from
                // memory.
                let body = std::mem::take(request.body_mut());
                let bytes = body
                    .into_bytes(bytes_max)
                    .map_err(|error| ContentRejection::of_read(error, bytes_max))?;
                *request.body_mut() = Body::from(Vec::from(bytes));
            }
            Ok(request.body().as_slice().and_then(field_of_form))
        }
        "multipart/form-data" => {
            let Some(boundary) = boundary(&content_type) else { return Ok(None) };
            if let Some(content) = request.body().as_slice() {
                return Ok(first_part(content, boundary));
            }
            let start = read_prefix(request.body_mut())?;
            let token = first_part(&start, boundary);
            request.body_mut().unread(&start);
            Ok(token)
        }
        _ => Ok(None),
    }
}

fn field_of_form(form: &[u8]) -> Option<String> {
    let form = std::str::from_utf8(form).ok()?;
    let (_, value) =
        form.split('&').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == FIELD)?;
    percent_decode_str(value).decode_utf8().ok().map(Into::into)
}

/// Returns the separator of the parts (RFC 2046, 5.1.1).
fn boundary(content_type: &str) -> Option<&str> {
    let parameters =
        content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let mut boundaries =
        parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"));
    let (_, value) = boundaries.next()?;
    let value = value.trim().trim_matches('"');
    (1..=70).contains(&value.len()).then_some(value)
}

/// Reads the start of a content, up to the length that may contain the token.
fn read_prefix(body: &mut Body) -> Result<Vec<u8>> {
    let mut start = Vec::new();
    let read = body.take(MULTIPART_BYTES_MAX as u64).read_to_end(&mut start);
    read.map_err(|error| ContentRejection::of_read(error, u64::MAX))?;
    Ok(start)
}

/// Returns the value of the first part, if it is the token field.
fn first_part(content: &[u8], boundary: &str) -> Option<String> {
    let content = content.get(..MULTIPART_BYTES_MAX).unwrap_or(content);
    let rest = content.strip_prefix(format!("--{boundary}\r\n").as_bytes())?;
    let (head, rest) = split_at(rest, b"\r\n\r\n")?;
    let head = std::str::from_utf8(head).ok()?.to_ascii_lowercase();
    let is_field = head
        .split("\r\n")
        .filter_map(|line| line.strip_prefix("content-disposition:"))
        .any(|value| {
            value.split(';').any(|parameter| parameter.trim() == format!("name=\"{FIELD}\""))
        });
    let (value, _) = split_at(rest, format!("\r\n--{boundary}").as_bytes())?;
    is_field.then(|| std::str::from_utf8(value).ok().map(str::to_owned)).flatten()
}

fn split_at<'b>(bytes: &'b [u8], separator: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let at = bytes.windows(separator.len()).position(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_secure_cookie_over_plain_http_is_dropped() {
        let ways = [(true, false), (true, true), (false, false), (false, true)];
        let dropped = ways.map(|(secure, over_tls)| is_dropped_by_browsers(secure, over_tls));
        assert_eq!(dropped, [true, false, false, false]);
    }

    #[test]
    fn the_token_must_be_the_first_part_of_a_multipart_form() {
        let part = |name: &str| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nvalue\r\n--b--")
        };
        assert_eq!(first_part(part("_csrf").as_bytes(), "b").as_deref(), Some("value"));
        assert_eq!(first_part(part("csrf").as_bytes(), "b"), None);
        assert_eq!(first_part(part("x\"; name=\"_csrf").as_bytes(), "c"), None);
        let whole = part("_csrf");
        for cut in 0..whole.len() - 2 {
            assert_eq!(first_part(&whole.as_bytes()[..cut], "b"), None, "cut at {cut}");
        }
        assert_eq!(boundary("multipart/form-data; charset=x; Boundary=\"a b\""), Some("a b"));
        assert_eq!(boundary("multipart/form-data; boundary="), None);
        for (length, expected) in [(70, true), (71, false)] {
            let content_type = format!("multipart/form-data; boundary={}", "b".repeat(length));
            assert_eq!(boundary(&content_type).is_some(), expected, "{length}");
        }
        assert_eq!(boundary("multipart/form-data"), None);
    }

    /// It makes no difference whether the content is already in memory.
    #[test]
    fn the_first_part_ends_within_what_is_read_of_an_upload() {
        let head = "--b\r\nContent-Disposition: form-data; name=\"_csrf\"\r\n\r\n";
        let room = MULTIPART_BYTES_MAX - head.len() - "\r\n--b".len();
        for (length, expected) in [(room, true), (room + 1, false)] {
            let form = format!("{head}{}\r\n--b--\r\n", "x".repeat(length));
            assert_eq!(first_part(form.as_bytes(), "b").is_some(), expected, "{length}");
        }
    }

    #[test]
    fn the_token_may_be_anywhere_in_a_form() {
        assert_eq!(field_of_form(b"a=b&_csrf=to%2Dken&c").as_deref(), Some("to-ken"));
        assert_eq!(field_of_form(b"a_csrf=x&_csrfx=y"), None);
        assert_eq!(field_of_form(b"\xff"), None);
    }

    #[test]
    fn a_trusted_proxy_says_which_host_the_page_has() {
        let app = crate::App::new()
            .post("/", || "changed")
            .with(crate::middleware::Sessions::in_cookie(crate::Key::generate()))
            .with(Csrf::new())
            .trust_proxies(crate::extract::Proxies::loopback().x_forwarded_host());
        let client = app.test();
        let pages = [
            ("http://app.example", "token is missing"),
            ("http://localhost", "token is missing"),
            ("http://other.example", "another site"),
        ];
        for (origin, expected) in pages {
            let request = client.post("/").header("x-forwarded-host", "app.example");
            let response = request.header("origin", origin).send();
            response.assert_status(403).assert_contains(expected);
        }
    }

    #[test]
    fn a_request_that_is_said_to_come_from_two_sites_is_from_another() {
        let app = crate::App::new()
            .post("/", || "changed")
            .with(crate::middleware::Sessions::in_cookie(crate::Key::generate()))
            .with(Csrf::new());
        let client = app.test();
        for (second, expected) in [("none", "token is missing"), ("cross-site", "another site")] {
            let request = client.post("/").header("sec-fetch-site", "same-origin");
            let response = request.header("sec-fetch-site", second).send();
            response.assert_status(403).assert_contains(expected);
        }
    }
}
