//! What goes wrong, and how it is answered: one type for handlers, middleware and start-up.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use filoplume_runtime::{Headers, InvalidHeader, Response, StatusCode};

/// A failure: a status, what the peer may know of it, and what only the log may know.
///
/// Every error type of other crates becomes one by `?`, as a plain `500`: its text is for the log. What the peer is
/// told is said by [`Error::new`] and its short forms. An error ends the chain of handlers; the one
/// place that presents errors makes it `application/problem+json` (RFC 9457) or HTML, as the client prefers.
///
/// ```
/// use filoplume::prelude::*;
///
/// fn stock(Path(item): Path<String>) -> Result<String> {
///     let count: u32 = std::fs::read_to_string("stock.txt")?.trim().parse()?;  // 500, and a line in the log
///     if count == 0 {
///         return Err(Error::not_found(format!("{item} is sold out")));         // 404, with this text
///     }
///     Ok(format!("{count} left"))
/// }
/// ```
pub struct Error {
    inner: Box<Inner>,
}

/// The result of whatever can fail in an app.
///
/// ```
/// use filoplume::{Error, Result};
///
/// fn port(text: &str) -> Result<u16> {
///     let port: u16 = text.parse()?;                                        // what goes wrong here is a 500
///     if port < 1024 {
///         return Err(Error::bad_request("ports below 1024 are reserved"));
///     }
///     Ok(port)
/// }
///
/// assert_eq!(port("8080")?, 8080);
/// assert_eq!(port("80").unwrap_err().status_code(), 400);
/// # Ok::<(), Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

struct Inner {
    status: StatusCode,
    detail: Option<Cow<'static, str>>,
    problem_type: Option<Cow<'static, str>>,
    title: Option<Cow<'static, str>>,
    fields: Vec<FieldError>,
    /// Further members of the problem details, as JSON text.
    members: Vec<(Cow<'static, str>, String)>,
    headers: Headers,
    source: Option<Box<dyn StdError + Send + Sync>>,
    is_start_up: bool,
}

/// What is wrong with one field of the input.
///
/// ```
/// use filoplume::Error;
///
/// let error = Error::unprocessable("the order is wrong").with_field("items[2].price", "must not be negative");
/// let wrong = &error.fields()[0];
/// assert_eq!(wrong.field, "items[2].price");
/// assert_eq!(wrong.message, "must not be negative");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// Where it is, such as `address.street` or `items[2].price`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl Error {
    /// Returns an error with a status and what the peer is told.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/old", || Err::<(), _>(Error::new(StatusCode::GONE, "it was here until May")));
    /// app.test().get("/old").send().assert_status(410).assert_contains("it was here until May");
    /// ```
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { inner: Box::new(Inner { detail: Some(detail.into()), ..Inner::of(status) }) }
    }

    /// Returns an error of which the peer is told the status only.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/tea", || Err::<(), _>(Error::status(StatusCode::IM_A_TEAPOT)));
    /// app.test().get("/tea").send().assert_status(418);
    /// ```
    pub fn status(status: StatusCode) -> Self {
        Self { inner: Box::new(Inner::of(status)) }
    }

    /// Returns a `500` whose text is for the log; the peer is told the status only.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || Err::<(), _>(Error::internal("the disk of db-3 is full")));
    /// let response = app.test().get("/").send();
    /// assert!(!response.assert_status(500).text().contains("db-3"));
    /// ```
    pub fn internal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::status(StatusCode::INTERNAL_SERVER_ERROR).with_source(source)
    }

    /// Returns a `400`: the request makes no sense.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Returns a `401`: it is not known who asks. RFC 9110, 11.6.1 wants a `WWW-Authenticate` with it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || -> Result<()> {
    ///     Err(Error::unauthorized("log in first").with_header("www-authenticate", "Bearer")?)
    /// });
    /// app.test().get("/").send().assert_status(401).assert_header("www-authenticate", "Bearer");
    /// ```
    pub fn unauthorized(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail)
    }

    /// Returns a `403`: who asks may not.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// Returns a `404`: there is no such thing.
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Returns a `409`: it cannot be done in the state that the thing is in.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// Returns a `422`: understood, but wrong.
    pub fn unprocessable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// Returns a `503`: not now.
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(crate) fn start_up(message: impl Into<String>) -> Self {
        let mut error = Self::internal(Message(message.into()));
        error.inner.is_start_up = true;
        error
    }

    /// As `start_up`, for an error that says it all.
    pub(crate) fn start_up_with(source: impl StdError + Send + Sync + 'static) -> Self {
        let mut error = Self::internal(source);
        error.inner.is_start_up = true;
        error
    }

    /// Sets the cause. It is logged, never sent.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// fn quantity(text: String) -> Result<String> {
    ///     let count: u32 = text.parse().map_err(|error| Error::bad_request("no number").with_source(error))?;
    ///     Ok(format!("{count} pieces"))
    /// }
    ///
    /// let client = App::new().post("/", quantity).test();
    /// client.post("/").body("many").send().assert_status(400).assert_contains("no number");
    /// ```
    #[must_use]
    #[doc(alias = "with_cause")]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Takes over the cause of another error, unless it has one.
    pub(crate) fn with_cause_of(mut self, other: Self) -> Self {
        if self.inner.source.is_none() {
            self.inner.source = other.inner.source;
        }
        self
    }

    /// Adds what is wrong with one field.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().post("/sign-up", || {
    ///     Err::<(), _>(Error::unprocessable("please look at the form again").with_field("email", "is taken"))
    /// });
    /// let response = app.test().post("/sign-up").send();
    /// response.assert_status(422).assert_contains(r#""field":"email""#);
    /// ```
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        self.inner.fields.push(FieldError { field: field.into(), message: message.into() });
        self
    }

    /// Sets the URI that names this kind of problem (RFC 9457, 3.1.1).
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().post("/buy", || {
    ///     let error = Error::new(StatusCode::PAYMENT_REQUIRED, "30 are missing");
    ///     Err::<(), _>(error.with_type("https://example.org/problems/no-money").with_title("Not enough money"))
    /// });
    /// app.test().post("/buy").send().assert_contains(r#""type":"https://example.org/problems/no-money""#);
    /// ```
    #[must_use]
    pub fn with_type(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.inner.problem_type = Some(uri.into());
        self
    }

    /// Sets the title of this kind of problem, for one that has a [type](Self::with_type) of its own (RFC 9457, 3.1.3).
    /// Otherwise it is the name of the status.
    ///
    /// ```
    /// use filoplume::Error;
    ///
    /// let error = Error::conflict("bob has it").with_type("https://example.org/problems/lent").with_title("Lent out");
    /// assert_eq!(error.title(), Some("Lent out"));
    /// ```
    #[must_use]
    pub fn with_title(mut self, title: impl Into<Cow<'static, str>>) -> Self {
        self.inner.title = Some(title.into());
        self
    }

    /// Adds a member to the problem details that JSON clients get (RFC 9457, 3.2).
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().post("/buy", || {
    ///     Err::<(), _>(Error::conflict("not enough money").with_member("balance", 30)?)
    /// });
    /// assert!(app.test().post("/buy").send().text().contains(r#""balance":30"#));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the value cannot be JSON.
    #[cfg(feature = "json")]
    pub fn with_member(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl serde::Serialize,
    ) -> Result<Self> {
        let json = serde_json::to_string(&value).map_err(Self::internal)?;
        self.inner.members.push((name.into(), json));
        Ok(self)
    }

    /// Adds a header to the answer, such as `WWW-Authenticate` or `Retry-After`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || -> Result<()> {
    ///     Err(Error::unavailable("back in a minute").with_header("retry-after", "60")?)
    /// });
    /// app.test().get("/").send().assert_status(503).assert_header("retry-after", "60");
    /// ```
    ///
    /// # Errors
    ///
    /// If the name is no token or the value has a control character.
    pub fn with_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, InvalidHeader> {
        self.inner.headers.append(name, value)?;
        Ok(self)
    }

    /// As `with_header`, for what is known to be valid.
    pub(crate) fn with_known_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let added = self.inner.headers.append(name, value);
        debug_assert!(added.is_ok(), "{name} is a valid header");
        self
    }

    /// Returns the status of the answer.
    pub fn status_code(&self) -> StatusCode {
        self.inner.status
    }

    /// Returns what the peer is told beside the status.
    ///
    /// ```
    /// use filoplume::Error;
    ///
    /// assert_eq!(Error::not_found("no such note").detail(), Some("no such note"));
    /// assert_eq!(Error::internal("the disk is full").detail(), None);
    /// ```
    pub fn detail(&self) -> Option<&str> {
        self.inner.detail.as_deref()
    }

    /// Returns what is wrong with the fields of the input.
    pub fn fields(&self) -> &[FieldError] {
        &self.inner.fields
    }

    /// Returns the headers of the answer.
    ///
    /// ```
    /// use filoplume::Error;
    ///
    /// let error = Error::unavailable("back in a minute").with_header("retry-after", "60")?;
    /// assert_eq!(error.headers().get_str("retry-after"), Some("60"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn headers(&self) -> &Headers {
        &self.inner.headers
    }

    /// Returns the URI that names this kind of problem.
    pub fn problem_type(&self) -> Option<&str> {
        self.inner.problem_type.as_deref()
    }

    /// Returns the title of this kind of problem, if it has one of its own.
    pub fn title(&self) -> Option<&str> {
        self.inner.title.as_deref()
    }

    /// Further members of the problem details, as JSON text.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        self.inner.members.iter().map(|(name, json)| (&**name, &**json))
    }

    /// Returns the cause.
    pub fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }

    /// Returns the cause, or a cause of the cause, if it is of type `E`.
    ///
    /// ```
    /// use std::io;
    /// use filoplume::Error;
    ///
    /// let error = Error::from(io::Error::from(io::ErrorKind::NotFound));
    /// let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    /// assert_eq!(cause, Some(io::ErrorKind::NotFound));
    /// ```
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.chain().find_map(|error| error.downcast_ref::<E>())
    }

    /// Returns the causes, the nearest first.
    ///
    /// ```
    /// use filoplume::Error;
    ///
    /// let error = Error::unavailable("try again later").with_source("db-3 does not answer");
    /// let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    /// assert_eq!(causes, ["db-3 does not answer"]);
    /// ```
    pub fn chain(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        std::iter::successors(self.source(), |&error| error.source())
    }

    /// What the log is told.
    pub(crate) fn in_one_line(&self) -> String {
        let mut text = self.to_string();
        let told = usize::from(self.inner.detail.is_none());
        for cause in self.chain().skip(told).map(ToString::to_string) {
            // Many errors tell their cause already.
            if !text.ends_with(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        text
    }

    /// Returns the error that a response stands for. Middleware sees failures as responses, with the error beside them.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || Err::<(), _>(Error::conflict("lent out"))).with(|request: Request, next: Next| {
    ///     let response = next.run(request);
    ///     let detail = Error::of(&response).and_then(Error::detail);
    ///     assert_eq!(detail, Some("lent out"));
    ///     response
    /// });
    /// app.test().get("/").send().assert_status(409);
    /// ```
    pub fn of(response: &Response) -> Option<&Self> {
        response.extensions().get::<Arc<Self>>().map(|error| &**error)
    }

    /// Returns the response that stands for this error. It has no content yet: that comes at the outermost place, in
    /// the form that the client prefers, unless middleware gave it one.
    pub(crate) fn into_pending_response(self) -> Response {
        let mut response = Response::new(self.inner.status.as_u16());
        *response.headers_mut() = self.inner.headers.clone();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

impl Inner {
    fn of(status: StatusCode) -> Self {
        Self {
            status,
            detail: None,
            problem_type: None,
            title: None,
            fields: Vec::new(),
            members: Vec::new(),
            headers: Headers::new(),
            source: None,
            is_start_up: false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.inner.detail, &self.inner.source) {
            (Some(detail), _) => f.write_str(detail),
            (None, Some(source)) => write!(f, "{source}"),
            (None, None) => write!(f, "{}", self.inner.status),
        }
    }
}

impl fmt::Debug for Error {
    // `fn main() -> Result` prints this form: it should read like a text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.inner.is_start_up && self.inner.status != StatusCode::INTERNAL_SERVER_ERROR {
            write!(f, "{}: ", self.inner.status)?;
        }
        write!(f, "{self}")?;
        for field in &self.inner.fields {
            write!(f, "\n  {}: {}", field.field, field.message)?;
        }
        let told = usize::from(self.inner.detail.is_none());
        let mut before = self.to_string();
        for cause in self.chain().skip(told) {
            let cause = cause.to_string();
            // Many errors tell their cause already.
            if !before.ends_with(&cause) {
                write!(f, "\n  caused by: {cause}")?;
            }
            before = cause;
        }
        Ok(())
    }
}

/// A text as an error.
#[derive(Debug)]
pub(crate) struct Message(pub(crate) String);

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Message {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_another_crate_is_a_plain_500() {
        let error = Error::from(std::io::Error::other("disk on fire"));
        assert_eq!(error.status_code(), 500);
        assert_eq!(error.detail(), None, "its text is not for the peer");
        assert_eq!(format!("{error:?}"), "disk on fire");
        assert!(error.downcast_ref::<std::io::Error>().is_some());
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        #[derive(Debug)]
        struct Outer(std::io::Error);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "cannot read the list: {}", self.0)
            }
        }
        impl StdError for Outer {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(&self.0)
            }
        }
        let error = Error::from(Outer(std::io::Error::other("disk on fire")));
        assert_eq!(format!("{error:?}"), "cannot read the list: disk on fire");
    }

    #[test]
    fn what_is_printed_names_status_fields_and_causes() {
        let error = Error::unprocessable("the order is wrong")
            .with_field("items[0].count", "must be positive")
            .with_source(Message("count is 0".to_owned()));
        assert_eq!(
            format!("{error:?}"),
            "422 Unprocessable Entity: the order is wrong\n  items[0].count: must be positive\n  caused by: count is 0"
        );
    }
}
