//! The framework with long-lived connections: `live_ours ADDRESS`. It speaks TLS if `CERTIFICATE`
//! and `KEY` are in its environment. `/room` and `/feed` send a message of 1 KiB to everybody twice
//! a second, with the time when it is sent.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::SystemTime;

use common::{BROADCAST_EVERY, address_argument, broadcast_text, mebibytes};
use filoplume::extract::RawQuery;
use filoplume::prelude::*;
use filoplume::response::Reader;
use filoplume::sse::{Event, EventStream, Hub, LastEventId};
use filoplume::websocket::{
    DeflateConfig, DeflateOptions, Message, Room, Socket, WebSocketUpgrade,
};
use filoplume::{Listen, ServerConfig, Tls};

/// How many bytes of a content are read at once, as in the configuration of nginx.
const PIECE_BYTES: usize = 64 * 1024;

fn echo(socket: &Socket, message: Message) -> Result<(), filoplume::websocket::SendError> {
    match message {
        Message::Text(text) => socket.send(text),
        Message::Binary(bytes) => socket.send(bytes),
    }
}

fn zeros(RawQuery(query): RawQuery) -> Reader<io::Take<io::Repeat>> {
    Reader::new(io::Read::take(io::repeat(0), mebibytes(&query) << 20))
}

/// The file as an ordinary reader, so that the system cannot send it by itself.
fn read_file(path: &str) -> Result<Reader<File>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok(Reader::sized(file, length))
}

/// Reads the content and throws it away.
fn length(mut body: Body) -> Result<String> {
    let (mut length, mut piece) = (0, vec![0; PIECE_BYTES]);
    loop {
        match body.read(&mut piece)? {
            0 => return Ok(length.to_string()),
            read => length += read,
        }
    }
}

/// Replaces the file that is named in the environment by the content. Like nginx, it writes to
/// another name first.
fn store(mut body: Body) -> Result<StatusCode> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let path = env::var("STORE").map_err(|_| Error::not_found("there is no STORE"))?;
    let part = format!("{path}.{}", NEXT.fetch_add(1, Ordering::Relaxed));
    body.save_to(&part)?;
    fs::rename(part, path)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends to all sockets and to all streams.
fn broadcast(room: &Room, hub: &Hub) {
    loop {
        thread::sleep(BROADCAST_EVERY);
        if !room.is_empty() {
            room.broadcast(broadcast_text(SystemTime::now()));
        }
        hub.send(Event::new(broadcast_text(SystemTime::now())));
    }
}

/// A hub that sends nothing. It is in the state of the app, because a stream ends with its hub.
#[derive(Clone)]
struct Quiet(Hub);

fn app(room: &Room, hub: &Hub) -> App {
    let file = env::var("FILE").unwrap_or_default();
    let read = file.clone();
    App::new()
        .get("/plaintext", || "Hello, World!")
        .get("/zeros", zeros)
        .get("/file", move || FileResponse::open(&file))
        .get("/file_read", move || read_file(&read))
        .route("/length", post(length).content_bytes_max(8 << 30))
        .route("/store", put(store).content_bytes_max(8 << 30))
        .websocket("/echo", |upgrade: WebSocketUpgrade| upgrade.compression(None).on_message(echo))
        .websocket("/deflate", |upgrade: WebSocketUpgrade| {
            let compression = (DeflateConfig::default(), DeflateOptions::default());
            upgrade.compression(Some(compression)).on_message(echo)
        })
        .websocket("/quiet", |upgrade: WebSocketUpgrade| upgrade.on_message(echo))
        .websocket("/room", |State(room): State<Room>, upgrade: WebSocketUpgrade| {
            upgrade
                .compression(None)
                .on_open(move |socket: &Socket| room.join(socket))
                .on_message(echo)
        })
        .get("/feed", |State(hub): State<Hub>, last: LastEventId| -> EventStream {
            hub.subscribe(&last)
        })
        .get("/quiet_feed", |State(Quiet(hub)): State<Quiet>, last: LastEventId| -> EventStream {
            hub.subscribe(&last)
        })
        .state(Quiet(Hub::new()))
        .state(room.clone())
        .state(hub.clone())
        .config(ServerConfig::default().connections_max(50_000).content_bytes_max(8 << 30))
}

fn main() -> Result<()> {
    let (room, hub) = (Room::new(), Hub::new());
    let app = app(&room, &hub);
    thread::spawn(move || broadcast(&room, &hub));
    let address = address_argument();
    match (env::var("CERTIFICATE"), env::var("KEY")) {
        (Ok(certificate), Ok(key)) => {
            app.listen_on(Listen::new().https(address, Tls::from_pem_files(certificate, key)))
        }
        _ => app.listen(address),
    }
}
