//! Rooms: who receives what, and what happens to slow members.

use std::sync::mpsc;

use filoplume::prelude::*;
use filoplume::websocket::{
    Broadcast, CloseCode, CloseReason, Room, Rooms, Socket, WebSocketUpgrade,
};

use crate::client::{Client, DEADLINE, Received, eventually, text};

fn chat(rooms: Rooms) -> filoplume::RunningApp {
    App::new()
        .state(rooms)
        .websocket(
            "/{room}",
            |Path(name): Path<String>, State(rooms): State<Rooms>, upgrade: WebSocketUpgrade| {
                let (room, all) = (name.clone(), rooms.clone());
                upgrade
                    .on_open(move |socket: &Socket| {
                        all.join(&room, socket);
                        socket.send("joined")
                    })
                    .on_message(move |_: &Socket, text: String| {
                        rooms.broadcast(&name, text);
                    })
            },
        )
        .start("127.0.0.1:0")
        .unwrap()
}

#[test]
fn members_of_a_room_receive_the_same_messages_in_the_same_order() {
    let rooms = Rooms::new();
    let app = chat(rooms.clone());
    let offers: [&[(&str, &str)]; 4] = [
        &[],
        &[("Sec-WebSocket-Extensions", "permessage-deflate")],
        &[("Sec-WebSocket-Extensions", "permessage-deflate; server_max_window_bits=9")],
        &[("Sec-WebSocket-Extensions", "permessage-deflate; server_no_context_takeover")],
    ];
    let mut members: Vec<_> =
        offers.iter().map(|offer| Client::connect_with(app.local_addr(), "/one", offer)).collect();
    let mut other = Client::connect(app.local_addr(), "/other");
    members.iter_mut().for_each(|member| member.expect(text("joined")));
    other.expect(text("joined"));
    assert_eq!((rooms.len_of("one"), rooms.len_of("other")), (4, 1));

    let long = "to all members of the room, ".repeat(10);
    for (n, member) in members.iter_mut().enumerate() {
        member.text(&format!("{long}{n}"));
    }
    let received: Vec<Vec<Received>> =
        members.iter_mut().map(|member| (0..4).map(|_| member.receive()).collect()).collect();
    assert!(received.iter().all(|messages| *messages == received[0]), "{received:?}");
    other.text("to the other room");
    other.expect(text("to the other room"));
}

/// The members of a room share its messages, and each socket has other messages of its own. A peer
/// receives both kinds in the order in which they were sent, whatever waits when the loop sends.
#[test]
fn messages_of_a_room_and_others_keep_their_order() {
    let offers: [&[(&str, &str)]; 3] = [
        &[],
        &[("Sec-WebSocket-Extensions", "permessage-deflate")],
        &[("Sec-WebSocket-Extensions", "permessage-deflate; server_no_context_takeover")],
    ];
    let (room, (opened, sockets)) = (Room::new(), mpsc::channel());
    let in_app = room.clone();
    let app = App::new()
        .websocket("/ws", move |upgrade: WebSocketUpgrade| {
            let (room, opened) = (in_app.clone(), opened.clone());
            upgrade.unsent_bytes_max(1 << 20).on_open(move |socket: &Socket| {
                room.join(socket);
                opened.send(socket.clone()).unwrap();
            })
        })
        .start("127.0.0.1:0")
        .unwrap();
    let mut clients: Vec<_> =
        offers.iter().map(|offer| Client::connect_with(app.local_addr(), "/ws", offer)).collect();
    let sockets: Vec<Socket> =
        clients.iter().map(|_| sockets.recv_timeout(DEADLINE).unwrap()).collect();
    let message = |n: usize| format!("{n} {}", "long ".repeat(n % 3 * 40));
    for n in 0..300 {
        match n % 5 {
            0 | 2 => sockets.iter().for_each(|socket| socket.send(message(n)).unwrap()),
            _ => assert_eq!(room.broadcast(message(n)), Broadcast { sent: 3, slow: 0 }),
        }
    }
    sockets.iter().for_each(|socket| socket.close(CloseCode::NORMAL, "all sent"));
    assert_eq!(room.broadcast("too late").sent, 0);
    for client in &mut clients {
        for n in 0..300 {
            client.expect(text(&message(n)));
        }
        client.expect(Received::Close(1000, "all sent".to_owned()));
    }
}

#[test]
fn a_room_is_left_when_a_socket_closes_and_ends_with_its_last_member() {
    let rooms = Rooms::new();
    let app = chat(rooms.clone());
    let mut first = Client::connect(app.local_addr(), "/one");
    let mut second = Client::connect(app.local_addr(), "/one");
    first.expect(text("joined"));
    second.expect(text("joined"));
    assert_eq!(rooms.names(), ["one"]);
    drop(first);
    eventually("the first has left", || rooms.len_of("one") == 1);
    second.close(1000, "");
    second.expect(Received::Close(1000, String::new()));
    eventually("the room has ended", || rooms.names().is_empty());
    assert_eq!(rooms.broadcast("one", "nobody"), Broadcast::default());
}

#[test]
fn a_socket_that_has_closed_joins_no_room() {
    let (rooms, room) = (Rooms::new(), Room::new());
    let in_app = (rooms.clone(), room.clone());
    let (closed, ends) = mpsc::channel();
    let app = App::new()
        .websocket("/ws", move |upgrade: WebSocketUpgrade| {
            let ((rooms, room), closed) = (in_app.clone(), closed.clone());
            upgrade.on_close(move |socket: &Socket, _: &CloseReason| {
                rooms.join("one", socket);
                room.join(socket);
                closed.send(()).unwrap();
            })
        })
        .start("127.0.0.1:0")
        .unwrap();
    drop(Client::connect(app.local_addr(), "/ws"));
    ends.recv_timeout(DEADLINE).unwrap();
    assert_eq!((rooms.names(), room.len()), (Vec::new(), 0));
}

#[test]
fn a_room_that_was_kept_takes_no_later_one_of_its_name_with_it() {
    let rooms = Rooms::new();
    let (opened, sockets) = mpsc::channel();
    let app = App::new()
        .websocket("/ws", move |upgrade: WebSocketUpgrade| {
            let opened = opened.clone();
            upgrade.on_open(move |socket: &Socket| opened.send(socket.clone()).unwrap())
        })
        .start("127.0.0.1:0")
        .unwrap();
    let _clients = [(); 2].map(|()| Client::connect(app.local_addr(), "/ws"));
    let [first, second] = [(); 2].map(|()| sockets.recv_timeout(DEADLINE).unwrap());
    rooms.join("one", &first);
    let ended = rooms.get("one").unwrap();
    ended.leave(&first);
    assert!(rooms.get("one").is_none());
    rooms.join("one", &second);
    // A program that still has the earlier room lets a socket join and leave.
    ended.join(&first);
    ended.leave(&first);
    assert_eq!((rooms.len_of("one"), ended.len()), (1, 1));
}

#[test]
fn all_but_one_receive_a_message() {
    let room = Room::new();
    let in_app = room.clone();
    let app = App::new()
        .websocket("/ws", move |upgrade: WebSocketUpgrade| {
            let (joined, room) = (in_app.clone(), in_app.clone());
            upgrade
                .on_open(move |socket: &Socket| {
                    joined.join(socket);
                    socket.send("joined")
                })
                .on_message(move |socket: &Socket, text: String| {
                    if text == "leave" {
                        room.leave(socket);
                    }
                    room.broadcast_except(socket, text);
                    socket.send("done")
                })
        })
        .start("127.0.0.1:0")
        .unwrap();
    let mut first = Client::connect(app.local_addr(), "/ws");
    let mut second = Client::connect(app.local_addr(), "/ws");
    first.expect(text("joined"));
    second.expect(text("joined"));
    first.text("hello");
    first.expect(text("done"));
    second.expect(text("hello"));
    second.text("leave");
    second.expect(text("done"));
    first.expect(text("leave"));
    assert_eq!(room.len(), 1);
}

#[test]
fn a_member_that_does_not_read_is_disconnected_or_skipped() {
    for (room, is_disconnected) in [(Room::new(), true), (Room::skip_slow(), false)] {
        let in_app = room.clone();
        let app = App::new()
            .websocket("/ws", move |upgrade: WebSocketUpgrade| {
                let room = in_app.clone();
                upgrade.unsent_bytes_max(100_000).on_open(move |socket: &Socket| room.join(socket))
            })
            .start("127.0.0.1:0")
            .unwrap();
        let mut slow = Client::connect(app.local_addr(), "/ws");
        eventually("it has joined", || room.len() == 1);
        let message = vec![b'x'; 50_000];
        // The system's buffers take some megabytes.
        let mut broadcast = Broadcast::default();
        for _ in 0..10_000 {
            broadcast = room.broadcast(&message);
            if broadcast.slow > 0 {
                break;
            }
        }
        assert_eq!(broadcast, Broadcast { sent: 0, slow: 1 });
        loop {
            match slow.receive() {
                Received::Binary(received) => assert_eq!(received, message),
                Received::Close(code, _) => {
                    assert!(is_disconnected);
                    assert_eq!(code, 1008);
                    break;
                }
                other => panic!("{other:?}"),
            }
            if !is_disconnected && room.broadcast(b"news").sent == 1 {
                loop {
                    match slow.receive() {
                        Received::Binary(received) if received == b"news" => break,
                        Received::Binary(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
                break;
            }
        }
    }
}
