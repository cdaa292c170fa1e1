//! What a timeout of zero does where it is allowed.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use filoplume::RunningApp;
use filoplume::prelude::*;
use filoplume::websocket::{BlockingSocket, CloseCode, CloseReason, Socket, WebSocketUpgrade};

use crate::client::{Client, DEADLINE, Received, text};

/// A text of one frame, masked with zeros.
const HELLO: [u8; 11] = [0x81, 0x85, 0, 0, 0, 0, b'h', b'e', b'l', b'l', b'o'];

fn start<R: IntoResponse>(
    open: impl Fn(WebSocketUpgrade) -> R + Send + Sync + 'static,
) -> RunningApp {
    let open = move |upgrade: WebSocketUpgrade| open(upgrade);
    App::new().websocket("/ws", open).start("127.0.0.1:0").unwrap()
}

fn too_slow() -> Received {
    Received::Close(1008, "a message arrives too slowly".to_owned())
}

#[test]
fn a_message_without_time_may_arrive_until_the_next_check() {
    let app = start(|upgrade| {
        upgrade
            .message_timeout(Duration::ZERO)
            .ping_interval(Some(2 * DEADLINE))
            .on_message(|socket: &Socket, text: String| socket.send(text))
    });
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.text("whole");
    client.expect(text("whole"));
    client.stream().set_nodelay(true).unwrap();
    for byte in HELLO {
        client.raw(&[byte]);
    }
    client.expect(text("hello"));
}

#[test]
fn a_message_without_time_that_is_incomplete_at_a_check_closes_the_socket() {
    let app = start(|upgrade| {
        upgrade
            .message_timeout(Duration::ZERO)
            .ping_interval(Some(Duration::from_millis(50)))
            .pong_timeout(2 * DEADLINE)
            .on_message(|socket: &Socket, text: String| socket.send(text))
    });
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.raw(&HELLO[..7]);
    client.expect_after_pings(&too_slow());
}

#[test]
fn on_a_thread_a_message_without_time_has_to_arrive_at_once() {
    let app = start(|upgrade| {
        upgrade.message_timeout(Duration::ZERO).on_thread(
            |socket: &mut BlockingSocket| -> std::io::Result<()> {
                while let Some(message) = socket.receive()? {
                    socket.send(message.as_text().unwrap_or_default())?;
                }
                Ok(())
            },
        )
    });
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.text("whole");
    client.expect(text("whole"));
    client.raw(&HELLO[..7]);
    client.expect(too_slow());
}

#[test]
fn without_time_to_close_no_answer_is_awaited() {
    let (closed, reasons) = mpsc::channel();
    let app = start(move |upgrade| {
        let closed = closed.clone();
        upgrade
            .close_timeout(Duration::ZERO)
            .on_message(|socket: &Socket, _: String| socket.close(CloseCode::NORMAL, "bye"))
            .on_close(move |_: &Socket, reason: &CloseReason| {
                let _ = closed.send(format!("{reason:?}"));
            })
    });
    let began = Instant::now();
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.text("go");
    client.expect(Received::Close(1000, "bye".to_owned()));
    let reason = reasons.recv_timeout(DEADLINE).unwrap();
    assert!(reason.contains("1006"), "{reason}");
    client.expect(Received::End);
    assert!(began.elapsed() < DEADLINE);
}

#[test]
fn on_a_thread_without_time_to_close_no_answer_is_awaited() {
    let app = start(|upgrade| {
        upgrade.close_timeout(Duration::ZERO).on_thread(
            |socket: &mut BlockingSocket| -> std::io::Result<()> {
                socket.receive()?;
                socket.close(CloseCode::NORMAL, "bye")
            },
        )
    });
    let mut client = Client::connect(app.local_addr(), "/ws");
    client.text("go");
    client.expect(Received::Close(1000, "bye".to_owned()));
    client.expect(Received::End);
}
