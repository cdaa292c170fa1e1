//! The routes of the attacked app with long-lived connections: sockets, a room, and event streams.

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use filoplume::prelude::App;
use filoplume::pushed::Pushed;
use filoplume::sse::{Hub, LastEventId};
use filoplume::websocket::{BlockingSocket, CloseCode, Message, Room, Socket, WebSocketUpgrade};

/// How long `/impatient` and `/closing` wait for their peers.
const SOON: Duration = Duration::from_millis(200);

/// What `/written` writes: more than all buffers on the way hold.
const PIECES: usize = 1024;
const PIECE_BYTES: usize = 64 * 1024;

/// How many pieces `/computed` writes, and how long it computes before each of them. `/computes`
/// and `/sends` compute as long for each message.
const COMPUTED_PIECES: usize = 4;
const COMPUTES: Duration = Duration::from_millis(5);

/// The head of a handshake after the method and the target. It offers compression.
pub const UPGRADE: &str = "HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
     Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

/// The room and the hub, which send to long-lived connections.
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
        .websocket("/on-thread", |upgrade: WebSocketUpgrade| {
            upgrade.on_thread(|socket: &mut BlockingSocket| {
                while let Some(message) = socket.receive()? {
                    socket.send(message)?;
                }
                std::io::Result::Ok(())
            })
        })
        .websocket("/computes", |upgrade: WebSocketUpgrade| {
            upgrade.on_thread(|socket: &mut BlockingSocket| {
                while let Some(message) = socket.receive()? {
                    compute();
                    socket.send(message)?;
                }
                std::io::Result::Ok(())
            })
        })
        .websocket("/sends", |upgrade: WebSocketUpgrade| {
            upgrade.on_thread(|socket: &mut BlockingSocket| -> std::io::Result<()> {
                loop {
                    compute();
                    socket.send("news")?;
                }
            })
        })
        .get("/written", || {
            Pushed::written(|out| (0..PIECES).try_for_each(|_| out.write_all(&[b'x'; PIECE_BYTES])))
        })
        .get("/computed", || {
            Pushed::written(|out| {
                (0..COMPUTED_PIECES).try_for_each(|_| {
                    compute();
                    out.write_all(&[b'x'; 8 * 1024])
                })
            })
        })
        .get("/feed", move |last: LastEventId| hub.subscribe(&last))
    }
}

fn compute() {
    let end = Instant::now() + COMPUTES;
    while black_box(Instant::now()) < end {}
}
