//! Cross-origin requests (the CORS protocol of the Fetch standard).

mod parse;

use std::fmt;
use std::time::Duration;

use filoplume_runtime::{Headers, Method, Request, Response, StatusCode};

use crate::core::error::Result;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::core::refusal::NextRefused;
use crate::middleware::catch_panic::run_catching_panics;
use crate::semantics::origin::check_origin;
use crate::semantics::vary::add_vary;

use self::parse::{is_preflight, origin_of, token_list};

/// Tells browsers which pages of other origins may read responses.
///
/// ```
/// use filoplume::prelude::*;
/// use std::time::Duration;
///
/// let app = App::new()
///     .get("/notes", || "all notes")
///     .put("/notes/{id}", |_: Path<u32>| "changed")
///     .with(
///         middleware::Cors::new()
///             .allow_origin("https://app.example.com")
///             .allow_methods([Method::GET, Method::PUT])
///             .allow_headers(["content-type", "authorization"])
///             .max_age(Duration::from_secs(3600)),
///     );
/// let client = app.test();
/// client
///     .get("/notes")
///     .header("origin", "https://app.example.com")
///     .send()
///     .assert_header("access-control-allow-origin", "https://app.example.com");
///
/// let preflight = client
///     .options("/notes/7")
///     .header("origin", "https://app.example.com")
///     .header("access-control-request-method", "PUT")
///     .send();
/// preflight.assert_status(204).assert_header("access-control-allow-methods", "GET, PUT");
/// ```
///
/// CORS does not block requests: a page of another origin can send simple requests anyway, and
/// clients other than browsers ignore it. It only permits what browsers forbid, so without an
/// allowed origin it has no effect.
///
/// A preflight (`OPTIONS` with `Origin` and `Access-Control-Request-Method`) is answered with `204`
/// by this middleware. Outer middleware runs before that, so add middleware that requires a login
/// after this one: browsers send preflights without credentials. An app where `BasicAuth`,
/// `BearerAuth` or `Jwt` would refuse them does not start. Other requests are passed on whatever
/// their origin, and their responses say who may read them, errors included. Works for an app, a
/// router or a route.
#[doc(alias("CorsLayer"))]
pub struct Cors {
    origins: Origins,
    methods: Names,
    headers: Names,
    exposed: Vec<String>,
    allows_credentials: bool,
    allows_private_network: bool,
    max_age: Option<Duration>,
    /// Invalid arguments, reported when the app starts.
    mistakes: Vec<String>,
}

enum Origins {
    /// The program says nothing about origins.
    Unset,
    Some(Vec<String>),
    Any,
    If(Box<dyn Fn(&str) -> bool + Send + Sync>),
}

/// Allowed methods or headers.
enum Names {
    Some(Vec<String>),
    /// Everything that the preflight asks for.
    Mirrored,
}

impl Cors {
    /// Returns a policy without origins. Origins that are added may use the methods `GET`, `HEAD`
    /// and `POST`, and the headers that need no permission. An app whose policy says nothing about
    /// origins does not start.
    pub fn new() -> Self {
        Self {
            origins: Origins::Unset,
            methods: Names::Some(["GET", "HEAD", "POST"].map(str::to_owned).to_vec()),
            headers: Names::Some(Vec::new()),
            exposed: Vec::new(),
            allows_credentials: false,
            allows_private_network: false,
            max_age: None,
            mistakes: Vec::new(),
        }
    }

    /// Adds an allowed origin: `https://example.com`, with the port if it is not the default one,
    /// and without a slash at the end. An app with an invalid origin does not start.
    #[must_use]
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        let origin = origin.into().to_ascii_lowercase();
        if let Err(mistake) = check_origin(&origin) {
            self.mistakes
                .push(format!("Cors: `{}` is not an origin: {mistake}", origin.escape_debug()));
        }
        match &mut self.origins {
            Origins::Some(origins) => origins.push(origin),
            others => *others = Origins::Some(vec![origin]),
        }
        self
    }

    /// Adds several allowed origins. The list may be empty, such as one from a configuration file:
    /// then no origin is allowed.
    ///
    /// ```
    /// use filoplume::middleware::Cors;
    /// use filoplume::prelude::*;
    ///
    /// let cors =
    ///     Cors::new().allow_origins(["https://app.example.com", "http://localhost:3000"]);
    /// let client = App::new().get("/", || "hi").with(cors).test();
    /// let response = client.get("/").header("origin", "http://localhost:3000").send();
    /// response.assert_header("access-control-allow-origin", "http://localhost:3000");
    /// ```
    #[must_use]
    pub fn allow_origins<O: Into<String>>(mut self, origins: impl IntoIterator<Item = O>) -> Self {
        if matches!(self.origins, Origins::Unset) {
            self.origins = Origins::Some(Vec::new());
        }
        origins.into_iter().fold(self, Self::allow_origin)
    }

    /// Allows all origins, and replaces origins that were added before. For public resources. An
    /// app that also allows [credentials](Self::allow_credentials) does not start: every site could
    /// act as the user who is logged in.
    ///
    /// ```
    /// use filoplume::middleware::Cors;
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", || "hi").with(Cors::new().allow_any_origin()).test();
    /// let response = client.get("/").header("origin", "https://example.org").send();
    /// response.assert_header("access-control-allow-origin", "*");
    /// ```
    #[must_use]
    pub fn allow_any_origin(mut self) -> Self {
        self.origins = Origins::Any;
        self
    }

    /// Allows the origins for which a closure returns `true`, and replaces origins that were added
    /// before. The closure gets what the client sent. This includes `null`, which pages without an
    /// origin send and anybody can produce.
    ///
    /// ```
    /// use filoplume::middleware::Cors;
    ///
    /// // `ends_with("example.com")` would be true of `https://evilexample.com`.
    /// let cors = Cors::new().allow_origins_if(|origin| {
    ///     origin.strip_prefix("https://").is_some_and(|host| host.ends_with(".example.com"))
    /// });
    /// ```
    #[must_use]
    pub fn allow_origins_if(
        mut self,
        allows: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.origins = Origins::If(Box::new(allows));
        self
    }

    /// Sets the allowed methods. Default: `GET`, `HEAD` and `POST`, which browsers allow anyway.
    #[must_use]
    pub fn allow_methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Names::Some(methods.into_iter().map(|method| method.to_string()).collect());
        self
    }

    /// Allows all methods.
    #[must_use]
    pub fn allow_any_method(mut self) -> Self {
        self.methods = Names::Mirrored;
        self
    }

    /// Sets the allowed request headers, in addition to those that need no permission. An example
    /// is `content-type` for JSON.
    #[must_use]
    pub fn allow_headers<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.headers = Names::Some(self.checked(names));
        self
    }

    /// Allows all headers that the preflight asks for.
    ///
    /// ```
    /// use filoplume::middleware::Cors;
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new()
    ///     .get("/", || "hi")
    ///     .with(Cors::new().allow_any_origin().mirror_headers())
    ///     .test();
    /// let preflight = client
    ///     .options("/")
    ///     .header("origin", "https://example.org")
    ///     .header("access-control-request-method", "GET")
    ///     .header("access-control-request-headers", "x-client")
    ///     .send();
    /// preflight.assert_header("access-control-allow-headers", "x-client");
    /// ```
    #[must_use]
    pub fn mirror_headers(mut self) -> Self {
        self.headers = Names::Mirrored;
        self
    }

    /// Sets the response headers that the page may read, in addition to the usual ones, such as
    /// `etag` or `x-request-id`.
    ///
    /// ```
    /// use filoplume::middleware::Cors;
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new()
    ///     .get("/", || "hi")
    ///     .with(Cors::new().allow_any_origin().expose_headers(["etag"]))
    ///     .test();
    /// let response = client.get("/").header("origin", "https://example.org").send();
    /// response.assert_header("access-control-expose-headers", "etag");
    /// ```
    #[must_use]
    pub fn expose_headers<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.exposed = self.checked(names);
        self
    }

    /// Allows requests with cookies and logins. Pages of the allowed origins can then act as the
    /// user. A closure that allows every origin is as dangerous as `allow_any_origin`, which is
    /// refused in this case. Default: no.
    ///
    /// ```
    /// use filoplume::middleware::Cors;
    /// use filoplume::prelude::*;
    ///
    /// let cors = Cors::new().allow_origin("https://app.example.com").allow_credentials(true);
    /// let client = App::new().get("/", || "hi").with(cors).test();
    /// let response = client.get("/").header("origin", "https://app.example.com").send();
    /// response.assert_header("access-control-allow-credentials", "true");
    /// ```
    #[must_use]
    pub fn allow_credentials(mut self, allows_credentials: bool) -> Self {
        self.allows_credentials = allows_credentials;
        self
    }

    /// Allows pages from the public network to send requests to a server in a private network, if
    /// the browser requires permission for that (Private Network Access). Default: no.
    #[must_use]
    pub fn allow_private_network(mut self, allows_private_network: bool) -> Self {
        self.allows_private_network = allows_private_network;
        self
    }

    /// Sets how long a browser may cache the response to a preflight. Browsers have their own upper
    /// limits, such as two hours. Default: not sent, which means five seconds.
    #[must_use]
    pub fn max_age(mut self, duration: Duration) -> Self {
        self.max_age = Some(duration);
        self
    }

    fn checked<N: Into<String>>(&mut self, names: impl IntoIterator<Item = N>) -> Vec<String> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        for name in &names {
            // With credentials, a browser would treat `*` as the name of a header.
            if name == "*" || http::HeaderName::try_from(name).is_err() {
                let name = name.escape_debug();
                self.mistakes.push(format!(
                    "Cors: `{name}` is not a header name; `mirror_headers` allows all"
                ));
            }
        }
        names
    }

    /// Returns the value of `Access-Control-Allow-Origin` for a request.
    fn allowed_origin<'a>(&self, origin: Option<&'a str>) -> Option<&'a str> {
        match &self.origins {
            Origins::Unset => None,
            Origins::Any => Some("*"),
            Origins::Some(origins) => {
                origin.filter(|&origin| origins.iter().any(|allowed| allowed == origin))
            }
            Origins::If(allows) => origin.filter(|&origin| allows(origin)),
        }
    }

    /// Returns whether the policy allows requests for which browsers send a preflight first.
    fn needs_preflights(&self) -> bool {
        let is_simple = |method: &String| ["GET", "HEAD", "POST"].contains(&&**method);
        match (&self.methods, &self.headers) {
            (Names::Some(methods), Names::Some(headers)) => {
                !headers.is_empty() || !methods.iter().all(is_simple)
            }
            _ => true,
        }
    }

    fn preflight(&self, request: &Request) -> Result<Response> {
        let mut response = Response::new(StatusCode::NO_CONTENT.as_u16());
        let headers = response.headers_mut();
        let requested = |name| token_list(request, name);
        self.set_origin_headers(headers, origin_of(request))?;
        for name in ["Access-Control-Request-Method", "Access-Control-Request-Headers"] {
            add_vary(headers, name);
        }
        if self.allows_private_network {
            add_vary(headers, "Access-Control-Request-Private-Network");
        }
        if !headers.contains("access-control-allow-origin") {
            return Ok(response);
        }
        if let Some(methods) = self.methods.allowed(requested("access-control-request-method")) {
            headers.append("access-control-allow-methods", methods)?;
        }
        if let Some(names) = self.headers.allowed(requested("access-control-request-headers")) {
            headers.append("access-control-allow-headers", names)?;
        }
        if self.allows_private_network
            && requested("access-control-request-private-network") == Some("true")
        {
            headers.append("access-control-allow-private-network", "true")?;
        }
        if let Some(duration) = self.max_age {
            headers.append("access-control-max-age", duration.as_secs().to_string())?;
        }
        Ok(response)
    }

    /// Sets the headers of a response to a request that is not a preflight.
    fn set_response_headers(&self, headers: &mut Headers, origin: Option<&str>) -> Result<()> {
        self.set_origin_headers(headers, origin)?;
        if !self.exposed.is_empty() && headers.contains("access-control-allow-origin") {
            headers.insert("access-control-expose-headers", self.exposed.join(", "))?;
        }
        Ok(())
    }

    /// Sets the headers that say who may read the response, and on what that depends.
    fn set_origin_headers(&self, headers: &mut Headers, origin: Option<&str>) -> Result<()> {
        // Added even if the request has no origin: a cache must not use this response for a request
        // that has one.
        if !matches!(self.origins, Origins::Any) {
            add_vary(headers, "Origin");
        }
        // The policy replaces headers that a handler set.
        headers.remove("access-control-allow-origin");
        headers.remove("access-control-allow-credentials");
        if let Some(allowed) = self.allowed_origin(origin) {
            headers.append("access-control-allow-origin", allowed)?;
            if self.allows_credentials {
                headers.append("access-control-allow-credentials", "true")?;
            }
        }
        Ok(())
    }
}

impl Default for Cors {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for Cors {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        if is_preflight(&request) {
            return self.preflight(&request);
        }
        let origin = origin_of(&request).map(str::to_owned);
        let mut response = run_catching_panics(request, next);
        self.set_response_headers(response.headers_mut(), origin.as_deref())?;
        Ok(response)
    }

    /// Without these headers, a script could not tell an overload from a broken network.
    fn refused(&self, request: &Request, next: NextRefused<'_>) -> Response {
        let mut response = next.run(request);
        // An app with a value that cannot be sent does not start.
        let _ = self.set_response_headers(response.headers_mut(), origin_of(request));
        response
    }

    fn configure(&self, options: &mut RouteOptions) {
        for mistake in &self.mistakes {
            options.mistake(mistake);
        }
        if self.allows_credentials && matches!(self.origins, Origins::Any) {
            options.mistake(
                "Cors: any origin and credentials together would let every site act as the user \
                 who is logged in; name the origins with `allow_origin`",
            );
        }
        if matches!(self.origins, Origins::Unset) {
            options.mistake(
                "Cors: no origin is allowed, so it has no effect: add `allow_origin`, or remove it",
            );
        }
        if let Some(login) = options.login_before_preflights() {
            if login.is_by_script || self.needs_preflights() {
                options.mistake(format!(
                    "Cors: it is inside of `{0}`, which answers preflights with 401, because \
                     browsers send them without credentials: add `Cors` before `{0}`, to the same \
                     app or router",
                    login.name
                ));
            }
        }
        options.answer_preflights();
    }
}

impl fmt::Debug for Cors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Cors");
        match &self.origins {
            Origins::Some(origins) => debug.field("origins", origins),
            Origins::Unset => &mut debug,
            Origins::Any => debug.field("origins", &"any"),
            Origins::If(_) => debug.field("origins", &"a closure"),
        };
        debug.field("credentials", &self.allows_credentials).finish_non_exhaustive()
    }
}

impl Names {
    fn allowed(&self, requested: Option<&str>) -> Option<String> {
        match self {
            Self::Some(names) if names.is_empty() => None,
            Self::Some(names) => Some(names.join(", ")),
            Self::Mirrored => requested.map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_compared_as_a_whole() {
        let cors = Cors::new().allow_origin("HTTPS://App.Example");
        assert_eq!(cors.allowed_origin(Some("https://app.example")), Some("https://app.example"));
        for other in [
            "https://app.example.evil",
            "http://app.example",
            "https://app.example:444",
            "null",
            "",
        ] {
            assert_eq!(cors.allowed_origin(Some(other)), None, "{other}");
        }
        assert_eq!(cors.allowed_origin(None), None);
        assert_eq!(Cors::new().allowed_origin(Some("https://app.example")), None);
    }

    /// With credentials, a browser takes it for the name of a header.
    #[test]
    fn a_star_is_not_the_name_of_a_header() {
        assert_eq!(Cors::new().allow_headers(["x-token"]).mistakes, [""; 0]);
        for name in ["*", "a b", ""] {
            assert_eq!(Cors::new().allow_headers([name]).mistakes.len(), 1, "{name}");
        }
    }
}
