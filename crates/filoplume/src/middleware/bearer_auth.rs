//! Authentication with opaque tokens (RFC 6750).

use std::fmt;

use filoplume_runtime::{Request, Response};

use super::verdict::{Verdict, secrets_match};
use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::{Login, RouteOptions};
use crate::extract::{Bearer, REALM, invalid_token, quoted};

/// Accepts requests with a valid token. Others get a `401`, or a `400` if the token is malformed,
/// with a challenge that says why (RFC 6750, 3).
///
/// ```
/// use filoplume::middleware::BearerAuth;
/// use filoplume::prelude::*;
///
/// #[derive(Clone)]
/// struct User(String);
///
/// let app = App::new()
///     .get("/", |Extension(User(name)): Extension<User>| format!("hello {name}"))
///     .with(BearerAuth::new(|token: &str| {
///         (token == "t0ken").then(|| User("ada".to_owned()))
///     }));
/// let client = app.test();
/// client.get("/").header("authorization", "Bearer t0ken").send().assert_text("hello ada");
/// client
///     .get("/")
///     .header("authorization", "Bearer guess")
///     .send()
///     .assert_status(401)
///     .assert_header(
///         "www-authenticate",
///         r#"Bearer realm="protected", error="invalid_token""#,
///     );
/// ```
///
/// Store hashes of tokens rather than tokens, and look them up by hash. For JSON Web Tokens use
/// `Jwt`.
pub struct BearerAuth {
    verify: Verify,
    /// Declares the extension that `verify` adds to requests.
    provide: fn(&mut RouteOptions),
    realm: String,
    /// An invalid argument, reported when the app starts.
    mistake: Option<&'static str>,
}

type Verify = Box<dyn Fn(&str, &mut Request) -> Result<bool> + Send + Sync>;

impl BearerAuth {
    /// Returns middleware that checks tokens with a closure. Handlers take the value that the
    /// closure returns inside of `Some` as [`Extension`](crate::Extension).
    pub fn new<V: Verdict>(verify: impl Fn(&str) -> V + Send + Sync + 'static) -> Self {
        let verify: Verify = Box::new(move |token, request| {
            let identity = verify(token).into_identity()?;
            Ok(identity.map(|identity| request.extensions_mut().insert(identity)).is_some())
        });
        let provide = |options: &mut RouteOptions| {
            options.provide::<V::Identity>();
        };
        Self { verify, provide, realm: REALM.to_owned(), mistake: None }
    }

    /// Returns middleware that accepts the given tokens. They are compared in constant time.
    /// If there are only empty tokens, the app does not start.
    ///
    /// ```
    /// use filoplume::middleware::BearerAuth;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/metrics", || "42").with(BearerAuth::tokens(["old", "new"]));
    /// app.test()
    ///     .get("/metrics")
    ///     .header("authorization", "Bearer new")
    ///     .send()
    ///     .assert_status(200);
    /// ```
    pub fn tokens(tokens: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let tokens: Vec<String> = tokens.into_iter().map(Into::into).collect();
        // An empty list is allowed: it may come from a configuration, and lets nobody in.
        let are_empty = !tokens.is_empty() && tokens.iter().all(String::is_empty);
        let mistake = are_empty
            .then_some("BearerAuth: the token is empty; is the variable set from which it comes?");
        // All of them are compared, so that the time does not reveal which one matched.
        let this = Self::new(move |given: &str| {
            tokens.iter().fold(false, |found, token| found | secrets_match(given, token))
        });
        Self { mistake, ..this }
    }

    /// Sets the name of the protected area. Default: `protected`.
    #[must_use]
    pub fn realm(mut self, realm: impl Into<String>) -> Self {
        self.realm = realm.into();
        self
    }

    /// Returns the `403` for a valid token that lacks a scope, and names the scope in the challenge
    /// (RFC 6750, 3.1).
    ///
    /// ```
    /// use filoplume::middleware::BearerAuth;
    ///
    /// let error = BearerAuth::insufficient_scope("notes:write");
    /// assert_eq!(error.status(), 403);
    /// ```
    pub fn insufficient_scope(scope: &str) -> Error {
        let challenge = format!("Bearer error=\"insufficient_scope\", scope={}", quoted(scope));
        Error::forbidden(format!("the token does not have the scope `{scope}`"))
            .with_known_header("www-authenticate", challenge)
    }
}

impl Middleware for BearerAuth {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let Bearer(token) = Bearer::of(&request)
            .map_err(|rejection| rejection.describe_for(&self.realm).with_source(rejection))?;
        if !(self.verify)(&token, &mut request)? {
            return Err(invalid_token(&self.realm, "the token is not valid", None));
        }
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        (self.provide)(options);
        options.require_login(Login { name: "BearerAuth", is_by_script: true });
        if let Some(mistake) = self.mistake {
            options.mistake(mistake);
        }
    }
}

impl fmt::Debug for BearerAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerAuth").field("realm", &self.realm).finish_non_exhaustive()
    }
}
