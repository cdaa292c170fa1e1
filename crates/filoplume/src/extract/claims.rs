//! The claims of a JSON Web Token, as a handler parameter.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use filoplume_runtime::Request;
use serde::de::DeserializeOwned;

use super::{
    AuthorizationRejection, ExtractOptional, FromRequest, REALM, Rejection, Scheme, invalid_token,
};
use crate::core::context::Context;
use crate::core::error::Error;
use crate::core::options::RouteOptions;
use crate::log::{Throttle, log_without_subscriber};

/// Extracts the claims of a valid token, deserialized as a `T`. [`Jwt`](crate::middleware::Jwt)
/// verifies the token. An app with a handler that extracts claims without that middleware does not
/// start.
///
/// It rejects tokens without the claims that `T` requires with `401`. If the token is
/// [optional](crate::middleware::Jwt::optional), a missing one is rejected too, unless the
/// parameter is an `Option<Claims<T>>`. `T` needs fields only for the claims that the handler uses.
///
/// ```
/// use std::time::Duration;
/// use filoplume::extract::Claims;
/// use filoplume::middleware::Jwt;
/// use filoplume::prelude::*;
/// use serde::Deserialize;
/// use serde_json::json;
///
/// #[derive(Deserialize)]
/// struct Who { sub: String, admin: bool }
///
/// let jwt = Jwt::hs256("a secret of 32 random bytes at least")?;
/// let token = jwt.issue(&json!({"sub": "ada", "admin": true}), Duration::from_secs(60))?;
/// let app = App::new()
///     .get("/", |Claims(who): Claims<Who>| format!("{}, {}", who.sub, who.admin))
///     .with(jwt);
/// app.test().get("/").bearer(&token).send().assert_text("ada, true");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims<T>(pub T);

/// The claims of a valid token, which the middleware adds to the request.
#[derive(Clone)]
pub(crate) struct VerifiedClaims(pub(crate) Arc<serde_json::Value>);

impl<T: DeserializeOwned> FromRequest for Claims<T> {
    type Rejection = ClaimsRejection;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, ClaimsRejection> {
        let VerifiedClaims(claims) = request.extensions().get().ok_or(ClaimsRejection::NoToken)?;
        serde_path_to_error::deserialize(&**claims).map(Self).map_err(|error| {
            ClaimsRejection::Data {
                claim: error.path().to_string(),
                source: Arc::new(error.into_inner()),
            }
        })
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<VerifiedClaims>(
            "it takes `Claims<..>`, but no middleware verifies tokens: add `.with(Jwt::..)`",
        );
    }
}

impl<T: DeserializeOwned> ExtractOptional for Claims<T> {
    fn extract_optional(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Option<Self>, ClaimsRejection> {
        match request.extensions().get::<VerifiedClaims>() {
            Some(_) => Self::from_request(request, context).map(Some),
            None => Ok(None),
        }
    }
}

impl<T> Deref for Claims<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The error if [`Claims`] cannot be extracted.
///
/// ```
/// use std::time::Duration;
/// use filoplume::extract::{Claims, ClaimsRejection};
/// use filoplume::middleware::Jwt;
/// use filoplume::prelude::*;
///
/// #[derive(serde::Deserialize)]
/// struct Who { sub: String }
///
/// fn me(claims: Result<Claims<Who>, ClaimsRejection>) -> String {
///     match claims {
///         Ok(Claims(who)) => who.sub,
///         Err(ClaimsRejection::Data { claim, .. }) => {
///             format!("an old token, whose `{claim}` is wrong")
///         }
///         Err(rejection) => rejection.to_string(),
///     }
/// }
///
/// let jwt = Jwt::hs256("a secret of 32 random bytes at least")?;
/// let token = jwt.issue(&serde_json::json!({"sub": 17}), Duration::from_secs(60))?;
/// let app = App::new().get("/me", me).with(jwt);
/// app.test().get("/me").bearer(&token).send().assert_text("an old token, whose `sub` is wrong");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClaimsRejection {
    /// The request has no token.
    NoToken,
    /// The claims do not match the type.
    Data {
        /// The name of the claim; `.` for all.
        claim: String,
        /// What is wrong with it.
        source: Arc<serde_json::Error>,
    },
}

impl fmt::Display for ClaimsRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoToken => f.write_str("a token is missing: send `authorization: Bearer ..`"),
            Self::Data { claim, source } if claim == "." => {
                write!(f, "the claims of the token are not as expected: {source}")
            }
            Self::Data { claim, source } => {
                write!(f, "the claim `{claim}` of the token is not as expected: {source}")
            }
        }
    }
}

impl StdError for ClaimsRejection {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::NoToken => None,
            Self::Data { source, .. } => Some(&**source),
        }
    }
}

impl Rejection for ClaimsRejection {
    fn describe(&self) -> Error {
        match self {
            Self::NoToken => {
                AuthorizationRejection::Missing { scheme: Scheme::Bearer }.describe_for(REALM)
            }
            Self::Data { claim, source } => {
                log_mismatch(claim, &source.to_string());
                invalid_token(
                    REALM,
                    "the token is not valid",
                    Some("the token's claims are not the expected ones"),
                )
            }
        }
    }
}

/// Logs that the claims of a valid token do not fit the type. The program or an issuer that it
/// trusts has issued the token, so the type is wrong or the token is old. The line is throttled,
/// because a client can cause it again and again.
#[cold]
fn log_mismatch(claim: &str, message: &str) {
    static LOG: Throttle = Throttle::new();
    let Some(left_out) = LOG.admit() else { return };
    let reason = without_values(message);
    tracing::warn!(
        claim,
        reason,
        left_out = left_out.field(),
        "a valid token is refused: its claims do not fit the type of `Claims`"
    );
    log_without_subscriber(&format!(
        "a valid token is refused: its claims do not fit the type of `Claims`: \
         claim {claim:?}: {reason}{left_out}"
    ));
}

/// Returns the part of a message of serde that comes from the type. The rest may quote the token,
/// which is not for the log.
fn without_values(message: &str) -> &str {
    if message.starts_with("missing field `") {
        return message;
    }
    // Other messages are written by the program, and may have values anywhere.
    const OF_SERDE: [&str; 5] = [
        "invalid type: ",
        "invalid value: ",
        "invalid length ",
        "unknown variant ",
        "unknown field ",
    ];
    let is_of_serde = OF_SERDE.iter().any(|beginning| message.starts_with(beginning));
    let at = message.rfind(", expected ").filter(|_| is_of_serde);
    let expected = at.map_or("", |at| &message[at + 2..]);
    if expected.is_empty() { "it is refused" } else { expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_no_value_of_the_token() {
        for (message, expected) in [
            ("missing field `admin`", "missing field `admin`"),
            ("invalid type: string \"s, expected x\", expected u64", "expected u64"),
            ("unknown variant `s`, expected `a` or `b`", "expected `a` or `b`"),
            ("`s` is no date", "it is refused"),
            ("bad role, expected admin or user, got s", "it is refused"),
        ] {
            assert_eq!(without_values(message), expected, "{message}");
        }
    }

    #[test]
    fn a_rejection_names_the_claim_unless_it_is_about_all_of_them() {
        let of = |claim: &str| {
            let (claim, source) = (claim.to_owned(), Arc::new(serde::de::Error::custom("no")));
            ClaimsRejection::Data { claim, source }.to_string()
        };
        assert_eq!(of("."), "the claims of the token are not as expected: no");
        assert_eq!(of("admin"), "the claim `admin` of the token is not as expected: no");
    }
    #[test]
    fn a_request_without_a_token_has_no_claims() {
        let jwt = crate::middleware::Jwt::hs256([7; 32]).expect("it is long enough").optional();
        let handler = |claims: Option<Claims<serde_json::Value>>| claims.is_some().to_string();
        let client = crate::App::new().get("/", handler).with(jwt).test();
        client.get("/").send().assert_text("false");
    }
}
