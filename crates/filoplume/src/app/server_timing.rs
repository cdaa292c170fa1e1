//! The setting for `Server-Timing`, which shows clients where the time of their request went: see
//! [`App::server_timing`](super::App::server_timing).

use filoplume_runtime::{Exchange, Request, Response};

#[cfg(feature = "cookies")]
use super::App;
#[cfg(feature = "cookies")]
use crate::key::Key;
use crate::observe::server_timing;

/// The field by which a request asks for `Server-Timing`.
#[cfg(feature = "cookies")]
const FIELD: &str = "x-server-timing";

/// Which responses have the field `Server-Timing`.
#[derive(Default)]
pub(crate) enum ServerTiming {
    #[default]
    Never,
    /// All responses, because the app is in development mode.
    Always,
    /// Those to requests with a token of this key.
    #[cfg(feature = "cookies")]
    Signed(Key),
}

/// Marks a request that has shown a valid token, and its response.
#[derive(Clone, Copy, Debug)]
struct Asked;

impl ServerTiming {
    /// In development every response has the field, whatever the program has set.
    pub(super) fn in_development(self, is_development: bool) -> Self {
        if is_development { Self::Always } else { self }
    }

    /// Returns whether no response has the field. If so, the other methods need not be called.
    #[inline]
    pub(crate) fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }

    /// Returns whether a request must be measured, and marks the request if it has a valid token.
    #[cold]
    #[cfg_attr(not(feature = "cookies"), expect(unused_variables, reason = "there are no keys"))]
    pub(crate) fn measures(&self, request: &mut Request) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            #[cfg(feature = "cookies")]
            Self::Signed(key) => {
                let is_asked = request.headers().get(FIELD).is_some_and(|token| {
                    key.is_server_timing_token(token, std::time::SystemTime::now())
                });
                if is_asked {
                    request.extensions_mut().insert(Asked);
                }
                is_asked
            }
        }
    }

    /// Returns whether this request has shown a valid token.
    #[cold]
    pub(crate) fn is_asked(request: &Request) -> bool {
        request.extensions().get::<Asked>().is_some()
    }

    /// Marks the response to a request that has shown a valid token.
    #[cold]
    pub(crate) fn mark(response: &mut Response) {
        response.extensions_mut().insert(Asked);
    }

    /// Adds the field to a response, if its client may see it.
    #[cold]
    pub(crate) fn show(&self, response: &mut Response, exchange: &Exchange) {
        let is_asked = response.extensions_mut().remove::<Asked>().is_some();
        if !is_asked && !matches!(self, Self::Always) {
            return;
        }
        // The value consists of digits and tokens, so it is valid.
        let _ = response.set_header("server-timing", server_timing(&exchange.timing));
        if is_asked {
            // No cache may give the times of this request to somebody else.
            let _ = response.set_header("cache-control", "no-store");
        }
    }
}

#[cfg(feature = "cookies")]
impl App {
    /// Shows clients that have a token of this key where the time of their requests went, by the
    /// field `Server-Timing` of the response. The developer tools of browsers display it. In
    /// [development](Self::development) every response has the field, and no token is needed.
    ///
    /// A request asks for it with the field `x-server-timing`, whose value is a token of
    /// [`Key::server_timing_token`]. Such a request is measured exactly, and its response is not
    /// cached: it has `cache-control: no-store`. A request without a valid token is treated as
    /// usual and is not told why. The guide shows how to make a token with `openssl`.
    ///
    /// Anybody who has a token can use it until it expires, and learns nothing but times. The key
    /// may be that of the sessions.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::prelude::*;
    /// use std::io::{Read, Write};
    /// use std::net::TcpStream;
    /// use std::time::Duration;
    ///
    /// let key = Key::generate(); // `Key::from_env("TIMING_SECRET")?` in production
    /// let app = App::new().get("/", || "hi").server_timing(key.clone()).start("127.0.0.1:0")?;
    ///
    /// let token = key.server_timing_token(Duration::from_secs(600));
    /// let mut client = TcpStream::connect(app.local_addr())?;
    /// write!(
    ///     client,
    ///     "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Server-Timing: {token}\r\n\r\n"
    /// )?;
    /// let mut response = String::new();
    /// client.read_to_string(&mut response)?;
    /// assert!(response.contains("\r\nserver-timing: ") && response.contains("total;dur="));
    /// app.shutdown();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn server_timing(self, key: Key) -> Self {
        let (mut app, _) = self.observed();
        app.server_timing = ServerTiming::Signed(key);
        app
    }
}
