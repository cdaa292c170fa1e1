//! The request that becomes a WebSocket.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use filoplume_runtime::{Request, Response, Stopping, Version};
#[cfg(feature = "websocket-deflate")]
use filoplume_websocket::{DeflateConfig, DeflateOptions};
use filoplume_websocket::{HandshakeError, HandshakeRequest, Limits, VERSION};

use super::blocking::{self, BlockingSocket};
use super::config::Config;
use super::handlers::{Handlers, MessageFn};
use super::message::{FromMessage, SocketResult};
use super::negotiated::{Codec, Negotiated};
use super::origins::{self, Allowed};
use super::socket::{CloseReason, Socket};
use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::extract::FromRequest;
use crate::core::options::RouteOptions;
use crate::core::response::IntoResponse;
use crate::observe::SocketCounts;

/// A request to open a WebSocket, and the settings and closures of the socket.
///
/// As a parameter it accepts the handshake and rejects every other request: with `426` if it does
/// not ask for a WebSocket of version 13, and with `400` if it is malformed. As a result it opens
/// the socket. Other parameters of the handler, such as a session, can reject the request before
/// the socket opens.
///
/// The closures belong to one socket and may change what they capture. They may block: the
/// messages of a socket are handled one after the other, and no other socket waits for them. A
/// silent socket needs no thread.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::websocket::{CloseReason, Socket, WebSocketUpgrade};
///
/// let app = App::new().websocket(
///     "/count/{word}",
///     |Path(word): Path<String>, upgrade: WebSocketUpgrade| {
///         let mut count = 0;
///         upgrade
///             .on_open(|socket: &Socket| socket.send("send me texts"))
///             .on_message(move |socket: &Socket, text: String| {
///                 count += text.matches(&word).count();
///                 socket.send(format!("{word} came {count} times"))
///             })
///             .on_close(|socket: &Socket, reason: &CloseReason| {
///                 println!("{} has left: {}", socket.id(), reason.code);
///             })
///     },
/// );
/// app.test().get("/count/a").send().assert_status(426);
/// ```
///
/// # Pages of other sites
///
/// A browser opens a WebSocket to any server, and sends the cookies of that server along. The
/// handshake is therefore refused with `403` if its `Origin` names another host than the request,
/// or if it is `http` and the request came over HTTPS. A proxy that the app
/// [trusts](crate::App::trust_proxies) may say which host and scheme the browser used.
/// Use [`AllowOrigins`](super::AllowOrigins) to accept others. Clients that are not browsers send
/// no `Origin` and are accepted.
#[doc(alias("on_upgrade"))]
#[must_use = "return it from the handler"]
pub struct WebSocketUpgrade {
    handshake: HandshakeRequest,
    origin: Origin,
    /// What is wrong with a value that the program has passed.
    mistake: Option<String>,
    subprotocols: Vec<String>,
    config: Config,
    handlers: Handlers,
    stopping: Stopping,
    /// Where the socket is counted, if the app counts sockets.
    counts: Option<Arc<SocketCounts>>,
}

/// The origin of the page that asks, compared to the host of the request.
enum Origin {
    Accepted,
    Foreign(String),
}

impl FromRequest for WebSocketUpgrade {
    type Rejection = Error;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self> {
        if request.version() == Version::Http10 {
            // Its `Upgrade` is ignored (RFC 9110 section 7.8).
            return Err(refuse(HandshakeError::UpgradeMissing));
        }
        let handshake =
            HandshakeRequest::parse(request.method().as_str(), request.headers().iter())
                .map_err(refuse)?;
        Ok(Self {
            handshake,
            origin: Origin::of(request, context),
            mistake: None,
            subprotocols: Vec::new(),
            config: Config::default(),
            handlers: Handlers::default(),
            stopping: context.settings.stopping.clone(),
            counts: context.settings.observer.as_ref().map(|observer| observer.sockets()),
        })
    }

    fn configure(options: &mut RouteOptions) {
        options.take_upgrade();
    }
}

impl Origin {
    fn of(request: &Request, context: &Context<'_>) -> Self {
        let mut origins = request.headers().get_all("origin");
        let Some(origin) = origins.next() else { return Self::Accepted };
        let origin = String::from_utf8_lossy(origin).into_owned();
        let is_allowed = request.extensions().get::<Allowed>().is_some();
        let is_own = || context.client(request).is_own_origin(&origin, request);
        if origins.next().is_none() && (is_allowed || is_own()) {
            return Self::Accepted;
        }
        Self::Foreign(origin)
    }

    fn is(&self, other: &str) -> bool {
        matches!(self, Self::Foreign(origin) if origin.eq_ignore_ascii_case(other))
    }
}

/// The response to a request that is not a handshake.
fn refuse(error: HandshakeError) -> Error {
    let status = error.status();
    let refusal = match error {
        HandshakeError::UpgradeMissing | HandshakeError::MethodInvalid => Error::new(
            status,
            "this address is a WebSocket: connect with `new WebSocket(..)` or another client for \
             WebSockets",
        ),
        error => Error::new(status, format!("the WebSocket handshake is refused: {error}")),
    };
    let refusal = refusal.with_source(error);
    match status {
        426 => refusal
            .with_known_header("upgrade", "websocket")
            .with_known_header("sec-websocket-version", VERSION),
        405 => refusal.with_known_header("allow", "GET"),
        _ => refusal,
    }
}

impl WebSocketUpgrade {
    /// Calls a closure when the socket opens.
    pub fn on_open<R: SocketResult>(
        mut self,
        open: impl FnOnce(&Socket) -> R + Send + 'static,
    ) -> Self {
        self.handlers.on_open(open);
        self
    }

    /// Calls a closure for each message. Its second parameter is a [`FromMessage`], such as
    /// `String`, `Vec<u8>`, [`Message`](super::Message) or `Json<T>`.
    ///
    /// A socket is closed with 1003 or 1007 if a message has another type, and with 1011 if the
    /// closure returns an error or panics.
    #[doc(alias("on_upgrade"))]
    pub fn on_message<M: FromMessage, R: SocketResult, K>(
        mut self,
        handle: impl MessageFn<M, R, K> + Send + 'static,
    ) -> Self {
        self.handlers.on_message(handle);
        self
    }

    /// Calls a closure once, when the socket has closed.
    pub fn on_close(mut self, close: impl FnOnce(&Socket, &CloseReason) + Send + 'static) -> Self {
        self.handlers.on_close(close);
        self
    }

    /// Gives the socket to a closure on a thread of the pool, in place of the other closures. The
    /// thread waits for the peer all the time, so this is for few sockets. They count among the
    /// threads that may wait for peers, whose number is bounded.
    ///
    /// When the server begins to stop, the socket is closed with 1001, and
    /// [`receive`](BlockingSocket::receive) returns `None` once the peer has answered. The server
    /// waits for the closure until its deadline.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::websocket::{BlockingSocket, Message, WebSocketUpgrade};
    /// use std::io;
    ///
    /// fn sum(socket: &mut BlockingSocket) -> io::Result<()> {
    ///     let mut sum = 0;
    ///     while let Some(message) = socket.receive()? {
    ///         sum += message.as_text().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    ///         socket.send(sum.to_string())?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let app = App::new().websocket("/sum", |upgrade: WebSocketUpgrade| upgrade.on_thread(sum));
    /// # app.test();
    /// ```
    ///
    /// The sockets on threads have at most half of
    /// [`threads_max`](crate::ServerConfig::threads_max), and those of one client an eighth. Where
    /// there is no thread, the client gets a `503` instead of the socket.
    ///
    /// # Errors
    ///
    /// If the origin is refused, as the response.
    pub fn on_thread<R: SocketResult>(
        self,
        handler: impl FnOnce(&mut BlockingSocket) -> R + Send + 'static,
    ) -> Result<Response> {
        let stopping = self.stopping.clone();
        self.accept(|negotiated| {
            Response::upgrade(move |stream| blocking::run(negotiated, stream, &stopping, handler))
        })
    }

    /// Accepts pages of these origins too, such as `https://app.example.org`. A list that does not
    /// depend on the request is better given to [`AllowOrigins`](super::AllowOrigins), which is
    /// checked when the app starts. Here, an invalid entry makes every handshake fail with `500`.
    pub fn allow_origins<O: AsRef<str>>(mut self, origins: impl IntoIterator<Item = O>) -> Self {
        let mut is_allowed = false;
        for allowed in origins {
            match origins::parse(allowed.as_ref()) {
                Ok(allowed) => is_allowed |= self.origin.is(&allowed),
                Err(mistake) => {
                    self.mistake = Some(format!("`WebSocketUpgrade::allow_origins`: {mistake}"));
                }
            }
        }
        if is_allowed {
            self.origin = Origin::Accepted;
        }
        self
    }

    /// Accepts pages of all sites. Only for sockets that do not depend on cookies or on the
    /// client's address.
    pub fn allow_any_origin(mut self) -> Self {
        self.origin = Origin::Accepted;
        self
    }

    /// Sets the subprotocols, the preferred one first. The first that the client offers is chosen:
    /// see [`Socket::subprotocol`]. If it offers none of them, the socket opens without one.
    pub fn subprotocols<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.subprotocols = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the longest message that is accepted, after inflating. Default: 1 MiB. A longer one
    /// closes the socket with 1009.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.config.limits.message_bytes_max = bytes;
        self.config.limits.frame_bytes_max = bytes;
        self
    }

    /// Sets all limits of the codec. Default: those of [`Limits`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// Sets how many bytes may wait for the peer before [`Socket::send`] fails. Default: 256 KiB.
    /// As many bytes again may be under way. A longer message is accepted if nothing else waits,
    /// and a message of a room if no more than half of this waits.
    pub fn unsent_bytes_max(mut self, bytes: usize) -> Self {
        self.config.unsent_bytes_max = bytes;
        self
    }

    /// Sets how many [rooms](super::Room) the socket may be in. Default: 1,000. A socket that joins
    /// one more is not added to it, and is closed with 1008. Rooms count in the server's [memory
    /// budget](crate::ServerConfig::memory_max): the rooms of all sockets together use at most a
    /// quarter of it. A socket that joins a room when this quarter is used is not added either, and
    /// is closed with 1013.
    pub fn rooms_max(mut self, rooms: usize) -> Self {
        self.config.rooms_max = rooms;
        self
    }

    /// Sets how long the peer may be silent before a ping is sent. `None` sends none, and a peer
    /// that has vanished is noticed only when something is sent to it. Default: 30 seconds. With an
    /// interval of zero, every handshake fails with `500`.
    pub fn ping_interval(mut self, interval: Option<Duration>) -> Self {
        self.refuse_zero(interval, "ping_interval", "pings would be sent all the time");
        self.config.times.ping_interval = interval.unwrap_or(Duration::MAX);
        self
    }

    /// Sets how long the peer may take to answer a ping. Default: 20 seconds. With a timeout of
    /// zero, every handshake fails with `500`.
    pub fn pong_timeout(mut self, timeout: Duration) -> Self {
        self.refuse_zero(Some(timeout), "pong_timeout", "no answer would be in time");
        self.config.times.pong_timeout = timeout;
        self
    }

    /// Sets how long the peer may take to answer a close frame. With zero, the connection ends
    /// right after the frame, and `on_close` is told 1006. Default: 5 seconds.
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.config.times.close_timeout = timeout;
        self
    }

    /// Sets how long a message may take to arrive. It is checked together with the pings, or after
    /// this time if that is shorter than the interval of the pings. With zero, a message that does
    /// not arrive at once closes the socket. Default: 30 seconds.
    pub fn message_timeout(mut self, timeout: Duration) -> Self {
        self.config.times.message_timeout = timeout;
        self
    }

    /// Sets how messages are compressed, if the client offers compression. `None` compresses
    /// nothing.
    ///
    /// By default each message is compressed on its own, so that an idle socket holds no memory for
    /// it and a broadcast is compressed once.
    #[cfg(feature = "websocket-deflate")]
    pub fn compression(mut self, compression: Option<(DeflateConfig, DeflateOptions)>) -> Self {
        self.config.deflate = compression;
        self
    }

    fn refuse_zero(&mut self, time: Option<Duration>, name: &str, effect: &str) {
        if time == Some(Duration::ZERO) {
            self.mistake = Some(format!("with a `WebSocketUpgrade::{name}` of zero, {effect}"));
        }
    }

    /// Returns the subprotocols that the client offers, the preferred one first.
    pub fn offered_subprotocols(&self) -> impl Iterator<Item = &str> {
        self.handshake.subprotocols()
    }

    /// Checks the origin, and returns the response with everything that was negotiated.
    pub(super) fn accept(self, respond: impl FnOnce(Negotiated) -> Response) -> Result<Response> {
        if let Some(mistake) = self.mistake {
            // The message is for the log: the mistake is the program's, not the client's.
            return Err(Error::internal(mistake));
        }
        if let Origin::Foreign(origin) = self.origin {
            return Err(origins::refuse(origin));
        }
        let supported: Vec<&str> = self.subprotocols.iter().map(String::as_str).collect();
        let subprotocol = self.handshake.choose_subprotocol(&supported).map(Box::from);
        let codec = Codec::plain(self.config.limits);
        #[cfg(feature = "websocket-deflate")]
        let codec = codec.negotiate(&self.config, self.handshake.extensions());
        let extension = codec.extension.clone();
        let mut response = respond(Negotiated {
            codec,
            subprotocol: subprotocol.clone(),
            handlers: self.handlers,
            config: self.config,
            counts: self.counts,
        });
        response.set_header("upgrade", "websocket")?;
        response.set_header("sec-websocket-accept", self.handshake.accept_key())?;
        if let Some(name) = &subprotocol {
            let name: &str = name;
            response.set_header("sec-websocket-protocol", name)?;
        }
        if let Some(extension) = extension {
            response.set_header("sec-websocket-extensions", extension)?;
        }
        Ok(response)
    }
}

impl IntoResponse for WebSocketUpgrade {
    fn into_response(self) -> Result<Response> {
        self.accept(|negotiated| Response::upgrade_to(negotiated.into_protocol()))
    }
}

impl fmt::Debug for WebSocketUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketUpgrade")
            .field("handshake", &self.handshake)
            .finish_non_exhaustive()
    }
}
