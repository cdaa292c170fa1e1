//! Extractors: the parameters of handlers.

mod authorization;
#[cfg(feature = "jwt")]
mod claims;
mod content;
#[cfg(feature = "cookies")]
mod cookies;
#[cfg(feature = "form")]
mod form;
mod header;
pub mod headers;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "multipart")]
mod multipart;
mod path;
mod percent;
#[cfg(any(feature = "json", feature = "form", feature = "validate"))]
mod place;
mod plain;
#[cfg(feature = "form")]
mod query;
mod state;
#[cfg(feature = "form")]
mod urlencoded;
#[cfg(feature = "validate")]
mod valid;

use std::error::Error as StdError;
use std::io;

use filoplume_http1::ParseError;
use filoplume_runtime::{ContentError, Request, StatusCode};

pub use crate::client::{ClientAddr, Proxies};
pub use crate::core::optional::ExtractOptional;
pub use crate::core::takes::Takes;
pub(crate) use crate::core::takes::{check_takes, most};
pub use authorization::{AuthorizationRejection, Basic, Bearer, Scheme};
pub(crate) use authorization::{REALM, quoted};
#[cfg(feature = "jwt")]
pub use claims::{Claims, ClaimsRejection};
pub use content::ContentRejection;
#[cfg(feature = "cookies")]
pub use cookie::{self, Cookie, SameSite};
#[cfg(feature = "cookies")]
pub(crate) use cookies::SendCookies;
#[cfg(feature = "sessions")]
pub(crate) use cookies::add_set_cookie;
#[cfg(feature = "cookies")]
pub use cookies::{COOKIES_MAX, Cookies, CookiesRejection, ProtectedCookies, SET_COOKIE_BYTES_MAX};
#[cfg(feature = "form")]
pub use form::{Form, FormRejection};
pub use header::{Header, HeaderProblem, HeaderRejection, TypedHeader};
#[cfg(feature = "json")]
pub use json::{Json, JsonRejection};
#[cfg(feature = "multipart")]
pub use multipart::{Field, Multipart, MultipartLimits, MultipartProblem, MultipartRejection};
pub use path::{Path, PathRejection};
pub use percent::EncodingError;
pub use plain::{Extension, ExtensionRejection, HeaderMap, RawQuery, Target};
#[cfg(feature = "form")]
pub use query::{Query, QueryRejection};
pub use state::State;
#[cfg(feature = "form")]
pub use urlencoded::FieldsError;
#[cfg(feature = "validate")]
pub use valid::{InvalidFields, Valid, ValidRejection};

use crate::core::context::Context;
use crate::core::error::Error;
use crate::response::IntoResponse;
use crate::routing::RouteOptions;

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
///         let languages = request.header("accept-language").ok_or_else(|| Error::bad_request("say a language"))?;
///         Ok(Self(languages.split([',', ';']).next().unwrap_or("en").trim().to_owned()))
///     }
/// }
///
/// let app = App::new().get("/", |Language(language): Language| format!("so you speak {language}"));
/// app.test().get("/").header("accept-language", "eo, en").send().assert_text("so you speak eo");
/// ```
///
/// Extractors run in the order of the parameters, and the first refusal is the answer. As a parameter,
/// `Result<T, T::Rejection>` leaves the refusal to the handler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a handler",
    label = "a parameter is no extractor",
    note = "parameters of handlers are extractors, such as `Path<T>`, `Query<T>`, `Json<T>`, `State<T>`, `Request`, `String`",
    note = "a capture of the path is taken as `Path(value): Path<{Self}>`, a value that was given to `.state(..)` as `State(value): State<{Self}>`"
)]
pub trait Extract: Sized {
    /// What it takes away from the request. Two parameters of one handler cannot both take the content: that does not compile.
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

impl<T: Extract> Extract for Result<T, T::Rejection> {
    const TAKES: Takes = T::TAKES;
    type Rejection = std::convert::Infallible;

    fn extract(request: &mut Request, context: &Context<'_>) -> Result<Self, Self::Rejection> {
        Ok(T::extract(request, context))
    }

    fn configure(options: &mut RouteOptions) {
        T::configure(options);
    }
}

/// Why an extractor of this crate refused: what [`Error`] says about it, also when it went through a `?`.
pub(crate) trait Refusal: StdError + Send + Sync + Sized + 'static {
    /// The error without its cause, which is the refusal itself.
    fn describe(&self) -> Error;
}

/// The answer to a refusal.
pub(crate) fn refuse<R: Refusal>(refusal: R) -> Error {
    refusal.describe().with_source(refusal)
}

/// What is known of an error that went through a `?`.
pub(crate) fn known_refusal(error: &(dyn StdError + 'static)) -> Option<Error> {
    // A reader of content, such as a field of a form, has no other way to say why it fails.
    let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match within {
        // So says the engine, of a content that is read as it arrives.
        Some(within) => {
            let lost = within.downcast_ref().map(of_lost_content);
            lost.or_else(|| within.downcast_ref().map(of_content)).or_else(|| describe(within))
        }
        None => describe(error),
    }
}

/// What is wrong with a content is the client's fault: it is no content, or too long.
fn of_content(error: &ParseError) -> Error {
    Error::new(error.status_code(), format!("the content cannot be taken: {error}"))
}

/// It did not come: nobody may be there any more to read the answer, and the log has nothing to say of it.
fn of_lost_content(error: &ContentError) -> Error {
    let status = match error {
        ContentError::TooSlow => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::BAD_REQUEST,
    };
    Error::new(status, error.to_string())
}

/// Implements what all refusals have in common. Those behind the `;` become responses on their own.
macro_rules! refusals {
    (
        $($(#[$condition:meta])* $refusal:ty),+ $(,)?;
        $($(#[$known_condition:meta])* $known:ty),* $(,)?
    ) => {
        $(
            $(#[$condition])*
            impl IntoResponse for $refusal {
                fn into_response(self) -> crate::Result<crate::Response> {
                    Err(refuse(self))
                }
            }
        )+

        fn describe(error: &(dyn StdError + 'static)) -> Option<Error> {
            $(
                $(#[$condition])*
                if let Some(refusal) = error.downcast_ref::<$refusal>() {
                    return Some(refusal.describe());
                }
            )+
            $(
                $(#[$known_condition])*
                if let Some(refusal) = error.downcast_ref::<$known>() {
                    return Some(refusal.describe());
                }
            )*
            None
        }
    };
}

refusals! {
    AuthorizationRejection,
    #[cfg(feature = "jwt")]
    ClaimsRejection,
    ContentRejection,
    #[cfg(feature = "cookies")]
    CookiesRejection,
    ExtensionRejection,
    HeaderRejection,
    PathRejection,
    #[cfg(feature = "form")]
    FormRejection,
    #[cfg(feature = "form")]
    QueryRejection,
    #[cfg(feature = "json")]
    JsonRejection,
    #[cfg(feature = "multipart")]
    MultipartRejection,
    #[cfg(feature = "validate")]
    InvalidFields;
    #[cfg(feature = "validate")]
    ValidRejection<PathRejection>,
    #[cfg(all(feature = "validate", feature = "form"))]
    ValidRejection<FormRejection>,
    #[cfg(all(feature = "validate", feature = "form"))]
    ValidRejection<QueryRejection>,
    #[cfg(all(feature = "validate", feature = "json"))]
    ValidRejection<JsonRejection>,
}
