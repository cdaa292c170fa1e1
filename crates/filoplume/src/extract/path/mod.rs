//! The captures of the path, as a typed handler parameter.

mod deserializer;

use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};

use filoplume_runtime::{Request, StatusCode};
use serde::de::{self, DeserializeOwned};

use self::deserializer::CapturesDeserializer;
use super::percent::EncodingError;
use super::plain_words::in_plain_words;
use super::probe::captures_mismatch;
use super::{FromRequest, Rejection};
use crate::core::captures::Captures;
use crate::core::context::Context;
use crate::core::error::Error;
use crate::core::options::RouteOptions;

/// Extracts the captures of the path: a single capture as a value, several as a tuple in their
/// order or as a struct by name.
///
/// Captures are percent-decoded after the path was matched, so an encoded slash is part of a value
/// and never a separator. The type can be anything that serde reads from text: numbers, `bool`,
/// `char`, text, enums by name, `Option`, and types such as `uuid::Uuid`.
///
/// ```
/// use filoplume::prelude::*;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Page {
///     book: String,
///     page: u32,
/// }
///
/// let app = App::new()
///     .get("/users/{id}", |Path(id): Path<u64>| format!("user {id}"))
///     .get("/from/{from}/to/{to}", |Path((from, to)): Path<(String, String)>| {
///         format!("{from} to {to}")
///     })
///     .get("/books/{book}/{page}", |Path(at): Path<Page>| {
///         format!("{} at {}", at.book, at.page)
///     });
/// let client = app.test();
/// client.get("/users/17").send().assert_text("user 17");
/// client.get("/from/K%C3%B6ln/to/Bonn").send().assert_text("Köln to Bonn");
/// client.get("/books/dune/12").send().assert_text("dune at 12");
/// client.get("/users/me").send().assert_status(400);
/// ```
///
/// It rejects a path with `400` if a capture cannot be decoded or does not match the type. A type
/// that cannot match any path of the pattern is a bug in the program. Examples are a tuple of two
/// for one capture, or a struct with a field that is not captured. An app with such a type does not
/// start, and reports the line of the route. A mismatch that cannot be detected at start-up, for
/// example that of an untagged `enum`, is a `500` and is logged.
#[doc(alias("params", "view_args"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Path<T> {
    type Rejection = PathRejection;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self, PathRejection> {
        let captures = context.captures_in(request.path());
        T::deserialize(CapturesDeserializer(&captures))
            .map(Self)
            .map_err(|error| error.into_rejection(&captures))
    }

    fn configure(options: &mut RouteOptions) {
        options.require_captures_that(captures_mismatch::<T>);
    }
}

impl<T> Deref for Path<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Path<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// The error if a [`Path`] cannot be extracted.
///
/// ```
/// use filoplume::extract::PathRejection;
/// use filoplume::prelude::*;
///
/// fn note(id: Result<Path<u64>, PathRejection>) -> Result<String> {
///     match id {
///         Ok(Path(id)) => Ok(format!("note {id}")),
///         Err(PathRejection::Invalid { .. }) => {
///             Err(Error::not_found("notes have numbers"))
///         }
///         Err(rejection) => Err(rejection.into()),
///     }
/// }
///
/// App::new()
///     .get("/notes/{id}", note)
///     .test()
///     .get("/notes/first")
///     .send()
///     .assert_status(404);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathRejection {
    /// A capture is not encoded correctly.
    Encoding {
        /// The name of the capture.
        capture: String,
        /// What is wrong with it.
        error: EncodingError,
    },
    /// A capture does not match the type.
    Invalid {
        /// The name of the capture.
        capture: String,
        /// What is wrong with it.
        message: String,
    },
    /// The type does not fit the pattern, such as a tuple of two for a pattern with one capture.
    /// This is a bug in the program.
    Mismatch {
        /// What does not fit.
        message: String,
    },
}

impl fmt::Display for PathRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding { capture, error } => write!(f, "`{capture}` in the path {error}"),
            Self::Invalid { capture, message } => {
                write!(f, "`{capture}` in the path is wrong: {message}")
            }
            Self::Mismatch { message } => {
                write!(f, "the type of `Path` does not fit the pattern: {message}")
            }
        }
    }
}

impl StdError for PathRejection {}

impl Rejection for PathRejection {
    fn describe(&self) -> Error {
        match self {
            Self::Encoding { capture, error } => {
                Error::bad_request(self.to_string()).with_field(capture, error.to_string())
            }
            Self::Invalid { capture, message } => {
                Error::bad_request(self.to_string()).with_field(capture, message)
            }
            Self::Mismatch { .. } => Error::from_status(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// An error of serde, with the capture where it occurred.
#[derive(Debug)]
enum PathError {
    Plain(String),
    /// The type does not match any path of the pattern.
    Mismatch(String),
    At(String, String),
    Encoding(String, EncodingError),
}

impl PathError {
    fn at(self, name: &str) -> Self {
        match self {
            Self::Plain(message) => Self::At(name.to_owned(), message),
            at => at,
        }
    }

    #[cold]
    fn into_rejection(self, captures: &Captures<'_>) -> PathRejection {
        match self {
            Self::At(capture, message) => {
                PathRejection::Invalid { capture, message: in_plain_words(&message, true) }
            }
            Self::Encoding(capture, error) => PathRejection::Encoding { capture, error },
            Self::Mismatch(message) => PathRejection::Mismatch { message },
            Self::Plain(message) => match captures.iter().next() {
                Some((name, _)) if captures.len() == 1 => {
                    let message = in_plain_words(&message, true);
                    PathRejection::Invalid { capture: name.to_owned(), message }
                }
                _ => PathRejection::Mismatch { message },
            },
        }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(message) | Self::Mismatch(message) | Self::At(_, message) => {
                f.write_str(message)
            }
            Self::Encoding(_, error) => error.fmt(f),
        }
    }
}

impl StdError for PathError {}

impl de::Error for PathError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Plain(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Mismatch(format!("there is no capture for the field `{field}`"))
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::Mismatch(format!("there is no field for the capture `{field}`"))
    }
}

#[cfg(test)]
mod tests;
