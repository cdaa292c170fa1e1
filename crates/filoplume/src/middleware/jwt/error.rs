//! Why a token is not valid.

use std::error::Error as StdError;
use std::fmt;

use filoplume_runtime::Response;
use jsonwebtoken::errors::ErrorKind;

use crate::core::error::Result;
use crate::core::response::IntoResponse;
use crate::extract::{REALM, invalid_token};

/// Why a token is not valid.
///
/// ```
/// use filoplume::middleware::{Jwt, JwtError};
///
/// let jwt = Jwt::hs256("a secret of 32 random bytes at least")?;
/// let message = match jwt.verify("made up") {
///     Ok(claims) => format!("welcome, {}", claims["sub"]),
///     Err(JwtError::Expired) => "log in again".to_owned(),
///     Err(error) => error.to_string(),
/// };
/// assert_eq!(message, "the token is malformed");
/// # Ok::<(), filoplume::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JwtError {
    /// It is not a token, is longer than 8 KiB, or has critical extensions (`crit`).
    Malformed,
    /// It names an unknown key, or names none although there are several.
    UnknownKey,
    /// Its algorithm is not that of its key.
    Algorithm,
    /// The signature is wrong.
    Signature,
    /// `exp` has passed.
    Expired,
    /// `nbf` has not come yet.
    NotYetValid,
    /// `iss` is not an accepted issuer.
    Issuer,
    /// `aud` is not an accepted audience, or is present although no audience is set.
    Audience,
    /// This claim is missing or malformed.
    Claim(String),
}

impl JwtError {
    pub(super) fn of(kind: &ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::InvalidAlgorithm
            | ErrorKind::InvalidAlgorithmName
            | ErrorKind::MissingAlgorithm => Self::Algorithm,
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYetValid,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => {
                Self::Claim(claim.clone())
            }
            _ => Self::Malformed,
        }
    }

    /// Returns the description for the client, which names only problems that the client can solve.
    pub(super) fn description(&self) -> &'static str {
        match self {
            Self::Expired => "the token has expired",
            Self::NotYetValid => "the token is not valid yet",
            Self::Audience => "the token is for another audience",
            Self::Issuer => "the token is from another issuer",
            Self::Claim(_) => "the token lacks a claim",
            Self::Malformed | Self::UnknownKey | Self::Algorithm | Self::Signature => {
                "the token is not valid"
            }
        }
    }
}

impl fmt::Display for JwtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the token is malformed"),
            Self::UnknownKey => f.write_str("the token is signed with a key that is not known"),
            Self::Algorithm => f.write_str("the token names another algorithm than its key is for"),
            Self::Signature => f.write_str("the signature of the token is wrong"),
            Self::Claim(claim) => {
                write!(f, "the claim `{claim}` of the token is missing or malformed")
            }
            Self::Expired | Self::NotYetValid | Self::Issuer | Self::Audience => {
                f.write_str(self.description())
            }
        }
    }
}

impl StdError for JwtError {}

/// Becomes the `401` of [`Jwt`](super::Jwt), whose `www-authenticate` says what is wrong. The log
/// has the whole reason.
impl IntoResponse for JwtError {
    fn into_response(self) -> Result<Response> {
        let description = Some(self.description());
        Err(invalid_token(REALM, "the token is not valid", description).with_source(self))
    }
}
