//! The errors of multipart forms.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, ErrorKind};

use filoplume_runtime::StatusCode;

use super::super::{ContentRejection, Rejection};
use crate::core::error::Error;

/// The error if a [`Multipart`](super::Multipart) form cannot be read.
///
/// If a field is read as an [`io::Read`], this is the source of the [`io::Error`]. `?` finds it
/// there.
///
/// ```
/// use filoplume::extract::{MultipartLimits, MultipartRejection};
/// use filoplume::prelude::*;
/// use filoplume::testing::MultipartForm;
///
/// fn upload(mut form: Multipart) -> Result<String> {
///     form.set_limits(MultipartLimits::new().memory_bytes_max(3));
///     let Some(field) = form.next_field()? else { return Ok("an empty form".to_owned()) };
///     match field.text() {
///         Ok(text) => Ok(text),
///         Err(MultipartRejection::FieldTooLong { field, .. }) => {
///             Ok(format!("shorten the {field}"))
///         }
///         Err(rejection) => Err(rejection.into()),
///     }
/// }
///
/// let client = App::new().post("/", upload).test();
/// client
///     .post("/")
///     .multipart(MultipartForm::new().text("title", "a cat"))
///     .send()
///     .assert_text("shorten the title");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MultipartRejection {
    /// The `Content-Type` is missing or is not that of a form with files.
    ContentType,
    /// The `Content-Type` has no boundary, or an invalid one.
    Boundary,
    /// The content could not be read.
    Content(ContentRejection),
    /// The form is malformed.
    Malformed {
        /// The number of the part, from 1; 0 before the first one.
        part: usize,
        /// The number of bytes of the content before the error.
        at: u64,
        /// What is wrong there.
        problem: MultipartProblem,
    },
    /// There are too many parts.
    TooManyParts {
        /// The maximum number of parts.
        parts_max: usize,
    },
    /// The head of a part is too long.
    HeadTooLong {
        /// The number of the part, from 1.
        part: usize,
        /// The maximum length in bytes.
        bytes_max: usize,
    },
    /// A field is too long.
    FieldTooLong {
        /// The name of the field.
        field: String,
        /// The maximum length in bytes.
        bytes_max: u64,
    },
    /// The form is too long.
    TooLong {
        /// The maximum length in bytes.
        bytes_max: u64,
    },
    /// A field that is read as text is not UTF-8.
    NotUtf8 {
        /// The name of the field.
        field: String,
        /// The position of the first invalid byte.
        at: usize,
    },
}

/// What is wrong with the bytes of a form.
///
/// ```
/// use filoplume::extract::{MultipartProblem, MultipartRejection};
/// use filoplume::prelude::*;
///
/// let app = App::new().post("/", |mut form: Multipart| match form.next_field() {
///     Err(MultipartRejection::Malformed {
///         problem: MultipartProblem::EndsEarly, ..
///     }) => "the form was cut off",
///     Err(_) => "no form",
///     Ok(_) => "a form",
/// });
/// let cut_off = app
///     .test()
///     .post("/")
///     .header("content-type", "multipart/form-data; boundary=xyz")
///     .body("--x")
///     .send();
/// cut_off.assert_text("the form was cut off");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MultipartProblem {
    /// The content ends before the final boundary.
    EndsEarly,
    /// A boundary is followed by neither a line end nor `--`.
    Boundary,
    /// The head of a part contains a line that is not `name: value`, or control characters.
    Head,
    /// The head of a part is not UTF-8.
    HeadNotUtf8,
    /// The head of a part does not have exactly one `Content-Disposition: form-data; name="..."`.
    Disposition,
    /// A part has a `Content-Transfer-Encoding`, which forms must not have (RFC 7578, 4.7).
    TransferEncoding,
}

impl MultipartRejection {
    /// Wraps this rejection in an error of an [`io::Read`].
    pub(super) fn into_io(self) -> io::Error {
        let kind = match &self {
            Self::Content(ContentRejection::TimedOut) => ErrorKind::TimedOut,
            Self::Content(_) => ErrorKind::Other,
            Self::TooManyParts { .. }
            | Self::HeadTooLong { .. }
            | Self::FieldTooLong { .. }
            | Self::TooLong { .. } => ErrorKind::FileTooLarge,
            Self::Malformed { problem: MultipartProblem::EndsEarly, .. } => {
                ErrorKind::UnexpectedEof
            }
            _ => ErrorKind::InvalidData,
        };
        io::Error::new(kind, self)
    }
}

impl fmt::Display for MultipartProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndsEarly => "it ends before the final boundary",
            Self::Boundary => "a boundary is followed by neither a line end nor `--`",
            Self::Head => "the head of the part is malformed",
            Self::HeadNotUtf8 => "the head of the part is not UTF-8",
            Self::Disposition => {
                "the head of the part needs one `Content-Disposition: form-data` with one name"
            }
            Self::TransferEncoding => "the part has a transfer encoding",
        })
    }
}

impl fmt::Display for MultipartRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContentType => f.write_str(
                "the content must be a form with files: send `content-type: multipart/form-data`",
            ),
            Self::Boundary => {
                f.write_str("the content type has no valid `boundary` of 1 to 70 characters")
            }
            Self::Content(rejection) => rejection.fmt(f),
            Self::Malformed { part: 0, at, problem } => {
                write!(f, "the form is malformed before the first part, at byte {at}: {problem}")
            }
            Self::Malformed { part, at, problem } => {
                write!(f, "the form is malformed in part {part}, at byte {at}: {problem}")
            }
            Self::TooManyParts { parts_max } => {
                write!(f, "the form has more than the {parts_max} parts that are accepted")
            }
            Self::HeadTooLong { part, bytes_max } => {
                write!(
                    f,
                    "the head of part {part} is longer than the {bytes_max} bytes that are accepted"
                )
            }
            Self::FieldTooLong { field, bytes_max } => {
                write!(f, "`{field}` is longer than the {bytes_max} bytes that are accepted")
            }
            Self::TooLong { bytes_max } => {
                write!(f, "the form is longer than the {bytes_max} bytes that are accepted")
            }
            Self::NotUtf8 { field, at } => write!(f, "`{field}` is not UTF-8 from byte {at} on"),
        }
    }
}

impl StdError for MultipartRejection {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Content(rejection) => Some(rejection),
            _ => None,
        }
    }
}

impl Rejection for MultipartRejection {
    fn describe(&self) -> Error {
        let status = match self {
            Self::ContentType => {
                let error = Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, self.to_string());
                return error.with_known_header("accept", "multipart/form-data");
            }
            Self::Content(rejection) => return rejection.describe(),
            Self::Boundary | Self::Malformed { .. } | Self::NotUtf8 { .. } => {
                StatusCode::BAD_REQUEST
            }
            Self::TooManyParts { .. }
            | Self::HeadTooLong { .. }
            | Self::FieldTooLong { .. }
            | Self::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        };
        let error = Error::new(status, self.to_string());
        match self {
            Self::FieldTooLong { field, .. } => error.with_field(field, "is too long"),
            Self::NotUtf8 { field, .. } => error.with_field(field, "is not UTF-8"),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_has_an_error_of_the_kind_of_its_reason() {
        let malformed = |problem| MultipartRejection::Malformed { part: 1, at: 0, problem };
        let field = || "a".to_owned();
        for (rejection, kind) in [
            (MultipartRejection::Content(ContentRejection::TimedOut), ErrorKind::TimedOut),
            (MultipartRejection::Content(ContentRejection::AlreadyRead), ErrorKind::Other),
            (MultipartRejection::TooManyParts { parts_max: 1 }, ErrorKind::FileTooLarge),
            (MultipartRejection::HeadTooLong { part: 1, bytes_max: 1 }, ErrorKind::FileTooLarge),
            (
                MultipartRejection::FieldTooLong { field: field(), bytes_max: 1 },
                ErrorKind::FileTooLarge,
            ),
            (MultipartRejection::TooLong { bytes_max: 1 }, ErrorKind::FileTooLarge),
            (malformed(MultipartProblem::EndsEarly), ErrorKind::UnexpectedEof),
            (malformed(MultipartProblem::Boundary), ErrorKind::InvalidData),
            (MultipartRejection::NotUtf8 { field: field(), at: 0 }, ErrorKind::InvalidData),
        ] {
            let shown = rejection.to_string();
            assert_eq!(rejection.into_io().kind(), kind, "{shown}");
        }
    }
}
