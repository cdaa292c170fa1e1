//! What a route and its handler say about WebSockets.

use super::RouteOptions;

#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// Whether the route was added by `websocket`.
    is_for_sockets: bool,
    upgrade: Upgrade,
}

/// How the handler takes the request that becomes a WebSocket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Upgrade {
    /// The handler has no parameter that takes it.
    #[default]
    Never,
    /// The handler receives the rejection of other requests, so it can answer these as well.
    Optionally,
    Always,
}

impl RouteOptions {
    /// Records that the route was added by `websocket`.
    pub(crate) fn expect_upgrade(&mut self) {
        self.sockets.is_for_sockets = true;
    }

    /// Records that a parameter takes the request that becomes a WebSocket.
    pub(crate) fn take_upgrade(&mut self) {
        self.sockets.upgrade = if self.is_optional { Upgrade::Optionally } else { Upgrade::Always };
    }

    /// Returns why the route cannot open WebSockets, although it was meant to.
    pub(crate) fn socket_mistake(&self, answers_get: bool) -> Option<&'static str> {
        match self.sockets.upgrade {
            Upgrade::Always if !answers_get => Some(
                "it takes a `WebSocketUpgrade`, but a WebSocket is opened with `GET`: add the \
                 route with `.websocket(..)`",
            ),
            Upgrade::Never if self.sockets.is_for_sockets => Some(
                "the handler of `.websocket(..)` opens no WebSocket: take a parameter `upgrade: \
                 WebSocketUpgrade` and return it; an extractor that contains one calls \
                 `WebSocketUpgrade::configure(options)` in its own `configure`; for an upgrade of \
                 your own add the route with `.get(..)`",
            ),
            _ => None,
        }
    }
}
