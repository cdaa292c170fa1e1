//! Conditions of requests as a parameter of handlers, and the errors for conditions that fail.

use std::convert::Infallible;

use filoplume_runtime::{Request, StatusCode};

use super::context::Context;
use super::error::{Error, Result};
use super::extract::FromRequest;
use crate::semantics::conditional::{Conditions, RequestConditions, Validators, Verdict};

/// Extracts the conditions, for handlers that check them before they change something.
impl FromRequest for RequestConditions {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(Self::of(request))
    }
}

impl RequestConditions {
    /// Returns `Ok` if a handler may change the content, and the error response otherwise. Call it
    /// before the change. `current` has the validators of the content as it is now, `None` if it
    /// does not exist.
    ///
    /// A request without conditions may proceed. To insist on `If-Match`, look for it in
    /// [`headers`](Self::headers).
    ///
    /// ```
    /// use filoplume::conditional::{EntityTag, RequestConditions, Validators};
    /// use filoplume::prelude::*;
    ///
    /// fn rename(conditions: RequestConditions) -> Result<&'static str> {
    ///     let current = Validators::new().etag(EntityTag::strong("v7"));
    ///     conditions.check(Some(&current))?;
    ///     Ok("renamed")
    /// }
    ///
    /// let client = App::new().put("/name", rename).test();
    /// client.put("/name").header("if-match", "\"v7\"").send().assert_text("renamed");
    /// client.put("/name").header("if-match", "\"v6\"").send().assert_status(412);
    /// ```
    ///
    /// # Errors
    ///
    /// `412` if a condition is not met, `400` if one is malformed.
    #[doc(alias("If-Match", "precondition"))]
    pub fn check(&self, current: Option<&Validators>) -> Result<()> {
        Conditions::of(self.headers()).evaluate(self.method(), current).ok()
    }
}

impl Verdict {
    /// Returns `Ok` if the request may proceed, and the error response otherwise.
    ///
    /// # Errors
    ///
    /// `412` for [`Failed`](Self::Failed), `400` for [`Malformed`](Self::Malformed).
    pub fn ok(self) -> Result<()> {
        match self {
            Self::Proceed | Self::NotModified => Ok(()),
            Self::Failed => Err(Error::new(
                StatusCode::PRECONDITION_FAILED,
                "the current content does not meet the condition",
            )),
            Self::Malformed => Err(Error::bad_request(
                "`If-Match` or `If-None-Match` is not a list of entity tags",
            )),
        }
    }
}
