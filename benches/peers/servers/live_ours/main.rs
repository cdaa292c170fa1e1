//! The framework with connections that live: `live_ours ADDRESS`. It speaks TLS if `CERTIFICATE`
//! and `KEY` are in its environment. `/room` and `/feed` send a message of 1 KiB to everybody twice
//! a second, with the time when it is sent.

use std::env;
use std::io;
use std::thread;

use common::{BROADCAST_EVERY, address_argument, broadcast_text, mebibytes};
use filoplume::extract::RawQuery;
use filoplume::prelude::*;
use filoplume::response::Reader;
use filoplume::sse::{Event, EventStream, Hub, LastEventId};
use filoplume::websocket::{
    DeflateConfig, DeflateOptions, Message, Room, Socket, WebSocketUpgrade,
};
use filoplume::{Listen, ServerConfig, Tls};

fn echo(socket: &Socket, message: Message) -> Result<(), filoplume::websocket::SendError> {
    match message {
        Message::Text(text) => socket.send(text),
        Message::Binary(bytes) => socket.send(bytes),
    }
}

fn zeros(RawQuery(query): RawQuery) -> Reader<io::Take<io::Repeat>> {
    Reader::new(io::Read::take(io::repeat(0), mebibytes(&query) << 20))
}

fn length(mut body: Body) -> Result<String> {
    Ok(io::copy(&mut body, &mut io::sink())?.to_string())
}

/// Sends to all sockets and to all streams.
fn broadcast(room: &Room, hub: &Hub) {
    loop {
        thread::sleep(BROADCAST_EVERY);
        room.broadcast(broadcast_text());
        hub.send(Event::new(broadcast_text()));
    }
}

fn app(room: &Room, hub: &Hub) -> App {
    let file = env::var("FILE").unwrap_or_default();
    App::new()
        .get("/plaintext", || "Hello, World!")
        .get("/zeros", zeros)
        .get("/file", move || FileResponse::open(&file))
        .route("/length", post(length).content_bytes_max(8 << 30))
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
        .get("/quiet_feed", |last: LastEventId| Hub::new().subscribe(&last))
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
