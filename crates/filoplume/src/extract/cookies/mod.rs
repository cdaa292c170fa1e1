//! Cookies (RFC 6265): those of the request, and those of the response.

mod parameter;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use cookie::{Cookie, SameSite};
use filoplume_runtime::{Request, Response};
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

pub use self::parameter::CookiesRejection;
use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::key::Key;
use crate::semantics::media_type::trim;

/// The maximum number of cookies that are read from a request. Others are ignored. No browser
/// stores more for a site.
///
/// ```
/// use filoplume::extract::COOKIES_MAX;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", |cookies: Cookies| cookies.received().len().to_string());
/// let many = "a=b; ".repeat(COOKIES_MAX + 1);
/// app.test()
///     .get("/")
///     .header("cookie", &many)
///     .send()
///     .assert_text(&COOKIES_MAX.to_string());
/// ```
pub const COOKIES_MAX: usize = 180;

/// The maximum length of a `Set-Cookie` value. Browsers silently drop longer ones (RFC 6265, 6.1).
///
/// ```
/// use filoplume::extract::SET_COOKIE_BYTES_MAX;
/// use filoplume::prelude::*;
///
/// let app = App::new().post("/draft", |cookies: Cookies, text: String| {
///     if text.len() > SET_COOKIE_BYTES_MAX / 4 {
///         // encoded it may be three times as long
///         return Err(Error::unprocessable("too long for a cookie"));
///     }
///     cookies.set("draft", text);
///     Ok(())
/// });
/// app.test().post("/draft").body("a".repeat(2000)).send().assert_status(422);
/// ```
pub const SET_COOKIE_BYTES_MAX: usize = 4096;

/// Characters that are not allowed in the value of a cookie (RFC 6265, 4.1.1), and the percent
/// sign, which is used to encode them.
const NOT_IN_VALUE: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'%').add(b',').add(b';').add(b'\\');

/// The cookies of a request, and the changes that are sent with the response.
///
/// Changes are sent with any result of the handler, including errors. The handler does not have to
/// return them. After a panic they are not sent.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |cookies: Cookies| cookies.get("theme").unwrap_or("light".to_owned()))
///     .post("/theme/{name}", |cookies: Cookies, Path(name): Path<String>| {
///         cookies.set("theme", name);
///         Redirect::to("/")
///     });
/// let client = app.test();
/// client.get("/").header("cookie", "theme=dark").send().assert_text("dark");
/// let set = client.post("/theme/dark").send();
/// set.assert_header("set-cookie", "theme=dark; HttpOnly; SameSite=Lax; Secure; Path=/");
/// ```
///
/// Attributes that a cookie does not set have safe defaults: `HttpOnly`, `SameSite=Lax`, `Path=/`,
/// and `Secure` unless the app runs in [development mode](crate::App::development). Over plain
/// HTTP, browsers accept `Secure` cookies only from `localhost`. For another host without TLS, turn
/// `Secure` off for the cookie:
///
/// ```
/// use filoplume::extract::Cookie;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", |cookies: Cookies| {
///     cookies.add(Cookie::build(("seen", "yes")).secure(false).path("/app"));
/// });
/// app.test()
///     .get("/")
///     .send()
///     .assert_header("set-cookie", "seen=yes; HttpOnly; SameSite=Lax; Path=/app");
/// ```
///
/// The user of the browser can read and write cookies. [`signed`](Self::signed) cookies cannot be
/// changed, and [`encrypted`](Self::encrypted) ones cannot be read either. Values can be any text:
/// they are sent percent-encoded. Malformed cookies in a request are ignored, which RFC 6265, 5.4
/// leaves to the server.
#[derive(Clone)]
pub struct Cookies {
    jar: Arc<Mutex<Jar>>,
}

/// The name or the value of a cookie.
///
/// It replaces `Into<Cow<'static, str>>` in bounds, so that the compiler's message is about
/// cookies.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be in a cookie: write it as a text, such as `value.to_string()`",
    label = "not a text",
    note = "the handler reads it by `cookies.get(\"name\")`, which returns a text, too; a session \
            stores other values: `session.insert(\"name\", value)`"
)]
pub trait CookieText: Into<Cow<'static, str>> {}

#[diagnostic::do_not_recommend]
impl<T: Into<Cow<'static, str>>> CookieText for T {}

struct Jar {
    received: Vec<(String, String)>,
    /// The changes, at most one per name.
    changes: Vec<Cookie<'static>>,
    is_sent: bool,
}

impl Cookies {
    /// Returns the cookies of a request. This is for middleware: changes are sent only if it calls
    /// [`write_to`](Self::write_to).
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || "hello").with(|request: Request, next: Next| {
    ///     let cookies = Cookies::of(&request);
    ///     let context = next.context();
    ///     let mut response = next.run(request);
    ///     if cookies.get("visited").is_none() {
    ///         cookies.set("visited", "yes");
    ///     }
    ///     cookies.write_to(&mut response, &context)?;
    ///     Ok::<_, Error>(response)
    /// });
    /// assert!(app.test().get("/").send().header("set-cookie").is_some());
    /// ```
    pub fn of(request: &Request) -> Self {
        let fields = request.headers().get_all("cookie");
        let received = fields.flat_map(|field| field.split(|&byte| byte == b';')).filter_map(parse);
        let jar = Jar {
            received: received.take(COOKIES_MAX).collect(),
            changes: Vec::new(),
            is_sent: false,
        };
        Self { jar: Arc::new(Mutex::new(jar)) }
    }

    /// Returns the value of a cookie, including changes. If the request has several cookies of that
    /// name, returns the value of the first.
    pub fn get(&self, name: &str) -> Option<String> {
        let jar = self.jar.lock();
        if let Some(change) = jar.changes.iter().find(|change| change.name() == name) {
            return (!is_removal(change)).then(|| change.value().to_owned());
        }
        jar.received.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone())
    }

    /// Returns the names and values of all cookies in the request.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", |cookies: Cookies| {
    ///     cookies
    ///         .received()
    ///         .iter()
    ///         .map(|(name, value)| format!("{name} is {value}\n"))
    ///         .collect::<String>()
    /// });
    /// app.test().get("/").header("cookie", "a=1; b=2").send().assert_text("a is 1\nb is 2\n");
    /// ```
    pub fn received(&self) -> Vec<(String, String)> {
        self.jar.lock().received.clone()
    }

    /// Sets a cookie that lives until the browser is closed.
    pub fn set(&self, name: impl CookieText, value: impl CookieText) {
        self.add(Cookie::new(name, value));
    }

    /// Sets a cookie with attributes. If the name is not a token, or the cookie is too long for
    /// browsers, the response is a `500`.
    ///
    /// ```
    /// use filoplume::extract::{Cookie, SameSite, cookie::time::Duration};
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", |cookies: Cookies| {
    ///     cookies.add(
    ///         Cookie::build(("id", "17"))
    ///             .max_age(Duration::days(30))
    ///             .same_site(SameSite::Strict),
    ///     );
    /// });
    /// let answer = app.test().get("/").send();
    /// answer.assert_header(
    ///     "set-cookie",
    ///     "id=17; HttpOnly; SameSite=Strict; Secure; Path=/; Max-Age=2592000",
    /// );
    /// ```
    pub fn add(&self, cookie: impl Into<Cookie<'static>>) {
        let cookie = cookie.into();
        let mut jar = self.jar.lock();
        if jar.is_sent {
            tracing::warn!(
                name = cookie.name(),
                "a cookie was set after the response was made, and is not sent"
            );
        }
        jar.changes.retain(|change| change.name() != cookie.name());
        jar.changes.push(cookie);
    }

    /// Removes a cookie from the browser. If it was set with another path or with a domain, these
    /// must be the same: `cookies.remove(Cookie::build("id").path("/app"))`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .post("/theme", |cookies: Cookies| cookies.set("theme", "dark"))
    ///     .delete("/theme", |cookies: Cookies| cookies.remove("theme"));
    /// let client = app.test();
    /// client.post("/theme").send();
    /// assert_eq!(client.cookie("theme").as_deref(), Some("dark"));
    /// client.delete("/theme").send();
    /// assert_eq!(client.cookie("theme"), None);
    /// ```
    pub fn remove(&self, cookie: impl Into<Cookie<'static>>) {
        let mut cookie = cookie.into();
        cookie.make_removal();
        self.add(cookie);
    }

    /// Returns a view of the cookies with signed values. The browser can read these values, but
    /// cannot change them, use them under another name, or create new ones.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", |cookies: Cookies, State(key): State<Key>| {
    ///         cookies.signed(&key).get("user").ok_or(Error::unauthorized("who are you?"))
    ///     })
    ///     .state(Key::generate());
    /// app.test().get("/").header("cookie", "user=admin").send().assert_status(401);
    /// ```
    ///
    /// A copy of a signed cookie is valid as long as the key. Use sessions for data that must
    /// expire.
    pub fn signed<'a>(&'a self, key: &'a Key) -> ProtectedCookies<'a> {
        ProtectedCookies { cookies: self, key, protection: Protection::Signed }
    }

    /// Returns a view of the cookies with encrypted and authenticated values. They are protected
    /// like [signed](Self::signed) ones, and the browser cannot read them.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .post("/basket", |cookies: Cookies, State(key): State<Key>| {
    ///         cookies.encrypted(&key).set("basket", "3 apples")
    ///     })
    ///     .get("/basket", |cookies: Cookies, State(key): State<Key>| {
    ///         cookies.encrypted(&key).get("basket")
    ///     })
    ///     .state(Key::generate());
    /// let client = app.test();
    /// client.post("/basket").send();
    /// assert!(!client.cookie("basket").unwrap().contains("apples"));
    /// client.get("/basket").send().assert_text("3 apples");
    /// ```
    pub fn encrypted<'a>(&'a self, key: &'a Key) -> ProtectedCookies<'a> {
        ProtectedCookies { cookies: self, key, protection: Protection::Encrypted }
    }

    /// Adds the changes to a response. This is for middleware; handlers do not need it.
    ///
    /// # Errors
    ///
    /// If a cookie cannot be sent: its name is not a token, an attribute contains a semicolon, or
    /// it is longer than [`SET_COOKIE_BYTES_MAX`].
    pub fn write_to(&self, response: &mut Response, context: &Context<'_>) -> Result<()> {
        let changes = {
            let mut jar = self.jar.lock();
            jar.is_sent = true;
            std::mem::take(&mut jar.changes)
        };
        for cookie in changes {
            add_set_cookie(response, cookie, !context.is_development())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Cookies {
    // Values can be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jar = self.jar.lock();
        f.debug_list().entries(jar.received.iter().map(|(name, _)| name)).finish()
    }
}

/// A view of the cookies whose values are signed or encrypted. Returned by [`Cookies::signed`] and
/// [`Cookies::encrypted`].
///
/// ```
/// use filoplume::Key;
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .post("/login", |cookies: Cookies, State(key): State<Key>| {
///         cookies.signed(&key).set("user", "ada");
///     })
///     .get("/", |cookies: Cookies, State(key): State<Key>| {
///         cookies.signed(&key).get("user").unwrap_or_default()
///     })
///     .state(Key::generate());
/// let client = app.test();
/// client.post("/login").send();
/// client.get("/").send().assert_text("ada");
/// // A cookie without a signature:
/// client.get("/").header("cookie", "user=ada").send().assert_text("");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ProtectedCookies<'a> {
    cookies: &'a Cookies,
    key: &'a Key,
    protection: Protection,
}

#[derive(Clone, Copy, Debug)]
enum Protection {
    Signed,
    Encrypted,
}

impl ProtectedCookies<'_> {
    /// Returns the value of a cookie. Returns `None` if it is missing, or was not created with this
    /// key and this name.
    pub fn get(&self, name: &str) -> Option<String> {
        let value = self.cookies.get(name)?;
        match self.protection {
            Protection::Signed => self.key.verify(&purpose(name), &value).map(str::to_owned),
            Protection::Encrypted => self.key.open(&purpose(name), &value),
        }
    }

    /// Like [`Cookies::set`].
    pub fn set(&self, name: impl CookieText, value: impl CookieText) {
        self.add(Cookie::new(name, value));
    }

    /// Like [`Cookies::add`].
    pub fn add(&self, cookie: impl Into<Cookie<'static>>) {
        let mut cookie = cookie.into();
        let purpose = purpose(cookie.name());
        let value = match self.protection {
            Protection::Signed => self.key.sign(&purpose, cookie.value()),
            Protection::Encrypted => self.key.seal(&purpose, cookie.value()),
        };
        cookie.set_value(value);
        self.cookies.add(cookie);
    }

    /// Like [`Cookies::remove`].
    pub fn remove(&self, cookie: impl Into<Cookie<'static>>) {
        self.cookies.remove(cookie);
    }
}

/// The purpose distinguishes cookies from sessions, which may use the same key.
fn purpose(name: &str) -> String {
    format!("cookie:{name}")
}

/// Parses one `name=value` of a `Cookie` field. Returns `None` if it is malformed.
///
/// Only spaces and tabs are trimmed (RFC 6265, 5.2). Any host of the domain can set a cookie whose
/// name begins with other Unicode whitespace. If that were trimmed, the cookie could pass for a
/// `__Host-` cookie.
fn parse(pair: &[u8]) -> Option<(String, String)> {
    let (name, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
    let (name, value) = (trim(name), trim(value));
    if name.is_empty() {
        return None;
    }
    let unquoted =
        value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let value = percent_decode_str(unquoted).decode_utf8().unwrap_or(Cow::Borrowed(unquoted));
    Some((name.to_owned(), value.into_owned()))
}

fn is_removal(cookie: &Cookie<'_>) -> bool {
    cookie.max_age().is_some_and(|age| age <= cookie::time::Duration::ZERO)
}

/// Adds a cookie to a response, with safe defaults for attributes that it does not set.
pub(crate) fn add_set_cookie(
    response: &mut Response,
    mut cookie: Cookie<'static>,
    is_secure: bool,
) -> Result<()> {
    let name = cookie.name().to_owned();
    let refused = |why: &str| Error::internal(InvalidCookie(format!("the cookie {name:?} {why}")));
    if !is_cookie_name(&name) {
        return Err(refused("has a name that is not a token (RFC 6265, 4.1.1)"));
    }
    let attributes = [cookie.path(), cookie.domain()];
    if attributes
        .into_iter()
        .flatten()
        .any(|text| text.contains(|character: char| character == ';' || character.is_control()))
    {
        return Err(refused("has an attribute with a semicolon or control character"));
    }
    let prefixed = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    // Browsers drop cookies with these prefixes if the attributes do not match.
    if prefixed("__Host-") || prefixed("__Secure-") {
        cookie.set_secure(true);
    }
    if prefixed("__Host-") {
        cookie.set_path("/");
        cookie.unset_domain();
    }
    if cookie.path().is_none() {
        cookie.set_path("/");
    }
    if cookie.http_only().is_none() {
        cookie.set_http_only(true);
    }
    if cookie.same_site().is_none() {
        cookie.set_same_site(SameSite::Lax);
    }
    if cookie.secure().is_none() {
        // Browsers require it with `SameSite=None`.
        cookie.set_secure(is_secure || cookie.same_site() == Some(SameSite::None));
    }
    let value = utf8_percent_encode(cookie.value(), NOT_IN_VALUE).to_string();
    cookie.set_value(value);
    let line = cookie.to_string();
    if line.len() > SET_COOKIE_BYTES_MAX {
        let length = line.len();
        return Err(refused(&format!(
            "has {length} bytes, but browsers drop cookies longer than {SET_COOKIE_BYTES_MAX}: \
             keep the data in a session on the server, or shorten it"
        )));
    }
    response.add_header("set-cookie", line)?;
    Ok(())
}

/// Returns whether this is a name of a cookie, which is a token (RFC 6265, 4.1.1).
pub(crate) fn is_cookie_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_token)
}

/// RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A cookie that cannot be sent, which is a bug in the program.
#[derive(Debug)]
struct InvalidCookie(String);

impl fmt::Display for InvalidCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for InvalidCookie {}

#[cfg(test)]
mod tests;
