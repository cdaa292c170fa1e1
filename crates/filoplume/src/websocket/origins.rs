//! Pages of other sites that may open WebSockets.

use std::error::Error as StdError;
use std::fmt;

use filoplume_runtime::{Request, Response};

use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::log::{Throttle, log_without_subscriber};
use crate::semantics::origin::check_origin;

/// Middleware that lets pages of other sites open WebSockets. The list is checked when the app
/// starts.
///
/// Use it for a list that is known by then, and
/// [`WebSocketUpgrade::allow_origins`](super::WebSocketUpgrade::allow_origins) for one that depends
/// on the request.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::websocket::{AllowOrigins, Socket, WebSocketUpgrade};
///
/// let app = App::new()
///     .websocket("/echo", |upgrade: WebSocketUpgrade| {
///         upgrade.on_message(|socket: &Socket, text: String| socket.send(text))
///     })
///     .with(AllowOrigins::new(["https://app.example.org"]));
/// # app.test();
///
/// let app = App::new().with(AllowOrigins::new(["app.example.org"]));
/// # let app = app.get("/", || "");
/// let error = app.build().unwrap_err().to_string();
/// assert!(error.contains("`app.example.org` is not an origin"), "{error}");
/// ```
#[derive(Debug)]
pub struct AllowOrigins {
    origins: Vec<String>,
    mistakes: Vec<String>,
}

/// An extension of a request whose page may open a WebSocket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed;

impl AllowOrigins {
    /// Accepts pages of these origins, such as `https://app.example.org`, with the port if it is
    /// not the default one. An app with an invalid origin does not start.
    pub fn new<O: AsRef<str>>(origins: impl IntoIterator<Item = O>) -> Self {
        let mut this = Self { origins: Vec::new(), mistakes: Vec::new() };
        for origin in origins {
            match parse(origin.as_ref()) {
                Ok(origin) => this.origins.push(origin),
                Err(mistake) => this.mistakes.push(format!("AllowOrigins: {mistake}")),
            }
        }
        this
    }
}

impl Middleware for AllowOrigins {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        // More than one value is refused by the handshake.
        let origin = request.headers().get_str("origin").map(str::to_ascii_lowercase);
        if origin.is_some_and(|origin| self.origins.contains(&origin)) {
            request.extensions_mut().insert(Allowed);
        }
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        for mistake in &self.mistakes {
            options.mistake(mistake);
        }
    }
}

/// Returns an allowed origin as browsers send it, or what is wrong with it. A slash at the end is
/// tolerated, because addresses are copied with it.
pub(super) fn parse(origin: &str) -> Result<String, String> {
    let lower = origin.trim_end_matches('/').to_ascii_lowercase();
    let mistake = if lower.contains('*') && lower != "*" {
        "name each origin, or decide in the handler and call `allow_any_origin`"
    } else {
        match check_origin(&lower) {
            Ok(()) => return Ok(lower),
            Err(mistake) => mistake,
        }
    };
    Err(format!("`{}` is not an origin: {mistake}", origin.escape_debug()))
}

/// Refuses a WebSocket that is opened by a page of this origin. The log says how to allow it, and
/// so does the response in development mode. The log lines are limited, because any site can cause
/// them.
#[cold]
pub(super) fn refuse(origin: String) -> Error {
    static LOG: Throttle = Throttle::new();
    let foreign = Foreign(origin);
    if let Some(left_out) = LOG.admit() {
        let origin = &*foreign.0;
        tracing::info!(
            origin,
            left_out = left_out.field(),
            "a WebSocket of another site is refused: {HOW_TO_ALLOW}"
        );
        log_without_subscriber(&format!("a WebSocket is refused: {foreign}{left_out}"));
    }
    Error::forbidden("the WebSocket is opened by a page of another site").with_source(foreign)
}

const HOW_TO_ALLOW: &str = "if the site is yours, name its origin with `AllowOrigins::new` or \
                            `WebSocketUpgrade::allow_origins`";

/// The origin of a page that may not open a WebSocket.
#[derive(Debug)]
struct Foreign(String);

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the origin of its page is {:?}: {HOW_TO_ALLOW}", self.0)
    }
}

impl StdError for Foreign {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_logged_with_the_fix_a_few_times_per_second() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let writer = std::sync::Mutex::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_writer(writer).with_ansi(false).finish();
        let begun = std::time::Instant::now();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..300 {
                assert_eq!(refuse("https://a.example\n".to_owned()).status(), 403);
            }
        });
        let text = std::fs::read_to_string(log.path()).unwrap();
        let lines_max = 11 + usize::try_from(begun.elapsed().as_secs()).unwrap();
        assert!((1..=lines_max).contains(&text.lines().count()), "{text}");
        for part in [r#"origin="https://a.example\n""#, HOW_TO_ALLOW] {
            assert!(text.lines().all(|line| line.contains(part)), "{part}: {text}");
        }
    }
}
