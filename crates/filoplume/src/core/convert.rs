//! Conversions of plain values into responses.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;

use bytes::Bytes;
use filoplume_runtime::{AsHeaderValue, Headers, InvalidHeader, Response, StatusCode};

use super::error::{Error, Result};
use super::response::{ErrorResponse, IntoResponse};
use crate::semantics::conditional::RequestConditions;

impl IntoResponse for Response {
    #[inline]
    fn into_response(self) -> Result<Response> {
        Ok(self)
    }
}

/// `Err` is answered with the response of the error. A status with a text, such as
/// `Err((StatusCode::CONFLICT, "sold out"))`, is rendered like an [`Error`].
impl<T: IntoResponse, E: ErrorResponse> IntoResponse for Result<T, E> {
    const SAYS_STATUS: bool = T::SAYS_STATUS && E::SAYS_STATUS;
    const CHECKED: () = {
        assert!(
            E::SAYS_STATUS,
            "the error of this `Result` has no status, so the response would be a 200: return \
             `Result<T>` with an error such as `Error::bad_request(text)`, or \
             `Err((StatusCode::BAD_REQUEST, text))`"
        );
        let () = T::CHECKED;
        let () = E::CHECKED;
    };
    const IS_CONDITIONAL: bool = T::IS_CONDITIONAL || E::IS_CONDITIONAL;
    const KEEPS_HEADERS: bool = false;

    #[inline]
    fn into_response(self) -> Result<Response> {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_error_response(),
        }
    }

    fn into_conditional_response(self, conditions: &RequestConditions) -> Result<Response> {
        match self {
            Ok(value) => value.into_conditional_response(conditions),
            Err(error) if E::IS_CONDITIONAL => error.into_conditional_response(conditions),
            Err(error) => error.into_error_response(),
        }
    }
}

/// `None` becomes a `404`.
impl<T: IntoResponse> IntoResponse for Option<T> {
    const SAYS_STATUS: bool = T::SAYS_STATUS;
    const CHECKED: () = T::CHECKED;
    const IS_CONDITIONAL: bool = T::IS_CONDITIONAL;
    const KEEPS_HEADERS: bool = false;

    fn into_response(self) -> Result<Response> {
        match self {
            Some(value) => value.into_response(),
            None => Err(Error::from_status(StatusCode::NOT_FOUND)),
        }
    }

    fn into_conditional_response(self, conditions: &RequestConditions) -> Result<Response> {
        self.map_or_else(
            || None::<()>.into_response(),
            |value| value.into_conditional_response(conditions),
        )
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Result<Response> {
        Err(self)
    }
}

impl IntoResponse for Infallible {
    fn into_response(self) -> Result<Response> {
        match self {}
    }
}

impl IntoResponse for InvalidHeader {
    fn into_response(self) -> Result<Response> {
        Err(Error::internal(self))
    }
}

/// Becomes an empty `200`.
impl IntoResponse for () {
    const SAYS_STATUS: bool = false;
    const IS_NOTHING: bool = true;

    fn into_response(self) -> Result<Response> {
        Ok(Response::default())
    }

    fn into_error(self, status: StatusCode) -> Result<Error, Self> {
        Ok(Error::from_status(status))
    }
}

/// Becomes a response without content. An error status is rendered like an [`Error`].
impl IntoResponse for StatusCode {
    fn into_response(self) -> Result<Response> {
        if is_error(self) {
            return Err(Error::from_status(self));
        }
        check_final(self)?;
        Ok(Response::new(self.as_u16()))
    }
}

/// An interim response (RFC 9110, 15.2) is followed by another one, which a handler cannot send.
fn check_final(status: StatusCode) -> Result<()> {
    if status.is_informational() {
        return Err(Error::internal(format!(
            "`{status}` is not the status of a response: send hints with `EarlyHints`, and switch \
             protocols with `WebSocketUpgrade` or `Response::upgrade`"
        )));
    }
    Ok(())
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

macro_rules! texts {
    ($($type:ty => $bytes:expr, $text:expr;)+) => {
        $(
            /// Becomes `text/plain; charset=utf-8`.
            impl IntoResponse for $type {
                const SAYS_STATUS: bool = false;

                #[inline]
                fn into_response(self) -> Result<Response> {
                    let mut response = Response::default();
                    response.set_text($bytes(self));
                    Ok(response)
                }

                fn into_error(self, status: StatusCode) -> Result<Error, Self> {
                    if self.is_empty() {
                        return Ok(Error::from_status(status));
                    }
                    let text: Cow<'static, str> = $text(self);
                    Ok(Error::new(status, text))
                }
            }
        )+
    };
}

texts! {
    &'static str => Bytes::from, Cow::from;
    String => Bytes::from, Cow::from;
    Box<str> => |text: Self| Bytes::from(String::from(text)),
        |text: Self| String::from(text).into();
    Cow<'static, str> => |text: Self| match text {
        Cow::Borrowed(text) => Bytes::from(text),
        Cow::Owned(text) => Bytes::from(text),
    }, Cow::from;
}

macro_rules! octets {
    ($($type:ty),+ $(,)?) => {
        $(
            /// Becomes `application/octet-stream`.
            impl IntoResponse for $type {
                const SAYS_STATUS: bool = false;

                fn into_response(self) -> Result<Response> {
                    let mut response = Response::default();
                    response.set_bytes(self);
                    Ok(response)
                }
            }
        )+
    };
}

octets!(Bytes, Vec<u8>, &'static [u8]);

impl<const N: usize> IntoResponse for &'static [u8; N] {
    const SAYS_STATUS: bool = false;

    fn into_response(self) -> Result<Response> {
        self.as_slice().into_response()
    }
}

impl<B: Into<Bytes>> IntoResponse for http::Response<B> {
    fn into_response(self) -> Result<Response> {
        Ok(self.into())
    }
}

/// A response with an explicit status is sent whole, regardless of the conditions of the request.
impl<T: IntoResponse> IntoResponse for (StatusCode, T) {
    const CHECKED: () = T::CHECKED;
    const KEEPS_HEADERS: bool = T::KEEPS_HEADERS;

    fn into_response(self) -> Result<Response> {
        if T::IS_HEADERS && is_error(self.0) {
            // Rendered like a status alone, so that no error is sent without content by accident.
            return self.into_error_response();
        }
        let (status, value) = self;
        check_final(status)?;
        let mut response = value.into_response()?;
        response.set_status(status.as_u16());
        Ok(response)
    }

    fn into_error_response(self) -> Result<Response> {
        let (status, value) = self;
        if !is_error(status) {
            return (status, value).into_response();
        }
        match value.into_error(status) {
            Ok(error) => Err(error),
            Err(value) => {
                let mut response = value.into_response()?;
                response.set_status(status.as_u16());
                Ok(response)
            }
        }
    }
}

/// Becomes a response without content. In a pair with an error status it is rendered like an
/// [`Error`] with these headers.
impl<N: AsRef<str>, V: AsHeaderValue, const COUNT: usize> IntoResponse for [(N, V); COUNT] {
    const SAYS_STATUS: bool = false;
    const IS_HEADERS: bool = true;

    fn into_response(self) -> Result<Response> {
        (self, ()).into_response()
    }

    fn into_error(self, status: StatusCode) -> Result<Error, Self> {
        (self, ()).into_error(status).map_err(|(headers, ())| headers)
    }
}

/// Becomes a response without content. In a pair with an error status it is rendered like an
/// [`Error`] with these headers.
impl IntoResponse for Headers {
    const SAYS_STATUS: bool = false;
    const IS_HEADERS: bool = true;

    fn into_response(self) -> Result<Response> {
        (self, ()).into_response()
    }

    fn into_error(self, status: StatusCode) -> Result<Error, Self> {
        (self, ()).into_error(status).map_err(|(headers, ())| headers)
    }
}

/// Sets the headers, replacing those of the same name. Each `set-cookie` is added.
///
/// A status, an [`Error`] or an error type of the app gets them as well. The error of a `Result`
/// and the `404` of `None` do not: a cache lifetime that is meant for a page must not apply to the
/// error in its place.
impl<N: AsRef<str>, V: AsHeaderValue, const COUNT: usize, T: IntoResponse> IntoResponse
    for ([(N, V); COUNT], T)
{
    const SAYS_STATUS: bool = T::SAYS_STATUS;
    const CHECKED: () = T::CHECKED;
    const IS_CONDITIONAL: bool = T::IS_CONDITIONAL;
    const KEEPS_HEADERS: bool = T::KEEPS_HEADERS;

    fn into_response(self) -> Result<Response> {
        let (headers, value) = self;
        match value.into_response() {
            Ok(response) => set_headers(response, headers),
            Err(error) => Err(with_kept_headers::<T, _, _>(error, &headers, SameName::Replace)),
        }
    }

    fn into_conditional_response(self, conditions: &RequestConditions) -> Result<Response> {
        let (headers, value) = self;
        match value.into_conditional_response(conditions) {
            Ok(response) => set_headers(response, headers),
            Err(error) => Err(with_kept_headers::<T, _, _>(error, &headers, SameName::Replace)),
        }
    }

    fn into_error(self, status: StatusCode) -> Result<Error, Self> {
        let (headers, value) = self;
        if headers.iter().any(|(name, _)| is_content_type(name.as_ref())) {
            return Err((headers, value));
        }
        match value.into_error(status) {
            Ok(error) => Ok(with_headers(error, &headers, SameName::Replace)),
            Err(value) => Err((headers, value)),
        }
    }
}

/// Returns whether a header sets the content type. A text with one of its own is sent as it is, and
/// not rendered as an error.
fn is_content_type(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-type")
}

/// The headers that a response has once, among those that values and errors set themselves.
const SINGLE: [&str; 7] = [
    "content-disposition",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
    "location",
    "retry-after",
];

/// Returns whether a response has this header once, so that another value replaces it.
fn is_single(name: &str) -> bool {
    SINGLE.iter().any(|single| name.eq_ignore_ascii_case(single))
}

/// What becomes of the headers that an error has already, if another one has the same name. One
/// that a response has [once](is_single) is replaced in any case.
#[derive(Clone, Copy)]
enum SameName {
    Replace,
    Keep,
}

fn with_headers<N: AsRef<str>, V: AsHeaderValue>(
    error: Error,
    headers: &[(N, V)],
    same_name: SameName,
) -> Error {
    let mut headers = headers.iter().map(|(name, value)| (name.as_ref(), value.as_header_value()));
    headers
        .try_fold(error, |error, (name, value)| {
            let replaces = match same_name {
                SameName::Replace => !is_cookie(name),
                SameName::Keep => is_single(name),
            };
            let error = if replaces {
                error.with_replaced_header(name, value)
            } else {
                error.with_header(name, value)
            };
            error.map_err(|cause| unset(name, cause))
        })
        .unwrap_or_else(|error| error)
}

/// Each cookie has a field of its own (RFC 6265, 3).
fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("set-cookie")
}

/// Returns the error of a value of type `T`. If `T` keeps headers, the error gets those that were
/// set on the value, except the content type: the content of the error is rendered.
#[cold]
fn with_kept_headers<T: IntoResponse, N: AsRef<str>, V: AsHeaderValue>(
    error: Error,
    headers: &[(N, V)],
    same_name: SameName,
) -> Error {
    if !T::KEEPS_HEADERS {
        return error;
    }
    let kept = headers.iter().filter(|(name, _)| !is_content_type(name.as_ref()));
    let kept: Vec<_> = kept.map(|(name, value)| (name, value.as_header_value())).collect();
    with_headers(error, &kept, same_name)
}

fn set_headers<N: AsRef<str>, V: AsHeaderValue, const COUNT: usize>(
    mut response: Response,
    headers: [(N, V); COUNT],
) -> Result<Response> {
    for (name, value) in headers {
        let set = if is_cookie(name.as_ref()) {
            response.add_header(name.as_ref(), value).map(drop)
        } else {
            response.set_header(name.as_ref(), value).map(drop)
        };
        set.map_err(|cause| unset(name.as_ref(), cause))?;
    }
    Ok(response)
}

/// Returns the error for a header that cannot be set. It names the header, but does not contain the
/// value, which may be secret.
#[cold]
fn unset(name: &str, cause: InvalidHeader) -> Error {
    Error::internal(UnsetHeader { name: name.to_owned(), cause })
}

#[derive(Debug)]
struct UnsetHeader {
    name: String,
    cause: InvalidHeader,
}

impl fmt::Display for UnsetHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the header {} cannot be set: {}", self.name.escape_debug(), self.cause)
    }
}

impl StdError for UnsetHeader {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.cause)
    }
}

/// Adds the headers, keeping those of the same name, except those that a response has once, such as
/// `content-type` and `location`: they replace that of the value.
impl<T: IntoResponse> IntoResponse for (Headers, T) {
    const SAYS_STATUS: bool = T::SAYS_STATUS;
    const CHECKED: () = T::CHECKED;
    const IS_CONDITIONAL: bool = T::IS_CONDITIONAL;
    const KEEPS_HEADERS: bool = T::KEEPS_HEADERS;

    fn into_response(self) -> Result<Response> {
        let (headers, value) = self;
        match value.into_response() {
            Ok(response) => add_headers(response, &headers),
            Err(error) => {
                let headers: Vec<_> = headers.iter().collect();
                Err(with_kept_headers::<T, _, _>(error, &headers, SameName::Keep))
            }
        }
    }

    fn into_conditional_response(self, conditions: &RequestConditions) -> Result<Response> {
        let (headers, value) = self;
        match value.into_conditional_response(conditions) {
            Ok(response) => add_headers(response, &headers),
            Err(error) => {
                let headers: Vec<_> = headers.iter().collect();
                Err(with_kept_headers::<T, _, _>(error, &headers, SameName::Keep))
            }
        }
    }

    fn into_error(self, status: StatusCode) -> Result<Error, Self> {
        let (headers, value) = self;
        if headers.contains("content-type") {
            return Err((headers, value));
        }
        match value.into_error(status) {
            Ok(error) => {
                let headers: Vec<_> = headers.iter().collect();
                Ok(with_headers(error, &headers, SameName::Keep))
            }
            Err(value) => Err((headers, value)),
        }
    }
}

fn add_headers(mut response: Response, headers: &Headers) -> Result<Response> {
    for (name, value) in headers.iter() {
        let added = if is_single(name) {
            response.set_header(name, value)
        } else {
            response.add_header(name, value)
        };
        added.map(drop).map_err(Error::internal)?;
    }
    Ok(response)
}

impl<H, T> IntoResponse for (StatusCode, H, T)
where
    (H, T): IntoResponse,
{
    const CHECKED: () = <(H, T)>::CHECKED;
    const KEEPS_HEADERS: bool = <(H, T)>::KEEPS_HEADERS;

    fn into_response(self) -> Result<Response> {
        let (status, headers, value) = self;
        (status, (headers, value)).into_response()
    }

    fn into_error_response(self) -> Result<Response> {
        let (status, headers, value) = self;
        (status, (headers, value)).into_error_response()
    }
}
