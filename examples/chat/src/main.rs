//! A chat with rooms, over WebSockets. Open <http://127.0.0.1:5000> in two windows; the part after
//! `#` in the address is the room.
//!
//! `chat [ADDRESS]`. With `REDIS_URL=redis://127.0.0.1/`, instances that use the same Redis server
//! have the same rooms.

use filoplume::instances::RedisChannel;
use filoplume::prelude::*;
use filoplume::websocket::{CloseReason, Rooms, Socket, WebSocketUpgrade};
use serde::{Deserialize, Serialize};

/// Longest text that is passed on, in characters.
const TEXT_CHARS_MAX: usize = 500;

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let mut rooms = Rooms::new();
    if let Ok(url) = std::env::var("REDIS_URL") {
        rooms = rooms.joined(&RedisChannel::new(&url, "chat")?);
    }
    app(rooms).listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app(rooms: Rooms) -> App {
    App::new()
        .state(rooms)
        .get("/", || Html(include_str!("page.html")))
        .get("/rooms", |State(rooms): State<Rooms>| Json(rooms.names()))
        .websocket("/rooms/{room}", chat)
}

#[derive(Deserialize)]
struct Who {
    name: String,
}

/// What a page sends.
#[derive(Deserialize)]
struct Said {
    text: String,
}

/// What the pages of a room receive. `members` counts those of the instance that sends it.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum News<'a> {
    Joined { name: &'a str, members: usize },
    Left { name: &'a str, members: usize },
    Said { name: &'a str, text: &'a str },
}

/// A member of a room.
#[derive(Clone)]
struct Member {
    rooms: Rooms,
    room: String,
    name: String,
}

impl Member {
    fn tell(&self, news: &News<'_>) -> Result<()> {
        self.rooms.broadcast_json(&self.room, news)?;
        Ok(())
    }

    fn join(&self, socket: &Socket) -> Result<()> {
        self.rooms.join(&self.room, socket);
        let members = self.rooms.len_of(&self.room);
        self.tell(&News::Joined { name: &self.name, members })
    }

    fn say(&self, text: &str) -> Result<()> {
        let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
        self.tell(&News::Said { name: &self.name, text: &text })
    }

    fn leave(&self) {
        // The socket has left the room already.
        let members = self.rooms.len_of(&self.room);
        let _ = self.tell(&News::Left { name: &self.name, members });
    }
}

fn chat(
    Path(room): Path<String>,
    Query(who): Query<Who>,
    State(rooms): State<Rooms>,
    upgrade: WebSocketUpgrade,
) -> Result<WebSocketUpgrade> {
    let name = who.name.trim().to_owned();
    if name.is_empty() || name.chars().count() > 30 || room.chars().count() > 30 {
        return Err(Error::bad_request("names have 1 to 30 characters"));
    }
    let member = Member { rooms, room, name };
    let (joins, leaves) = (member.clone(), member.clone());
    Ok(upgrade
        .message_bytes_max(16 * 1024)
        .on_open(move |socket: &Socket| joins.join(socket))
        .on_message(move |_: &Socket, Json(said): Json<Said>| member.say(&said.text))
        .on_close(move |_: &Socket, _: &CloseReason| leaves.leave()))
}
