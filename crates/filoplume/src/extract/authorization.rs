//! Credentials in `Authorization`: user and password (RFC 7617), or a bearer token (RFC 6750).

use std::error::Error as StdError;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use filoplume_runtime::{Request, StatusCode};

use super::{ExtractOptional, FromRequest, Rejection};
use crate::core::context::Context;
use crate::core::error::Error;

/// Extracts the user and password that the client sent (RFC 7617), without checking them. To check
/// them, use [`BasicAuth`](crate::middleware::BasicAuth).
///
/// ```
/// use filoplume::extract::Basic;
/// use filoplume::prelude::*;
///
/// let app =
///     App::new().get("/", |basic: Basic| format!("you say that you are {}", basic.user));
/// let client = app.test();
/// client
///     .get("/")
///     .header("authorization", "Basic YWRhOnNlc2FtZQ==")
///     .send()
///     .assert_text("you say that you are ada");
/// client.get("/").send().assert_status(401);
/// ```
///
/// It rejects other requests with `401` and a challenge.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Basic {
    /// The name of the user. It contains no colon.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Basic {
    pub(crate) fn of(request: &Request) -> Result<Self, AuthorizationRejection> {
        let encoded = credentials(request, Scheme::Basic)?;
        let malformed = AuthorizationRejection::Malformed { scheme: Scheme::Basic };
        let decoded = STANDARD.decode(encoded).map_err(|_| malformed.clone())?;
        let decoded = String::from_utf8(decoded).map_err(|_| malformed.clone())?;
        // RFC 7617, 2: the user ends at the first colon, and neither part contains control
        // characters.
        if decoded.contains(char::is_control) {
            return Err(malformed);
        }
        let (user, password) = decoded.split_once(':').ok_or(malformed)?;
        Ok(Self { user: user.to_owned(), password: password.to_owned() })
    }
}

impl FromRequest for Basic {
    type Rejection = AuthorizationRejection;

    fn from_request(
        request: &mut Request,
        _: &Context<'_>,
    ) -> Result<Self, AuthorizationRejection> {
        Self::of(request)
    }
}

impl ExtractOptional for Basic {
    fn extract_optional(
        request: &mut Request,
        _: &Context<'_>,
    ) -> Result<Option<Self>, AuthorizationRejection> {
        unless_missing(Self::of(request))
    }
}

impl fmt::Debug for Basic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Basic").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Extracts the token that the client sent (RFC 6750, 2.1), without checking it. To check it, use
/// [`BearerAuth`](crate::middleware::BearerAuth).
///
/// ```
/// use filoplume::extract::Bearer;
/// use filoplume::prelude::*;
///
/// let app =
///     App::new().get("/", |Bearer(token): Bearer| format!("{} characters", token.len()));
/// app.test()
///     .get("/")
///     .header("authorization", "Bearer abc.def")
///     .send()
///     .assert_text("7 characters");
/// ```
///
/// It rejects a missing token with `401` and a malformed one with `400` (RFC 6750, 3.1), with a
/// challenge.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer(pub String);

impl Bearer {
    pub(crate) fn of(request: &Request) -> Result<Self, AuthorizationRejection> {
        let token = credentials(request, Scheme::Bearer)?;
        // RFC 6750, 2.1: `b64token`.
        let body = token.trim_end_matches('=');
        if body.is_empty()
            || !body.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte))
        {
            return Err(AuthorizationRejection::Malformed { scheme: Scheme::Bearer });
        }
        Ok(Self(token.to_owned()))
    }
}

impl FromRequest for Bearer {
    type Rejection = AuthorizationRejection;

    fn from_request(
        request: &mut Request,
        _: &Context<'_>,
    ) -> Result<Self, AuthorizationRejection> {
        Self::of(request)
    }
}

impl ExtractOptional for Bearer {
    fn extract_optional(
        request: &mut Request,
        _: &Context<'_>,
    ) -> Result<Option<Self>, AuthorizationRejection> {
        unless_missing(Self::of(request))
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(..)")
    }
}

/// An authentication scheme.
///
/// ```
/// use filoplume::extract::{AuthorizationRejection, Basic, Scheme};
/// use filoplume::prelude::*;
///
/// let app =
///     App::new().get("/", |basic: Result<Basic, AuthorizationRejection>| match basic {
///         Err(AuthorizationRejection::Missing { scheme: Scheme::Basic }) => {
///             "say user and password".to_owned()
///         }
///         Err(rejection) => rejection.to_string(),
///         Ok(basic) => basic.user,
///     });
/// app.test().get("/").send().assert_text("say user and password");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// RFC 7617.
    Basic,
    /// RFC 6750.
    Bearer,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Basic => "Basic",
            Self::Bearer => "Bearer",
        })
    }
}

/// The error if the credentials cannot be extracted.
///
/// ```
/// use filoplume::extract::{AuthorizationRejection, Bearer};
/// use filoplume::prelude::*;
///
/// fn page(token: Result<Bearer, AuthorizationRejection>) -> Result<&'static str> {
///     match token {
///         Ok(_) => Ok("for members"),
///         Err(AuthorizationRejection::Missing { .. }) => Ok("for everybody"),
///         Err(rejection) => Err(rejection.into()),
///     }
/// }
///
/// let client = App::new().get("/", page).test();
/// client.get("/").send().assert_text("for everybody");
/// client.get("/").header("authorization", "Bearer a b").send().assert_status(400);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthorizationRejection {
    /// There is no `Authorization`, or one with another scheme.
    Missing {
        /// The expected scheme.
        scheme: Scheme,
    },
    /// The credentials are malformed.
    Malformed {
        /// The scheme.
        scheme: Scheme,
    },
    /// There is more than one `Authorization` field. Proxies and servers could use different ones.
    Several {
        /// The expected scheme.
        scheme: Scheme,
    },
}

impl AuthorizationRejection {
    fn scheme(&self) -> Scheme {
        match self {
            Self::Missing { scheme } | Self::Malformed { scheme } | Self::Several { scheme } => {
                *scheme
            }
        }
    }

    /// Returns the error with a challenge for this realm.
    pub(crate) fn describe_for(&self, realm: &str) -> Error {
        let realm = quoted(realm);
        // RFC 7617 defines no error for malformed requests, so invalid credentials are a 401 (RFC
        // 9110, 15.5.2).
        let (status, challenge) = match (self.scheme(), self) {
            (Scheme::Basic, _) => {
                (StatusCode::UNAUTHORIZED, format!("Basic realm={realm}, charset=\"UTF-8\""))
            }
            // Without credentials there is no error code (RFC 6750, 3.1).
            (Scheme::Bearer, Self::Missing { .. }) => {
                (StatusCode::UNAUTHORIZED, format!("Bearer realm={realm}"))
            }
            (Scheme::Bearer, _) => (
                StatusCode::BAD_REQUEST,
                format!("Bearer realm={realm}, error=\"invalid_request\""),
            ),
        };
        Error::new(status, self.to_string()).with_known_header("www-authenticate", challenge)
    }
}

impl fmt::Display for AuthorizationRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { scheme } => {
                write!(f, "credentials are missing: send `authorization: {scheme} ..`")
            }
            Self::Malformed { scheme: Scheme::Basic } => f.write_str(
                "the credentials in `authorization` are malformed: send `user:password` in \
                 UTF-8 and base64",
            ),
            Self::Malformed { scheme: Scheme::Bearer } => {
                f.write_str("the token in `authorization` is malformed")
            }
            Self::Several { .. } => f.write_str("there is more than one `authorization` field"),
        }
    }
}

impl StdError for AuthorizationRejection {}

impl Rejection for AuthorizationRejection {
    fn describe(&self) -> Error {
        self.describe_for(REALM)
    }
}

/// The default realm.
pub(crate) const REALM: &str = "protected";

/// Returns the `401` for an invalid token (RFC 6750, 3.1).
pub(crate) fn invalid_token(realm: &str, detail: &'static str, description: Option<&str>) -> Error {
    let realm = quoted(realm);
    let mut challenge = format!("Bearer realm={realm}, error=\"invalid_token\"");
    if let Some(description) = description {
        challenge += &format!(", error_description={}", quoted(description));
    }
    Error::unauthorized(detail).with_known_header("www-authenticate", challenge)
}

/// Returns a `quoted-string` (RFC 9110, 5.6.4). Characters that are not allowed become spaces.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => quoted.push(' '),
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Converts a `Missing` rejection into `None`.
fn unless_missing<T>(
    result: Result<T, AuthorizationRejection>,
) -> Result<Option<T>, AuthorizationRejection> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(AuthorizationRejection::Missing { .. }) => Ok(None),
        Err(rejection) => Err(rejection),
    }
}

/// Returns the credentials after the scheme in `Authorization` (RFC 9110, 11.6.2).
fn credentials(request: &Request, wanted: Scheme) -> Result<&str, AuthorizationRejection> {
    let mut fields = request.headers().get_all("authorization");
    let missing = AuthorizationRejection::Missing { scheme: wanted };
    let Some(field) = fields.next() else { return Err(missing) };
    if fields.next().is_some() {
        return Err(AuthorizationRejection::Several { scheme: wanted });
    }
    let malformed = AuthorizationRejection::Malformed { scheme: wanted };
    let field = std::str::from_utf8(field).map_err(|_| malformed.clone())?;
    let (scheme, credentials) = field.split_once(' ').unwrap_or((field, ""));
    if !scheme.eq_ignore_ascii_case(&wanted.to_string()) {
        return Err(missing);
    }
    match credentials.trim_matches(' ') {
        "" => Err(malformed),
        credentials => Ok(credentials),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[&str]) -> Request {
        let mut request = http::Request::get("/").body(Vec::new()).expect("it is valid");
        for field in fields {
            request
                .headers_mut()
                .append("authorization", http::HeaderValue::from_str(field).expect("it is valid"));
        }
        Request::try_from(request).expect("it is valid")
    }

    #[test]
    fn basic_credentials_are_taken_apart_at_the_first_colon() {
        let of = |text: &str| Basic::of(&request(&[&format!("bAsIc  {}", STANDARD.encode(text))]));
        let basic = of("ada:se:sa me").expect("it is well-formed");
        assert_eq!((basic.user.as_str(), basic.password.as_str()), ("ada", "se:sa me"));
        let basic = of(":").expect("it is well-formed");
        assert_eq!((basic.user.as_str(), basic.password.as_str()), ("", ""));
        let basic = of("ädä:ö").expect("it is well-formed");
        assert_eq!(basic.user, "ädä");
        assert_eq!(format!("{basic:?}"), "Basic { user: \"ädä\", .. }", "no password in logs");
        for wrong in ["ada", "a\0da:x", "ada:x\n"] {
            assert_eq!(
                of(wrong),
                Err(AuthorizationRejection::Malformed { scheme: Scheme::Basic }),
                "{wrong:?}"
            );
        }
    }

    /// Both the field and the text that it encodes.
    #[test]
    fn credentials_are_utf8() {
        let malformed = Err(AuthorizationRejection::Malformed { scheme: Scheme::Basic });
        let encoded = format!("Basic {}", STANDARD.encode(b"ada:\xff"));
        assert_eq!(Basic::of(&request(&[&encoded])), malformed);
        let mut request = request(&[]);
        request.headers_mut().append("authorization", b"Basic \xff").expect("it is a field");
        assert_eq!(Basic::of(&request), malformed);
    }

    #[test]
    fn invalid_credentials_are_described() {
        let (missing, malformed, several) = (
            AuthorizationRejection::Missing { scheme: Scheme::Bearer },
            AuthorizationRejection::Malformed { scheme: Scheme::Bearer },
            AuthorizationRejection::Several { scheme: Scheme::Bearer },
        );
        for (fields, expected) in [
            (&[][..], missing.clone()),
            (&["Basic YTpi"], missing.clone()),
            (&["Bearerx abc"], missing),
            (&["Bearer"], malformed.clone()),
            (&["Bearer  "], malformed.clone()),
            (&["Bearer a b"], malformed.clone()),
            (&["Bearer ==="], malformed.clone()),
            (&["Bearer a,b"], malformed),
            (&["Bearer a", "Bearer b"], several),
        ] {
            assert_eq!(Bearer::of(&request(fields)), Err(expected), "{fields:?}");
        }
        assert_eq!(
            Bearer::of(&request(&["bearer a.b-c_d~e+f/g=="])),
            Ok(Bearer("a.b-c_d~e+f/g==".to_owned()))
        );
        assert_eq!(
            Basic::of(&request(&["Basic !"])),
            Err(AuthorizationRejection::Malformed { scheme: Scheme::Basic })
        );
    }

    #[test]
    fn a_realm_is_quoted_and_cannot_leave_its_quotes() {
        assert_eq!(quoted("a \"b\" \\ c"), r#""a \"b\" \\ c""#);
        assert_eq!(quoted("a\r\nset-cookie: b"), "\"a  set-cookie: b\"");
    }
}
