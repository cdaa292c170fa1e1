//! The CSRF token of a session, as forms and scripts send it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use filoplume_runtime::Request;
use serde::ser::{Serialize, Serializer};
use subtle::ConstantTimeEq;

use super::FIELD;
use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::extract::FromRequest;
use crate::core::options::RouteOptions;
use crate::session::{Session, random_token};

/// Length in bytes of a session's secret, and of the pad that masks it.
const SECRET_BYTES: usize = 32;

/// The token of the session, for its forms and scripts. Taking it does not start a session: a
/// browser without one gets a cookie, see [`Csrf`](super::Csrf).
///
/// It is displayed and serialized as the token. [`field`](Self::field) returns the whole hidden
/// field. The token looks different each time, so that the size of compressed pages reveals
/// nothing. All of these texts are valid.
///
/// ```
/// use filoplume::middleware::CsrfToken;
/// use filoplume::prelude::*;
///
/// fn page(token: CsrfToken) -> Html<String> {
///     Html(format!(
///         r#"<meta name="csrf" content="{token}"><form method="post">{}</form>"#,
///         token.field()
///     ))
/// }
/// ```
#[derive(Clone)]
pub struct CsrfToken(String);

impl CsrfToken {
    /// Returns the token of a session.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::middleware::{CsrfToken, Sessions};
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", |session: Session| {
    ///         CsrfToken::of(&session).map(|token| Html(token.field()))
    ///     })
    ///     .with(Sessions::in_cookie(Key::generate()));
    /// app.test().get("/").send().assert_contains(r#"<input type="hidden" name="_csrf""#);
    /// ```
    ///
    /// # Errors
    ///
    /// If the response has already been made.
    pub fn of(session: &Session) -> Result<Self> {
        let secret = session.csrf_secret_or_new()?;
        let pad = random_token()?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(Error::internal);
        Ok(Self(masked(&decode(&secret)?, &decode(&pad)?)))
    }

    /// Returns the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a hidden field, `<input type="hidden" name="_csrf" value="..">`. In a template:
    /// `{{ field|safe }}`.
    pub fn field(&self) -> String {
        format!("<input type=\"hidden\" name=\"{FIELD}\" value=\"{}\">", self.0)
    }
}

impl fmt::Display for CsrfToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CsrfToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CsrfToken(..)")
    }
}

impl Serialize for CsrfToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl FromRequest for CsrfToken {
    type Rejection = Error;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self> {
        Self::of(&Session::from_request(request, context)?)
    }

    fn configure(options: &mut RouteOptions) {
        Session::configure(options);
        options.require::<Self>(
            "it takes a `CsrfToken`, but nothing checks tokens: add `.with(Csrf::new())` after \
             `.with(Sessions::new(store, key))`, around this route and those that the form is \
             sent to",
        );
    }
}

/// Returns the pad, followed by the masked secret.
fn masked(secret: &[u8], pad: &[u8]) -> String {
    let under = secret.iter().zip(pad).map(|(secret, pad)| secret ^ pad);
    URL_SAFE_NO_PAD.encode(pad.iter().copied().chain(under).collect::<Vec<_>>())
}

/// Returns whether a token was made from this secret.
pub(super) fn is_token_of(token: &str, secret: &str) -> bool {
    let (Ok(token), Ok(secret)) = (URL_SAFE_NO_PAD.decode(token), URL_SAFE_NO_PAD.decode(secret))
    else {
        return false;
    };
    let Some((pad, under)) = token.split_at_checked(SECRET_BYTES) else { return false };
    let given: Vec<u8> = pad.iter().zip(under).map(|(pad, under)| pad ^ under).collect();
    under.len() == SECRET_BYTES && bool::from(given.ct_eq(&secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_of_the_secret_are_valid() {
        let (secret, other) =
            (random_token().expect("there is randomness"), random_token().expect("there is"));
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).expect("it is base64");
        let token = masked(&bytes(&secret), &[7; 32]);
        assert!(is_token_of(&token, &secret));
        assert!(is_token_of(&masked(&bytes(&secret), &[8; 32]), &secret));
        assert!(!is_token_of(&token, &other));
        for wrong in ["", "AAAA", &token[..token.len() - 2], &secret, "!", &format!("{token}AA")] {
            assert!(!is_token_of(wrong, &secret), "{wrong}");
        }
        assert!(!is_token_of(&masked(&[], &[0; 32]), ""), "an empty secret has no tokens");
    }
}
