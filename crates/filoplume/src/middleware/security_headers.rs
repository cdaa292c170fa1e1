//! Headers that restrict browsers.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use filoplume_runtime::{Request, Response};

use crate::core::context::Context;
use crate::core::error::Result;
use crate::core::extract::FromRequest;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::core::refusal::NextRefused;
use crate::core::response::IntoResponse;
use crate::extract::{Extension, ExtensionRejection};
use crate::middleware::catch_panic::run_catching_panics;
use crate::middleware::concurrency_limit::whole_seconds;

/// The placeholder for the nonce in a policy.
const NONCE: &str = "{nonce}";

/// Random bytes of a nonce: CSP requires at least 128 bits (CSP Level 3, 7.1).
const NONCE_BYTES: usize = 16;

/// Sets headers that make browsers more careful. Headers that a handler has set are kept.
///
/// By default:
///
/// | Header | Value | Effect |
/// |---|---|---|
/// | `x-content-type-options` | `nosniff` | only content with the type of a script runs as one |
/// | `x-frame-options`, `content-security-policy: frame-ancestors` | `DENY`, `'none'` | no other page shows this one in a frame; see [`frames`](Self::frames) |
/// | `referrer-policy` | `strict-origin-when-cross-origin` | other sites learn the origin, not the path |
/// | `cross-origin-opener-policy` | `same-origin` | windows of other sites have no handle on this one |
/// | `cross-origin-resource-policy` | `same-origin` | other sites cannot embed responses (fetches with [`Cors`](super::Cors) still work) |
///
/// These headers are optional: [`hsts`](Self::hsts),
/// [`content_security_policy`](Self::content_security_policy), and `permissions-policy` and all
/// others with [`set`](Self::set).
///
/// ```
/// use filoplume::middleware::{CspNonce, SecurityHeaders};
/// use filoplume::prelude::*;
/// use std::time::Duration;
///
/// let app = App::new()
///     .get("/", |nonce: CspNonce| {
///         Html(format!("<script nonce=\"{nonce}\">alert(1)</script>"))
///     })
///     .with(
///         SecurityHeaders::new()
///             .content_security_policy("default-src 'self'; script-src 'nonce-{nonce}'")
///             .hsts(Duration::from_secs(365 * 24 * 3600))
///             .set("permissions-policy", "camera=(), microphone=()"),
///     );
/// let response = app.test().get("/").send();
/// response
///     .assert_header("x-content-type-options", "nosniff")
///     .assert_header("x-frame-options", "DENY");
/// assert!(
///     response
///         .header("content-security-policy")
///         .unwrap()
///         .starts_with("default-src 'self'; script-src 'nonce-")
/// );
/// ```
#[doc(alias("helmet"))]
#[derive(Clone, Debug)]
pub struct SecurityHeaders {
    /// The headers to send, made from the other fields. `{nonce}` is not replaced yet.
    ready: Vec<(String, String)>,
    fields: Vec<(String, String)>,
    frames: Frames,
    policy: Option<String>,
    is_report_only: bool,
    hsts: Option<Hsts>,
}

/// Which pages may show a response in a frame.
///
/// ```
/// use filoplume::middleware::{Frames, SecurityHeaders};
/// use filoplume::prelude::*;
///
/// let partners = Frames::Of(vec!["https://partner.example".to_owned()]);
/// let app = App::new().get("/", || "hi").with(SecurityHeaders::new().frames(partners));
/// let response = app.test().get("/").send();
/// response.assert_header(
///     "content-security-policy",
///     "frame-ancestors https://partner.example",
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frames {
    /// No page. The default.
    #[default]
    Deny,
    /// Pages of the same origin.
    SameOrigin,
    /// Pages of these origins, such as `https://partner.example`.
    Of(Vec<String>),
    /// All pages: no header is sent.
    Anywhere,
}

/// The random nonce of one response, which marks its own scripts and styles for a policy with
/// `{nonce}`. If a handler takes it without such a policy, the app does not start.
///
/// ```
/// use filoplume::middleware::{CspNonce, SecurityHeaders};
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |nonce: CspNonce| {
///         Html(format!("<style nonce=\"{nonce}\">p {{ color: red }}</style>"))
///     })
///     .with(SecurityHeaders::new().content_security_policy("style-src 'nonce-{nonce}'"));
/// let client = app.test();
/// assert_ne!(client.get("/").send().text(), client.get("/").send().text());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CspNonce(Arc<str>);

#[derive(Clone, Copy, Debug)]
struct Hsts {
    max_age: Duration,
    extent: HstsExtent,
}

#[derive(Clone, Copy, Debug)]
enum HstsExtent {
    Host,
    Subdomains,
    Preload,
}

impl SecurityHeaders {
    /// Returns the headers of the table above.
    pub fn new() -> Self {
        let fields = [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "strict-origin-when-cross-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ];
        Self {
            ready: Vec::new(),
            fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            frames: Frames::default(),
            policy: None,
            is_report_only: false,
            hsts: None,
        }
        .prepared()
    }

    /// Sets which pages may show the responses in a frame. Default: none.
    ///
    /// This is sent as `frame-ancestors`, as part of the policy or as one of its own. For old
    /// browsers it is also sent as `x-frame-options`, which cannot name origins.
    #[must_use]
    pub fn frames(mut self, frames: Frames) -> Self {
        self.frames = frames;
        self.prepared()
    }

    /// Sets what a page may load and run (Content Security Policy). `{nonce}` in it is replaced by
    /// a new random text for each response, which handlers take as [`CspNonce`]. `frame-ancestors`
    /// is added if the policy does not have it.
    #[must_use]
    pub fn content_security_policy(mut self, policy: impl Into<String>) -> Self {
        self.policy = Some(policy.into());
        self.prepared()
    }

    /// Makes browsers report violations of the policy without enforcing it, to try it out.
    ///
    /// ```
    /// use filoplume::middleware::SecurityHeaders;
    /// use filoplume::prelude::*;
    ///
    /// let policy =
    ///     SecurityHeaders::new().content_security_policy("default-src 'self'").report_only();
    /// let response = App::new().get("/", || "hi").with(policy).test().get("/").send();
    /// assert!(
    ///     response
    ///         .header("content-security-policy-report-only")
    ///         .unwrap()
    ///         .starts_with("default-src 'self'")
    /// );
    /// ```
    #[must_use]
    pub fn report_only(mut self) -> Self {
        self.is_report_only = true;
        self.prepared()
    }

    /// Tells browsers to use only TLS for this host, for `max_age` (RFC 6797). This cannot be
    /// revoked before that time is over.
    #[must_use]
    pub fn hsts(mut self, max_age: Duration) -> Self {
        self.hsts = Some(Hsts { max_age, extent: HstsExtent::Host });
        self.prepared()
    }

    /// Like [`hsts`](Self::hsts), for all subdomains too.
    ///
    /// ```
    /// use filoplume::middleware::SecurityHeaders;
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let headers = SecurityHeaders::new().hsts_with_subdomains(Duration::from_secs(86_400));
    /// let response = App::new().get("/", || "hi").with(headers).test().get("/").send();
    /// response.assert_header("strict-transport-security", "max-age=86400; includeSubDomains");
    /// ```
    #[must_use]
    pub fn hsts_with_subdomains(mut self, max_age: Duration) -> Self {
        self.hsts = Some(Hsts { max_age, extent: HstsExtent::Subdomains });
        self.prepared()
    }

    /// Like [`hsts_with_subdomains`](Self::hsts_with_subdomains), and agrees to be added to the
    /// list that browsers are shipped with. The list requires at least a year.
    #[must_use]
    pub fn hsts_preload(mut self, max_age: Duration) -> Self {
        self.hsts = Some(Hsts { max_age, extent: HstsExtent::Preload });
        self.prepared()
    }

    /// Sets a header, or replaces the one of the same name, such as `permissions-policy` or a
    /// weaker `cross-origin-resource-policy`. `{nonce}` is replaced here too.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self = self.without(name);
        self.fields.push((name.to_owned(), value.into()));
        self.prepared()
    }

    /// Omits a header of the table.
    ///
    /// ```
    /// use filoplume::middleware::SecurityHeaders;
    /// use filoplume::prelude::*;
    ///
    /// // Other sites may show the images of this one.
    /// let headers = SecurityHeaders::new().without("cross-origin-resource-policy");
    /// let response = App::new().get("/", || "hi").with(headers).test().get("/").send();
    /// response.assert_no_header("cross-origin-resource-policy");
    /// ```
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(of, _)| !of.eq_ignore_ascii_case(name));
        self.prepared()
    }

    fn has_nonce(&self) -> bool {
        self.ready.iter().any(|(_, value)| value.contains(NONCE))
    }

    /// Prepares the headers that are sent with each response.
    fn prepared(mut self) -> Self {
        self.ready = self.fields.clone();
        let ancestors = self.frames.to_directive();
        let policy =
            self.policy.as_ref().map(|policy| policy.trim().trim_end_matches(';').to_owned());
        let frame_options = match self.frames {
            Frames::Deny => Some("DENY".to_owned()),
            Frames::SameOrigin => Some("SAMEORIGIN".to_owned()),
            Frames::Of(_) | Frames::Anywhere => None,
        };
        let (enforced, reported) = match (policy, ancestors) {
            (Some(policy), ancestors) if self.is_report_only => (ancestors, Some(policy)),
            (Some(policy), Some(ancestors))
                if !policy.to_ascii_lowercase().contains("frame-ancestors") =>
            {
                (Some(format!("{policy}; {ancestors}")), None)
            }
            (policy, ancestors) => (policy.or(ancestors), None),
        };
        let hsts = self.hsts.map(Hsts::to_value);
        let made = [
            ("x-frame-options", frame_options),
            ("content-security-policy", enforced),
            ("content-security-policy-report-only", reported),
            ("strict-transport-security", hsts),
        ];
        for (name, value) in made {
            // Headers that the program set by name take precedence.
            if !self.fields.iter().any(|(of, _)| of.eq_ignore_ascii_case(name)) {
                self.ready.extend(value.map(|value| (name.to_owned(), value)));
            }
        }
        self
    }
}

impl SecurityHeaders {
    /// Adds the headers that a response does not have yet.
    fn add_to(&self, response: &mut Response, nonce: Option<&CspNonce>) -> Result<()> {
        for (name, value) in &self.ready {
            if response.headers().contains(name) {
                continue;
            }
            match nonce {
                Some(nonce) if value.contains(NONCE) => {
                    response.add_header(name, value.replace(NONCE, &nonce.0))?;
                }
                _ => {
                    response.add_header(name, value)?;
                }
            }
        }
        Ok(())
    }
}

impl Default for SecurityHeaders {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for SecurityHeaders {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let nonce = if self.has_nonce() { Some(CspNonce::generate()?) } else { None };
        if let Some(nonce) = &nonce {
            request.extensions_mut().insert(nonce.clone());
        }
        let mut response = run_catching_panics(request, next);
        self.add_to(&mut response, nonce.as_ref())?;
        Ok(response)
    }

    fn refused(&self, request: &Request, next: NextRefused<'_>) -> Response {
        let mut response = next.run(request);
        // The content uses no nonce, but without one the policy would not be valid.
        let nonce = if self.has_nonce() { CspNonce::generate().ok() } else { None };
        // An app with a value that cannot be sent does not start.
        let _ = self.add_to(&mut response, nonce.as_ref());
        response
    }

    fn configure(&self, options: &mut RouteOptions) {
        if self.has_nonce() {
            options.provide::<CspNonce>();
        }
        for (name, value) in &self.ready {
            if let Err(invalid) = Response::default().set_header(name, value) {
                let (name, value) = (name.escape_debug(), value.escape_debug());
                options.mistake(format!(
                    "SecurityHeaders: `{name}: {value}` cannot be sent: {invalid}"
                ));
            }
        }
    }
}

impl Frames {
    fn to_directive(&self) -> Option<String> {
        match self {
            Self::Deny => Some("frame-ancestors 'none'".to_owned()),
            Self::SameOrigin => Some("frame-ancestors 'self'".to_owned()),
            Self::Of(origins) => Some(format!("frame-ancestors {}", origins.join(" "))),
            Self::Anywhere => None,
        }
    }
}

impl Hsts {
    fn to_value(self) -> String {
        let seconds = if self.max_age.is_zero() { 0 } else { whole_seconds(self.max_age) };
        let mut value = format!("max-age={seconds}");
        let extent = match self.extent {
            HstsExtent::Host => "",
            HstsExtent::Subdomains => "; includeSubDomains",
            HstsExtent::Preload => "; includeSubDomains; preload",
        };
        let _ = write!(value, "{extent}");
        value
    }
}

impl CspNonce {
    /// Returns the text, for a `nonce` attribute.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Fails if the system has no randomness: no page is better than one with a nonce that can be
    /// guessed.
    fn generate() -> Result<Self> {
        let mut bytes = [0; NONCE_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(STANDARD.encode(bytes).into()))
    }
}

impl std::fmt::Display for CspNonce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromRequest for CspNonce {
    type Rejection = ExtensionRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, ExtensionRejection> {
        Extension::from_request(request, context).map(|Extension(nonce)| nonce)
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<Self>(
            "it takes a `CspNonce`, and no policy has `{nonce}`: add \
             `.with(middleware::SecurityHeaders::new().content_security_policy(\"script-src \
             'nonce-{nonce}'\"))` to the app",
        );
    }
}

impl IntoResponse for CspNonce {
    const SAYS_STATUS: bool = false;

    fn into_response(self) -> Result<Response> {
        self.0.to_string().into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(headers: &'a SecurityHeaders, name: &str) -> Option<&'a str> {
        headers.ready.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn frame_ancestors_are_sent_once_in_the_policy_or_alone() {
        let of = |headers: SecurityHeaders| {
            let policy = value(&headers, "content-security-policy").map(str::to_owned);
            (policy, value(&headers, "x-frame-options").map(str::to_owned))
        };
        let expected =
            |policy: &str, options: &str| (Some(policy.to_owned()), Some(options.to_owned()));
        let new = SecurityHeaders::new;
        assert_eq!(of(new()), expected("frame-ancestors 'none'", "DENY"));
        assert_eq!(of(new().frames(Frames::Anywhere)), (None, None));
        let policy = "default-src 'self'; frame-ancestors 'self'".to_owned();
        assert_eq!(
            of(new().frames(Frames::SameOrigin).content_security_policy("default-src 'self';")),
            expected(&policy, "SAMEORIGIN")
        );
        let of_policy = of(new()
            .frames(Frames::Of(vec!["https://a".to_owned()]))
            .content_security_policy(&*policy));
        assert_eq!(of_policy, (Some(policy), None));
    }

    #[test]
    fn a_header_of_the_handler_stays_the_only_one() {
        let mut response = Response::new(200);
        response.set_header("x-frame-options", "SAMEORIGIN").unwrap();
        SecurityHeaders::new().add_to(&mut response, None).unwrap();
        assert_eq!(response.headers().get_all("x-frame-options").count(), 1);
    }

    #[test]
    fn a_report_only_policy_still_forbids_frames() {
        let all =
            SecurityHeaders::new().content_security_policy("default-src 'self'").report_only();
        assert_eq!(value(&all, "content-security-policy-report-only"), Some("default-src 'self'"));
        assert_eq!(value(&all, "content-security-policy"), Some("frame-ancestors 'none'"));
    }

    #[test]
    fn strict_transport_security_is_opt_in() {
        let year = Duration::from_secs(31_536_000);
        let of = |headers: SecurityHeaders| {
            value(&headers, "strict-transport-security").map(str::to_owned)
        };
        assert_eq!(of(SecurityHeaders::new()), None);
        assert_eq!(of(SecurityHeaders::new().hsts(year)).as_deref(), Some("max-age=31536000"));
        assert_eq!(of(SecurityHeaders::new().hsts(Duration::ZERO)).as_deref(), Some("max-age=0"));
        let preload = of(SecurityHeaders::new().hsts_preload(year));
        assert_eq!(preload.as_deref(), Some("max-age=31536000; includeSubDomains; preload"));
    }

    #[test]
    fn frame_ancestors_are_found_in_any_case() {
        let all = SecurityHeaders::new().content_security_policy("Frame-Ancestors 'self'");
        assert_eq!(value(&all, "content-security-policy"), Some("Frame-Ancestors 'self'"));
    }
}
