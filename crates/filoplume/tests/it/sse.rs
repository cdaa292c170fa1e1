//! Server-sent events, without a socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use filoplume::broadcast::{Broadcast, Delivered, SlowClients};
use filoplume::middleware::Compression;
use filoplume::prelude::*;
use filoplume::pushed::{self, Pushed};
use filoplume::response::Pieces;
use filoplume::sse::{self, Event, Hub, LastEventId};

fn feed(hub: &Hub) -> App {
    App::new()
        .state(hub.clone())
        .get("/feed", |State(hub): State<Hub>, last: LastEventId| hub.subscribe(&last))
}

#[test]
fn an_event_stream_is_neither_cached_nor_compressed() {
    let app = App::new().with(Compression::new()).get("/", || {
        let (sender, stream) = sse::channel();
        sender.send(Event::new("x".repeat(10_000))).unwrap();
        stream
    });
    let response = app.test().get("/").header("accept-encoding", "gzip, br").send();
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(response.header(name), Some(value), "{name}");
    }
    assert_eq!(response.header("content-encoding"), None);
    assert!(response.text().starts_with("data: xxx"));
}

#[test]
fn no_pushed_body_is_compressed() {
    let app = App::new().with(Compression::new()).get("/", || {
        let (sender, body) = pushed::channel();
        sender.send("text ".repeat(1000)).unwrap();
        ([("content-type", "text/plain")], body)
    });
    let response = app.test().get("/").header("accept-encoding", "gzip").send();
    assert_eq!(response.header("content-encoding"), None);
    assert_eq!(response.text().len(), 5000);
}

#[test]
fn a_client_that_connects_again_gets_the_kept_events_behind_its_last_one() {
    let hub = Hub::new().replay(3);
    let client = feed(&hub).test();
    for text in ["a", "b", "c", "d"] {
        hub.send(Event::new(text).id(text).unwrap());
    }
    let rows = [
        ("b", "id: c\ndata: c\n\nid: d\ndata: d\n\n"),
        ("d", ""),
        // The event is no longer kept, or its ID comes from another process.
        ("a", "id: b\ndata: b\n\nid: c\ndata: c\n\nid: d\ndata: d\n\n"),
        ("?", "id: b\ndata: b\n\nid: c\ndata: c\n\nid: d\ndata: d\n\n"),
    ];
    for (last, expected) in rows {
        client.get("/feed").header("last-event-id", last).send().assert_text(expected);
    }
    client.get("/feed").send().assert_text("");
}

#[test]
fn a_replay_may_be_longer_than_what_may_wait_for_a_client() {
    let hub = Hub::new().replay(100).capacity(10);
    for _ in 0..100 {
        hub.send("a long text");
    }
    let client = feed(&hub).test();
    let response = client.get("/feed").header("last-event-id", "?").send();
    assert_eq!(response.text().matches("data: a long text\n\n").count(), 100);
}

#[test]
fn events_without_an_id_get_one_that_is_found_again() {
    let hub = Hub::new().replay(10);
    let client = feed(&hub).test();
    hub.send("first");
    hub.send("second");
    let all = client.get("/feed").header("last-event-id", "?").send();
    let first = all.text().lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    let missed = client.get("/feed").header("last-event-id", &first).send();
    assert!(missed.text().ends_with("data: second\n\n"));
    assert!(!missed.text().contains("data: first"));
}

/// The kept events are copied for a new client while others send.
#[test]
fn no_event_is_missing_or_repeated_between_the_kept_ones_and_the_new_ones() {
    let hub = Hub::new().replay(20);
    let sends = hub.clone();
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let sender = std::thread::spawn(move || {
        let mut count = 0_u32;
        while !until.load(Ordering::Relaxed) {
            sends.send(Event::new(format!("{count}{}", " ".repeat(1000))));
            count += 1;
            if count % 8 == 0 {
                // The client must be able to catch up, so that its response ends.
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
    let client = feed(&hub).test();
    for _ in 0..300 {
        let text = client.get("/feed").header("last-event-id", "unknown").send();
        let data = text.text().lines().filter_map(|line| line.strip_prefix("data: "));
        let numbers: Vec<u32> = data.map(|number| number.trim().parse().unwrap()).collect();
        for pair in numbers.windows(2) {
            assert_eq!(pair[0] + 1, pair[1], "{numbers:?}");
        }
    }
    is_over.store(true, Ordering::Relaxed);
    sender.join().unwrap();
}

#[test]
fn a_hub_says_what_happens_to_slow_clients() {
    let rows = [
        (SlowClients::Disconnect, Delivered::default(), 0, "a=1;b=1;"),
        (SlowClients::Drop, Delivered::default(), 1, "a=1;b=1;"),
        (SlowClients::Coalesce, Delivered::default(), 1, "a=2;b=1;"),
    ];
    for (slow_clients, mut expected, left, text) in rows {
        match slow_clients {
            SlowClients::Disconnect => expected.disconnected = 1,
            SlowClients::Drop => expected.dropped = 1,
            _ => expected.sent = 1,
        }
        let list = Broadcast::new(slow_clients);
        let (sender, body) = pushed::channel();
        list.subscribe(sender.clone());
        let body = body.capacity(8).endless();
        for (key, bytes) in [(1, "a=1;"), (2, "b=1;")] {
            assert_eq!(list.send(&Bytes::from(bytes), Some(key)).sent, 1);
        }
        let delivered = list.send(&Bytes::from("a=2;"), Some(1));
        assert_eq!((delivered, list.len()), (expected, left), "{slow_clients:?}");
        let body = std::sync::Mutex::new(Some(body));
        let app = App::new().get("/", move || body.lock().unwrap().take().unwrap());
        app.test().get("/").send().assert_text(text);
    }
}

#[test]
fn clients_that_left_are_removed_though_no_event_is_sent() {
    let hub = Hub::new();
    let client = feed(&hub).test();
    for _ in 0..1000 {
        client.get("/feed").send().assert_text("");
    }
    assert!(hub.clients() < 200, "{} clients", hub.clients());
    hub.send("event");
    assert_eq!(hub.clients(), 0);
}

/// The hub keeps no events, so a client that misses one cannot get it later.
#[test]
fn what_is_sent_after_a_client_has_subscribed_reaches_it() {
    let hub = Hub::new();
    let stream = std::sync::Mutex::new(Some(hub.subscribe(&LastEventId::default())));
    assert_eq!((hub.clients(), hub.send("early").sent), (1, 1));
    let app = App::new().get("/", move || stream.lock().unwrap().take().unwrap());
    app.test().get("/").send().assert_text("data: early\n\n");
}

#[test]
fn a_silent_hub_keeps_its_connections_alive() {
    let app = App::new()
        .state(Hub::new().keep_alive(Duration::from_millis(20)))
        .get("/", |State(hub): State<Hub>, last: LastEventId| hub.subscribe(&last))
        .start("127.0.0.1:0")
        .unwrap();
    let mut stream = TcpStream::connect(app.local_addr()).unwrap();
    // Shorter than the default interval, so that the read would time out with it.
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (mut read, mut chunk) = (String::new(), [0; 1024]);
    while !read.contains("\n:\n\n") {
        let count = stream.read(&mut chunk).unwrap();
        read.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
    }
}

#[test]
fn a_hub_counts_events_and_what_became_of_them() {
    let hub = Hub::new().capacity(20).slow_clients(SlowClients::Drop);
    let app = App::new().metrics("/metrics").collector(hub.collector("news"));
    hub.send("nobody is here");
    let _clients = [(); 2].map(|()| hub.subscribe(&LastEventId::default()));
    hub.send("for two clients");
    hub.send("too much for them");
    let text = app.test().get("/metrics").send().text().to_owned();
    for line in [
        "filoplume_hub_clients{hub=\"news\"} 2\n",
        "filoplume_hub_events_total{hub=\"news\"} 3\n",
        "filoplume_hub_deliveries_total{hub=\"news\",result=\"sent\"} 2\n",
        "filoplume_hub_deliveries_total{hub=\"news\",result=\"dropped\"} 2\n",
        "filoplume_hub_deliveries_total{hub=\"news\",result=\"disconnected\"} 0\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn bodies_are_pushed_written_and_iterated() {
    let app = App::new()
        .get("/pushed", || {
            let (sender, body) = pushed::channel();
            std::thread::spawn(move || {
                for text in ["one ", "two"] {
                    sender.send(text).unwrap();
                }
            });
            body
        })
        .get("/written", || {
            Pushed::written(|out| (1..=3).try_for_each(|number| write!(out, "{number} ")))
        })
        .get("/pieces", || Pieces(["a", "b"].map(io::Result::Ok)));
    let client = app.test();
    client.get("/pushed").send().assert_text("one two");
    client.get("/written").send().assert_text("1 2 3 ");
    client.get("/pieces").send().assert_text("ab");
}

#[test]
fn a_closed_hub_ends_its_streams_and_then_tells_browsers_to_stop() {
    let hub = Hub::new().replay(3);
    let client = feed(&hub).test();
    hub.send(Event::new("a").id("a").unwrap());
    let (streams, none) = (hub.subscribe(&LastEventId::default()), LastEventId::default());
    assert_eq!(hub.clients(), 1);
    hub.clone().close();
    assert_eq!(hub.clients(), 0, "it is for all clones");
    hub.send("late");
    // A stream that was opened before the hub was closed has nothing more to send.
    let before = streams.into_response().unwrap();
    let ended = App::new().get("/", before_once(before)).test().get("/").send();
    ended.assert_status(200).assert_text("");
    // A client that missed something gets that first.
    let missed = client.get("/feed").header("last-event-id", "?").send();
    missed.assert_status(200).assert_text("id: a\ndata: a\n\n");
    let over = client.get("/feed").header("last-event-id", "a").send();
    over.assert_status(204).assert_text("").assert_no_header("content-type");
    over.assert_header("cache-control", "no-store");
    client.get("/feed").send().assert_status(204);
    assert_eq!(hub.subscribe(&none).into_response().unwrap().status(), 204);
    assert_eq!(hub.clients(), 0);
}

/// Returns a handler that returns a response once.
fn before_once(response: Response) -> impl Fn() -> Result<Response> + Send + Sync + 'static {
    let response = parking_lot::Mutex::new(Some(response));
    move || response.lock().take().ok_or_else(|| Error::not_found("it was taken"))
}
