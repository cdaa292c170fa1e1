//! Messages that are neither text nor bytes.

use filoplume::websocket::{Rooms, Socket};
use serde_json::json;

fn announce(rooms: &Rooms, socket: &Socket) {
    rooms.broadcast("lobby", json!({ "text": "hello" }));
    let _ = socket.send(17);
}

fn main() {
    let _ = announce;
}
