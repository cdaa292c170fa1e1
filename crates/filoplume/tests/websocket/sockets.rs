//! Messages, order, threads, and both closing handshakes.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use filoplume::prelude::*;
use filoplume::websocket::{
    BlockingSocket, CloseCode, CloseReason, Message, SendError, Socket, WebSocketUpgrade,
};
use serde::{Deserialize, Serialize};

use crate::client::{Client, DEADLINE, Received, text};

fn start(app: App) -> filoplume::RunningApp {
    app.start("127.0.0.1:0").unwrap()
}

#[test]
fn messages_are_echoed_in_order_with_their_types() {
    let app = start(App::new().websocket("/ws", |upgrade: WebSocketUpgrade| {
        upgrade.on_message(|socket: &Socket, message: Message| socket.send(message))
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.ping(b"there?");
    for n in 0..1000 {
        client.text(&n.to_string());
    }
    client.binary(&[0, 255]);
    client.expect(Received::Pong(b"there?".to_vec()));
    for n in 0..1000 {
        client.expect(text(&n.to_string()));
    }
    client.expect(Received::Binary(vec![0, 255]));
}

#[test]
fn every_socket_has_its_own_closures() {
    let app = start(App::new().websocket("/ws", |upgrade: WebSocketUpgrade| {
        let mut count = 0;
        upgrade.on_message(move |socket: &Socket, _: Message| {
            count += 1;
            socket.send(count.to_string())
        })
    }));
    for _ in 0..2 {
        let mut client = Client::connect(app.local_addr(), "/ws");
        for n in 1..=3 {
            client.text("");
            client.expect(text(&n.to_string()));
        }
    }
}

#[test]
fn json_is_typed() {
    #[derive(Deserialize, Serialize)]
    struct Point {
        x: i32,
    }

    let app = start(App::new().websocket("/ws", |upgrade: WebSocketUpgrade| {
        upgrade.on_message(|socket: &Socket, Json(point): Json<Point>| {
            socket.send_json(&Point { x: point.x + 1 })
        })
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.text(r#"{"x":1}"#);
    client.expect(text(r#"{"x":2}"#));
    client.text(r#"{"x":"one"}"#);
    client.expect(Received::Close(1007, "the message is not the expected JSON".to_owned()));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.binary(br#"{"x":1}"#);
    assert!(matches!(client.receive(), Received::Close(1003, _)));
}

#[test]
fn a_client_closes_with_a_code_and_gets_it_back() {
    let (closed, reasons) = mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let closed = closed.clone();
        upgrade.on_close(move |_: &Socket, reason: &CloseReason| {
            closed.send(reason.clone()).unwrap();
        })
    }));
    for (code, echoed) in [(1000, 1000), (4321, 4321), (1005, 1000)] {
        let mut client = Client::connect(app.local_addr(), "/ws");
        client.close(code, "bye");
        client.expect(Received::Close(echoed, String::new()));
        client.expect(Received::End);
        let reason = reasons.recv_timeout(DEADLINE).unwrap();
        assert_eq!(reason.code.value(), code);
        assert_eq!(reason.reason, if code == 1005 { "" } else { "bye" });
        assert!(reason.is_clean());
    }
    drop(Client::connect(app.local_addr(), "/ws"));
    assert!(!reasons.recv_timeout(DEADLINE).unwrap().is_clean());
}

#[test]
fn a_server_closes_and_waits_for_the_answer() {
    let (closed, reasons) = mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let closed = closed.clone();
        upgrade
            .on_message(|socket: &Socket, _: String| {
                socket.send("last").unwrap();
                socket.close(CloseCode::new(4000).unwrap(), "enough");
                assert_eq!(socket.send("more"), Err(SendError::Closed));
            })
            .on_close(move |_: &Socket, reason: &CloseReason| {
                closed.send(reason.clone()).unwrap();
            })
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.text("go");
    client.text("not read any more");
    client.expect(text("last"));
    client.expect(Received::Close(4000, "enough".to_owned()));
    assert!(reasons.try_recv().is_err(), "it waits for the answer");
    client.close(4000, "yes");
    client.expect(Received::End);
    assert_eq!(reasons.recv_timeout(DEADLINE).unwrap().reason, "yes");
}

/// Regression: messages were decoded, and inflated, until the peer answered.
#[test]
fn messages_after_the_close_of_the_server_are_not_looked_at() {
    let (closed, reasons) = mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let closed = closed.clone();
        upgrade.on_open(|socket: &Socket| socket.close(CloseCode::NORMAL, "")).on_close(
            move |_: &Socket, reason: &CloseReason| {
                closed.send(reason.clone()).unwrap();
            },
        )
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.expect(Received::Close(1000, String::new()));
    // A text that is not UTF-8.
    client.raw(&[0x81, 0x81, 0, 0, 0, 0, 0xff]);
    client.close(4000, "yes");
    client.expect(Received::End);
    assert_eq!(reasons.recv_timeout(DEADLINE).unwrap().reason, "yes");
}

#[test]
fn a_close_that_is_not_answered_ends_the_connection() {
    let (closed, reasons) = mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let closed = closed.clone();
        upgrade
            .close_timeout(Duration::from_millis(50))
            // Nothing but the close timeout has a deadline.
            .ping_interval(None)
            .on_open(|socket: &Socket| socket.close(CloseCode::NORMAL, ""))
            .on_close(move |_: &Socket, reason: &CloseReason| {
                closed.send(reason.is_clean()).unwrap();
            })
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.expect(Received::Close(1000, String::new()));
    client.expect(Received::End);
    assert!(!reasons.recv_timeout(DEADLINE).unwrap());
}

#[test]
fn a_shutdown_says_that_the_server_goes_away() {
    let app = start(App::new().websocket("/ws", |upgrade: WebSocketUpgrade| {
        upgrade.on_message(|socket: &Socket, text: String| socket.send(text))
    }));
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect(app.local_addr(), "/ws")).collect();
    for client in &mut clients {
        client.text("here");
        client.expect(text("here"));
    }
    app.shutdown_handle().shutdown();
    for client in &mut clients {
        client.expect(Received::Close(1001, "the server shuts down".to_owned()));
        client.close(1001, "");
        client.expect(Received::End);
    }
    app.wait();
}

#[test]
fn other_threads_send_to_a_socket() {
    let (opened, sockets) = mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let opened = opened.clone();
        upgrade.on_open(move |socket: &Socket| opened.send(socket.clone()).unwrap())
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    let socket = sockets.recv_timeout(DEADLINE).unwrap();
    for n in 0..1000 {
        socket.send(n.to_string()).unwrap();
    }
    for n in 0..1000 {
        client.expect(text(&n.to_string()));
    }
    socket.close(CloseCode::NORMAL, "");
    client.expect(Received::Close(1000, String::new()));
    client.close(1000, "");
    client.expect(Received::End);
    assert!(!socket.is_open());
    assert_eq!(socket.send("late"), Err(SendError::Closed));
}

#[test]
fn a_closure_that_blocks_delays_no_other_socket() {
    let (entered, waiting) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Arc::new(std::sync::Mutex::new(released));
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let (entered, released) = (entered.clone(), std::sync::Arc::clone(&released));
        upgrade.on_message(move |socket: &Socket, text: String| {
            if text == "wait" {
                entered.send(()).unwrap();
                released.lock().unwrap().recv_timeout(DEADLINE).unwrap();
            }
            socket.send(text)
        })
    }));
    let mut blocked = Client::connect(app.local_addr(), "/ws");
    let mut others: Vec<_> = (0..8).map(|_| Client::connect(app.local_addr(), "/ws")).collect();
    blocked.text("wait");
    blocked.text("after");
    waiting.recv_timeout(DEADLINE).unwrap();
    for client in &mut others {
        client.text("quick");
        client.expect(text("quick"));
    }
    release.send(()).unwrap();
    blocked.expect(text("wait"));
    blocked.expect(text("after"));
}

#[test]
fn many_sockets_share_two_threads() {
    let config = ServerConfig::default().threads_max(2);
    let app = start(App::new().config(config).websocket("/ws", |upgrade: WebSocketUpgrade| {
        upgrade.on_message(|socket: &Socket, text: String| {
            // Blocks, so that each call needs one of the threads.
            thread::sleep(Duration::from_millis(1));
            socket.send(text)
        })
    }));
    let mut clients: Vec<_> = (0..100).map(|_| Client::connect(app.local_addr(), "/ws")).collect();
    for round in 0..3 {
        for (n, client) in clients.iter_mut().enumerate() {
            client.text(&format!("{round} {n}"));
        }
        for (n, client) in clients.iter_mut().enumerate() {
            client.expect(text(&format!("{round} {n}")));
        }
    }
}

#[test]
fn a_silent_peer_is_pinged_and_a_dead_one_is_closed() {
    let (closed, reasons) = mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let closed = closed.clone();
        upgrade
            .ping_interval(Some(Duration::from_millis(50)))
            .pong_timeout(Duration::from_millis(200))
            .on_close(move |_: &Socket, reason: &CloseReason| {
                closed.send(reason.clone()).unwrap();
            })
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.expect(Received::Ping(Vec::new()));
    let answered = Instant::now();
    client.raw(&[0x8a, 0x80, 0, 0, 0, 0]);
    client.expect(Received::Ping(Vec::new()));
    assert!(answered.elapsed() >= Duration::from_millis(50), "{:?}", answered.elapsed());
    // Nothing answers the second ping.
    let reason = reasons.recv_timeout(DEADLINE).unwrap();
    assert_eq!(reason.reason, "the peer does not answer pings");
}

/// Bytes of a peer that was pinged begin the next interval, but not while the server waits for the
/// answer to its close frame.
#[test]
fn a_pinged_peer_that_sends_something_has_its_whole_time_to_answer_a_close() {
    let (opened, sockets) = mpsc::channel();
    let (closed, reasons) = mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let (opened, closed) = (opened.clone(), closed.clone());
        upgrade
            .ping_interval(Some(Duration::from_millis(50)))
            .pong_timeout(DEADLINE)
            .close_timeout(DEADLINE)
            .on_open(move |socket: &Socket| opened.send(socket.clone()).unwrap())
            .on_close(move |_: &Socket, reason: &CloseReason| {
                closed.send(reason.clone()).unwrap();
            })
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.expect(Received::Ping(Vec::new()));
    sockets.recv_timeout(DEADLINE).unwrap().close(CloseCode::GOING_AWAY, "over");
    client.expect(Received::Close(1001, "over".to_owned()));
    client.raw(&[0x8a, 0x80, 0, 0, 0, 0]);
    let early = reasons.recv_timeout(Duration::from_millis(500));
    assert!(early.is_err(), "the server did not wait for the answer: {early:?}");
    client.close(1001, "answered");
    let reason = reasons.recv_timeout(DEADLINE).unwrap();
    assert_eq!(reason.reason, "answered");
}

#[test]
fn without_an_interval_nobody_is_pinged() {
    let app = start(App::new().websocket("/ws", |upgrade: WebSocketUpgrade| {
        upgrade.ping_interval(None).on_message(|socket: &Socket, text: String| socket.send(text))
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    thread::sleep(Duration::from_millis(200));
    client.text("still here");
    client.expect(text("still here"));
}

#[test]
fn a_peer_that_sends_messages_is_not_pinged() {
    const INTERVAL: Duration = Duration::from_millis(200);
    let app = start(App::new().websocket("/ws", |upgrade: WebSocketUpgrade| {
        upgrade.ping_interval(Some(INTERVAL)).on_message(|socket: &Socket, text: String| {
            if text == "the end" { socket.send(text) } else { Ok(()) }
        })
    }));
    let is_pinged = || {
        let mut client = Client::connect(app.local_addr(), "/ws");
        let begun = Instant::now();
        while begun.elapsed() < 3 * INTERVAL {
            client.text("again");
            thread::sleep(INTERVAL / 20);
        }
        client.text("the end");
        client.receive() != text("the end")
    };
    // If messages did not count, the peer would be pinged each time. On a busy machine it may seem
    // to be silent now and then.
    assert!((0..10).any(|_| !is_pinged()));
}

#[test]
fn a_closure_may_own_a_thread() {
    let (done, ends) = mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let done = done.clone();
        upgrade.ping_interval(Some(Duration::from_millis(50))).on_thread(
            move |socket: &mut BlockingSocket| -> std::io::Result<()> {
                while let Some(message) = socket.receive()? {
                    match message.as_text() {
                        Some("enough") => return Ok(()),
                        Some(text) => socket.send(text)?,
                        None => {}
                    }
                }
                done.send(()).unwrap();
                Ok(())
            },
        )
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.expect(Received::Ping(Vec::new()));
    client.ping(b"a");
    client.text("1");
    client.expect_after_pings(&Received::Pong(b"a".to_vec()));
    client.expect_after_pings(&text("1"));
    client.close(1000, "");
    client.expect_after_pings(&Received::Close(1000, String::new()));
    client.expect(Received::End);
    ends.recv_timeout(DEADLINE).unwrap();

    let mut client = Client::connect(app.local_addr(), "/ws");
    client.text("enough");
    client.expect_after_pings(&Received::Close(1000, String::new()));
    client.close(1000, "");
    client.expect(Received::End);

    let mut client = Client::connect(app.local_addr(), "/ws");
    client.raw(&[0x81, 1, b'a']);
    let reason = "a client's frame is not masked".to_owned();
    client.expect_after_pings(&Received::Close(1002, reason));
}

#[test]
fn a_closure_that_fails_closes_its_socket() {
    let app = start(App::new().websocket("/ws", |upgrade: WebSocketUpgrade| {
        upgrade.on_message(|_: &Socket, text: String| -> Result<()> {
            text.parse::<u32>()?;
            Ok(())
        })
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.text("not a number");
    client.expect(Received::Close(1011, String::new()));
}

#[test]
fn a_panic_in_a_closure_closes_its_socket_with_1011() {
    let (closed, ends) = mpsc::channel();
    let app = start(
        App::new()
            .websocket("/open", |upgrade: WebSocketUpgrade| {
                upgrade.on_open(|_: &Socket| -> () { panic!("as the test wants") })
            })
            .websocket("/message", move |upgrade: WebSocketUpgrade| {
                let closed = closed.clone();
                upgrade
                    .on_message(|socket: &Socket, text: String| {
                        socket.send("before").unwrap();
                        assert!(text != "panic", "as the test wants");
                    })
                    .on_close(move |_, reason: &CloseReason| closed.send(reason.code).unwrap())
            })
            .websocket("/thread", |upgrade: WebSocketUpgrade| {
                upgrade.on_thread(|socket: &mut BlockingSocket| -> std::io::Result<()> {
                    socket.send("before")?;
                    panic!("as the test wants")
                })
            }),
    );
    for (path, says_something) in [("/open", false), ("/message", true), ("/thread", true)] {
        let mut client = Client::connect(app.local_addr(), path);
        if path == "/message" {
            client.text("panic");
            // The closure has panicked, and is not called again.
            client.text("another");
        }
        if says_something {
            client.expect(text("before"));
        }
        client.expect(Received::Close(1011, String::new()));
        client.close(1011, "");
        client.expect(Received::End);
    }
    assert_eq!(ends.recv_timeout(DEADLINE).unwrap(), CloseCode::INTERNAL_ERROR);
}

#[test]
fn a_shutdown_closes_sockets_on_threads_with_1001() {
    let (done, ends) = mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let done = done.clone();
        upgrade.on_thread(move |socket: &mut BlockingSocket| -> std::io::Result<()> {
            socket.send("hello")?;
            let mut received = 0;
            while socket.receive()?.is_some() {
                received += 1;
            }
            done.send(received).unwrap();
            assert!(socket.send("late").is_err());
            Ok(())
        })
    }));
    let mut clients: Vec<Client> =
        (0..3).map(|_| Client::connect(app.local_addr(), "/ws")).collect();
    for client in &mut clients {
        client.expect(text("hello"));
    }
    app.shutdown_handle().shutdown();
    for client in &mut clients {
        client.expect(Received::Close(1001, "the server shuts down".to_owned()));
        client.text("sent before the answer");
        client.close(1001, "");
        client.expect(Received::End);
    }
    for _ in &clients {
        let received = ends.recv_timeout(DEADLINE).unwrap();
        // Nothing is received if the thread was still busy with its greeting when the server
        // stopped.
        assert!(received <= 1, "{received}");
    }
    app.wait();
}
