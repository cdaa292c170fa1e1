//! The trait of types that become responses.

use filoplume_runtime::{Request, Response, StatusCode};

use super::error::{Error, Result};
use crate::semantics::conditional::RequestConditions;

/// A type that can be converted into a response.
///
/// It is implemented for text and bytes, [`Html`](crate::Html), `Json`,
/// [`Redirect`](crate::Redirect), status codes, files, [readers](crate::response::Reader),
/// [iterators](crate::response::Pieces), [pushed bodies](crate::pushed), [events](crate::sse),
/// `()`, headers, pairs of a status or headers with any of these, `Option` (`None` is a `404`) and
/// `Result`.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/text", || "as text/plain")
///     .get("/html", || Html("<p>as text/html"))
///     .get("/made", || (StatusCode::CREATED, [("location", "/made/17")], "made"))
///     .get("/maybe", || None::<&str>);
/// let client = app.test();
/// client.get("/made").send().assert_status(201).assert_header("location", "/made/17");
/// client.get("/maybe").send().assert_status(404);
/// ```
///
/// Types of the app become responses by implementing it. An error type sets its status that way:
///
/// ```
/// use filoplume::prelude::*;
///
/// enum Refused {
///     SoldOut,
///     NoMoney { missing: u32 },
/// }
///
/// impl IntoResponse for Refused {
///     fn into_response(self) -> Result<Response> {
///         Err(match self {
///             Self::SoldOut => Error::conflict("sold out"),
///             Self::NoMoney { missing } => Error::new(
///                 StatusCode::PAYMENT_REQUIRED,
///                 format!("{missing} are missing"),
///             ),
///         })
///     }
/// }
///
/// fn buy(Path(price): Path<u32>) -> Result<&'static str, Refused> {
///     match price {
///         0 => Err(Refused::SoldOut),
///         1..=100 => Ok("bought"),
///         _ => Err(Refused::NoMoney { missing: price - 100 }),
///     }
/// }
///
/// let client = App::new().post("/buy/{price}", buy).test();
/// client.post("/buy/0").send().assert_status(409);
/// client.post("/buy/120").send().assert_status(402);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be converted into a response",
    label = "not a response",
    note = "handlers return text, bytes, `Html(text)`, a `StatusCode`, `Redirect`, a `Response`, \
            `()`, or a struct with `#[derive(Serialize)]`, a list or a number as `Json(value)`",
    note = "around such a value: `Option<value>`, `Result<value>`, `(StatusCode, value)`, headers \
            in an array, `([(\"x-user\", \"ada\")], value)`, or all of them, `(status, headers, \
            value)`; without content, `(status, headers)`",
    note = "an error type of your own sets its status with `impl IntoResponse`; handlers are not \
            `async`; they may block"
)]
#[doc(alias("Responder", "make_response"))]
pub trait IntoResponse {
    /// Whether the type sets its own status when it is the error of a `Result`. Text, bytes and
    /// other plain contents do not: they would be answered with `200`. A handler that returns a
    /// `Result` with such an error does not compile. `cargo build` reports it, `cargo check` does
    /// not.
    ///
    /// ```compile_fail,E0080
    /// use filoplume::prelude::*;
    ///
    /// // error: the error of this `Result` has no status, so the response would be a 200
    /// App::new().get("/", || -> Result<String, String> { Err("no tea".to_owned()) });
    /// ```
    ///
    /// This compiles:
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/tea", || -> Result<String> { Err(Error::not_found("no tea")) })
    ///     .get("/milk", || -> Result<String, (StatusCode, String)> {
    ///         Err((StatusCode::NOT_FOUND, "no milk".to_owned()))
    ///     });
    /// let client = app.test();
    /// client.get("/tea").send().assert_status(404);
    /// client.get("/milk").send().assert_status(404).assert_contains("no milk");
    /// ```
    const SAYS_STATUS: bool = true;

    /// Fails to compile if the type is not a valid response. Evaluated where a route is added.
    #[doc(hidden)]
    const CHECKED: () = ();

    /// Whether the type is the result of a closure that returns nothing.
    #[doc(hidden)]
    const IS_NOTHING: bool = false;

    /// Whether the type is headers without content.
    #[doc(hidden)]
    const IS_HEADERS: bool = false;

    /// Whether an error that the value becomes gets the headers that are paired with the value.
    #[doc(hidden)]
    const KEEPS_HEADERS: bool = true;

    /// Whether the response depends on the conditions and the range of the request, like that of a
    /// [file](crate::FileResponse). A type that wraps another one has the value of the inner type.
    const IS_CONDITIONAL: bool = false;

    /// Converts the value into a response.
    ///
    /// # Errors
    ///
    /// If it is an error, or if the response cannot be created.
    fn into_response(self) -> Result<Response>;

    /// Converts the value into the response to a request with these conditions. If the type [is
    /// conditional](Self::IS_CONDITIONAL), this method is called for the results of handlers and
    /// middleware closures, in place of [`into_response`](Self::into_response).
    ///
    /// # Errors
    ///
    /// If it is an error, if the response cannot be created, or if the conditions fail.
    fn into_conditional_response(self, conditions: &RequestConditions) -> Result<Response>
    where
        Self: Sized,
    {
        let _ = conditions;
        self.into_response()
    }

    /// Converts the error of a `Result` into the response. It differs from
    /// [`into_response`](Self::into_response) for a status with a text: as an error it is rendered
    /// like an [`Error`](crate::Error), as a value it is sent as it is.
    #[doc(hidden)]
    fn into_error_response(self) -> Result<Response>
    where
        Self: Sized,
    {
        self.into_response()
    }

    /// Returns the error that has this value as its text, or the value if it is no plain text.
    #[doc(hidden)]
    fn into_error(self, status: StatusCode) -> Result<Error, Self>
    where
        Self: Sized,
    {
        let _ = status;
        Err(self)
    }
}

/// Calls `answer` with the request, and converts its result into a response.
#[inline]
pub(crate) fn respond<R: IntoResponse>(
    request: Request,
    answer: impl FnOnce(Request) -> std::result::Result<R, Result<Response>>,
) -> Result<Response> {
    if const { R::IS_CONDITIONAL } {
        let conditions = RequestConditions::of(&request);
        return match answer(request) {
            Ok(value) => value.into_conditional_response(&conditions),
            Err(refusal) => refusal,
        };
    }
    match answer(request) {
        Ok(value) => value.into_response(),
        Err(refusal) => refusal,
    }
}

/// A type that can be the error of a `Result` that a handler returns.
///
/// It replaces [`IntoResponse`] in bounds, so that the compiler's message is about errors.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a `Result` that a handler returns",
    label = "its error cannot be converted into a response",
    note = "return `filoplume::Result<T>`: `?` turns every type that implements \
            `std::error::Error` into an `Error`, which is a `500` that is logged",
    note = "an error type of your own sets its status with `impl IntoResponse`; choose that of \
            another error with `.map_err(|error| Error::bad_request(error.to_string()))?`",
    note = "convert `anyhow::Error` and `Box<dyn Error + Send + Sync>` with \
            `.map_err(Error::internal)?`, and `Box<dyn Error>` with \
            `.map_err(|error| Error::internal(error.to_string()))?`"
)]
pub trait ErrorResponse: IntoResponse {}

#[diagnostic::do_not_recommend]
impl<E: IntoResponse> ErrorResponse for E {}
