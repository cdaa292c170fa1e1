//! The trait of handler parameters, and how they reject a request.

use std::error::Error as StdError;

use filoplume_runtime::Request;

use super::context::Context;
use super::error::Error;
use super::options::RouteOptions;
use super::response::IntoResponse;
use super::takes::Takes;

/// A type that can be a parameter of a handler: its value is made from the request.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::{Context, FromRequest};
///
/// /// The language that the client likes best.
/// struct Language(String);
///
/// impl FromRequest for Language {
///     type Rejection = Error;
///
///     fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self> {
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
/// Extractors run in the order of the parameters, and the first rejection is the response. With a
/// parameter of type `Result<T, T::Rejection>` or `Result<T>`, the handler receives the rejection
/// instead; in the second case as an [`Error`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a handler",
    label = "not an extractor",
    note = "a capture of the path is `Path(value): Path<T>`, a value that was passed to \
            `.state(..)` is `State(value): State<T>`, and one that middleware added is \
            `Extension(value): Extension<T>`",
    note = "a struct is read from the query by `Query<T>`, and from the content by `Json<T>` or \
            `Form<T>`; a `HashMap<String, String>` can be that `T`",
    note = "others are `Request`, `String`, `Headers`, `Method`, `ClientAddr`, `Peer` and \
            `Target`; all are owned: `Request` and `String`, not `&Request` and `&str`; a \
            `Response` is what a handler returns"
)]
#[doc(alias("FromRequestParts", "Depends", "RequestGuard"))]
pub trait FromRequest: Sized {
    /// What the extractor takes from the request. Two parameters of one handler cannot both take
    /// the content: such a handler does not compile.
    const TAKES: Takes = Takes::Nothing;

    /// The error if extraction fails. It can be [`Error`], or a specific type that callers can
    /// match on.
    type Rejection: IntoResponse;

    /// Extracts the value.
    ///
    /// # Errors
    ///
    /// If the request does not contain a valid value.
    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self, Self::Rejection>;

    /// Sets what a route with this parameter needs. It is called once per route when the app
    /// starts.
    fn configure(options: &mut RouteOptions) {
        let _ = options;
    }
}

/// The handler receives the rejection, as the extractor's own type or as a type that it converts
/// into, such as [`Error`].
impl<T: FromRequest, E: From<T::Rejection>> FromRequest for Result<T, E> {
    const TAKES: Takes = T::TAKES;
    type Rejection = std::convert::Infallible;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self, Self::Rejection> {
        Ok(T::from_request(request, context).map_err(E::from))
    }

    fn configure(options: &mut RouteOptions) {
        options.optional(T::configure);
    }
}

/// A rejection of an extractor of this crate. `describe` defines its [`Error`], also after `?` has
/// converted it.
pub(crate) trait Rejection: StdError + Send + Sync + Sized + 'static {
    /// Returns the error without its source. The source is the rejection itself.
    fn describe(&self) -> Error;
}

/// Converts a rejection into the error that answers the request.
pub(crate) fn reject<R: Rejection>(rejection: R) -> Error {
    rejection.describe().with_source(rejection)
}

/// The name of a form field that middleware has checked, and that handlers do not need.
/// [`Form`](crate::extract::Form) leaves the field out, so that the type of the form need not have
/// it.
#[cfg(all(feature = "form", feature = "sessions"))]
#[derive(Clone, Copy)]
pub(crate) struct CheckedField(pub(crate) &'static str);
