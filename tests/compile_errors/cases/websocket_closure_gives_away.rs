//! A closure of a WebSocket that can be called only once, and one that returns a text.

use filoplume::prelude::*;
use filoplume::websocket::{Socket, WebSocketUpgrade};

fn echo(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    let name = String::from("ada");
    upgrade.on_message(move |_: &Socket, _: String| drop(name))
}

fn answer(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade.on_message(|_: &Socket, text: String| text)
}

fn inferred(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade.on_message(|socket, text: String| socket.send(text))
}

fn main() {
    let _ = App::new().websocket("/a", echo).websocket("/b", answer).websocket("/c", inferred);
}
