//! The error type of handlers, middleware and start-up.

mod boxed;
mod causes;
mod kind;
mod no_error;
mod own_response;
mod print;
mod with;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use filoplume_runtime::{Headers, IntoStatus, Response, StatusCode};

pub(crate) use self::causes::in_one_line;
use self::causes::with_causes;
use self::no_error::NoError;
pub(crate) use self::own_response::{Responder, responder};

/// A failure: a status, details for the client, and a cause for the log.
///
/// `?` converts every type that implements `std::error::Error` into a plain `500`, whose text is
/// only logged. The same happens to error types of the app, unless they are
/// [registered](crate::App::error_response). [`Error::new`] and its short forms set the text that
/// the client sees. An error ends the chain of middleware and handler. It is rendered in one place,
/// as `application/problem+json` (RFC 9457), HTML or plain text, whichever the client prefers.
///
/// It does not implement `std::error::Error` itself, because `?` could not convert all other types
/// then. `?` converts it into a `Box<dyn std::error::Error>`, with or without `Send + Sync`.
///
/// ```
/// use filoplume::prelude::*;
///
/// fn stock(Path(item): Path<String>) -> Result<String> {
///     // A failure is a 500, and is logged.
///     let count: u32 = std::fs::read_to_string("stock.txt")?.trim().parse()?;
///     if count == 0 {
///         // A 404 with this text.
///         return Err(Error::not_found(format!("{item} is sold out")));
///     }
///     Ok(format!("{count} left"))
/// }
/// ```
#[doc(alias("abort", "errorhandler", "HTTPException", "HttpError", "ErrorResponse"))]
#[must_use = "an error does nothing until it is returned: `return Err(..)`"]
pub struct Error {
    inner: Box<Inner>,
}

/// The result type of functions in an app that can fail.
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
/// assert_eq!(port("80").unwrap_err().status(), 400);
/// # Ok::<(), Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

struct Inner {
    status: StatusCode,
    detail: Option<Cow<'static, str>>,
    problem_type: Option<Cow<'static, str>>,
    title: Option<Cow<'static, str>>,
    fields: Vec<FieldError>,
    /// Additional members of the problem details, as JSON text.
    members: Vec<(Cow<'static, str>, String)>,
    headers: Headers,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// The name of the type from which the source was made. That type may be a text.
    source_type: Option<&'static str>,
    is_start_up: bool,
    /// Whether `?` converted the source into this error.
    is_converted: bool,
    /// The name of the type of the source, if that type implements `IntoResponse` itself.
    own_response: Option<&'static str>,
    /// What a developer can do about the error, for development mode.
    hint: Option<String>,
}

/// The conversion of `E` into an [`Error`], by `?` and `into`. It exists for every type that
/// implements `std::error::Error` and that threads can share.
///
/// It is a trait of [`Error`] with the parameter `E`, and no trait of `E`: for `"text".into()` the
/// compiler would then speak of `Into<Error>` alone, because both would be about the same type.
///
/// For a failed `?` the compiler shows the label alone, without the message and the notes of a
/// diagnostic. The label is therefore a list.
#[diagnostic::on_unimplemented(
    message = "`{E}` cannot be converted into an `Error`",
    label = "`?` and `into` convert types that implement `std::error::Error`. Others:\n\
             - a type of your own: `impl IntoResponse` sets its status; then return \
             `Result<_, OwnError>`,\n  or implement `std::error::Error`, too, and add \
             `.error_response::<OwnError>()` to the app\n\
             - text: `Err(Error::bad_request(text))`, `.map_err(Error::bad_request)?`\n\
             - a status: `.ok_or(Error::from_status(StatusCode::NOT_FOUND))?`, and with a text \
             `Error::new(status, text)`\n\
             - `Redirect`: return `Result<_, Redirect>`\n\
             - the `PoisonError` of a lock: `.lock().unwrap()`\n\
             - `anyhow::Error`, `Box<dyn Error + Send + Sync>`: `.map_err(Error::internal)?`\n\
             - `Box<dyn Error>`: `.map_err(|error| Error::internal(error.to_string()))?`"
)]
pub trait FromStdError<E> {
    /// Converts the error.
    fn from_std_error(error: E) -> Self;
}

impl<E> From<E> for Error
where
    Self: FromStdError<E>,
{
    #[track_caller]
    fn from(error: E) -> Self {
        Self::from_std_error(error)
    }
}

/// An error in one field of the input.
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
    /// The path of the field, such as `address.street` or `items[2].price`.
    pub field: String,
    /// What is wrong with the field.
    pub message: String,
}

impl Error {
    /// Returns an error with a status and a text for the client.
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
    ///
    /// A status below 300 is a mistake of the program, because it says that nothing went wrong. It
    /// becomes a `500`, and the log names the line that created the error.
    #[track_caller]
    pub fn new(status: impl IntoStatus, detail: impl Into<Cow<'static, str>>) -> Self {
        let status = status.into_status();
        if let Some(mistake) = NoError::of(status) {
            return Self::internal(mistake);
        }
        Self { inner: Box::new(Inner { detail: Some(detail.into()), ..Inner::of(status) }) }
    }

    /// Returns an error with a status and no text. A status below 300 becomes a `500`, as with
    /// [`Error::new`].
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app =
    ///     App::new().get("/tea", || Err::<(), _>(Error::from_status(StatusCode::IM_A_TEAPOT)));
    /// app.test().get("/tea").send().assert_status(418);
    /// ```
    #[track_caller]
    pub fn from_status(status: impl IntoStatus) -> Self {
        let status = status.into_status();
        if let Some(mistake) = NoError::of(status) {
            return Self::internal(mistake);
        }
        Self { inner: Box::new(Inner::of(status)) }
    }

    /// Returns a `500`. Its text is only logged; the client sees only the status.
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
        Self::from_status(StatusCode::INTERNAL_SERVER_ERROR).with_source(source)
    }

    /// Returns a `400`: the request is invalid.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Returns a `401`: the client is not authenticated. RFC 9110, 11.6.1 requires a
    /// `WWW-Authenticate` header with it.
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

    /// Returns a `403`: the client is not allowed to do this.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// Returns a `404`: the resource does not exist.
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Returns a `409`: the request conflicts with the current state of the resource.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// Returns a `422`: the content is well-formed, but has invalid values.
    pub fn unprocessable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// Returns a `503`: the service is temporarily unavailable.
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(crate) fn start_up(message: impl Into<String>) -> Self {
        let mut error = Self::internal(Message(message.into()));
        error.inner.is_start_up = true;
        error
    }

    /// Like `start_up`, for a source whose text is a complete message.
    pub(crate) fn start_up_with(source: impl StdError + Send + Sync + 'static) -> Self {
        let mut error = Self::internal(source);
        error.inner.is_start_up = true;
        error
    }

    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        self.inner.status
    }

    /// Returns the text for the client.
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

    /// Returns the errors in fields of the input.
    pub fn fields(&self) -> &[FieldError] {
        &self.inner.fields
    }

    /// Returns the headers of the response.
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

    /// Returns the URI that identifies this kind of problem.
    pub fn problem_type(&self) -> Option<&str> {
        self.inner.problem_type.as_deref()
    }

    /// Returns the title of this kind of problem, if one was set.
    pub fn title(&self) -> Option<&str> {
        self.inner.title.as_deref()
    }

    /// Returns the additional members of the problem details, as JSON text.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        self.inner.members.iter().map(|(name, json)| (&**name, &**json))
    }

    /// Returns the cause.
    pub fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }

    /// Returns the first cause in the chain that is of type `E`.
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

    /// Returns the chain of causes, the direct cause first.
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

    /// Returns the text for the log.
    pub(crate) fn in_one_line(&self) -> String {
        let told = usize::from(self.inner.detail.is_none());
        with_causes(self.to_string(), self.chain().skip(told))
    }

    /// Returns what a developer can do about the error, if its origin knows that.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }

    #[cfg(feature = "templates")]
    pub(crate) fn with_hint(mut self, hint: Option<String>) -> Self {
        self.inner.hint = hint;
        self
    }

    /// Returns the error that a response stands for. Middleware sees failures as responses that
    /// carry their error.
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

    /// Returns a response that carries this error. It has no content yet. If middleware does not
    /// add content, the app renders the error as its last step, in the format that the client
    /// prefers.
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
            source_type: None,
            is_start_up: false,
            is_converted: false,
            own_response: None,
            hint: None,
        }
    }
}

/// A text as an error type.
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
