//! What goes wrong, and how it is answered: one type for handlers, middleware and start-up.

mod own_response;
mod print;
mod with;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use filoplume_runtime::{Headers, Response, StatusCode};

pub(crate) use self::own_response::{Responder, responder};

/// A failure: a status, what the peer may know of it, and what only the log may know.
///
/// Every error type of other crates becomes one by `?`, as a plain `500`: its text is for the log.
/// So does one of yours, unless [the app knows it](crate::App::error_response). What the peer is
/// told is said by [`Error::new`] and its short forms. An error ends the chain of handlers; the one
/// place that presents errors makes it `application/problem+json` (RFC 9457) or HTML, as the client
/// prefers.
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
///     let port: u16 = text.parse()?; // what goes wrong here is a 500
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
    /// Made of its source by `?`.
    is_converted: bool,
    /// The name of the type of the source, if that knows another answer than this one.
    own_response: Option<&'static str>,
}

/// What `?` makes an [`Error`] of: every `std::error::Error` that threads may share.
#[diagnostic::on_unimplemented(
    message = "`?` cannot make an `Error` of `{Self}`",
    label = "`?` takes what implements `std::error::Error`; or return `Result<_, {Self}>`, and \
             `IntoResponse` says its status"
)]
pub trait Failure: StdError + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<E: StdError + Send + Sync + 'static> Failure for E {}

/// What is wrong with one field of the input.
///
/// ```
/// use filoplume::Error;
///
/// let error = Error::unprocessable("the order is wrong")
///     .with_field("items[2].price", "must not be negative");
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
    /// let app = App::new().get("/old", || {
    ///     Err::<(), _>(Error::new(StatusCode::GONE, "it was here until May"))
    /// });
    /// app.test()
    ///     .get("/old")
    ///     .send()
    ///     .assert_status(410)
    ///     .assert_contains("it was here until May");
    /// ```
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { inner: Box::new(Inner { detail: Some(detail.into()), ..Inner::of(status) }) }
    }

    /// Returns an error of which the peer is told the status only.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app =
    ///     App::new().get("/tea", || Err::<(), _>(Error::status(StatusCode::IM_A_TEAPOT)));
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
    /// let app =
    ///     App::new().get("/", || Err::<(), _>(Error::internal("the disk of db-3 is full")));
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

    /// Returns a `401`: it is not known who asks. RFC 9110, 11.6.1 wants a `WWW-Authenticate` with
    /// it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || -> Result<()> {
    ///     Err(Error::unauthorized("log in first")
    ///         .with_header("www-authenticate", "Bearer")?)
    /// });
    /// app.test()
    ///     .get("/")
    ///     .send()
    ///     .assert_status(401)
    ///     .assert_header("www-authenticate", "Bearer");
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
    /// use filoplume::Error;
    /// use std::io;
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

    /// Returns the error that a response stands for. Middleware sees failures as responses, with
    /// the error beside them.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || Err::<(), _>(Error::conflict("lent out"))).with(
    ///     |request: Request, next: Next| {
    ///         let response = next.run(request);
    ///         let detail = Error::of(&response).and_then(Error::detail);
    ///         assert_eq!(detail, Some("lent out"));
    ///         response
    ///     },
    /// );
    /// app.test().get("/").send().assert_status(409);
    /// ```
    pub fn of(response: &Response) -> Option<&Self> {
        response.extensions().get::<Arc<Self>>().map(|error| &**error)
    }

    /// Returns the response that stands for this error. It has no content yet: that comes at the
    /// outermost place, in the form that the client prefers, unless middleware gave it one.
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
            is_converted: false,
            own_response: None,
        }
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
mod tests;
