//! Conversions of errors into [`Error`].
//!
//! What `?` does with an error is here and not beside [`Error`], because it has to know the types
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
use crate::core::error::{Error, FromStdError, Result};
use crate::core::extract::{Rejection, reject};
use crate::core::response::IntoResponse;

#[diagnostic::do_not_recommend]
impl<E: StdError + Send + Sync + 'static> FromStdError<E> for Error {
    #[track_caller]
    fn from_std_error(error: E) -> Self {
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

#[cfg(all(test, feature = "form", feature = "json", feature = "jwt", feature = "multipart"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::extract::{EncodingError, FieldsError, Scheme};

    /// Returns the status, the headers that belong to it, and the names of the fields.
    fn shown(rejection: &impl Rejection) -> String {
        let error = rejection.describe();
        let mut text = error.status().as_u16().to_string();
        for name in ["accept", "accept-encoding", "retry-after", "www-authenticate"] {
            if let Some(value) = error.headers().get_str(name) {
                text += &format!(" {name}: {value}");
            }
        }
        for field in error.fields() {
            text += &format!(" [{}]", field.field);
        }
        text
    }

    #[test]
    fn credentials_are_challenged_as_their_scheme_asks_for() {
        let basic = "401 www-authenticate: Basic realm=\"protected\", charset=\"UTF-8\"";
        let scheme = Scheme::Basic;
        assert_eq!(shown(&AuthorizationRejection::Missing { scheme }), basic);
        assert_eq!(shown(&AuthorizationRejection::Malformed { scheme }), basic);
        assert_eq!(shown(&AuthorizationRejection::Several { scheme }), basic);
        let scheme = Scheme::Bearer;
        let missing = "401 www-authenticate: Bearer realm=\"protected\"";
        assert_eq!(shown(&AuthorizationRejection::Missing { scheme }), missing);
        assert_eq!(shown(&ClaimsRejection::NoToken), missing);
        let malformed =
            "400 www-authenticate: Bearer realm=\"protected\", error=\"invalid_request\"";
        assert_eq!(shown(&AuthorizationRejection::Malformed { scheme }), malformed);
        assert_eq!(shown(&AuthorizationRejection::Several { scheme }), malformed);
        let source = Arc::new(serde::de::Error::custom("no"));
        assert_eq!(
            shown(&ClaimsRejection::Data { claim: "admin".to_owned(), source }),
            "401 www-authenticate: Bearer realm=\"protected\", error=\"invalid_token\", \
             error_description=\"the token's claims are not the expected ones\""
        );
    }

    #[test]
    fn content_that_cannot_be_read_has_the_status_of_its_reason() {
        for (rejection, expected) in [
            (ContentRejection::TooLong { bytes_max: 1 }, "413"),
            (ContentRejection::TimedOut, "408"),
            (ContentRejection::Coded, "415 accept-encoding: identity"),
            (ContentRejection::AlreadyRead, "500"),
            (ContentRejection::Broken(Arc::new(io::ErrorKind::Other.into())), "400"),
            (ContentRejection::NotUtf8 { at: 0 }, "400"),
        ] {
            assert_eq!(shown(&rejection), expected, "{rejection:?}");
            assert_eq!(shown(&JsonRejection::Content(rejection.clone())), expected);
            assert_eq!(shown(&MultipartRejection::Content(rejection.clone())), expected);
            assert_eq!(shown(&FormRejection::Content(rejection)), expected);
        }
        let json = "415 accept: application/json";
        assert_eq!(shown(&JsonRejection::ContentType), json);
        assert_eq!(shown(&JsonRejection::OutOfMemory), "503 retry-after: 1");
        let form = "415 accept: application/x-www-form-urlencoded";
        assert_eq!(shown(&FormRejection::ContentType), form);
    }

    #[test]
    fn fields_are_the_fault_of_the_client_unless_no_input_can_be_read() {
        let field = || "a".to_owned();
        let data = |field| FieldsError::Data { field, message: "no".to_owned() };
        for (fields, in_form, in_query) in [
            (FieldsError::Encoding { field: field(), error: EncodingError::Escape }, "400", "400"),
            (FieldsError::TooMany { fields_max: 1 }, "413", "400"),
            (FieldsError::Unreadable { message: "no".to_owned() }, "500", "500"),
            (data(Some(field())), "422", "400"),
            (data(None), "422", "400"),
        ] {
            let named = if fields.field().is_some() { " [a]" } else { "" };
            assert_eq!(shown(&FormRejection::Fields(fields.clone())), format!("{in_form}{named}"));
            assert_eq!(shown(&QueryRejection(fields)), format!("{in_query}{named}"));
        }
    }

    #[test]
    fn a_form_with_files_is_refused_with_the_limit_or_the_field() {
        let field = || "a".to_owned();
        for (rejection, expected) in [
            (MultipartRejection::ContentType, "415 accept: multipart/form-data"),
            (MultipartRejection::Boundary, "400"),
            (MultipartRejection::TooManyParts { parts_max: 1 }, "413"),
            (MultipartRejection::HeadTooLong { part: 1, bytes_max: 1 }, "413"),
            (MultipartRejection::FieldTooLong { field: field(), bytes_max: 1 }, "413 [a]"),
            (MultipartRejection::TooLong { bytes_max: 1 }, "413"),
            (MultipartRejection::NotUtf8 { field: field(), at: 0 }, "400 [a]"),
        ] {
            assert_eq!(shown(&rejection), expected, "{rejection:?}");
        }
    }

    #[test]
    fn captures_are_the_fault_of_the_client_and_types_that_of_the_program() {
        let capture = || "a".to_owned();
        let error = EncodingError::NotUtf8;
        assert_eq!(shown(&PathRejection::Encoding { capture: capture(), error }), "400 [a]");
        let message = String::new();
        let invalid = PathRejection::Invalid { capture: capture(), message: message.clone() };
        assert_eq!(shown(&invalid), "400 [a]");
        assert_eq!(shown(&PathRejection::Mismatch { message }), "500");
    }

    #[test]
    fn a_reader_tells_why_the_content_could_not_be_read() {
        let status = |error: io::Error| Error::from(error).status().as_u16();
        assert_eq!(status(io::Error::other(ContentError::TooSlow)), 408);
        assert_eq!(status(io::Error::other(ParseError::ContentTooLong)), 413);
        assert_eq!(status(io::Error::other(CodedContentError)), 400);
        assert_eq!(status(io::Error::other(ContentRejection::TimedOut)), 408);
        assert_eq!(status(io::Error::other("disk")), 500);
    }
}
