//! Sockets on threads of their own: silent peers, slow messages, and which close frame is the last.

use std::io::{Read, Write};
use std::time::Duration;

use filoplume::RunningApp;
use filoplume::prelude::*;
use filoplume::websocket::{BlockingSocket, CloseCode, WebSocketUpgrade};

use crate::client::{Client, DEADLINE, Received, handshake, text};

/// Sockets at `/ws` echo texts.
fn echo(configure: impl Fn(WebSocketUpgrade) -> WebSocketUpgrade + Send + Sync + 'static) -> App {
    App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        configure(upgrade).on_thread(|socket: &mut BlockingSocket| -> std::io::Result<()> {
            while let Some(message) = socket.receive()? {
                socket.send(message.as_text().unwrap_or_default())?;
            }
            Ok(())
        })
    })
}

fn start(app: App) -> RunningApp {
    app.start("127.0.0.1:0").unwrap()
}

#[test]
fn a_silent_peer_is_pinged_as_often_as_it_answers() {
    let app = start(echo(|upgrade| {
        upgrade.ping_interval(Some(Duration::from_millis(20))).pong_timeout(2 * DEADLINE)
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    for _ in 0..3 {
        client.expect(Received::Ping(Vec::new()));
        client.raw(&[0x8a, 0x80, 0, 0, 0, 0]);
    }
    client.text("still here");
    client.expect_after_pings(&text("still here"));
}

#[test]
fn a_message_that_trickles_closes_the_socket() {
    let app = start(echo(|upgrade| {
        upgrade
            .ping_interval(Some(Duration::from_millis(20)))
            .pong_timeout(2 * DEADLINE)
            .message_timeout(Duration::from_millis(10))
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.raw(&[0x81, 0x85, 0, 0, 0, 0, b'a']);
    let reason = "a message arrives too slowly".to_owned();
    client.expect_after_pings(&Received::Close(1008, reason));
}

/// Errors of the program's own work have the kinds that errors of sockets have.
#[test]
fn an_error_of_another_connection_is_not_one_of_the_peer() {
    let app = start(
        App::new()
            .websocket("/upstream", |upgrade: WebSocketUpgrade| {
                upgrade.on_thread(|_: &mut BlockingSocket| -> std::io::Result<()> {
                    Err(std::io::ErrorKind::TimedOut.into())
                })
            })
            .websocket("/after", |upgrade: WebSocketUpgrade| {
                upgrade.on_thread(|socket: &mut BlockingSocket| -> Result<()> {
                    socket.receive()?;
                    Err(Error::from(std::io::Error::from(std::io::ErrorKind::InvalidData)))
                })
            }),
    );
    let mut client = Client::connect(app.local_addr(), "/upstream");
    client.expect(Received::Close(1011, String::new()));
    let mut client = Client::connect(app.local_addr(), "/after");
    client.text("hello");
    client.expect(Received::Close(1011, String::new()));
}

/// Whether it says nothing or very much.
#[test]
fn a_peer_has_the_close_timeout_for_its_answer_when_the_server_stops() {
    for (talks, close_timeout) in [(false, 200), (true, 200), (false, 0)] {
        let (ended, is_ended) = std::sync::mpsc::channel();
        let app = App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
            let ended = ended.clone();
            let upgrade = upgrade.close_timeout(Duration::from_millis(close_timeout));
            upgrade.on_thread(move |socket: &mut BlockingSocket| {
                while let Ok(Some(message)) = socket.receive() {
                    let _ = socket.send(message.as_text().unwrap_or_default());
                }
                let _ = ended.send(());
            })
        });
        let app = start(app);
        let mut client = Client::connect(app.local_addr(), "/ws");
        client.text("hello");
        client.expect(text("hello"));
        let mut stream = client.stream().try_clone().unwrap();
        app.shutdown();
        // Less than a silent peer has before and after a ping.
        let has_ended = (0..1000).any(|_| {
            if talks {
                let _ = stream.write_all(&[0x81, 0x81, 0, 0, 0, 0, b'a']);
            }
            is_ended.recv_timeout(Duration::from_millis(20)).is_ok()
        });
        assert!(has_ended, "talks: {talks}, {close_timeout} ms");
    }
}

#[test]
fn messages_after_the_close_of_a_socket_on_a_thread_are_not_looked_at() {
    let (closed, results) = std::sync::mpsc::channel();
    let app = start(App::new().websocket("/ws", move |upgrade: WebSocketUpgrade| {
        let closed = closed.clone();
        upgrade.on_thread(move |socket: &mut BlockingSocket| -> std::io::Result<()> {
            let result = socket.close(CloseCode::NORMAL, "");
            closed.send(result.map_err(|error| error.to_string())).unwrap();
            Ok(())
        })
    }));
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.expect(Received::Close(1000, String::new()));
    // A text that is not UTF-8.
    client.raw(&[0x81, 0x81, 0, 0, 0, 0, 0xff]);
    client.close(4000, "yes");
    assert_eq!(results.recv_timeout(DEADLINE), Ok(Ok(())));
}

/// A peer may regard a second close frame as a protocol error.
#[test]
fn a_socket_that_closes_says_no_other_goodbye_when_the_server_stops() {
    let code = || CloseCode::new(4000).unwrap();
    let app =
        start(echo(|upgrade| upgrade).websocket("/closes", move |upgrade: WebSocketUpgrade| {
            upgrade.close_timeout(DEADLINE).on_thread(
                move |socket: &mut BlockingSocket| -> std::io::Result<()> {
                    socket.close(code(), "enough")
                },
            )
        }));
    let address = app.local_addr();
    let greeted = || {
        let mut client = Client::connect(address, "/ws");
        client.text("hello");
        client.expect(text("hello"));
        client
    };
    // One thread tells all sockets in the order in which they were opened. When the sockets before
    // and after the one at `/closes` know of the shutdown, the thread has passed that one too.
    let mut before = greeted();
    let (mut stream, _, mut received) = handshake(address, "/closes", &[]);
    let frame = [&[0x88, 8][..], &4000_u16.to_be_bytes(), b"enough"].concat();
    while received.len() < frame.len() {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        received.push(byte[0]);
    }
    assert_eq!(received, frame);
    let mut after = greeted();
    app.shutdown_handle().shutdown();
    for client in [&mut before, &mut after] {
        client.expect(Received::Close(1001, "the server shuts down".to_owned()));
        client.close(1001, "");
    }
    stream.write_all(&[0x88, 0x82, 0, 0, 0, 0, 0x0f, 0xa0]).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}
