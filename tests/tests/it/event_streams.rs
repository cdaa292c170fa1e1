//! Server-sent events over sockets, and the example `live_feed`.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use filoplume::broadcast::SlowClients;
use filoplume::prelude::*;
use filoplume::sse::{Hub, LastEventId};
use filoplume_tests::{Browser, DEADLINE, Example, TestServer, eventually};

fn app(hub: &Hub) -> App {
    App::new()
        .state(hub.clone())
        .get("/feed", |State(hub): State<Hub>, last: LastEventId| hub.subscribe(&last))
        .get("/", || "plain")
}

/// A client of an event stream.
struct Reader {
    socket: TcpStream,
    /// The text that has arrived and was not returned yet.
    text: String,
}

impl Reader {
    fn connect(address: SocketAddr, header: &str) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(socket, "GET /feed HTTP/1.1\r\nHost: a\r\n{header}\r\n").unwrap();
        let mut reader = Self { socket, text: String::new() };
        let head = reader.read_until("\r\n\r\n");
        assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
        reader
    }

    /// Reads until this text has arrived, and returns everything up to its end.
    fn read_until(&mut self, wanted: &str) -> String {
        let mut piece = vec![0; 64 * 1024];
        loop {
            if let Some(at) = self.text.find(wanted) {
                let rest = self.text.split_off(at + wanted.len());
                return std::mem::replace(&mut self.text, rest);
            }
            let read = self.socket.read(&mut piece).unwrap();
            assert!(read > 0, "{wanted:?} expected: the stream ended after {:?}", self.text);
            self.text.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
    }

    /// Reads everything until the server closes.
    fn read_to_end(mut self) -> String {
        self.socket.read_to_string(&mut self.text).unwrap();
        self.text
    }
}

#[test]
fn four_threads_serve_fifty_readers() {
    let hub = Hub::new();
    let config = ServerConfig::default().threads_max(4);
    let server = TestServer::with(config, app(&hub).build().unwrap());
    let mut readers: Vec<_> = (0..50).map(|_| Reader::connect(server.address(), "")).collect();
    assert_eq!(server.client().get("/").text(), "plain");
    let senders: Vec<_> = (0..4)
        .map(|thread| {
            let hub = hub.clone();
            thread::spawn(move || {
                (0..25).for_each(|number| {
                    assert_eq!(hub.send(format!("{thread}:{number};")).sent, 50);
                });
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    hub.send("the end");
    let mut all: Vec<String> =
        readers.iter_mut().map(|reader| reader.read_until("data: the end\n\n")).collect();
    for text in &all {
        for thread in 0..4 {
            let numbers: Vec<usize> = text
                .split(';')
                .filter_map(|event| event.rsplit_once(&format!("data: {thread}:"))?.1.parse().ok())
                .collect();
            assert_eq!(numbers, (0..25).collect::<Vec<_>>());
        }
    }
    // All readers get the events in the same order. They differ in how they are cut into chunks.
    for text in &mut all {
        let events = text.lines().filter(|line| line.starts_with("data: ")).map(str::to_owned);
        *text = events.collect::<Vec<_>>().join("\n");
    }
    all.dedup();
    assert_eq!(all.len(), 1);
}

#[test]
fn a_reader_that_does_not_read_is_handled_as_the_hub_says_and_disturbs_no_other() {
    for (slow_clients, stays) in [(SlowClients::Disconnect, false), (SlowClients::Drop, true)] {
        let hub = Hub::new().slow_clients(slow_clients);
        let server = TestServer::start(app(&hub).build().unwrap());
        let slow = Reader::connect(server.address(), "");
        let mut quick = Reader::connect(server.address(), "");
        let event = "x".repeat(20_000);
        let mut number = 0;
        eventually("the slow one is noticed", || {
            number += 1;
            let delivered = hub.send(format!("{number}{event}"));
            quick.read_until(&format!("data: {number}{event}\n\n"));
            delivered.dropped + delivered.disconnected == 1
        });
        assert_eq!(hub.clients(), if stays { 2 } else { 1 }, "{slow_clients:?}");
        hub.send("last");
        quick.read_until("data: last\n\n");
        drop(slow);
    }
}

/// Regression: each client that came back had a copy of the whole history, which was counted only
/// when its socket was full. 6,000 clients took gigabytes.
#[test]
fn a_crowd_that_comes_back_for_a_long_history_takes_little_memory() {
    const CLIENTS: usize = 40;
    const EVENTS: usize = 1000;
    let hub = Hub::new().replay(EVENTS);
    let text = |number: usize| format!("{number:04} {}", "x".repeat(8000));
    (0..EVENTS).for_each(|number| _ = hub.send(text(number)));
    let app = app(&hub).start("127.0.0.1:0").unwrap();
    let begin = || Reader::connect(app.local_addr(), "Last-Event-ID: unknown\r\n");
    let mut readers: Vec<_> = (0..CLIENTS).map(|_| begin()).collect();
    let metrics = || app.server().metrics().unwrap();
    eventually("all wait", || metrics().pushed_streams == CLIENTS);
    let mut plain = filoplume_tests::Client::connect(app.local_addr());
    for _ in 0..50 {
        assert_eq!(plain.get("/").status, 200);
        let used = metrics().memory_used;
        assert!(used < CLIENTS * 256 * 1024, "{used} bytes for {CLIENTS} clients");
    }
    // One of them reads on, and gets everything, and then what is sent.
    let mut reader = readers.pop().unwrap();
    for number in 0..EVENTS {
        let event = reader.read_until("\n\n");
        assert!(event.contains(&format!("data: {number:04} ")), "{number}: {event:.60}");
    }
    eventually("it is among the clients", || hub.clients() > 0);
    hub.send("live");
    assert!(reader.read_until("\n\n").contains("data: live\n"));
    // The others are still at the beginning of the history, which is not kept any more. So their
    // streams end, and browsers would connect again.
    (0..EVENTS).for_each(|number| _ = hub.send(number.to_string()));
    let seen = readers.pop().unwrap().read_until("\r\n0\r\n\r\n");
    assert!(seen.contains("data: 0000 ") && !seen.contains("data: live\n"));
    drop(readers);
    app.shutdown();
}

/// Regression: the event that a client had caused by joining pushed the first one out of the
/// history before the client had begun to read it, so that each new client was disconnected as a
/// slow one.
#[test]
fn an_event_between_the_subscription_and_its_first_byte_disconnects_nobody() {
    let hub = Hub::new().replay(1);
    hub.send("before");
    let joins = hub.clone();
    let app = App::new().get("/feed", move |last: LastEventId| {
        let stream = joins.subscribe_with_history(&last);
        joins.send("joined");
        stream
    });
    let app = app.start("127.0.0.1:0").unwrap();
    let mut reader = Reader::connect(app.local_addr(), "");
    assert!(reader.read_until("\n\n").contains("data: joined\n"));
    eventually("it is among the clients", || hub.clients() == 1);
    hub.send("after");
    assert!(reader.read_until("\n\n").contains("data: after\n"));
    app.shutdown();
}

#[test]
fn readers_that_leave_are_noticed_and_a_shutdown_ends_the_streams_of_the_others() {
    let hub = Hub::new();
    let server = TestServer::start(app(&hub).build().unwrap());
    let leaving: Vec<_> = (0..50).map(|_| Reader::connect(server.address(), "")).collect();
    let mut staying = Reader::connect(server.address(), "");
    drop(leaving);
    eventually("their connections are closed", || server.metrics().connections == 1);
    assert_eq!(hub.send("one").sent, 1);
    staying.read_until("data: one\n\n");
    server.server().shutdown_handle().shutdown_within(DEADLINE);
    assert!(staying.read_to_end().ends_with("0\r\n\r\n"), "the stream is complete");
    server.server().wait();
    assert_eq!(hub.send("two").sent, 0);
}

#[test]
fn a_silent_stream_gets_comments() {
    let hub = Hub::new().keep_alive(Duration::from_millis(20));
    let server = TestServer::start(app(&hub).build().unwrap());
    let mut reader = Reader::connect(server.address(), "");
    for _ in 0..3 {
        reader.read_until(":\n\n");
    }
}

#[test]
fn a_reader_that_speaks_http_1_0_gets_plain_events() {
    let hub = Hub::new();
    let server = TestServer::start(app(&hub).build().unwrap());
    let mut client = server.client();
    client.send("GET /feed HTTP/1.0\r\n\r\n");
    client.read_head_only().unwrap();
    hub.send("one");
    assert_eq!(client.read_exactly(11), b"data: one\n\n");
}

#[test]
fn live_feed_sends_posts_to_readers_and_repeats_what_they_missed() {
    let child = Example("live_feed").start();
    let post = |text: &str| {
        let content = format!(r#"{{"name":"Ada","text":"{text}"}}"#);
        let mut client = child.client();
        client.send(format!(
            "POST /posts HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{content}",
            content.len()
        ));
        client.response().status
    };
    assert_eq!(post("first"), 201);
    assert_eq!(post(""), 422);
    let mut reader = Reader::connect(child.address(), "");
    let event = reader.read_until("data: {\"name\":\"Ada\",\"text\":\"first\"}\n\n");
    let id = event.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    assert_eq!(post("second"), 201);
    reader.read_until("\"second\"}\n\n");
    drop(reader);
    let mut again = Reader::connect(child.address(), &format!("Last-Event-ID: {id}\r\n"));
    assert!(!again.read_until("\"second\"}\n\n").contains("first"));
    // The stream does not delay the end of the program.
    child.signal("TERM");
    assert!(again.read_to_end().ends_with("0\r\n\r\n"), "the stream is complete");
}

#[test]
fn live_feed_shows_posts_in_a_browser_without_loading_the_page_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let child = Example("live_feed").start();
    browser.open(&format!("http://{}/", child.address()));
    browser.wait_for_text("live");
    for text in ["hello <b>there</b>", "a second post"] {
        browser.fill("input[name=text]", text);
        browser.click("button");
        browser.wait_for_text(&format!("anonymous: {text}"));
    }
    assert_eq!(browser.evaluate("document.querySelectorAll('li').length"), 2);
    // A page that is opened later shows the earlier posts.
    browser.open(&format!("http://{}/?again", child.address()));
    browser.wait_for_text("anonymous: a second post");
    browser.wait_for("document.querySelectorAll('li').length === 2");
}
