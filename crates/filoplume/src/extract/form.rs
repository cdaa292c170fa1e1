//! HTML forms, as a typed handler parameter.

use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use filoplume_runtime::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;

use super::probe::fields_mismatch;
use super::urlencoded::{self, FieldsError};
use super::{ContentRejection, ExtractOptional, FromRequest, Rejection, Takes};
use crate::core::context::Context;
use crate::core::error::Error;
#[cfg(feature = "sessions")]
use crate::core::extract::CheckedField;
use crate::core::options::RouteOptions;
use crate::semantics::media_type::essence;

/// The media type of forms.
const CONTENT_TYPE: &str = "application/x-www-form-urlencoded";

/// Extracts a form without files, deserialized as a `T`. It reads the content, or for `GET` and
/// `HEAD` the query, as browsers send it.
///
/// Fields are read like those of [`Query`](super::Query). A checkbox is a `bool` with
/// `#[serde(default)]`: `on` is `true`. If a field for an optional number is left empty, its
/// `Option` is `None`.
///
/// ```
/// use filoplume::prelude::*;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct SignUp {
///     name: String,
///     age: Option<u8>,
///     #[serde(default)]
///     newsletter: bool,
/// }
///
/// let app = App::new().post("/sign-up", |Form(sign_up): Form<SignUp>| {
///     format!("{}, {:?}, {}", sign_up.name, sign_up.age, sign_up.newsletter)
/// });
/// let client = app.test();
/// let post = |form: &str| {
///     client
///         .post("/sign-up")
///         .header("content-type", "application/x-www-form-urlencoded")
///         .body(form)
///         .send()
/// };
/// post("name=Ada+L&age=&newsletter=on").assert_text("Ada L, None, true");
/// post("name=Ada&age=old").assert_status(422);
/// ```
///
/// It rejects content of another type with `415`, content that cannot be decoded with `400`, and
/// fields that do not match `T` with `422` and the field. It also rejects what [`Bytes`]
/// rejects. For forms with files, use [`Multipart`](super::Multipart).
#[doc(alias("urlencoded", "body_parser"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Form<T> {
    const TAKES: Takes = Takes::Content;
    type Rejection = FormRejection;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self, FormRejection> {
        if is_in_query(request.method()) {
            let query = request.query().unwrap_or_default();
            return urlencoded::read(query.as_bytes()).map(Self).map_err(FormRejection::Fields);
        }
        let content_type = request.header("content-type").map(essence);
        if !content_type.is_some_and(|essence| essence.eq_ignore_ascii_case(CONTENT_TYPE)) {
            return Err(FormRejection::ContentType);
        }
        let content = Bytes::from_request(request, context).map_err(FormRejection::Content)?;
        #[cfg(feature = "sessions")]
        let content = match request.extensions().get::<CheckedField>() {
            Some(CheckedField(field)) => without_field(content, field),
            None => content,
        };
        urlencoded::read(&content).map(Self).map_err(FormRejection::Fields)
    }

    fn configure(options: &mut RouteOptions) {
        if let Some(mistake) = fields_mismatch::<T>("Form") {
            options.refuse_route(mistake);
        }
    }
}

/// Returns `None` if a `GET` or `HEAD` has no query, or another request has no content.
impl<T: DeserializeOwned> ExtractOptional for Form<T> {
    fn extract_optional(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Option<Self>, FormRejection> {
        let is_absent = if is_in_query(request.method()) {
            request.query().unwrap_or_default().is_empty()
        } else {
            request.content_length() == Some(0) && !request.headers().contains("content-type")
        };
        if is_absent { Ok(None) } else { Self::from_request(request, context).map(Some) }
    }
}

/// Returns whether the form is in the query. The content of a `GET` or `HEAD` has no meaning (RFC
/// 9110, 9.3.1).
fn is_in_query(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

/// Removes the pairs of a field from an encoded form.
#[cfg(feature = "sessions")]
fn without_field(form: Bytes, field: &str) -> Bytes {
    let is_field = |pair: &[u8]| pair.split(|&byte| byte == b'=').next() == Some(field.as_bytes());
    if !form.split(|&byte| byte == b'&').any(is_field) {
        return form;
    }
    let pairs = form.split(|&byte| byte == b'&').filter(|pair| !is_field(pair));
    pairs.collect::<Vec<_>>().join(&b'&').into()
}

impl<T> Deref for Form<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Form<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// The error if a [`Form`] cannot be extracted.
///
/// ```
/// use filoplume::extract::{FieldsError, FormRejection};
/// use filoplume::prelude::*;
///
/// #[derive(serde::Deserialize)]
/// struct SignUp {
///     age: u8,
/// }
///
/// fn sign_up(form: Result<Form<SignUp>, FormRejection>) -> Result<Html<String>> {
///     match form {
///         Ok(Form(sign_up)) => Ok(Html(format!("<p>{} years</p>", sign_up.age))),
///         Err(FormRejection::Fields(FieldsError::Data { .. })) => {
///             Ok(Html("<p>Please try again</p>".to_owned()))
///         }
///         Err(rejection) => Err(rejection.into()),
///     }
/// }
///
/// let client = App::new().post("/", sign_up).test();
/// client.post("/").form(&[("age", "old")]).send().assert_text("<p>Please try again</p>");
/// client.post("/").body("age=36").send().assert_status(415);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FormRejection {
    /// The `Content-Type` is missing or is not that of a form.
    ContentType,
    /// The content could not be read.
    Content(ContentRejection),
    /// The fields are invalid.
    Fields(FieldsError),
}

impl fmt::Display for FormRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContentType => {
                write!(f, "the content must be a form: send `content-type: {CONTENT_TYPE}`")
            }
            Self::Content(rejection) => rejection.fmt(f),
            Self::Fields(error) => write!(f, "the form cannot be read: {error}"),
        }
    }
}

impl StdError for FormRejection {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::ContentType => None,
            Self::Content(rejection) => Some(rejection),
            Self::Fields(error) => Some(error),
        }
    }
}

impl Rejection for FormRejection {
    fn describe(&self) -> Error {
        let (status, fields) = match self {
            Self::ContentType => {
                let error = Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, self.to_string());
                return error.with_known_header("accept", CONTENT_TYPE);
            }
            Self::Content(rejection) => return rejection.describe(),
            Self::Fields(fields @ FieldsError::Encoding { .. }) => {
                (StatusCode::BAD_REQUEST, fields)
            }
            Self::Fields(fields @ FieldsError::TooMany { .. }) => {
                (StatusCode::PAYLOAD_TOO_LARGE, fields)
            }
            Self::Fields(FieldsError::Unreadable { .. }) => return Error::internal(self.clone()),
            Self::Fields(fields @ FieldsError::Data { .. }) => {
                (StatusCode::UNPROCESSABLE_ENTITY, fields)
            }
        };
        let error = Error::new(status, self.to_string());
        match fields.field() {
            Some((field, message)) => error.with_field(field, message),
            None => error,
        }
    }
}

#[cfg(all(test, feature = "sessions"))]
mod tests {
    use super::*;

    #[test]
    fn a_checked_field_is_removed_wherever_it_is() {
        for (form, expected) in [
            ("a=1&token=x&b=2", "a=1&b=2"),
            ("token=x&a=1&token=y", "a=1"),
            ("a=token&tokens=1", "a=token&tokens=1"),
            ("token", ""),
            ("", ""),
        ] {
            assert_eq!(without_field(Bytes::from(form), "token"), expected, "{form}");
        }
    }
}
