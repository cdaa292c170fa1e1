//! Errors of others as errors of the app, and what the extractors' own refusals say.
//!
//! `?` is defined here and not beside [`Error`], because it knows every refusal by its type.

use std::error::Error as StdError;
use std::io;

use filoplume_http1::ParseError;
use filoplume_runtime::{ContentError, Response, StatusCode};

#[cfg(feature = "jwt")]
use super::ClaimsRejection;
#[cfg(feature = "cookies")]
use super::CookiesRejection;
#[cfg(feature = "json")]
use super::JsonRejection;
#[cfg(feature = "multipart")]
use super::MultipartRejection;
use super::{
    AuthorizationRejection, ContentRejection, ExtensionRejection, HeaderRejection, PathRejection,
};
#[cfg(feature = "form")]
use super::{FormRejection, QueryRejection};
#[cfg(feature = "validate")]
use super::{InvalidFields, ValidRejection};
use crate::core::error::{Error, Failure, Result};
use crate::core::extract::{Refusal, refuse};
use crate::core::response::IntoResponse;

impl<E: Failure> From<E> for Error {
    #[track_caller]
    fn from(error: E) -> Self {
        let error_of_others =
            || Self::status(StatusCode::INTERNAL_SERVER_ERROR).converted_from::<E>();
        known_refusal(&error).unwrap_or_else(error_of_others).with_source(error)
    }
}

/// What is known of an error that went through a `?`.
fn known_refusal(error: &(dyn StdError + 'static)) -> Option<Error> {
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

/// It did not come: nobody may be there any more to read the answer, and the log has nothing to say
/// of it.
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
                fn into_response(self) -> Result<Response> {
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
