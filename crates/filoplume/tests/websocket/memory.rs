//! How much of the server's memory budget sockets use.

use std::sync::mpsc;

use filoplume::prelude::*;
use filoplume::websocket::{Rooms, SendError, Socket, WebSocketUpgrade};
use filoplume::{RunningApp, ServerConfig};

use crate::client::{Client, DEADLINE, Received, eventually, text};

fn echo(memory_max: usize) -> RunningApp {
    App::new()
        .config(ServerConfig::default().memory_max(memory_max))
        .websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade.on_message(|socket: &Socket, text: String| socket.send(text))
        })
        .start("127.0.0.1:0")
        .unwrap()
}

/// Returns the frame of a text of 500,000 bytes, up to its first `length` bytes.
fn beginning(length: usize) -> Vec<u8> {
    let head = [&[0x81, 0xff][..], &500_000_u64.to_be_bytes(), &[0; 4]].concat();
    [head, vec![b'a'; length]].concat()
}

#[test]
fn a_message_for_which_there_is_no_memory_closes_its_socket_and_no_other() {
    let app = echo(200_000);
    let mut other = Client::connect(app.local_addr(), "/ws");
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.raw(&beginning(180_000));
    let received = client.receive();
    assert!(matches!(received, Received::Close(1013, _)), "{received:?}");
    client.expect(Received::End);
    other.text("hello");
    other.expect(text("hello"));
    // The memory of the refused message is free again.
    let long = "a".repeat(40_000);
    other.text(&long);
    other.expect(text(&long));
}

#[test]
fn a_message_that_stops_is_given_up_when_memory_is_short() {
    let app = echo(100_000);
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.raw(&beginning(60_000));
    let received = client.receive();
    assert!(matches!(received, Received::Close(1013, _)), "{received:?}");
}

/// What inflates a message takes 48 KiB, however little of the message has arrived.
#[test]
fn what_inflates_an_incomplete_message_counts_until_its_socket_is_closed() {
    let app = echo(30_000);
    let deflate = [("Sec-WebSocket-Extensions", "permessage-deflate")];
    let mut client = Client::connect_with(app.local_addr(), "/ws", &deflate);
    assert!(!client.extensions.is_empty(), "it is compressed");
    // The first part of "Hello", with a mask of zeros.
    client.raw(b"\x41\x83\0\0\0\0\xf2\x48\xcd");
    let received = client.receive();
    assert!(matches!(received, Received::Close(1013, _)), "{received:?}");
    client.expect(Received::End);
    let mut other = Client::connect_with(app.local_addr(), "/ws", &deflate);
    let long = "a".repeat(10_000);
    other.text(&long);
    other.expect(text(&long));
    expect_that_all_memory_is_given_back(&app);
}

#[test]
fn messages_for_a_peer_that_does_not_read_are_refused_when_memory_is_short() {
    let (failed, errors) = mpsc::channel();
    let app = App::new()
        .config(ServerConfig::default().memory_max(200_000))
        .websocket("/ws", move |upgrade: WebSocketUpgrade| {
            let failed = failed.clone();
            upgrade.unsent_bytes_max(1 << 30).on_open(move |socket: &Socket| {
                let (socket, failed) = (socket.clone(), failed.clone());
                std::thread::spawn(move || {
                    let message = vec![0; 10_000];
                    // The system's buffers take some megabytes.
                    let error = (0..100_000).find_map(|_| socket.send(&message).err());
                    failed.send(error).unwrap();
                });
            })
        })
        .start("127.0.0.1:0")
        .unwrap();
    let _client = Client::connect(app.local_addr(), "/ws");
    let error = errors.recv_timeout(DEADLINE).unwrap();
    // On a busy machine, the messages may be queued before the server notices that the peer does
    // not read.
    assert!(matches!(error, Some(SendError::OutOfMemory | SendError::Closed)), "{error:?}");
}

#[track_caller]
fn expect_that_all_memory_is_given_back(app: &RunningApp) {
    let is_given_back = || app.server().metrics().unwrap().memory_used == 0;
    eventually("all memory is given back", is_given_back);
}

#[test]
fn a_long_message_that_was_read_takes_no_more_memory() {
    let app = echo(2_000_000);
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.raw(&beginning(500_000));
    client.expect(text(&"a".repeat(500_000)));
    expect_that_all_memory_is_given_back(&app);
}

#[test]
fn rooms_for_which_there_is_no_memory_close_their_socket_and_no_other() {
    let rooms = Rooms::new();
    let all = rooms.clone();
    let app = App::new()
        .config(ServerConfig::default().memory_max(400_000))
        .websocket("/ws", move |upgrade: WebSocketUpgrade| {
            let rooms = all.clone();
            upgrade.on_message(move |socket: &Socket, name: String| {
                rooms.join(&name, socket);
                socket.send(name)
            })
        })
        .start("127.0.0.1:0")
        .unwrap();
    let join = |client: &mut Client, number: u32| {
        client.text(&format!("{number} {}", "a".repeat(500)));
        client.receive()
    };
    let connect = || Client::connect(app.local_addr(), "/ws");
    let (mut other, mut client) = (connect(), connect());
    let mut number = 0;
    let refused = loop {
        number += 1;
        match join(&mut client, number) {
            Received::Text(_) => assert!(number < 500, "the rooms take more than the memory"),
            refused => break refused,
        }
    };
    assert!(matches!(refused, Received::Close(1013, _)), "{refused:?}");
    assert!(number > 50, "a quarter of the memory is enough for {number} rooms");
    drop(client);
    eventually("the socket has left its rooms", || rooms.names().is_empty());
    expect_that_all_memory_is_given_back(&app);
    for number in 0..50 {
        let joined = join(&mut other, number);
        assert!(matches!(joined, Received::Text(_)), "{number}: {joined:?}");
    }
}

/// Regression: a room was charged to its next member before the one that had closed released it.
/// There was no memory for that, so the room was charged to nobody.
#[test]
fn rooms_of_a_closed_socket_are_charged_to_others_when_memory_is_full() {
    const ROOMS: usize = 40;
    const NAME_BYTES: usize = 1000;
    // As in `room.rs` and `memberships.rs`.
    const NAMED_ROOM_BYTES: usize = 512;
    const MEMBERSHIP_BYTES: usize = 96;

    let rooms = Rooms::new();
    let app = App::new()
        .config(ServerConfig::default().memory_max(800_000))
        .websocket("/ws", {
            let rooms = rooms.clone();
            move |upgrade: WebSocketUpgrade| {
                let rooms = rooms.clone();
                upgrade.on_message(move |socket: &Socket, name: String| {
                    rooms.join(&name, socket);
                    socket.send("joined")
                })
            }
        })
        .start("127.0.0.1:0")
        .unwrap();
    let large = |number: usize| format!("{number:0>NAME_BYTES$}");
    // Joins the rooms, and up to `small` others. Returns how many of those there was memory for.
    let join = |client: &mut Client, small: usize| {
        for number in 0..ROOMS {
            client.text(&large(number));
            client.expect(text("joined"));
        }
        let joined = (0..small).take_while(|number| {
            client.text(&format!("{number:0>4}"));
            client.receive() == text("joined")
        });
        joined.count()
    };
    let connect = || Client::connect(app.local_addr(), "/ws");
    let small = {
        let (mut first, mut second) = (connect(), connect());
        join(&mut first, 0);
        join(&mut second, 1000)
    };
    expect_that_all_memory_is_given_back(&app);
    assert!((2..1000).contains(&small), "the memory is full after {small} more rooms");

    let (mut first, mut second) = (connect(), connect());
    join(&mut first, 0);
    assert_eq!(join(&mut second, small - 1), small - 1);
    drop(first);
    let expected = ROOMS * (NAMED_ROOM_BYTES + NAME_BYTES + MEMBERSHIP_BYTES)
        + (small - 1) * (NAMED_ROOM_BYTES + 4 + MEMBERSHIP_BYTES);
    let is_charged = || app.server().metrics().unwrap().memory_used == expected;
    eventually("the other socket is charged for the rooms", is_charged);
    second.text(&large(0));
    second.expect(text("joined"));
}
