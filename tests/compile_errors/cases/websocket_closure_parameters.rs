//! Closures of a WebSocket whose parameters are swapped, have no types, or have wrong ones.

use filoplume::prelude::*;
use filoplume::websocket::{Socket, WebSocketUpgrade};

fn swapped(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade.on_message(|text: String, socket: &Socket| socket.send(text))
}

fn untyped(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade.on_message(|socket, text| socket.send(text))
}

fn borrowed(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade.on_message(|socket: &Socket, text: &str| socket.send(text))
}

fn without_socket(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade.on_message(|text: String| drop(text))
}

fn main() {
    let _ = App::new()
        .websocket("/swapped", swapped)
        .websocket("/untyped", untyped)
        .websocket("/borrowed", borrowed)
        .websocket("/without", without_socket);
}
