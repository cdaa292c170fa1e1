//! Headers that make browsers more careful.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use filoplume_runtime::{Request, Response};

use crate::core::context::Context;
use crate::core::error::Result;
use crate::core::extract::Extract;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::core::response::IntoResponse;
use crate::extract::{Extension, ExtensionRejection};
use crate::middleware::catch_panic::contain;
use crate::middleware::concurrency_limit::whole_seconds;

/// What stands for the nonce in a policy.
const NONCE: &str = "{nonce}";

/// Random bytes of a nonce: CSP wants at least 128 bits (CSP Level 3, 7.1).
const NONCE_BYTES: usize = 16;

/// Tells browsers to be careful with what is answered. What a handler has set is left as it is.
///
/// From the start:
///
/// | Header | Value | What for |
/// |---|---|---|
/// | `x-content-type-options` | `nosniff` | nothing is taken for a script that does not say it is one |
/// | `x-frame-options`, `content-security-policy: frame-ancestors` | `DENY`, `'none'` | no other page shows this one in a frame; see [`frames`](Self::frames) |
/// | `referrer-policy` | `strict-origin-when-cross-origin` | other sites learn the origin, not the path |
/// | `cross-origin-opener-policy` | `same-origin` | windows of other sites have no handle on this one |
/// | `cross-origin-resource-policy` | `same-origin` | other sites do not embed what is answered (fetches by [`Cors`](super::Cors) still work) |
///
/// Only when told: [`hsts`](Self::hsts),
/// [`content_security_policy`](Self::content_security_policy), `permissions-policy` and all others
/// with [`set`](Self::set).
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
#[derive(Clone, Debug)]
pub struct SecurityHeaders {
    /// What is sent, made of the rest: `{nonce}` is still to be replaced.
    ready: Vec<(String, String)>,
    fields: Vec<(String, String)>,
    frames: Frames,
    policy: Option<String>,
    is_report_only: bool,
    hsts: Option<Hsts>,
}

/// Which pages may show an answer in a frame.
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
    /// None. The default.
    #[default]
    Deny,
    /// Those of the same origin.
    SameOrigin,
    /// Those of these origins, such as `https://partner.example`.
    Of(Vec<String>),
    /// All: nothing is said.
    Anywhere,
}

/// The random text of one response that marks its own scripts and styles, for a policy with
/// `{nonce}`. An app with a handler that takes one does not start without such a policy.
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

    /// Sets which pages may show the answers in a frame. Default: none.
    ///
    /// It is said as `frame-ancestors`, in the policy or beside it, and for old browsers as
    /// `x-frame-options`, which cannot name origins.
    #[must_use]
    pub fn frames(mut self, frames: Frames) -> Self {
        self.frames = frames;
        self.prepared()
    }

    /// Sets what a page may load and run (Content Security Policy). `{nonce}` in it is replaced by
    /// a new random text for each response, which handlers take as [`CspNonce`]. `frame-ancestors`
    /// is added unless it is there.
    #[must_use]
    pub fn content_security_policy(mut self, policy: impl Into<String>) -> Self {
        self.policy = Some(policy.into());
        self.prepared()
    }

    /// Lets browsers report what the policy would forbid, and forbid nothing: for trying it out.
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

    /// Tells browsers to use this host over TLS only, for so long (RFC 6797). It cannot be taken
    /// back until that is over.
    #[must_use]
    pub fn hsts(mut self, max_age: Duration) -> Self {
        self.hsts = Some(Hsts { max_age, extent: HstsExtent::Host });
        self.prepared()
    }

    /// As [`hsts`](Self::hsts), for all hosts below this one too.
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

    /// As [`hsts_with_subdomains`](Self::hsts_with_subdomains), and agrees to a place in the list
    /// that browsers are built with. The list wants a year at least.
    #[must_use]
    pub fn hsts_preload(mut self, max_age: Duration) -> Self {
        self.hsts = Some(Hsts { max_age, extent: HstsExtent::Preload });
        self.prepared()
    }

    /// Sets a header in place of one of the same name, such as `permissions-policy` or a weaker
    /// `cross-origin-resource-policy`. `{nonce}` is replaced here too.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self = self.without(name);
        self.fields.push((name.to_owned(), value.into()));
        self.prepared()
    }

    /// Leaves a header of the table out.
    ///
    /// ```
    /// use filoplume::middleware::SecurityHeaders;
    /// use filoplume::prelude::*;
    ///
    /// let headers = SecurityHeaders::new().without("cross-origin-resource-policy");      // for pictures that others show
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

    /// Makes once what is sent with each response.
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
            // What the program set by its name is what it wants.
            if !self.fields.iter().any(|(of, _)| of.eq_ignore_ascii_case(name)) {
                self.ready.extend(value.map(|value| (name.to_owned(), value)));
            }
        }
        self
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
        let mut response = contain(request, next);
        for (name, value) in &self.ready {
            if response.headers().contains(name) {
                continue;
            }
            match &nonce {
                Some(nonce) if value.contains(NONCE) => {
                    response.add_header(name, value.replace(NONCE, &nonce.0))?;
                }
                _ => {
                    response.add_header(name, value)?;
                }
            }
        }
        Ok(response)
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

    /// Fails if the system gives no randomness; no page is better than one with a nonce that can be
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

impl Extract for CspNonce {
    type Rejection = ExtensionRejection;

    fn extract(request: &mut Request, context: &Context<'_>) -> Result<Self, ExtensionRejection> {
        Extension::extract(request, context).map(|Extension(nonce)| nonce)
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
    fn frames_are_said_in_the_policy_or_beside_it_once() {
        let of = |headers: SecurityHeaders| {
            let policy = value(&headers, "content-security-policy").map(str::to_owned);
            (policy, value(&headers, "x-frame-options").map(str::to_owned))
        };
        let said =
            |policy: &str, options: &str| (Some(policy.to_owned()), Some(options.to_owned()));
        let new = SecurityHeaders::new;
        assert_eq!(of(new()), said("frame-ancestors 'none'", "DENY"));
        assert_eq!(of(new().frames(Frames::Anywhere)), (None, None));
        let policy = "default-src 'self'; frame-ancestors 'self'".to_owned();
        assert_eq!(
            of(new().frames(Frames::SameOrigin).content_security_policy("default-src 'self';")),
            said(&policy, "SAMEORIGIN")
        );
        let of_policy = of(new()
            .frames(Frames::Of(vec!["https://a".to_owned()]))
            .content_security_policy(&*policy));
        assert_eq!(of_policy, (Some(policy), None));
    }

    #[test]
    fn a_policy_on_trial_leaves_the_frames_forbidden() {
        let all =
            SecurityHeaders::new().content_security_policy("default-src 'self'").report_only();
        assert_eq!(value(&all, "content-security-policy-report-only"), Some("default-src 'self'"));
        assert_eq!(value(&all, "content-security-policy"), Some("frame-ancestors 'none'"));
    }

    #[test]
    fn strict_transport_is_said_only_when_told() {
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
}
