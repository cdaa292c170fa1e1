//! What peers can do wrong, and what bounds them.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use filoplume::prelude::*;
use filoplume::websocket::{SendError, Socket, WebSocketUpgrade};
use filoplume_websocket::{DeflateConfig, DeflateOptions, Encoder, Role};

use crate::client::{Client, DEADLINE, Received, text};

fn echo() -> filoplume::RunningApp {
    App::new()
        .websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade
                .message_bytes_max(100_000)
                .on_message(|socket: &Socket, text: String| socket.send(text))
        })
        .start("127.0.0.1:0")
        .unwrap()
}

#[test]
fn a_frame_that_breaks_the_protocol_closes_the_socket_at_every_cut() {
    let app = echo();
    let rows: [(&[u8], u16); 7] = [
        (&[0x81, 0x01, b'a'], 1002),
        (&[0xc1, 0x80, 0, 0, 0, 0], 1002),
        (&[0x83, 0x80, 0, 0, 0, 0], 1002),
        (&[0x80, 0x80, 0, 0, 0, 0], 1002),
        (&[0x88, 0x81, 0, 0, 0, 0, 3], 1002),
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff], 1007),
        (&[0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], 1009),
    ];
    for (frame, code) in rows {
        for cut in 0..frame.len() {
            let mut client = Client::connect(app.local_addr(), "/ws");
            client.stream().set_nodelay(true).unwrap();
            client.text("first");
            client.raw(&frame[..cut]);
            client.expect(text("first"));
            client.raw(&frame[cut..]);
            let received = client.receive();
            assert!(
                matches!(received, Received::Close(found, _) if found == code),
                "{frame:x?} cut at {cut}: {received:?}"
            );
            client.expect(Received::End);
        }
    }
}

#[test]
fn a_bomb_closes_the_socket() {
    let app = echo();
    let offer = [("Sec-WebSocket-Extensions", "permessage-deflate")];
    let mut client = Client::connect_with(app.local_addr(), "/ws", &offer);
    let (params, _) = DeflateConfig::default().accept("permessage-deflate").unwrap();
    let mut encoder = Encoder::new(Role::Client)
        .with_deflate(&params, DeflateOptions { level: 9, ..DeflateOptions::default() });
    let mut bomb = Vec::new();
    encoder.text(&"a".repeat(16 << 20), &mut bomb);
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    client.raw(&bomb);
    assert!(matches!(client.receive(), Received::Close(1009, _)));
}

#[test]
fn a_peer_that_does_not_read_fills_only_the_bound() {
    let (filled, results) = mpsc::channel();
    let app = App::new()
        .websocket("/ws", move |upgrade: WebSocketUpgrade| {
            let filled = filled.clone();
            upgrade.unsent_bytes_max(100_000).on_open(move |socket: &Socket| {
                let socket = socket.clone();
                let filled = filled.clone();
                thread::spawn(move || {
                    let message = vec![0; 10_000];
                    let mut unsent = 0;
                    // The system's buffers take some megabytes.
                    let error = (0..100_000).find_map(|_| {
                        unsent = unsent.max(socket.unsent_bytes());
                        socket.send(&message).err()
                    });
                    filled.send((error, unsent)).unwrap();
                });
            })
        })
        .start("127.0.0.1:0")
        .unwrap();
    let _client = Client::connect(app.local_addr(), "/ws");
    let (error, unsent) = results.recv_timeout(DEADLINE).unwrap();
    assert_eq!(error, Some(SendError::Full));
    assert!(unsent <= 101_000, "{unsent}");
}

/// While the peer does not read, the answers to a flood wait, and the flood is not read.
#[test]
fn a_flood_of_pings_is_read_only_as_fast_as_it_is_answered() {
    let app = echo();
    let client = Client::connect(app.local_addr(), "/ws");
    client.stream().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let ping: Vec<u8> = [&[0x89, 0xfd, 0, 0, 0, 0][..], &[b'p'; 125]].concat();
    let flood = ping.repeat(1000);
    // Both systems buffer some megabytes. Without a bound, the flood would be endless.
    let mut sent = 0;
    let stuck = loop {
        match (&mut client.stream()).write(&flood[sent % flood.len()..]) {
            Ok(count) => sent += count,
            Err(error) => break error.kind(),
        }
        assert!(sent < 1 << 30, "the server reads without end");
    };
    assert!(matches!(stuck, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{stuck}");
    // The server continues when the peer reads.
    let mut answers = vec![0; 127 * 1000];
    (&mut client.stream()).read_exact(&mut answers).unwrap();
    assert!(answers.chunks(127).all(|pong| pong[0] == 0x8a && pong[1] == 125));
}

#[test]
fn a_message_that_trickles_closes_the_socket() {
    let app = App::new()
        .websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade
                .ping_interval(Some(Duration::from_millis(50)))
                .message_timeout(Duration::from_millis(10))
                .on_message(|socket: &Socket, text: String| socket.send(text))
        })
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.raw(&[0x81, 0x85, 0, 0, 0, 0, b'a']);
    client.expect(Received::Close(1008, "a message arrives too slowly".to_owned()));
}

/// Nothing else looks at the socket: without pings, the next look would be in a hundred years.
#[test]
fn a_message_without_an_end_closes_a_socket_without_pings() {
    let app = App::new()
        .websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade
                .ping_interval(None)
                .message_timeout(Duration::from_millis(100))
                .on_message(|socket: &Socket, text: String| socket.send(text))
        })
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.text("first");
    client.expect(text("first"));
    client.raw(&[0x81, 0x85, 0, 0, 0, 0, b'a']);
    client.expect(Received::Close(1008, "a message arrives too slowly".to_owned()));
}

/// Each byte shows that the peer is there, but not that its message will ever end.
#[test]
fn a_message_that_trickles_without_end_closes_the_socket() {
    let app = App::new()
        .websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade
                .ping_interval(Some(Duration::from_millis(50)))
                // So long that no busy machine keeps bytes from arriving for that time.
                .message_timeout(Duration::from_secs(1))
                .message_bytes_max(1 << 30)
                .on_message(|socket: &Socket, text: String| socket.send(text))
        })
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.raw(&[0x81, 0xff, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0, 0]);
    let mut stream = client.stream().try_clone().unwrap();
    let is_closed = &AtomicBool::new(false);
    let trickled_to_the_end = thread::scope(|scope| {
        let trickles = scope.spawn(move || {
            let end = Instant::now() + Duration::from_secs(20);
            while Instant::now() < end {
                if is_closed.load(Ordering::Relaxed) || stream.write_all(b"a").is_err() {
                    return true;
                }
            }
            false
        });
        let slow = "a message arrives too slowly".to_owned();
        client.expect_after_pings(&Received::Close(1008, slow));
        is_closed.store(true, Ordering::Relaxed);
        trickles.join().unwrap()
    });
    assert!(trickled_to_the_end, "the socket was closed only when it was silent");
}

/// Each message is quick, but there is always one that has begun.
#[test]
fn messages_without_a_pause_are_not_one_slow_message() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let app = App::new()
        .websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade
                .ping_interval(Some(Duration::from_millis(50)))
                .message_timeout(TIMEOUT)
                .on_message(|socket: &Socket, text: String| socket.send(text))
        })
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr(), "/ws");
    let message = [0x81, 0x85, 0, 0, 0, 0, b'h', b'e', b'l', b'l', b'o'];
    let (begin, end) = message.split_at(8);
    client.raw(begin);
    let started = Instant::now();
    while started.elapsed() < TIMEOUT + Duration::from_millis(500) {
        client.raw(&[end, begin].concat());
        client.expect(Received::Text("hello".to_owned()));
    }
}
