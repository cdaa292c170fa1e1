//! JSON, as a handler parameter and as a response.

use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use filoplume_runtime::{Request, Response, StatusCode};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::plain_words::in_plain_words;
use super::serde_error::{field_path, shortened};
use super::{ContentRejection, ExtractOptional, FromRequest, Rejection, Takes};
use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::json_memory::{self, COUNTED_BYTES_MIN};
use crate::core::options::RouteOptions;
use crate::core::response::IntoResponse;
use crate::semantics::media_type::essence;

/// JSON. As a parameter, extracts the content deserialized as a `T`. As a result, sends a `T` as
/// `application/json`.
///
/// ```
/// use filoplume::prelude::*;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize, Serialize)]
/// struct Note {
///     title: String,
///     stars: u8,
/// }
///
/// let app = App::new().post("/notes", |Json(mut note): Json<Note>| {
///     note.stars += 1;
///     (StatusCode::CREATED, Json(note))
/// });
/// let client = app.test();
/// let note = client
///     .post("/notes")
///     .header("content-type", "application/json")
///     .body(r#"{"title":"a","stars":2}"#);
/// note.send().assert_status(201).assert_text(r#"{"title":"a","stars":3}"#);
///
/// let wrong = client
///     .post("/notes")
///     .header("content-type", "application/json")
///     .body(r#"{"title":"a","stars":-2}"#);
/// wrong.send().assert_status(422);
/// ```
///
/// It rejects requests without a JSON `Content-Type` with `415`, content that is not JSON with
/// `400`, and JSON that does not match `T` with `422` and the field. It also rejects what [`Bytes`]
/// rejects.
///
/// A few bytes of JSON may become a value of some hundred bytes. The most memory that such a value
/// can take is therefore estimated from its content, if that has 4 KiB or more, and counted until
/// the request is answered. If the estimates of all requests would exceed
/// [`memory_max`](crate::ServerConfig::memory_max) together, the next requests wait for up to a
/// second, and are then answered with `503`. One such content per processor is deserialized at a
/// time.
#[doc(alias("jsonify", "body_parser"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a response does nothing until it is returned"]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Json<T> {
    const TAKES: Takes = Takes::Content;
    type Rejection = JsonRejection;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self, JsonRejection> {
        if !request.header("content-type").is_some_and(is_json) {
            return Err(JsonRejection::ContentType);
        }
        let content = Bytes::from_request(request, context).map_err(JsonRejection::Content)?;
        if content.len() < COUNTED_BYTES_MIN {
            return read(&content).map(Self);
        }
        // Before the turn: others could not parse while this waits for memory.
        let memory = request.hold_estimated_memory(json_memory::estimate(&content));
        context.asked.held_for_value.keep(memory.ok_or(JsonRejection::OutOfMemory)?);
        request.compute_in_turn(|| read(&content)).map(Self)
    }

    fn configure(options: &mut RouteOptions) {
        options.count_value();
    }
}

fn read<T: DeserializeOwned>(content: &[u8]) -> Result<T, JsonRejection> {
    match serde_json::from_slice(content) {
        Ok(value) => Ok(value),
        Err(error) if error.is_data() => read_with_path(content),
        Err(error) => Err(JsonRejection::Syntax(Arc::new(error))),
    }
}

/// Reads a content that does not match its type once more, to name the field. Keeping the path to
/// each value allocates, so other contents are read without.
#[cold]
fn read_with_path<T: DeserializeOwned>(content: &[u8]) -> Result<T, JsonRejection> {
    let mut deserializer = serde_json::Deserializer::from_slice(content);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| JsonRejection::of(error, content))?;
    deserializer.end().map_err(|error| JsonRejection::Syntax(Arc::new(error)))?;
    Ok(value)
}

/// Returns `None` if the request has no content and no `Content-Type`.
impl<T: DeserializeOwned> ExtractOptional for Json<T> {
    fn extract_optional(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Option<Self>, JsonRejection> {
        if request.content_length() == Some(0) && !request.headers().contains("content-type") {
            return Ok(None);
        }
        Self::from_request(request, context).map(Some)
    }
}

/// Returns whether a content type is `application/json` or any `+json` (RFC 6839, 3.1), with any
/// parameters.
fn is_json(content_type: &str) -> bool {
    let Some((kind, subtype)) = essence(content_type).split_once('/') else { return false };
    // The suffix is the part after the last `+`.
    let suffix = subtype.rsplit('+').next().unwrap_or_default();
    kind.eq_ignore_ascii_case("application") && suffix.eq_ignore_ascii_case("json")
}

impl<T: Serialize> IntoResponse for Json<T> {
    const SAYS_STATUS: bool = false;
    const KEEPS_HEADERS: bool = false;

    fn into_response(self) -> Result<Response> {
        let mut response = Response::default();
        response.set_json(serde_json::to_vec(&self.0).map_err(NotJson)?);
        Ok(response)
    }
}

/// The error for a value that has no JSON, such as a map whose keys are not texts. The reason alone
/// does not say what it is about.
#[derive(Debug)]
struct NotJson(serde_json::Error);

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value cannot be written as JSON")
    }
}

impl StdError for NotJson {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

impl<T> Deref for Json<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Json<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// The error if [`Json`] cannot be extracted.
///
/// ```
/// use filoplume::extract::JsonRejection;
/// use filoplume::prelude::*;
/// use serde_json::json;
///
/// #[derive(serde::Deserialize)]
/// struct Order { items: Vec<u32> }
///
/// fn order(order: Result<Json<Order>, JsonRejection>) -> Result<String> {
///     match order {
///         Ok(Json(order)) => Ok(format!("{} items", order.items.len())),
///         Err(JsonRejection::Data { field: Some(field), .. }) => Ok(format!("look at {field}")),
///         Err(rejection) => Err(rejection.into()),
///     }
/// }
///
/// let client = App::new().post("/", order).test();
/// client.post("/").json(&json!({"items": [1, -2]})).send().assert_text("look at items[1]");
/// client.post("/").body("[]").send().assert_status(415);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JsonRejection {
    /// The `Content-Type` is missing or is not JSON.
    ContentType,
    /// The content could not be read.
    Content(ContentRejection),
    /// There is no memory for its value.
    OutOfMemory,
    /// The content is not JSON.
    Syntax(Arc<serde_json::Error>),
    /// The content is JSON, but does not match the type.
    Data {
        /// The path of the field, such as `items[2].price`; `None` for the whole content.
        field: Option<String>,
        /// What is wrong with it. The client gets this text in words that do not name Rust types.
        source: Arc<serde_json::Error>,
    },
}

impl JsonRejection {
    fn of(error: serde_path_to_error::Error<serde_json::Error>, content: &[u8]) -> Self {
        let message = error.inner().to_string();
        let field = field_path(error.path(), &message);
        let source = Arc::new(error.into_inner());
        if !source.is_data() {
            return Self::Syntax(source);
        }
        // The parser stops at a value of the wrong type, so the rest of the content was not
        // checked.
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(content) {
            return Self::Syntax(Arc::new(error));
        }
        let short = shortened(message.clone());
        if short == message {
            return Self::Data { field, source };
        }
        // The line and column are kept, because they are at the end of the text.
        Self::Data { field, source: Arc::new(serde::de::Error::custom(short)) }
    }
}

impl fmt::Display for JsonRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContentType => {
                f.write_str("the content must be JSON: send `content-type: application/json`")
            }
            Self::Content(rejection) => rejection.fmt(f),
            Self::OutOfMemory => f.write_str("there is no memory for the value of the content"),
            Self::Syntax(error) => write!(f, "the content is not JSON: {error}"),
            Self::Data { field, source } => {
                let words = in_plain_words(&source.to_string(), field.is_some());
                match field {
                    None => write!(f, "the content is not as expected: {words}"),
                    Some(field) => write!(f, "`{field}` is wrong: {words}"),
                }
            }
        }
    }
}

impl StdError for JsonRejection {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::ContentType | Self::OutOfMemory => None,
            Self::Content(rejection) => Some(rejection),
            Self::Syntax(error) | Self::Data { source: error, .. } => Some(&**error),
        }
    }
}

impl Rejection for JsonRejection {
    fn describe(&self) -> Error {
        let status = match self {
            Self::ContentType => {
                let error = Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, self.to_string());
                return error.with_known_header("accept", "application/json");
            }
            Self::Content(rejection) => return rejection.describe(),
            Self::OutOfMemory => {
                return Error::unavailable(self.to_string()).with_known_header("retry-after", "1");
            }
            Self::Syntax(_) => StatusCode::BAD_REQUEST,
            Self::Data { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let error = Error::new(status, self.to_string());
        match self {
            Self::Data { field: Some(field), source } => {
                error.with_field(field, in_plain_words(&source.to_string(), true))
            }
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_goes_by_several_names() {
        assert!(is_json("application/json"));
        assert!(is_json("Application/JSON; charset=utf-8"));
        assert!(is_json("application/vnd.api+json"));
        assert!(is_json("application/a+b+json"));
        assert!(!is_json("text/json"));
        assert!(!is_json("application/json+xml"));
        assert!(!is_json("application/jsonx"));
        assert!(!is_json(""));
    }
}
