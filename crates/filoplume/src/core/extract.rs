//! What a parameter of a handler is, and how it refuses.

use std::error::Error as StdError;

use filoplume_runtime::Request;

use super::context::Context;
use super::error::Error;
use super::options::RouteOptions;
use super::response::IntoResponse;
use super::takes::Takes;

/// Something that a handler can have as a parameter: it is made from the request.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::{Context, Extract};
///
/// /// The language that the client likes best.
/// struct Language(String);
///
/// impl Extract for Language {
///     type Rejection = Error;
///
///     fn extract(request: &mut Request, _: &Context<'_>) -> Result<Self> {
///         let languages = request
///             .header("accept-language")
///             .ok_or_else(|| Error::bad_request("say a language"))?;
///         Ok(Self(languages.split([',', ';']).next().unwrap_or("en").trim().to_owned()))
///     }
/// }
///
/// let app = App::new()
///     .get("/", |Language(language): Language| format!("so you speak {language}"));
/// app.test()
///     .get("/")
///     .header("accept-language", "eo, en")
///     .send()
///     .assert_text("so you speak eo");
/// ```
///
/// Extractors run in the order of the parameters, and the first refusal is the answer. As a
/// parameter, `Result<T, T::Rejection>` leaves the refusal to the handler, and so does `Result<T>`,
/// as an [`Error`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a handler",
    label = "a parameter is no extractor",
    note = "parameters of handlers are extractors, such as `Path<T>`, `Query<T>`, `Json<T>`, \
            `State<T>`, `Request`, `String`",
    note = "they are owned: `Request` and `String`, not `&Request` and `&str`",
    note = "a capture of the path is taken as `Path(value): Path<{Self}>`, a value that was given \
            to `.state(..)` as `State(value): State<{Self}>`"
)]
pub trait Extract: Sized {
    /// What it takes away from the request. Two parameters of one handler cannot both take the
    /// content: that does not compile.
    const TAKES: Takes = Takes::Nothing;

    /// Why it is refused. [`Error`] will do; a type of its own can be matched on.
    type Rejection: IntoResponse;

    /// Makes the value.
    ///
    /// # Errors
    ///
    /// If the request is not as it should be.
    fn extract(request: &mut Request, context: &Context<'_>) -> Result<Self, Self::Rejection>;

    /// Says what a route needs that has this parameter. Called once a route when the app starts.
    fn configure(options: &mut RouteOptions) {
        let _ = options;
    }
}

/// The refusal is left to the handler, as the extractor's own type or as what that can be turned
/// into: [`Error`], say.
impl<T: Extract, E: From<T::Rejection>> Extract for Result<T, E> {
    const TAKES: Takes = T::TAKES;
    type Rejection = std::convert::Infallible;

    fn extract(request: &mut Request, context: &Context<'_>) -> Result<Self, Self::Rejection> {
        Ok(T::extract(request, context).map_err(E::from))
    }

    fn configure(options: &mut RouteOptions) {
        options.optional(T::configure);
    }
}

/// Why an extractor of this crate refused: what [`Error`] says about it, also when it went through
/// a `?`.
pub(crate) trait Refusal: StdError + Send + Sync + Sized + 'static {
    /// The error without its cause, which is the refusal itself.
    fn describe(&self) -> Error;
}

/// The answer to a refusal.
pub(crate) fn refuse<R: Refusal>(refusal: R) -> Error {
    refusal.describe().with_source(refusal)
}
