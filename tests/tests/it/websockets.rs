//! WebSockets with clients that are not ours: tungstenite, and a browser.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::TcpStream;
use std::time::Duration;

use filoplume_tests::{Browser, Child, DEADLINE, Example, Redis, eventually};
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

/// Starts an instance of the chat that uses Redis.
fn instance(redis: &Redis) -> Child {
    let setting = format!("REDIS_URL={}", redis.url());
    Example("chat").start_by(&["env", &setting, "sh", "-c"], "exec \"$0\" \"$@\"", &[])
}

/// Waits until messages of one socket arrive at the other. Before that, their instances are not
/// connected to Redis yet.
fn wait_until_joined(one: &mut WebSocket<TcpStream>, other: &mut WebSocket<TcpStream>) {
    other.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    eventually("the instances have found each other", || {
        one.send(Message::text(r#"{"text":"there?"}"#)).unwrap();
        other.read().is_ok_and(|news| news.to_text().unwrap().contains("there?"))
    });
    other.get_ref().set_read_timeout(Some(DEADLINE)).unwrap();
}

fn read_until_said(socket: &mut WebSocket<TcpStream>, text: &str) -> Value {
    loop {
        let news = news(socket);
        if news["text"] == text {
            return news;
        }
    }
}

#[test]
fn chat_passes_messages_on_between_two_instances_that_redis_joins() {
    let Some(redis) = Redis::start() else { return };
    let chats = [(); 2].map(|()| instance(&redis));
    let [mut ada, mut bob] = [(0, "Ada"), (1, "Bob")]
        .map(|(at, name)| connect(chats[at].address(), &format!("/rooms/one?name={name}")));
    wait_until_joined(&mut ada, &mut bob);
    wait_until_joined(&mut bob, &mut ada);
    ada.send(Message::text(r#"{"text":"hello"}"#)).unwrap();
    for socket in [&mut ada, &mut bob] {
        let said = json!({"kind": "said", "name": "Ada", "text": "hello"});
        assert_eq!(read_until_said(socket, "hello"), said);
    }
    bob.send(Message::text(r#"{"text":"bye"}"#)).unwrap();
    assert_eq!(read_until_said(&mut ada, "bye")["name"], "Bob");
    // Bob was the last member of the room on his instance.
    bob.close(None).unwrap();
    let left = json!({"kind": "left", "name": "Bob", "members": 0});
    eventually("Bob has left", || news(&mut ada) == left);
}

#[test]
fn two_instances_of_chat_work_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let Some(redis) = Redis::start() else { return };
    let chats = [(); 2].map(|()| instance(&redis));
    let mut ada = connect(chats[0].address(), "/rooms/birds?name=Ada");
    browser.open(&format!("http://{}/#birds", chats[1].address()));
    browser.fill("input[name=name]", "Grace");
    browser.click("#enter button");
    browser.wait_for_text("connected");
    let mut eve = connect(chats[1].address(), "/rooms/birds?name=Eve");
    wait_until_joined(&mut ada, &mut eve);
    wait_until_joined(&mut eve, &mut ada);
    ada.send(Message::text(r#"{"text":"to the other instance"}"#)).unwrap();
    browser.wait_for_text("Ada: to the other instance");
    browser.fill("input[name=text]", "and back");
    browser.click("#say button");
    assert_eq!(read_until_said(&mut ada, "and back")["name"], "Grace");
}
