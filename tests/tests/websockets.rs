//! WebSockets with clients that are not ours: tungstenite, and a browser.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::TcpStream;

use filoplume_tests::{Browser, DEADLINE, Example};
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket, client};

fn connect(address: std::net::SocketAddr, path: &str) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let (socket, response) = client(format!("ws://{address}{path}"), stream).unwrap();
    assert_eq!(response.status(), 101);
    socket
}

fn news(socket: &mut WebSocket<TcpStream>) -> Value {
    serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap()
}

#[test]
fn websocket_echo_echoes_on_the_loop_and_on_a_thread() {
    let echo = Example("websocket_echo").start();
    for path in ["/", "/thread"] {
        let mut socket = connect(echo.address(), path);
        for message in [
            Message::text("hello"),
            Message::text(""),
            Message::binary(vec![7; 300_000]),
            Message::text("\u{1f426}".repeat(20_000)),
        ] {
            socket.send(message.clone()).unwrap();
            assert_eq!(socket.read().unwrap(), message, "{path}");
        }
        socket.send(Message::Ping(b"there?".as_slice().into())).unwrap();
        assert_eq!(socket.read().unwrap(), Message::Pong(b"there?".as_slice().into()));
        socket.close(None).unwrap();
        assert!(socket.read().unwrap().is_close());
    }
}

#[test]
fn chat_passes_messages_on_to_the_members_of_a_room() {
    let chat = Example("chat").start();
    let mut ada = connect(chat.address(), "/rooms/one?name=Ada");
    assert_eq!(news(&mut ada), json!({"kind": "joined", "name": "Ada", "members": 1}));
    let mut bob = connect(chat.address(), "/rooms/one?name=Bob");
    let joined = json!({"kind": "joined", "name": "Bob", "members": 2});
    assert_eq!((news(&mut ada), news(&mut bob)), (joined.clone(), joined));
    let mut eve = connect(chat.address(), "/rooms/two?name=Eve");
    assert_eq!(news(&mut eve)["members"], 1);

    bob.send(Message::text(r#"{"text":"hello <b>all</b>"}"#)).unwrap();
    let said = json!({"kind": "said", "name": "Bob", "text": "hello <b>all</b>"});
    assert_eq!((news(&mut ada), news(&mut bob)), (said.clone(), said));
    bob.close(None).unwrap();
    assert_eq!(news(&mut ada), json!({"kind": "left", "name": "Bob", "members": 1}));
    assert_eq!(chat.client().get("/rooms/one?name=").status, 426);
}

#[test]
fn chat_works_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let chat = Example("chat").start();
    let mut other = connect(chat.address(), "/rooms/birds?name=Ada");
    assert_eq!(news(&mut other)["kind"], "joined");

    browser.open(&format!("http://{}/#birds", chat.address()));
    browser.fill("input[name=name]", "Grace");
    browser.click("#enter button");
    browser.wait_for_text("connected");
    browser.wait_for_text("Grace has joined, 2 in the room");
    assert_eq!(news(&mut other)["name"], "Grace");
    browser.fill("input[name=text]", "hello <i>room</i>");
    browser.click("#say button");
    browser.wait_for_text("Grace: hello <i>room</i>");
    assert_eq!(news(&mut other)["text"], "hello <i>room</i>");
    // Long enough to be compressed in both directions.
    let long = "feather ".repeat(50);
    other.send(Message::text(json!({ "text": long.trim() }).to_string())).unwrap();
    browser.wait_for_text(&format!("Ada: {}", long.trim()));
}
