//! What becomes a response.

use filoplume_runtime::{Request, Response};

use super::error::Result;
use crate::semantics::conditional::RequestConditions;

/// Something that becomes a response.
///
/// Text and bytes, [`Html`](crate::Html), `Json`, a status, [`Redirect`](crate::Redirect), files
/// and [readers](crate::response::Reader), `()`, pairs of a status or headers with any of these,
/// `Option` (`None` is a `404`) and `Result`.
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
/// Types of the app become responses by implementing it; an error type then says itself how it is
/// answered:
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
    message = "`{Self}` does not become a response",
    label = "not a response",
    note = "handlers return text, bytes, `Json(value)`, `Html(text)`, a `StatusCode`, `Redirect`, \
            a `Response`, `()`",
    note = "or `(StatusCode, value)`, `Option<value>`, `Result<value>`",
    note = "the error of a `Result` becomes a response too: for one of yours, `impl IntoResponse` \
            says the status",
    note = "a struct with `#[derive(Serialize)]`, a list or a number is answered as \
            `Json(value)`, a number as text as `n.to_string()`",
    note = "handlers are not `async`: they may block"
)]
pub trait IntoResponse {
    /// Whether it says with which status it is answered when it stands in an `Err`. Text, bytes and
    /// other plain contents do not: they would be answered with `200`. A handler that returns a
    /// `Result` with such an error does not compile. `cargo build` finds it, `cargo check` does
    /// not.
    ///
    /// ```compile_fail,E0080
    /// use filoplume::prelude::*;
    ///
    /// // error: the error of this `Result` says no status, so it would be answered with 200
    /// App::new().get("/", || -> Result<String, String> { Err("no tea".to_owned()) });
    /// ```
    ///
    /// So it does:
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
    /// client.get("/milk").send().assert_status(404).assert_text("no milk");
    /// ```
    const SAYS_STATUS: bool = true;

    /// Fails to compile if it cannot be answered as it is meant. Evaluated where a route is added.
    #[doc(hidden)]
    const CHECKED: () = ();

    /// Whether the response depends on the conditions and the range of the request, as that of a
    /// [file](crate::FileResponse) does. A type that wraps another one says what that says.
    const IS_CONDITIONAL: bool = false;

    /// Makes the response.
    ///
    /// # Errors
    ///
    /// If it is an error, or cannot be made.
    fn into_response(self) -> Result<Response>;

    /// Makes the response to a request with these conditions. What a handler or a middleware
    /// closure returns is asked for it in place of [`into_response`](Self::into_response) if it [is
    /// conditional](Self::IS_CONDITIONAL).
    ///
    /// # Errors
    ///
    /// If it is an error, cannot be made, or the conditions forbid it.
    fn into_conditional_response(self, conditions: &RequestConditions) -> Result<Response>
    where
        Self: Sized,
    {
        let _ = conditions;
        self.into_response()
    }
}

/// Answers with what `answer` returns, for a request that it may be given.
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

/// What can be the error of a `Result` that a handler returns.
///
/// It stands for [`IntoResponse`] there, so that the compiler's message is about errors.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a `Result` that a handler returns",
    label = "its error does not become a response",
    note = "return `filoplume::Result<T>`: `?` turns every `std::error::Error` into an `Error`, \
            which is a `500` that is logged",
    note = "`.map_err(|error| Error::bad_request(error.to_string()))?` chooses another status; an \
            error type of your own says it with `impl IntoResponse`",
    note = "a `Box<dyn std::error::Error>` becomes one by `.map_err(Error::internal)?`"
)]
pub trait ErrorResponse: IntoResponse {}

#[diagnostic::do_not_recommend]
impl<E: IntoResponse> ErrorResponse for E {}
