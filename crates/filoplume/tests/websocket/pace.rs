//! A member of a room that sends faster than the others read.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use filoplume::RunningApp;
use filoplume::prelude::*;
use filoplume::websocket::{CloseCode, CloseReason, Room, Socket, WebSocketUpgrade};
use filoplume_websocket::{Encoder, Role};

use crate::client::{Client, DEADLINE, Received, eventually};

const MESSAGE_BYTES: usize = 4096;

/// A room, and what its members did.
#[derive(Clone, Default)]
struct Site {
    room: Room,
    sent: Arc<AtomicUsize>,
    slow: Arc<AtomicUsize>,
}

impl Site {
    /// Members send messages to each other at `/`. The receivers get their sockets, and the reasons
    /// why they closed.
    fn start(&self) -> (RunningApp, mpsc::Receiver<Socket>, mpsc::Receiver<CloseReason>) {
        let (opened, sockets) = mpsc::channel();
        let (closed, reasons) = mpsc::channel();
        let site = self.clone();
        let app = App::new()
            .websocket("/", move |upgrade: WebSocketUpgrade| {
                let (opened, closed) = (opened.clone(), closed.clone());
                let (joined, Self { room, sent, slow }) = (site.room.clone(), site.clone());
                upgrade
                    .close_timeout(DEADLINE)
                    .on_open(move |socket: &Socket| {
                        joined.join(socket);
                        let _ = opened.send(socket.clone());
                    })
                    .on_message(move |socket: &Socket, message: Vec<u8>| {
                        let broadcast = room.broadcast_except(socket, message);
                        slow.fetch_add(broadcast.slow, Ordering::Relaxed);
                        sent.fetch_add(1, Ordering::Relaxed);
                    })
                    .on_close(move |_: &Socket, reason: &CloseReason| {
                        let _ = closed.send(reason.clone());
                    })
            })
            .start("127.0.0.1:0")
            .unwrap();
        (app, sockets, reasons)
    }
}

/// Sends numbered messages as fast as they are taken, until the connection ends.
fn flood(stream: &TcpStream) -> JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || {
        let mut encoder = Encoder::new(Role::Client);
        for number in 0_u64.. {
            let mut message = [7; MESSAGE_BYTES];
            message[..8].copy_from_slice(&number.to_be_bytes());
            let mut frame = Vec::new();
            encoder.binary(&message, &mut frame);
            match stream.write_all(&frame) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it was forgotten"),
                Err(_) => return,
            }
        }
    })
}

/// Sends until a member takes no more because the system's buffers are full. A loop that has not
/// run yet is not enough: the member must still be behind after a pause.
fn crowd(room: &Room, stalled: &Socket, except: &Socket) {
    let is_behind = || stalled.unsent_bytes() > 128 * 1024;
    while !is_behind() {
        assert_eq!(room.broadcast_except(except, &[7; MESSAGE_BYTES]).slow, 0);
        if is_behind() {
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn a_flooding_member_gets_no_ordinary_reader_disconnected() {
    const BYTES_PER_SECOND: u32 = 1024 * 1024;
    let site = Site::default();
    let (app, ..) = site.start();
    let mut readers = [(); 3].map(|()| Client::connect(app.local_addr(), "/"));
    let flooder = Client::connect(app.local_addr(), "/");
    eventually("all have joined", || site.room.len() == 4);
    let flood = flood(flooder.stream());
    thread::scope(|scope| {
        for reader in &mut readers {
            let site = &site;
            scope.spawn(move || {
                let (started, mut read) = (Instant::now(), 0);
                for number in 0_u64..1024 {
                    match reader.receive() {
                        Received::Binary(message) => {
                            assert_eq!(message[..8], number.to_be_bytes(), "none is missing");
                            read += u32::try_from(message.len()).unwrap();
                        }
                        other => panic!("message {number}: {other:?}"),
                    }
                    assert_eq!(site.slow.load(Ordering::Relaxed), 0, "at message {number}");
                    let due = Duration::from_secs(1) * read / BYTES_PER_SECOND;
                    thread::sleep(due.saturating_sub(started.elapsed()));
                }
            });
        }
    });
    assert_eq!(site.room.len(), 4);
    flooder.stream().shutdown(Shutdown::Both).unwrap();
    flood.join().unwrap();
}

#[test]
fn a_member_that_reads_nothing_is_still_disconnected() {
    let site = Site::default();
    let (app, ..) = site.start();
    let _stalled = Client::connect(app.local_addr(), "/");
    let flooder = Client::connect(app.local_addr(), "/");
    eventually("both have joined", || site.room.len() == 2);
    let flood = flood(flooder.stream());
    eventually("it is disconnected", || site.slow.load(Ordering::Relaxed) == 1);
    // The slow member is gone, so nobody delays the others.
    let before = site.sent.load(Ordering::Relaxed);
    eventually("the others continue", || site.sent.load(Ordering::Relaxed) > before + 10_000);
    flooder.stream().shutdown(Shutdown::Both).unwrap();
    flood.join().unwrap();
}

#[test]
fn a_sender_that_waits_is_closed_like_any_other() {
    let by_program = |_: &RunningApp, socket: &Socket| socket.close(CloseCode::GOING_AWAY, "");
    let by_shutdown = |app: &RunningApp, _: &Socket| app.shutdown_handle().shutdown();
    for close in [by_program as fn(&RunningApp, &Socket), by_shutdown] {
        let site = Site::default();
        let (app, sockets, reasons) = site.start();
        let _stalled = Client::connect(app.local_addr(), "/");
        let stalled = sockets.recv_timeout(DEADLINE).unwrap();
        let mut sender = Client::connect(app.local_addr(), "/");
        let socket = sockets.recv_timeout(DEADLINE).unwrap();
        crowd(&site.room, &stalled, &socket);
        let (mut encoder, mut both) = (Encoder::new(Role::Client), Vec::new());
        encoder.binary(b"one", &mut both);
        encoder.binary(b"another", &mut both);
        sender.raw(&both);
        eventually("one is sent", || site.sent.load(Ordering::Relaxed) > 0);
        close(&app, &socket);
        let Received::Close(1001, _) = sender.receive() else { panic!("it is closed") };
        sender.close(1001, "answered");
        sender.stream().shutdown(Shutdown::Write).unwrap();
        let reason = reasons.recv_timeout(DEADLINE / 2).unwrap();
        assert_eq!(reason.reason, "answered", "its answer is read: {reason:?}");
    }
}

#[test]
fn whoever_waits_for_a_member_that_goes_away_goes_on_at_once() {
    let site = Site::default();
    let (app, sockets, _) = site.start();
    let waits = || {
        let stalled_client = Client::connect(app.local_addr(), "/");
        let stalled = sockets.recv_timeout(DEADLINE).unwrap();
        let mut sender = Client::connect(app.local_addr(), "/");
        let socket = sockets.recv_timeout(DEADLINE).unwrap();
        crowd(&site.room, &stalled, &socket);
        let before = site.sent.load(Ordering::Relaxed);
        let (mut encoder, mut both) = (Encoder::new(Role::Client), Vec::new());
        encoder.binary(b"one", &mut both);
        encoder.binary(b"another", &mut both);
        sender.raw(&both);
        let are_sent = |count| site.sent.load(Ordering::Relaxed) >= before + count;
        eventually("one is sent", || are_sent(1));
        let begun = Instant::now();
        drop(stalled_client);
        eventually("the other one is sent", || are_sent(2));
        begun.elapsed()
    };
    // Without a wake-up, the sender would wait for three seconds each time. With one, that can only
    // happen now and then on a busy machine.
    assert!((0..5).any(|_| waits() < Duration::from_secs(2)), "nobody has woken it");
}

/// Sends one message from each of several sockets at once, again and again. All of them and the
/// other members read as fast as they can. On a busy machine many threads may handle a message at
/// the same time, so those of a round that are long fit into 16 times the bound together.
#[test]
fn several_senders_at_once_get_no_ordinary_reader_disconnected() {
    const ROUNDS: usize = 3;
    let deflate: &[_] = &[("Sec-WebSocket-Extensions", "permessage-deflate")];
    for (senders, bytes, fields) in [
        (2, 230_000, deflate),
        (8, 100_000, &[]),
        (8, 500_000, deflate),
        (30, 20_000, &[]),
        (30, 230_000, deflate),
    ] {
        let site = Site::default();
        let (app, ..) = site.start();
        let mut readers = [(); 5].map(|()| Client::connect(app.local_addr(), "/"));
        let mut flooders: Vec<_> =
            (0..senders).map(|_| Client::connect_with(app.local_addr(), "/", fields)).collect();
        eventually("all have joined", || site.room.len() == 5 + senders);
        // That of being in the room.
        let used = || app.server().metrics().unwrap().memory_used;
        let used_before = used();
        thread::scope(|scope| {
            let expect = |client: &mut Client, count: usize| {
                for number in 0..count {
                    match client.receive() {
                        Received::Binary(message) => assert_eq!(message.len(), bytes),
                        other => panic!("{senders} x {bytes}: message {number}: {other:?}"),
                    }
                }
            };
            for reader in &mut readers {
                scope.spawn(move || expect(reader, senders * ROUNDS));
            }
            for flooder in &mut flooders {
                let mut stream = flooder.stream().try_clone().unwrap();
                let message = flooder.encoded(&vec![7; bytes]);
                scope.spawn(move || (0..ROUNDS).for_each(|_| stream.write_all(&message).unwrap()));
                scope.spawn(move || expect(flooder, (senders - 1) * ROUNDS));
            }
        });
        assert_eq!(site.slow.load(Ordering::Relaxed), 0);
        assert_eq!(site.room.len(), 5 + senders);
        // That of frames which were kept for a later turn, too.
        eventually("all memory is given back", || used() <= used_before);
    }
}

/// Nothing arrives after the pause, so only a new deadline brings the ping.
#[test]
fn a_sender_whose_pause_is_over_is_pinged_again() {
    let (opened, sockets) = mpsc::channel();
    let room = Room::new();
    let (joined, sent) = (room.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&sent);
    let app = App::new()
        .websocket("/", move |upgrade: WebSocketUpgrade| {
            let (opened, room, count) = (opened.clone(), joined.clone(), Arc::clone(&count));
            let joined = joined.clone();
            upgrade
                .ping_interval(Some(Duration::from_millis(100)))
                .pong_timeout(DEADLINE)
                .on_open(move |socket: &Socket| {
                    joined.join(socket);
                    let _ = opened.send(socket.clone());
                })
                .on_message(move |socket: &Socket, message: Vec<u8>| {
                    room.broadcast_except(socket, message);
                    count.fetch_add(1, Ordering::Relaxed);
                })
        })
        .start("127.0.0.1:0")
        .unwrap();
    let _stalled = Client::connect(app.local_addr(), "/");
    let stalled = sockets.recv_timeout(DEADLINE).unwrap();
    let mut sender = Client::connect(app.local_addr(), "/");
    let socket = sockets.recv_timeout(DEADLINE).unwrap();
    crowd(&room, &stalled, &socket);
    // It is not answered, so no other one comes before the messages.
    sender.expect(Received::Ping(Vec::new()));
    let both = [sender.encoded(b"one"), sender.encoded(b"another")].concat();
    sender.raw(&both);
    eventually("both are sent", || sent.load(Ordering::Relaxed) == 2);
    sender.expect(Received::Ping(Vec::new()));
}
