//! Typed headers, as a handler parameter.

use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};

use filoplume_runtime::Request;

use super::{ExtractOptional, FromRequest, Rejection};
use crate::core::context::Context;
use crate::core::error::Error;

/// A type for the value of a header. [`headers`](super::headers) has some. An app can define
/// others:
///
/// ```
/// use filoplume::extract::TypedHeader;
/// use filoplume::prelude::*;
/// use std::num::ParseIntError;
///
/// /// How many cats the client has.
/// struct Cats(u32);
///
/// impl TypedHeader for Cats {
///     const NAME: &'static str = "x-cats";
///     type Error = ParseIntError;
///
///     fn parse(value: &str) -> Result<Self, ParseIntError> {
///         value.parse().map(Self)
///     }
/// }
///
/// let app =
///     App::new().get("/", |Header(Cats(count)): Header<Cats>| format!("{count} cats"));
/// let client = app.test();
/// client.get("/").header("x-cats", "3").send().assert_text("3 cats");
/// client.get("/").header("x-cats", "some").send().assert_status(400);
/// client.get("/").send().assert_status(400);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a typed header",
    label = "not a typed header",
    note = "types for headers implement `TypedHeader`; some are in `filoplume::extract::headers`",
    note = "to read a header as text, use `headers.get_str(\"x-name\")` with the parameter \
            `headers: Headers`"
)]
pub trait TypedHeader: Sized {
    /// The name of the header, in upper or lower case.
    const NAME: &'static str;

    /// Whether the value is a list (RFC 9110, 5.6.1). If it is, several fields are joined with
    /// commas. If it is not, several fields are rejected, because readers could disagree about
    /// which one counts.
    const IS_LIST: bool = false;

    /// The error for an invalid value.
    type Error: fmt::Display;

    /// Parses the value. It has no surrounding whitespace.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    fn parse(value: &str) -> Result<Self, Self::Error>;
}

/// Extracts a header as a [`TypedHeader`]. `Option<Header<H>>` is `None` if the header is missing.
///
/// ```
/// use filoplume::extract::headers::{Host, UserAgent};
/// use filoplume::prelude::*;
///
/// let app = App::new().get(
///     "/",
///     |Header(host): Header<Host>, agent: Option<Header<UserAgent>>| {
///         format!(
///             "{} for {}",
///             host.name(),
///             agent.map_or("nobody".to_owned(), |Header(UserAgent(agent))| agent)
///         )
///     },
/// );
/// app.test()
///     .get("/")
///     .header("host", "example.org")
///     .send()
///     .assert_text("example.org for nobody");
/// ```
///
/// It rejects a header with `400` and its name if it is missing, invalid, not UTF-8, or occurs more
/// than once without being a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<H>(pub H);

impl<H: TypedHeader> FromRequest for Header<H> {
    type Rejection = HeaderRejection;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self, HeaderRejection> {
        let header = Self::extract_optional(request, context)?;
        header.ok_or(HeaderRejection { name: H::NAME, problem: HeaderProblem::Missing })
    }
}

impl<H: TypedHeader> ExtractOptional for Header<H> {
    fn extract_optional(
        request: &mut Request,
        _: &Context<'_>,
    ) -> Result<Option<Self>, HeaderRejection> {
        let reject = |problem| HeaderRejection { name: H::NAME, problem };
        let mut values = request.headers().get_all(H::NAME);
        let Some(first) = values.next() else { return Ok(None) };
        let first = text(first).map_err(reject)?;
        let mut joined = String::new();
        for value in values {
            if !H::IS_LIST {
                return Err(reject(HeaderProblem::Repeated));
            }
            if joined.is_empty() {
                joined.push_str(first);
            }
            joined.push_str(", ");
            joined.push_str(text(value).map_err(reject)?);
        }
        let value = if joined.is_empty() { first } else { &joined };
        let parsed =
            H::parse(value).map_err(|error| reject(HeaderProblem::Invalid(error.to_string())))?;
        Ok(Some(Self(parsed)))
    }
}

fn text(value: &[u8]) -> Result<&str, HeaderProblem> {
    std::str::from_utf8(value).map_err(|_| HeaderProblem::NotUtf8)
}

impl<H> Deref for Header<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0
    }
}

impl<H> DerefMut for Header<H> {
    fn deref_mut(&mut self) -> &mut H {
        &mut self.0
    }
}

/// The error if a [`Header`] cannot be extracted.
///
/// ```
/// use filoplume::extract::HeaderRejection;
/// use filoplume::extract::headers::UserAgent;
/// use filoplume::prelude::*;
///
/// let app =
///     App::new().get(
///         "/",
///         |agent: Result<Header<UserAgent>, HeaderRejection>| match agent {
///             Ok(Header(UserAgent(agent))) => Ok(agent),
///             Err(rejection) => Err(Error::forbidden(format!(
///                 "no robots: `{}` {}",
///                 rejection.name, rejection.problem
///             ))),
///         },
///     );
/// app.test()
///     .get("/")
///     .send()
///     .assert_status(403)
///     .assert_contains("no robots: `user-agent` is missing");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeaderRejection {
    /// The name of the header.
    pub name: &'static str,
    /// What is wrong with it.
    pub problem: HeaderProblem,
}

/// What is wrong with a header.
///
/// ```
/// use filoplume::extract::headers::ContentType;
/// use filoplume::extract::{HeaderProblem, HeaderRejection};
/// use filoplume::prelude::*;
///
/// fn kind(header: Result<Header<ContentType>, HeaderRejection>) -> Result<String> {
///     match header.map_err(|rejection| (rejection.problem.clone(), rejection)) {
///         Ok(Header(content_type)) => Ok(content_type.essence().to_owned()),
///         Err((HeaderProblem::Missing, _)) => Ok("application/octet-stream".to_owned()),
///         Err((_, rejection)) => Err(rejection.into()),
///     }
/// }
///
/// let client = App::new().post("/", kind).test();
/// client.post("/").send().assert_text("application/octet-stream");
/// client.post("/").header("content-type", "nonsense").send().assert_status(400);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderProblem {
    /// It is missing.
    Missing,
    /// It occurs more than once, and is not a list.
    Repeated,
    /// It is not UTF-8.
    NotUtf8,
    /// Its value is invalid.
    Invalid(String),
}

impl fmt::Display for HeaderProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is missing"),
            Self::Repeated => f.write_str("occurs more than once"),
            Self::NotUtf8 => f.write_str("is not UTF-8"),
            Self::Invalid(message) => write!(f, "is wrong: {message}"),
        }
    }
}

impl fmt::Display for HeaderRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the header `{}` {}", self.name, self.problem)
    }
}

impl StdError for HeaderRejection {}

impl Rejection for HeaderRejection {
    fn describe(&self) -> Error {
        Error::bad_request(self.to_string()).with_field(self.name, self.problem.to_string())
    }
}
