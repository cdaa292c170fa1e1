//! A closure for messages that takes the message alone.

use filoplume::prelude::*;
use filoplume::websocket::WebSocketUpgrade;

fn chat(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade.on_message(|text: String| println!("{text}"))
}

fn main() {
    let _ = App::new().websocket("/", chat);
}
