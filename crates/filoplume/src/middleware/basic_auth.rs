//! User and password, asked for by the browser (RFC 7617).

use std::fmt;

use filoplume_runtime::{Request, Response};

use super::verdict::{Verdict, secrets_match};
use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::extract::{AuthorizationRejection, Basic, REALM, Scheme, quoted};

/// Lets those through whose user and password are right; the others are answered `401`, with a
/// challenge.
///
/// ```
/// use filoplume::extract::Basic;
/// use filoplume::middleware::BasicAuth;
/// use filoplume::prelude::*;
///
/// #[derive(Clone)]
/// struct User(String);
///
/// fn check(basic: &Basic) -> Option<User> {
///     // Ask a database, and compare a hash: it may block.
///     (basic.user == "ada" && basic.password == "sesame")
///         .then(|| User(basic.user.clone()))
/// }
///
/// let app = App::new()
///     .get("/", |Extension(User(name)): Extension<User>| format!("hello {name}"))
///     .with(BasicAuth::new(check).realm("the cave"));
/// let client = app.test();
/// client
///     .get("/")
///     .header("authorization", "Basic YWRhOnNlc2FtZQ==")
///     .send()
///     .assert_text("hello ada");
/// let refused = client.get("/").send();
/// refused
///     .assert_status(401)
///     .assert_header("www-authenticate", r#"Basic realm="the cave", charset="UTF-8""#);
/// ```
///
/// Passwords go over the wire as they are: TLS belongs before it. Malformed credentials are a `401`
/// too (RFC 9110, 15.5.2). Who guesses is stopped by a rate limit further out.
pub struct BasicAuth {
    verify: Verify,
    /// Says what stands beside a request whose credentials are right.
    provide: fn(&mut RouteOptions),
    realm: String,
}

/// Whether credentials are right; if so who it is stands beside the request.
type Verify = Box<dyn Fn(&Basic, &mut Request) -> Result<bool> + Send + Sync>;

impl BasicAuth {
    /// Returns middleware that asks a closure. What it returns inside of `Some` is taken by
    /// handlers as [`Extension`](crate::Extension).
    pub fn new<V: Verdict>(verify: impl Fn(&Basic) -> V + Send + Sync + 'static) -> Self {
        let verify: Verify = Box::new(move |basic, request| {
            let identity = verify(basic).into_identity()?;
            Ok(identity.map(|identity| request.extensions_mut().insert(identity)).is_some())
        });
        let provide = |options: &mut RouteOptions| {
            options.provide::<V::Identity>();
        };
        Self { verify, provide, realm: REALM.to_owned() }
    }

    /// Returns middleware for one user. Both are compared in a time that tells nothing about them.
    ///
    /// ```
    /// use filoplume::middleware::BasicAuth;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/metrics", || "42").with(BasicAuth::user("admin", "sesame"));
    /// app.test().get("/metrics").send().assert_status(401);
    /// ```
    pub fn user(user: impl Into<String>, password: impl Into<String>) -> Self {
        let (user, password) = (user.into(), password.into());
        // Not `&&`: how long it takes would tell whether the user was right.
        Self::new(move |basic: &Basic| {
            secrets_match(&basic.user, &user) & secrets_match(&basic.password, &password)
        })
    }

    /// Sets what is protected, as the browser shows it. Default: `protected`.
    #[must_use]
    pub fn realm(mut self, realm: impl Into<String>) -> Self {
        self.realm = realm.into();
        self
    }
}

impl Middleware for BasicAuth {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let basic = Basic::of(&request).map_err(|rejection: AuthorizationRejection| {
            rejection.describe_for(&self.realm).with_source(rejection)
        })?;
        if !(self.verify)(&basic, &mut request)? {
            let challenge =
                format!("{} realm={}, charset=\"UTF-8\"", Scheme::Basic, quoted(&self.realm));
            return Err(Error::unauthorized("user or password are wrong")
                .with_known_header("www-authenticate", challenge));
        }
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        (self.provide)(options);
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth").field("realm", &self.realm).finish_non_exhaustive()
    }
}
