//! Cookies as a handler parameter, and the middleware that it implies.

use std::error::Error as StdError;
use std::fmt;

use filoplume_runtime::{Request, Response, StatusCode};

use super::Cookies;
use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::extract::{FromRequest, Rejection};
use crate::core::middleware::{Middleware, Next, is_panic};
use crate::core::options::RouteOptions;

impl FromRequest for Cookies {
    type Rejection = CookiesRejection;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, CookiesRejection> {
        request.extensions().get::<Self>().cloned().ok_or(CookiesRejection { _private: () })
    }

    fn configure(options: &mut RouteOptions) {
        options.imply::<SendCookies>();
    }
}

/// The error if an extractor uses [`Cookies`] but does not call its [`FromRequest::configure`]. The
/// changes of such cookies would not be sent.
///
/// ```
/// use filoplume::extract::CookiesRejection;
/// use filoplume::prelude::*;
/// use filoplume::routing::RouteOptions;
/// use filoplume::{Context, FromRequest};
///
/// /// The theme that somebody has chosen.
/// struct Theme(String);
///
/// impl FromRequest for Theme {
///     type Rejection = CookiesRejection;
///
///     fn from_request(
///         request: &mut Request,
///         context: &Context<'_>,
///     ) -> Result<Self, CookiesRejection> {
///         let cookies = Cookies::from_request(request, context)?;
///         Ok(Self(cookies.get("theme").unwrap_or("light".to_owned())))
///     }
///
///     fn configure(options: &mut RouteOptions) {
///         Cookies::configure(options);
///     }
/// }
///
/// App::new()
///     .get("/", |Theme(theme): Theme| theme)
///     .test()
///     .get("/")
///     .send()
///     .assert_text("light");
/// ```
#[derive(Clone, Debug)]
pub struct CookiesRejection {
    _private: (),
}

impl fmt::Display for CookiesRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an extractor uses `Cookies` without declaring it: call `Cookies::configure(options)` \
             in its `configure`, or use the read-only `Cookies::of(request)`",
        )
    }
}

impl StdError for CookiesRejection {}

impl Rejection for CookiesRejection {
    fn describe(&self) -> Error {
        Error::from_status(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Sends the changes that a handler made. It wraps handlers that take [`Cookies`].
#[derive(Default)]
struct SendCookies;

impl Middleware for SendCookies {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let cookies = Cookies::of(&request);
        let context = next.context();
        request.extensions_mut().insert(cookies.clone());
        let mut response = next.run(request);
        if !is_panic(&response) {
            cookies.write_to(&mut response, &context)?;
        }
        Ok(response)
    }
}
