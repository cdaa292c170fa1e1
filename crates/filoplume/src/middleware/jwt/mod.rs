//! JSON Web Tokens (RFC 7519), checked as RFC 8725 recommends.

mod error;
mod key;
mod provider;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use self::error::JwtError;
pub use self::key::JwtKey;
use filoplume_runtime::{Request, Response};
pub use jsonwebtoken::Algorithm as JwtAlgorithm;
use jsonwebtoken::{Header, Validation, decode, decode_header, encode};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::{Login, RouteOptions};
use crate::extract::{AuthorizationRejection, Bearer, REALM, VerifiedClaims, invalid_token};
use crate::semantics::vary::add_vary;

/// Longest accepted token. Tokens of common issuers are below 4 KiB, and the time for a check grows
/// with the length.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Tolerated difference between clocks.
const LEEWAY: Duration = Duration::from_secs(30);

/// Longest leeway. It is added to and subtracted from times, and there is no time before 1970.
const LEEWAY_MAX: Duration = Duration::from_secs(24 * 3600);

/// Checks JSON Web Tokens as middleware, and issues them. The middleware accepts requests whose
/// `Authorization: Bearer` has a valid token. Handlers take the claims of the token as
/// [`Claims`](crate::extract::Claims).
///
/// ```
/// use filoplume::extract::Claims;
/// use filoplume::middleware::Jwt;
/// use filoplume::prelude::*;
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// #[derive(Deserialize, Serialize)]
/// struct Who {
///     sub: String,
/// }
///
/// let jwt =
///     Jwt::hs256("a secret of 32 random bytes at least")?.issuer("https://auth.example");
/// let app = App::new()
///     .post("/login", |State(jwt): State<Jwt>| {
///         jwt.issue(&Who { sub: "ada".to_owned() }, Duration::from_secs(900))
///     })
///     .nest(
///         "/api",
///         Router::new().get("/me", |Claims(who): Claims<Who>| who.sub).with(jwt.clone()),
///     )
///     .state(jwt);
/// let client = app.test();
/// let token = client.post("/login").send().text().to_owned();
/// client
///     .get("/api/me")
///     .header("authorization", &format!("Bearer {token}"))
///     .send()
///     .assert_text("ada");
/// client.get("/api/me").send().assert_status(401);
/// # Ok::<(), filoplume::Error>(())
/// ```
///
/// These properties are checked: the signature, with the algorithm of the key and never one that
/// the token names; `exp`, which must be there and not have passed; `nbf`; `iss` and `aud`, if they
/// are set here. A token with an audience (`aud`) is not accepted if no audience is set. Refusals
/// follow RFC 6750, 3.1.
#[derive(Clone)]
pub struct Jwt {
    settings: Arc<Settings>,
}

#[derive(Clone)]
struct Settings {
    keys: Vec<JwtKey>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    leeway: Duration,
    needs_expiry: bool,
    is_optional: bool,
    realm: String,
}

impl Jwt {
    /// Returns a `Jwt` with one key, which also signs new tokens if it can.
    pub fn new(key: JwtKey) -> Self {
        provider::install();
        Self {
            settings: Arc::new(Settings {
                keys: vec![key],
                issuers: Vec::new(),
                audiences: Vec::new(),
                leeway: LEEWAY,
                needs_expiry: true,
                is_optional: false,
                realm: REALM.to_owned(),
            }),
        }
    }

    /// Returns a `Jwt` with a secret; see [`JwtKey::hs256`].
    ///
    /// # Errors
    ///
    /// If the secret is too short.
    pub fn hs256(secret: impl AsRef<[u8]>) -> Result<Self> {
        JwtKey::hs256(secret).map(Self::new)
    }

    /// Accepts another key too, such as the previous one. New tokens are signed with the first key
    /// that can sign.
    ///
    /// ```
    /// use filoplume::middleware::{Jwt, JwtKey};
    ///
    /// let (new, old) =
    ///     ("the secret of this year, 32 bytes", "the secret of last year, 32 bytes");
    /// let jwt = Jwt::new(JwtKey::hs256(new)?.id("2026")).key(JwtKey::hs256(old)?.id("2025"));
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    #[must_use]
    pub fn key(self, key: JwtKey) -> Self {
        self.set(|settings| settings.keys.push(key))
    }

    /// Accepts tokens of this issuer (`iss`) only, and sets it in new tokens. Each further call
    /// adds an accepted issuer.
    #[must_use]
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        self.set(|settings| settings.issuers.push(issuer.into()))
    }

    /// Accepts tokens for this audience (`aud`) only, and sets it in new tokens. Each further call
    /// adds an accepted audience.
    ///
    /// ```
    /// use std::time::Duration;
    /// use filoplume::middleware::{Jwt, JwtError};
    /// use serde_json::json;
    ///
    /// let secret = "a secret of 32 random bytes at least";
    /// let mail = Jwt::hs256(secret)?.audience("mail");
    /// let for_mail = mail.issue(&json!({"sub": "ada"}), Duration::from_secs(60))?;
    /// let notes = Jwt::hs256(secret)?.audience("notes");
    /// assert_eq!(notes.verify(&for_mail), Err(JwtError::Audience));
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    #[must_use]
    pub fn audience(self, audience: impl Into<String>) -> Self {
        self.set(|settings| settings.audiences.push(audience.into()))
    }

    /// Sets the tolerated difference between clocks, up to a day. Default: 30 seconds.
    #[must_use]
    pub fn leeway(self, leeway: Duration) -> Self {
        self.set(|settings| settings.leeway = leeway.min(LEEWAY_MAX))
    }

    /// Accepts tokens without `exp`, which are valid as long as their key.
    #[must_use]
    pub fn allow_without_expiry(self) -> Self {
        self.set(|settings| settings.needs_expiry = false)
    }

    /// Accepts requests without `Authorization`. Invalid tokens are still refused. Handlers take
    /// `Option<Claims<T>>`. Responses have `Vary: Authorization`, so that a cache gives those to
    /// strangers to nobody else.
    ///
    /// ```
    /// use filoplume::extract::Claims;
    /// use filoplume::middleware::Jwt;
    /// use filoplume::prelude::*;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Who {
    ///     sub: String,
    /// }
    ///
    /// let app = App::new()
    ///     .get("/", |who: Option<Claims<Who>>| {
    ///         who.map_or("a guest".to_owned(), |Claims(who)| who.sub)
    ///     })
    ///     .with(Jwt::hs256("a secret of 32 random bytes at least")?.optional());
    /// let client = app.test();
    /// client.get("/").send().assert_text("a guest");
    /// client.get("/").bearer("made.up.token").send().assert_status(401);
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    #[must_use]
    pub fn optional(self) -> Self {
        self.set(|settings| settings.is_optional = true)
    }

    /// Sets the name of the protected area, for the challenge. Default: `protected`.
    #[must_use]
    pub fn realm(self, realm: impl Into<String>) -> Self {
        self.set(|settings| settings.realm = realm.into())
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Issues a token with these claims that is valid for `lifetime`. Unless `claims` has them,
    /// `iat` and `exp` are set, and also `iss` and `aud` if they are checked here.
    ///
    /// ```
    /// use std::time::Duration;
    /// use filoplume::middleware::Jwt;
    /// use serde_json::json;
    ///
    /// let jwt = Jwt::hs256("a secret of 32 random bytes at least")?;
    /// let jwt = jwt.issuer("https://auth.example");
    /// let token = jwt.issue(&json!({"sub": "ada"}), Duration::from_secs(900))?;
    /// assert_eq!(jwt.verify(&token)?["iss"], "https://auth.example");
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If no key can sign, if the claims are not a JSON object, or if the lifetime is shorter than
    /// a second and the claims have no `exp`.
    pub fn issue(&self, claims: &impl Serialize, lifetime: Duration) -> Result<String> {
        let settings = &*self.settings;
        let Some((key, signs)) =
            settings.keys.iter().find_map(|key| Some((key, key.signs.as_ref()?)))
        else {
            return Err(Error::internal("no key of this `Jwt` can sign: they are public keys"));
        };
        let Value::Object(mut claims) = serde_json::to_value(claims)? else {
            return Err(Error::internal("the claims of a token must be a struct or a map"));
        };
        if lifetime.as_secs() == 0 && !claims.contains_key("exp") {
            return Err(Error::internal(format!(
                "a token cannot be issued for {lifetime:?}: it would expire at once"
            )));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut set = |name: &str, value: Value| {
            claims.entry(name).or_insert(value);
        };
        set("iat", now.as_secs().into());
        set("exp", now.saturating_add(lifetime).as_secs().into());
        if let Some(issuer) = settings.issuers.first() {
            set("iss", issuer.as_str().into());
        }
        if let Some(audience) = settings.audiences.first() {
            set("aud", audience.as_str().into());
        }
        let mut header = Header::new(key.algorithm);
        header.kid.clone_from(&key.id);
        Ok(encode(&header, &claims, signs)?)
    }

    /// Returns the claims of a token if it is valid. For tokens that are not sent in
    /// `Authorization`. With `?`, a handler answers `401`, as the middleware does. If the token is
    /// no login, such as that of a link in a mail, choose another status with `map_err`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use filoplume::middleware::Jwt;
    /// use filoplume::prelude::*;
    /// use serde_json::json;
    ///
    /// let links = Jwt::hs256("a secret of 32 random bytes at least")?.audience("confirm-address");
    /// let day = Duration::from_secs(86_400);
    /// let link = links.issue(&json!({"address": "ada@example.org"}), day)?;
    /// assert_eq!(links.verify(&link)?["address"], "ada@example.org");
    ///
    /// let refused = links.verify("made up").map_err(|error| {
    ///     Error::new(StatusCode::GONE, "the link is not valid any more").with_source(error)
    /// });
    /// assert_eq!(refused.unwrap_err().status(), 410);
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the token is not valid.
    pub fn verify(&self, token: &str) -> Result<Map<String, Value>, JwtError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtError::Malformed);
        }
        let header = decode_header(token).map_err(|_| JwtError::Malformed)?;
        // RFC 7515, 4.1.11: a token with a critical extension that is not understood must be
        // refused. This implementation understands none.
        if header.crit.is_some() {
            return Err(JwtError::Malformed);
        }
        let key = self.key_for(header.kid.as_deref()).ok_or(JwtError::UnknownKey)?;
        let decoded =
            decode::<Map<String, Value>>(token, &key.verifies, &self.validation(key.algorithm));
        let claims = decoded.map_err(|error| JwtError::of(error.kind()))?.claims;
        // The crate ignores an `aud` that is neither a string nor a list of strings.
        let names_audience = claims.get("aud").is_some_and(|audience| !audience.is_null());
        if names_audience && self.settings.audiences.is_empty() {
            return Err(JwtError::Audience);
        }
        Ok(claims)
    }

    /// Returns the key for a token. If keys have names, a token that names its key is checked with
    /// that key only. Any other token is checked with the only key, or with the only key without a
    /// name.
    fn key_for(&self, id: Option<&str>) -> Option<&JwtKey> {
        let keys = &self.settings.keys;
        match (id, &keys[..]) {
            (Some(id), _) if keys.iter().any(|key| key.id.is_some()) => {
                keys.iter().find(|key| key.id.as_deref() == Some(id))
            }
            (_, [only]) => Some(only),
            _ => {
                let mut unnamed = keys.iter().filter(|key| key.id.is_none());
                unnamed.next().filter(|_| unnamed.next().is_none())
            }
        }
    }

    fn validation(&self, algorithm: JwtAlgorithm) -> Validation {
        let settings = &*self.settings;
        let mut validation = Validation::new(algorithm);
        validation.leeway = settings.leeway.as_secs();
        validation.validate_nbf = true;
        let mut required = Vec::new();
        if settings.needs_expiry {
            required.push("exp");
        }
        if !settings.issuers.is_empty() {
            validation.set_issuer(&settings.issuers);
            required.push("iss");
        }
        if !settings.audiences.is_empty() {
            validation.set_audience(&settings.audiences);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        validation
    }
}

impl Jwt {
    /// Runs the rest of the chain. If a token is optional, a cache must not give the response to a
    /// stranger to a user.
    fn run(&self, request: Request, next: Next<'_>) -> Response {
        let mut response = next.run(request);
        if self.settings.is_optional {
            add_vary(response.headers_mut(), "Authorization");
        }
        response
    }
}

impl Middleware for Jwt {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let realm = &self.settings.realm;
        let Bearer(token) = match Bearer::of(&request) {
            Ok(token) => token,
            Err(AuthorizationRejection::Missing { .. })
                if self.settings.is_optional && request.header("authorization").is_none() =>
            {
                return Ok(self.run(request, next));
            }
            Err(rejection) => return Err(rejection.describe_for(realm).with_source(rejection)),
        };
        match self.verify(&token) {
            Ok(claims) => {
                request.extensions_mut().insert(VerifiedClaims(Arc::new(Value::Object(claims))));
                Ok(self.run(request, next))
            }
            Err(error) => {
                Err(invalid_token(realm, "the token is not valid", Some(error.description()))
                    .with_source(error))
            }
        }
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.provide::<VerifiedClaims>();
        if !self.settings.is_optional {
            options.require_login(Login { name: "Jwt", is_by_script: true });
        }
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        f.debug_struct("Jwt")
            .field("keys", &settings.keys)
            .field("issuers", &settings.issuers)
            .field("audiences", &settings.audiences)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
