//! The whole content of a request in memory, as a handler parameter.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use filoplume_http1::ParseError;
use filoplume_runtime::{Request, StatusCode};

use super::{FromRequest, Rejection, Takes};
use crate::core::coded_content::CodedContentError;
use crate::core::context::Context;
use crate::core::error::Error;
use crate::core::options::CONTENT_BYTES_MAX;
use crate::semantics::content_coding::is_coded;

/// Extracts the content. It rejects content that is longer than the route allows with `413`; the
/// default is 2 MiB, or what the server accepts if that is less, see
/// [`Route::content_bytes_max`](crate::Route::content_bytes_max). Like all extractors of content,
/// it rejects content with a `Content-Encoding` that no [middleware](crate::middleware) has decoded
/// with `415`.
impl FromRequest for Bytes {
    const TAKES: Takes = Takes::Content;
    type Rejection = ContentRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, ContentRejection> {
        check_content(request)?;
        let bytes_max = context.content_bytes_max().unwrap_or(CONTENT_BYTES_MAX);
        let body = std::mem::take(request.body_mut());
        body.into_bytes(bytes_max).map_err(|error| ContentRejection::of_read(error, bytes_max))
    }
}

impl FromRequest for Vec<u8> {
    const TAKES: Takes = Takes::Content;
    type Rejection = ContentRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, ContentRejection> {
        Bytes::from_request(request, context).map(Into::into)
    }
}

/// Extracts the content as text. It rejects content that is not UTF-8 with `400`.
impl FromRequest for String {
    const TAKES: Takes = Takes::Content;
    type Rejection = ContentRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, ContentRejection> {
        let bytes: Vec<u8> = Bytes::from_request(request, context)?.into();
        Self::from_utf8(bytes)
            .map_err(|error| ContentRejection::NotUtf8 { at: error.utf8_error().valid_up_to() })
    }
}

/// Refuses content that was already read, and coded content that no middleware has decoded. Its
/// bytes would not be what the handler expects.
pub(super) fn check_content(request: &Request) -> Result<(), ContentRejection> {
    if request.content_was_read() {
        return Err(ContentRejection::AlreadyRead);
    }
    let is_empty = || request.content_length() == Some(0);
    if is_coded(request.headers().get_all("content-encoding")) && !is_empty() {
        return Err(ContentRejection::Coded);
    }
    Ok(())
}

/// The error if the content cannot be extracted.
///
/// ```
/// use filoplume::extract::ContentRejection;
/// use filoplume::prelude::*;
///
/// fn count(text: Result<String, ContentRejection>) -> Result<String> {
///     match text {
///         Ok(text) => Ok(format!("{} words", text.split_whitespace().count())),
///         Err(ContentRejection::NotUtf8 { at }) => {
///             Ok(format!("no text from byte {at} on"))
///         }
///         Err(rejection) => Err(rejection.into()),
///     }
/// }
///
/// App::new()
///     .post("/", count)
///     .test()
///     .post("/")
///     .body(b"hi\xff")
///     .send()
///     .assert_text("no text from byte 2 on");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ContentRejection {
    /// It is longer than the route allows.
    TooLong {
        /// The maximum length in bytes.
        bytes_max: u64,
    },
    /// Middleware or another extractor has read the content, and has not put it back. This is a bug
    /// in the program.
    AlreadyRead,
    /// It did not arrive in time.
    TimedOut,
    /// It has a `Content-Encoding` that no middleware has decoded.
    Coded,
    /// It is malformed, or ended early.
    Broken(Arc<io::Error>),
    /// It is not UTF-8.
    NotUtf8 {
        /// The position of the first invalid byte.
        at: usize,
    },
}

impl ContentRejection {
    /// Converts an error from reading the content.
    pub(crate) fn of_read(error: io::Error, bytes_max: u64) -> Self {
        match error.kind() {
            ErrorKind::FileTooLarge => Self::TooLong { bytes_max },
            ErrorKind::TimedOut => Self::TimedOut,
            // Chunked content has no announced length, so the limit is detected while it is read.
            ErrorKind::InvalidData if is_too_long(&error) => Self::TooLong { bytes_max },
            _ => Self::Broken(Arc::new(error)),
        }
    }
}

fn is_too_long(error: &io::Error) -> bool {
    let parse_error = error.get_ref().and_then(|source| source.downcast_ref());
    matches!(parse_error, Some(ParseError::ContentTooLong))
}

fn is_wrongly_coded(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<CodedContentError>())
}

impl fmt::Display for ContentRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes_max } => {
                write!(
                    f,
                    "the content is longer than the {bytes_max} bytes that this route accepts"
                )
            }
            Self::TimedOut => f.write_str("the content did not arrive in time"),
            Self::Coded => f.write_str(
                "this route does not decode content: send it without `content-encoding`",
            ),
            Self::AlreadyRead => f.write_str(
                "middleware or another extractor has read the content: put it back with \
                 `request.body_mut().unread(&bytes)`",
            ),
            Self::Broken(error) if is_wrongly_coded(error) => CodedContentError.fmt(f),
            Self::Broken(_) => f.write_str("the content could not be read"),
            Self::NotUtf8 { at } => write!(f, "the content is not UTF-8 from byte {at} on"),
        }
    }
}

impl StdError for ContentRejection {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Broken(error) => Some(&**error),
            Self::TooLong { .. }
            | Self::TimedOut
            | Self::Coded
            | Self::AlreadyRead
            | Self::NotUtf8 { .. } => None,
        }
    }
}

impl Rejection for ContentRejection {
    fn describe(&self) -> Error {
        let status = match self {
            Self::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TimedOut => StatusCode::REQUEST_TIMEOUT,
            Self::Coded => {
                let error = Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, self.to_string());
                // No coding is accepted (RFC 7694, 3).
                return error.with_known_header("accept-encoding", "identity");
            }
            // The reason is for the log.
            Self::AlreadyRead => return Error::from_status(StatusCode::INTERNAL_SERVER_ERROR),
            Self::Broken(_) | Self::NotUtf8 { .. } => StatusCode::BAD_REQUEST,
        };
        Error::new(status, self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_reader_becomes_its_rejection() {
        let of = |error: io::Error| format!("{:?}", ContentRejection::of_read(error, 7));
        assert_eq!(of(ErrorKind::FileTooLarge.into()), "TooLong { bytes_max: 7 }");
        assert_eq!(of(ErrorKind::TimedOut.into()), "TimedOut");
        let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
        assert_eq!(of(invalid(ParseError::ContentTooLong)), "TooLong { bytes_max: 7 }");
        assert!(of(invalid(ParseError::AmbiguousLength)).starts_with("Broken("));
        assert!(of(ErrorKind::UnexpectedEof.into()).starts_with("Broken("));
    }

    #[test]
    fn content_with_an_invalid_coding_says_so() {
        let coded = ContentRejection::Broken(Arc::new(io::Error::other(CodedContentError)));
        assert_eq!(coded.to_string(), CodedContentError.to_string());
        let broken = ContentRejection::Broken(Arc::new(ErrorKind::UnexpectedEof.into()));
        assert_eq!(broken.to_string(), "the content could not be read");
    }
}
