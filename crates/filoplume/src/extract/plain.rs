//! Extractors that return parts of the request without parsing them.

use std::any::Any;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;

use filoplume_runtime::{Body, Headers, Method, Peer, Request, Version};

use super::content::check_content;
use super::{ContentRejection, ExtractOptional, FromRequest, Rejection, Takes};
use crate::core::context::Context;
use crate::core::error::Error;
use crate::core::names::type_name_of;
use crate::core::options::RouteOptions;

/// Extracts the whole request. It must be the last parameter, because nothing is left after it. Its
/// content may be coded: see the header `Content-Encoding`.
impl FromRequest for Request {
    const TAKES: Takes = Takes::Request;
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(request.take())
    }
}

/// Extracts the content as a reader. If the content is long, the handler runs before all of it has
/// arrived, in constant memory. It rejects coded content as [`Bytes`](bytes::Bytes) does.
impl FromRequest for Body {
    const TAKES: Takes = Takes::Stream;
    type Rejection = ContentRejection;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, ContentRejection> {
        check_content(request)?;
        Ok(std::mem::take(request.body_mut()))
    }
}

/// Extracts the method.
impl FromRequest for Method {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(request.method().clone())
    }
}

/// Extracts the version of HTTP.
impl FromRequest for Version {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(request.version())
    }
}

/// Extracts the headers.
impl FromRequest for Headers {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(request.headers().clone())
    }
}

/// Extracts the peer of the connection. Behind a proxy it is the proxy: see
/// [`ClientAddr`](crate::ClientAddr).
impl FromRequest for Peer {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(request.peer())
    }
}

/// Extracts the request target: path and query, still percent-encoded (RFC 9112, 3.2).
///
/// ```
/// use filoplume::extract::Target;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/{*path}", |Target(target): Target| target);
/// app.test().get("/caf%C3%A9?q=a+b").send().assert_text("/caf%C3%A9?q=a+b");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(pub String);

impl FromRequest for Target {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(Self(request.target().to_owned()))
    }
}

/// Extracts the query without the `?`, still percent-encoded. It is empty if there is none.
///
/// ```
/// use filoplume::extract::RawQuery;
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |RawQuery(query): RawQuery| Redirect::to(format!("/search?{query}")));
/// app.test().get("/?q=a%26b").send().assert_header("location", "/search?q=a%26b");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawQuery(pub String);

impl FromRequest for RawQuery {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(Self(request.query().unwrap_or_default().to_owned()))
    }
}

/// Extracts a value that middleware added to the request with [`Request::extensions_mut`].
///
/// An app does not start if no middleware of the route can have added the value. Closures can add
/// any value, other middleware only the values that it [declares](RouteOptions::provide). As
/// `Option<Extension<T>>` the value may be missing.
///
/// ```
/// use filoplume::prelude::*;
///
/// #[derive(Clone)]
/// struct User(String);
///
/// let app = App::new()
///     .get("/", |Extension(User(name)): Extension<User>| format!("hello {name}"))
///     .with(|mut request: Request, next: Next| {
///         request.extensions_mut().insert(User("ada".to_owned()));
///         next.run(request)
///     });
/// app.test().get("/").send().assert_text("hello ada");
/// ```
#[doc(alias("locals", "g"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Extension<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromRequest for Extension<T> {
    type Rejection = ExtensionRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, ExtensionRejection> {
        extension(request, context).map(Self).ok_or_else(ExtensionRejection::of::<T>)
    }

    fn configure(options: &mut RouteOptions) {
        options.require_extension::<T>();
    }
}

/// Returns `None` if no middleware added a value of the type.
impl<T: Clone + Send + Sync + 'static> ExtractOptional for Extension<T> {
    fn extract_optional(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Option<Self>, ExtensionRejection> {
        Ok(extension(request, context).map(Self))
    }
}

/// Returns a value that middleware added to the request. The ID of the request is not an extension:
/// the context has it.
fn extension<T: Clone + Send + Sync + 'static>(
    request: &Request,
    context: &Context<'_>,
) -> Option<T> {
    let id = || context.request_id().and_then(|id| (id as &dyn Any).downcast_ref());
    request.extensions().get::<T>().or_else(id).cloned()
}

/// The error if no middleware added a value of the type, which is a bug in the program.
///
/// ```
/// use filoplume::extract::ExtensionRejection;
/// use filoplume::prelude::*;
///
/// #[derive(Clone)]
/// struct User(String);
///
/// let app =
///     App::new().get(
///         "/",
///         |user: Result<Extension<User>, ExtensionRejection>| match user {
///             Ok(Extension(User(name))) => Ok(name),
///             Err(rejection) => {
///                 Err(Error::unauthorized("who are you?").with_source(rejection))
///             }
///         },
///     );
/// app.test().get("/").send().assert_status(401);
/// ```
#[derive(Clone, Debug)]
pub struct ExtensionRejection {
    type_name: String,
}

impl ExtensionRejection {
    pub(crate) fn of<T>() -> Self {
        Self { type_name: type_name_of::<T>() }
    }
}

impl fmt::Display for ExtensionRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.type_name;
        write!(
            f,
            "no middleware of this route added a `{name}` to the request with \
             `request.extensions_mut().insert(..)`"
        )
    }
}

impl StdError for ExtensionRejection {}

impl Rejection for ExtensionRejection {
    fn describe(&self) -> Error {
        Error::from_status(http::StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// All headers, as a map of the `http` crate.
///
/// ```
/// use filoplume::extract::HeaderMap;
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |headers: HeaderMap| headers.get_all("x-tag").iter().count().to_string());
/// app.test().get("/").header("x-tag", "a").header("x-tag", "b").send().assert_text("2");
/// ```
pub type HeaderMap = http::HeaderMap;

impl FromRequest for HeaderMap {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(Self::from(request.headers()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_without_a_query_has_an_empty_one() {
        let client = crate::App::new().get("/", |RawQuery(query): RawQuery| query).test();
        for (target, expected) in [("/", ""), ("/?", ""), ("/?a=%20b&", "a=%20b&")] {
            client.get(target).send().assert_text(expected);
        }
    }
}
