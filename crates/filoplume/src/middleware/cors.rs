//! What pages of other sites may ask (the CORS protocol of the Fetch standard).

use std::fmt;
use std::time::Duration;

use filoplume_runtime::{Headers, Method, Request, Response, StatusCode};

use crate::core::error::Result;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::middleware::catch_panic::contain;
use crate::semantics::vary::add_vary;

/// Tells browsers which pages of other sites may read what is answered here.
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
/// It protects nobody from requests: a foreign page can send simple ones anyway, and what is no
/// browser does not care. It opens what browsers keep closed, so without an origin that is allowed
/// it opens nothing.
///
/// A preflight (`OPTIONS` with `Origin` and `Access-Control-Request-Method`) is answered with `204`
/// here; middleware further out has run by then, so one that wants a login goes further in. Other
/// requests are handed on whatever their origin is, and their responses say who may read them,
/// errors too. For an app, a router or a route.
pub struct Cors {
    origins: Origins,
    methods: Names,
    headers: Names,
    exposed: Vec<String>,
    allows_credentials: bool,
    allows_private_network: bool,
    max_age: Option<Duration>,
    /// What is wrong with the calls; told when the app starts.
    mistakes: Vec<String>,
}

enum Origins {
    Some(Vec<String>),
    Any,
    If(Box<dyn Fn(&str) -> bool + Send + Sync>),
}

/// Methods or headers.
enum Names {
    Some(Vec<String>),
    /// Whatever the preflight asks for.
    Mirrored,
}

impl Cors {
    /// Returns a policy that allows no origin yet; of others then the methods `GET`, `HEAD` and
    /// `POST`, and the headers that need no permission.
    pub fn new() -> Self {
        Self {
            origins: Origins::Some(Vec::new()),
            methods: Names::Some(["GET", "HEAD", "POST"].map(str::to_owned).to_vec()),
            headers: Names::Some(Vec::new()),
            exposed: Vec::new(),
            allows_credentials: false,
            allows_private_network: false,
            max_age: None,
            mistakes: Vec::new(),
        }
    }

    /// Allows one origin more: `https://example.com`, with the port if it is not the scheme's own,
    /// without a slash at the end. An app with what cannot be an origin does not start.
    #[must_use]
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        let origin = origin.into().to_ascii_lowercase();
        if let Err(mistake) = check_origin(&origin) {
            self.mistakes
                .push(format!("Cors: `{}` is no origin: {mistake}", origin.escape_debug()));
        }
        match &mut self.origins {
            Origins::Some(origins) => origins.push(origin),
            others => *others = Origins::Some(vec![origin]),
        }
        self
    }

    /// Allows several origins more.
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
    pub fn allow_origins<O: Into<String>>(self, origins: impl IntoIterator<Item = O>) -> Self {
        origins.into_iter().fold(self, Self::allow_origin)
    }

    /// Allows all origins, in place of those said before. For what is public. An app that allows
    /// [credentials](Self::allow_credentials) too does not start: every site could act as whoever
    /// is logged in.
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

    /// Allows the origins that a closure says yes to, in place of those said before. It is given
    /// what the client sent, `null` included, which is what pages without an origin send: anybody
    /// can make one.
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

    /// Sets the methods that are allowed. Default: `GET`, `HEAD` and `POST`, which browsers allow
    /// anyway.
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

    /// Sets the headers of requests that are allowed beside those that need no permission, such as
    /// `content-type` for JSON.
    #[must_use]
    pub fn allow_headers<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.headers = Names::Some(self.checked(names));
        self
    }

    /// Allows the headers that are asked for, whatever they are.
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

    /// Sets the headers of responses that the page may read beside the usual ones, such as `etag`
    /// or `x-request-id`.
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

    /// Lets requests come with cookies and logins. The origins that are allowed can then do what
    /// the user can: a closure that says yes to all is as bad as any origin, which is refused.
    /// Default: no.
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

    /// Lets pages from the public network ask a server in a private one, where the browser wants a
    /// permission for that (Private Network Access). Default: no.
    #[must_use]
    pub fn allow_private_network(mut self, allows_private_network: bool) -> Self {
        self.allows_private_network = allows_private_network;
        self
    }

    /// Sets how long a browser may remember the answer to a preflight. Browsers have bounds of
    /// their own, such as two hours. Default: unsaid, which is five seconds.
    #[must_use]
    pub fn max_age(mut self, duration: Duration) -> Self {
        self.max_age = Some(duration);
        self
    }

    fn checked<N: Into<String>>(&mut self, names: impl IntoIterator<Item = N>) -> Vec<String> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        for name in &names {
            // With `*` a browser would take it for the header of that name if there are
            // credentials.
            if name == "*" || http::HeaderName::try_from(name).is_err() {
                let name = name.escape_debug();
                self.mistakes.push(format!(
                    "Cors: `{name}` is no name of a header; `mirror_headers` allows all"
                ));
            }
        }
        names
    }

    /// The value of `Access-Control-Allow-Origin` for a request.
    fn allowed_origin<'a>(&self, origin: Option<&'a str>) -> Option<&'a str> {
        match &self.origins {
            Origins::Any => Some("*"),
            Origins::Some(origins) => {
                origin.filter(|&origin| origins.iter().any(|allowed| allowed == origin))
            }
            Origins::If(allows) => origin.filter(|&origin| allows(origin)),
        }
    }

    fn preflight(&self, request: &Request) -> Result<Response> {
        let mut response = Response::new(StatusCode::NO_CONTENT.as_u16());
        let headers = response.headers_mut();
        let asked = |name| request.headers().get_str(name).filter(|value| is_list(value));
        self.say_origin(headers, origin_of(request))?;
        for name in ["Access-Control-Request-Method", "Access-Control-Request-Headers"] {
            add_vary(headers, name);
        }
        if self.allows_private_network {
            add_vary(headers, "Access-Control-Request-Private-Network");
        }
        if !headers.contains("access-control-allow-origin") {
            return Ok(response);
        }
        if let Some(methods) = self.methods.allowed(asked("access-control-request-method")) {
            headers.append("access-control-allow-methods", methods)?;
        }
        if let Some(names) = self.headers.allowed(asked("access-control-request-headers")) {
            headers.append("access-control-allow-headers", names)?;
        }
        if self.allows_private_network
            && asked("access-control-request-private-network") == Some("true")
        {
            headers.append("access-control-allow-private-network", "true")?;
        }
        if let Some(duration) = self.max_age {
            headers.append("access-control-max-age", duration.as_secs().to_string())?;
        }
        Ok(response)
    }

    /// Says who may read the response, and on what that depends.
    fn say_origin(&self, headers: &mut Headers, origin: Option<&str>) -> Result<()> {
        // Also if the request has no origin: a cache must not give this response to one that has.
        if !matches!(self.origins, Origins::Any) {
            add_vary(headers, "Origin");
        }
        // What a handler said of itself is not a policy.
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
        let mut response = contain(request, next);
        let headers = response.headers_mut();
        self.say_origin(headers, origin.as_deref())?;
        if !self.exposed.is_empty() && headers.contains("access-control-allow-origin") {
            headers.insert("access-control-expose-headers", self.exposed.join(", "))?;
        }
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        for mistake in &self.mistakes {
            options.mistake(mistake);
        }
        if self.allows_credentials && matches!(self.origins, Origins::Any) {
            options.mistake(
                "Cors: any origin and credentials together would let every site act as whoever is \
                 logged in; name the origins with `allow_origin`",
            );
        }
    }
}

impl fmt::Debug for Cors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Cors");
        match &self.origins {
            Origins::Some(origins) => debug.field("origins", origins),
            Origins::Any => debug.field("origins", &"any"),
            Origins::If(_) => debug.field("origins", &"a closure"),
        };
        debug.field("credentials", &self.allows_credentials).finish_non_exhaustive()
    }
}

impl Names {
    fn allowed(&self, asked: Option<&str>) -> Option<String> {
        match self {
            Self::Some(names) if names.is_empty() => None,
            Self::Some(names) => Some(names.join(", ")),
            Self::Mirrored => asked.map(str::to_owned),
        }
    }
}

fn is_preflight(request: &Request) -> bool {
    *request.method() == Method::OPTIONS
        && request.headers().contains("origin")
        && request.headers().contains("access-control-request-method")
}

/// The origin, if there is exactly one: of two, caches and we might choose different ones.
fn origin_of(request: &Request) -> Option<&str> {
    let mut origins = request.headers().get_all("origin");
    let origin = std::str::from_utf8(origins.next()?).ok()?;
    origins.next().is_none().then_some(origin)
}

/// Whether a value is one or several tokens, as browsers send them: anything else is not mirrored.
fn is_list(value: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    value.split(',').all(|item| {
        let item = item.trim_matches([' ', '\t']);
        !item.is_empty() && item.bytes().all(is_token_byte)
    })
}

/// Says what is wrong with an origin as a program writes it.
fn check_origin(origin: &str) -> Result<(), &'static str> {
    match origin {
        "*" => return Err("`allow_any_origin` allows all"),
        "null" => return Err("every site can send it"),
        _ => {}
    }
    let Some((scheme, host)) = origin.split_once("://") else {
        return Err("it begins with a scheme, such as `https://`");
    };
    if scheme.is_empty()
        || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    {
        return Err("its scheme is none");
    }
    if host.contains(['/', '?', '#']) {
        return Err("it ends with the host and the port, without a slash or a path");
    }
    if host.contains('*') {
        return Err("`allow_origins_if` allows many");
    }
    if host.is_empty() || !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
    {
        return Err("its host is none, as a browser writes it");
    }
    if (scheme == "https" && host.ends_with(":443")) || (scheme == "http" && host.ends_with(":80"))
    {
        return Err("browsers leave the scheme's own port out");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_browser_would_send_is_no_origin() {
        for good in
            ["https://a.example", "http://localhost:3000", "http://[::1]:8080", "tauri://localhost"]
        {
            assert_eq!(check_origin(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "*",
            "null",
            "a.example",
            "https://",
            "https://a/",
            "https://a/b",
            "https://*.a.example",
            "https://a:443",
            "https://a b",
            "https://a\r\nx",
            "://a",
            "https://ä.example",
        ] {
            assert!(check_origin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_lists_of_tokens_are_mirrored() {
        assert!(is_list("PUT"));
        assert!(is_list("content-type, x-a ,x-b"));
        for bad in ["", ",", "a,,b", "a b", "a: b", "ä", "<script>"] {
            assert!(!is_list(bad), "{bad}");
        }
    }

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
}
