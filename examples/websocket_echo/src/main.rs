//! Sends every message of a WebSocket back: at `/` on the event loop, at `/thread` on a thread of
//! its own. With the limits that the conformance tests of Autobahn need.

use filoplume::prelude::*;
use filoplume::websocket::{
    BlockingSocket, DeflateConfig, DeflateOptions, Limits, Message, Socket, WebSocketUpgrade,
};

/// Autobahn sends messages of 16 MiB, and 4 MiB in fragments of 64 bytes.
const LIMITS: Limits = Limits {
    frame_bytes_max: 20 * 1024 * 1024,
    message_bytes_max: 20 * 1024 * 1024,
    fragments_max: 100_000,
};

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    App::new()
        .websocket("/", |upgrade: WebSocketUpgrade| {
            settings(upgrade).on_message(|socket: &Socket, message: Message| match message {
                Message::Text(text) => socket.send(text),
                Message::Binary(bytes) => socket.send(bytes),
            })
        })
        .websocket("/thread", |upgrade: WebSocketUpgrade| {
            settings(upgrade).on_thread(|socket: &mut BlockingSocket| {
                while let Some(message) = socket.receive()? {
                    match message {
                        Message::Text(text) => socket.send(text)?,
                        Message::Binary(bytes) => socket.send(bytes)?,
                    }
                }
                Ok::<(), std::io::Error>(())
            })
        })
}

fn settings(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    // Both sides may refer to earlier messages, so that all of the compression is tested.
    let deflate = DeflateConfig {
        server_context_takeover: true,
        client_context_takeover: true,
        ..DeflateConfig::default()
    };
    upgrade.limits(LIMITS).compression(Some((deflate, DeflateOptions::default())))
}
