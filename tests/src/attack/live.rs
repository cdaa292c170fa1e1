//! The routes of the attacked app whose connections live: sockets, a room, and event streams.

use std::time::Duration;

use filoplume::prelude::App;
use filoplume::sse::{Hub, LastEventId};
use filoplume::websocket::{CloseCode, Message, Room, Socket, WebSocketUpgrade};

/// How long `/impatient` and `/closing` wait for their peers.
const SOON: Duration = Duration::from_millis(200);

/// The head of a handshake behind its first line. It offers compression.
pub const UPGRADE: &str = "HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
     Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

/// What sends to connections that live.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The room that the sockets of `/room` join.
    pub room: Room,
    /// The hub of `/feed`.
    pub hub: Hub,
}

impl Live {
    /// Adds the routes.
    pub(super) fn routes(&self, app: App) -> App {
        let (room, hub) = (self.room.clone(), self.hub.clone());
        app.websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade.on_message(|socket: &Socket, message: Message| socket.send(message))
        })
        .websocket("/room", move |upgrade: WebSocketUpgrade| {
            let room = room.clone();
            upgrade.on_open(move |socket: &Socket| socket.join(&room))
        })
        .websocket("/impatient", |upgrade: WebSocketUpgrade| {
            upgrade
                .ping_interval(Some(SOON))
                .pong_timeout(SOON)
                .on_message(|socket: &Socket, message: Message| socket.send(message))
        })
        .websocket("/closing", |upgrade: WebSocketUpgrade| {
            upgrade
                .close_timeout(SOON)
                .on_open(|socket: &Socket| socket.close(CloseCode::NORMAL, "enough"))
        })
        .get("/feed", move |last: LastEventId| hub.subscribe(&last))
    }
}
