//! Authentication with user and password (RFC 7617).

use std::fmt;

use filoplume_runtime::{Request, Response};

use super::verdict::{Verdict, secrets_match};
use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::{Login, RouteOptions};
use crate::extract::{AuthorizationRejection, Basic, REALM, Scheme, quoted};

/// Accepts requests with the right user and password, and answers others with `401` and a
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
///     // Query a database and compare a hash here: blocking is fine.
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
/// Passwords are sent in plain text, so use TLS. Malformed credentials are a `401` too (RFC 9110,
/// 15.5.2). To stop attackers who guess passwords, put a rate limit around this middleware.
pub struct BasicAuth {
    verify: Verify,
    /// Declares the extension that `verify` adds to requests.
    provide: fn(&mut RouteOptions),
    realm: String,
    /// Invalid arguments, reported when the app starts.
    mistakes: Vec<&'static str>,
}

/// Returns whether the credentials are right. If they are, it attaches the user to the request.
type Verify = Box<dyn Fn(&Basic, &mut Request) -> Result<bool> + Send + Sync>;

impl BasicAuth {
    /// Returns middleware that checks credentials with a closure. Handlers take the value that the
    /// closure returns inside of `Some` as [`Extension`](crate::Extension).
    pub fn new<V: Verdict>(verify: impl Fn(&Basic) -> V + Send + Sync + 'static) -> Self {
        let verify: Verify = Box::new(move |basic, request| {
            let identity = verify(basic).into_identity()?;
            Ok(identity.map(|identity| request.extensions_mut().insert(identity)).is_some())
        });
        let provide = |options: &mut RouteOptions| {
            options.provide::<V::Identity>();
        };
        Self { verify, provide, realm: REALM.to_owned(), mistakes: Vec::new() }
    }

    /// Returns middleware for one user. Both values are compared in constant time. With an empty
    /// password, or a colon in the name of the user, the app does not start.
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
        let mut mistakes = Vec::new();
        // An empty name is allowed: some clients send only a password.
        if password.is_empty() {
            mistakes.push(
                "BasicAuth: the password is empty, so everybody could log in; is the variable set \
                 from which it comes? For a key as the name of the user, use `BasicAuth::new`",
            );
        }
        if user.contains(':') {
            mistakes.push(
                "BasicAuth: the name of the user has a colon, but the first colon of credentials \
                 begins the password (RFC 7617), so nobody could log in",
            );
        }
        // Not `&&`, because its time would reveal whether the user was right.
        let this = Self::new(move |basic: &Basic| {
            secrets_match(&basic.user, &user) & secrets_match(&basic.password, &password)
        });
        Self { mistakes, ..this }
    }

    /// Sets the name of the protected area, which the browser shows. Default: `protected`.
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
        // A browser sends a password that its user has typed, and needs no preflight for that.
        options.require_login(Login { name: "BasicAuth", is_by_script: false });
        for &mistake in &self.mistakes {
            options.mistake(mistake);
        }
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth").field("realm", &self.realm).finish_non_exhaustive()
    }
}
