//! Conversions of errors into [`Error`].
//!
//! The conversion that `?` uses is here and not beside [`Error`], because it has to know the types
//! of all rejections.

use std::error::Error as StdError;
use std::io;

use filoplume_http1::ParseError;
use filoplume_runtime::{ContentError, Response, StatusCode};

#[cfg(feature = "jwt")]
use super::ClaimsRejection;
#[cfg(feature = "tls")]
use super::ClientCertificateRejection;
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
use crate::core::coded_content::CodedContentError;
use crate::core::error::{Error, Failure, Result};
use crate::core::extract::{Rejection, reject};
use crate::core::response::IntoResponse;

impl<E: Failure> From<E> for Error {
    #[track_caller]
    fn from(error: E) -> Self {
        let plain_500 =
            || Self::from_status(StatusCode::INTERNAL_SERVER_ERROR).converted_from::<E>();
        known_rejection(&error).unwrap_or_else(plain_500).with_source(error)
    }
}

/// Returns the error for a known type of rejection that `?` converts.
fn known_rejection(error: &(dyn StdError + 'static)) -> Option<Error> {
    // A reader of content, such as a form field, can only report its failure in an `io::Error`.
    let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match within {
        // The engine reports errors of streamed content this way.
        Some(within) => {
            let lost = within.downcast_ref().map(of_lost_content);
            let malformed = || within.downcast_ref().map(of_content);
            let coded = || within.downcast_ref().map(of_coded_content);
            lost.or_else(malformed).or_else(coded).or_else(|| describe(within))
        }
        None => describe(error),
    }
}

/// Errors in the content are the client's fault: it is malformed or too long.
fn of_content(error: &ParseError) -> Error {
    Error::new(error.status(), format!("the content cannot be read: {error}"))
}

/// The content is not what its `Content-Encoding` says.
fn of_coded_content(error: &CodedContentError) -> Error {
    Error::bad_request(error.to_string())
}

/// The content did not arrive. The client may not be there to read the response, so the error is
/// not a server error, which would be logged.
fn of_lost_content(error: &ContentError) -> Error {
    let status = match error {
        ContentError::TooSlow => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::BAD_REQUEST,
    };
    Error::new(status, error.to_string())
}

/// Implements the traits of all rejections. Types after the `;` implement `IntoResponse` on their
/// own.
macro_rules! rejections {
    (
        $($(#[$condition:meta])* $rejection:ty),+ $(,)?;
        $($(#[$known_condition:meta])* $known:ty),* $(,)?
    ) => {
        $(
            $(#[$condition])*
            impl IntoResponse for $rejection {
                fn into_response(self) -> Result<Response> {
                    Err(reject(self))
                }
            }
        )+

        fn describe(error: &(dyn StdError + 'static)) -> Option<Error> {
            $(
                $(#[$condition])*
                if let Some(rejection) = error.downcast_ref::<$rejection>() {
                    return Some(rejection.describe());
                }
            )+
            $(
                $(#[$known_condition])*
                if let Some(rejection) = error.downcast_ref::<$known>() {
                    return Some(rejection.describe());
                }
            )*
            None
        }
    };
}

rejections! {
    AuthorizationRejection,
    #[cfg(feature = "jwt")]
    ClaimsRejection,
    ContentRejection,
    #[cfg(feature = "tls")]
    ClientCertificateRejection,
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
