//! Hubs of several instances, joined by Redis.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use filoplume::instances::RedisChannel;
use filoplume::prelude::*;
use filoplume::sse::{Event, Hub, LastEventId};
use filoplume::testing::TestClient;
use harness::Redis;

const DEADLINE: Duration = Duration::from_secs(60);

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < DEADLINE, "{what}");
        std::thread::yield_now();
    }
}

/// A hub of one instance, with the channel that joins it.
struct Instance {
    hub: Hub,
    channel: RedisChannel,
}

impl Instance {
    fn start(url: &str) -> Self {
        let channel = RedisChannel::new(url, "feed").unwrap();
        Self { hub: Hub::new().replay(1000).capacity(64 << 20).joined(&channel), channel }
    }

    /// Starts instances that reach each other.
    fn start_two(server: &Redis) -> [Self; 2] {
        // The URL is another text, so that the second instance has threads and connections of its
        // own.
        let other = format!("redis://localhost:{}/", server.address().port());
        let instances = [Self::start(&server.url()), Self::start(&other)];
        instances.iter().for_each(Self::wait_for_redis);
        instances
    }

    fn wait_for_redis(&self) {
        eventually("Redis is reached", || self.channel.is_connected());
    }

    fn app(&self) -> App {
        App::new()
            .state(self.hub.clone())
            .get("/feed", |State(hub): State<Hub>, last: LastEventId| hub.subscribe(&last))
    }

    fn client(&self) -> TestClient {
        self.app().test()
    }

    /// Returns what a client gets whose last event was this one.
    fn behind(&self, last: &str) -> String {
        self.client().get("/feed").header("last-event-id", last).send().text().to_owned()
    }

    fn wait_for(&self, text: &str) {
        eventually(text, || self.behind("?").contains(&format!("data: {text}\n")));
    }
}

/// A client over a socket.
struct Reader {
    stream: TcpStream,
    _app: filoplume::RunningApp,
    read: String,
}

impl Reader {
    fn of(instance: &Instance) -> Self {
        let app = instance.app().start("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(app.local_addr()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"GET /feed HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut reader = Self { stream, _app: app, read: String::new() };
        reader.read_to("\r\n\r\n");
        reader
    }

    fn read_to(&mut self, end: &str) {
        let mut chunk = [0; 16 * 1024];
        while !self.read.contains(end) {
            let count = self.stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the stream ended: {}", self.read);
            self.read.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
        }
    }

    /// Returns the data of all events that begin with this.
    fn data(&self, beginning: &str) -> Vec<&str> {
        let data = self.read.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| data.starts_with(beginning)).collect()
    }
}

#[test]
fn clients_of_all_instances_get_each_event_once_and_in_the_order_of_its_sender() {
    let Some(server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    let third = Instance::start(&server.url());
    let channel = RedisChannel::new(&server.url(), "other").unwrap();
    let other = Instance { hub: Hub::new().replay(10).joined(&channel), channel };
    third.wait_for_redis();
    other.wait_for_redis();
    let mut readers = [&first, &second, &third].map(Reader::of);
    std::thread::scope(|scope| {
        for (name, hub) in [("a", &first.hub), ("b", &first.hub), ("c", &second.hub)] {
            scope.spawn(move || {
                for number in 0..1000 {
                    assert_eq!(hub.send(format!("{name}{number}")).sent, 1);
                }
                hub.send(format!("{name} ends"));
            });
        }
    });
    for reader in &mut readers {
        for name in ["a", "b", "c"] {
            reader.read_to(&format!("data: {name} ends\n\n"));
            let mut expected: Vec<_> = (0..1000).map(|number| format!("{name}{number}")).collect();
            expected.push(format!("{name} ends"));
            assert_eq!(reader.data(name), expected);
        }
    }
    assert_eq!(other.behind("?"), "");
    eventually("all are counted", || {
        let counts = first.channel.counts();
        assert_eq!((counts.dropped, counts.refused), (0, 0));
        (counts.sent, counts.received) == (2002, 1001)
    });
}

#[test]
fn a_client_that_moves_to_another_instance_gets_what_it_missed() {
    let Some(server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    first.hub.send("one");
    first.hub.send("two");
    second.wait_for("two");
    second.hub.send(Event::new("three\nlines").event("news").unwrap().id("own").unwrap());
    first.wait_for("lines");
    let all = first.behind("?");
    assert_eq!(all, second.behind("?"), "both instances keep the same events with the same IDs");
    let id = all.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let missed = second.behind(id);
    assert!(!missed.contains("data: one\n"), "{missed}");
    assert!(missed.ends_with("data: two\n\nevent: news\nid: own\ndata: three\ndata: lines\n\n"));
    assert_eq!(first.behind("own"), "");
}

#[test]
fn without_redis_an_instance_serves_its_own_clients_and_others_get_what_follows_its_return() {
    let address = harness::free_address();
    let url = format!("redis://{address}/");
    let [first, second] = [Instance::start(&url), Instance::start(&url)];
    let sent = |text: &str| {
        let dropped = first.channel.counts().dropped;
        first.hub.send(text);
        assert!(first.behind("?").contains(&format!("data: {text}\n")), "at once");
        eventually("it is dropped", || first.channel.counts().dropped > dropped);
    };
    sent("before the start");
    let Some(mut server) = Redis::start_at(address) else { return };
    for round in 0..2 {
        first.wait_for_redis();
        second.wait_for_redis();
        first.hub.send(format!("round {round}"));
        second.wait_for(&format!("round {round}"));
        server.stop();
        eventually("the loss is noticed", || !first.channel.is_connected());
        sent("without Redis");
        server.restart();
    }
    first.wait_for_redis();
    second.wait_for_redis();
    first.hub.send("the last one");
    second.wait_for("the last one");
    assert!(!second.behind("?").contains("without Redis"), "nothing is repeated");
}

#[test]
fn a_redis_that_stops_answering_delays_no_sender() {
    let Some(server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    server.signal("STOP");
    // Twice as many bytes as may wait for Redis.
    let large = "x".repeat(64 * 1024);
    let started = Instant::now();
    for _ in 0..512 {
        first.hub.send(large.as_str());
    }
    first.hub.send("here");
    assert!(first.behind("?").contains("data: here\n"));
    assert!(started.elapsed() < DEADLINE);
    eventually("messages are dropped", || first.channel.counts().dropped > 200);
    eventually("the loss is noticed", || !first.channel.is_connected());
    server.signal("CONT");
    first.wait_for_redis();
    second.wait_for_redis();
    first.hub.send("back");
    second.wait_for("back");
}

#[test]
fn a_collector_tells_whether_a_channel_is_connected_and_what_became_of_messages() {
    let Some(mut server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    first.hub.send("one");
    second.wait_for("one");
    let client = |instance: &Instance| {
        App::new().metrics("/metrics").collector(instance.channel.collector()).test()
    };
    let of_first = |line: &str| {
        let text = client(&first).get("/metrics").send().text().to_owned();
        text.contains(&format!("\n{line}\n"))
    };
    eventually("Redis has confirmed it", || {
        of_first("filoplume_channel_messages_total{channel=\"feed\",result=\"sent\"} 1")
    });
    assert!(of_first("filoplume_channel_connected{channel=\"feed\"} 1"));
    let text = client(&second).get("/metrics").send().text().to_owned();
    let received = "filoplume_channel_messages_total{channel=\"feed\",result=\"received\"} 1\n";
    assert!(text.contains(received), "{text}");
    server.stop();
    eventually("the loss is shown", || of_first("filoplume_channel_connected{channel=\"feed\"} 0"));
    first.hub.send("two");
    eventually("the loss is counted", || {
        of_first("filoplume_channel_messages_total{channel=\"feed\",result=\"dropped\"} 1")
    });
}

/// Returns the bytes that instances send for an event.
fn capture(server: &Redis, instance: &Instance, event: Event) -> Vec<u8> {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    connection.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut foreign = connection.as_pubsub();
    foreign.subscribe("filoplume:channel:feed").unwrap();
    instance.hub.send(event);
    foreign.get_message().unwrap().get_payload_bytes().to_vec()
}

#[test]
fn messages_of_strangers_break_nothing() {
    let Some(server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    let event = Event::new("an event").event("news").unwrap().key(7).retry(DEADLINE);
    let valid = capture(&server, &first, event);
    second.wait_for("an event");

    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut publish = |message: &[u8]| {
        let publish = redis::cmd("PUBLISH").arg("filoplume:channel:feed").arg(message).to_owned();
        publish.exec(&mut connection).unwrap();
    };
    let mut refused = 0;
    for end in 0..valid.len() {
        publish(&valid[..end]);
        refused += 1;
    }
    let mut longer = valid.clone();
    longer.push(0);
    let mut next_version = valid.clone();
    next_version[0] = 2;
    let mut other_kind = valid.clone();
    other_kind[1] = 2;
    let too_long = vec![1; filoplume::instances::MESSAGE_BYTES_MAX + 1];
    let noise = vec![0xff; 1000];
    for message in [&longer, &next_version, &other_kind, &too_long, &noise] {
        publish(message);
        refused += 1;
    }
    let seen = || second.channel.counts().refused;
    eventually("all are refused", || seen() == refused);
    assert_eq!(second.channel.counts().received, 1);

    // Some of the changed messages are still valid events.
    let id = valid.windows(4).position(|bytes| bytes == b"news").unwrap();
    for at in 0..valid.len() {
        for byte in [0, 1, b'\n', 0x7f, 0xff, valid[at].wrapping_add(1)] {
            let mut changed = valid.clone();
            changed[at] = byte;
            publish(&changed);
        }
    }
    let mut forged = valid.clone();
    forged[id..id + 4].copy_from_slice(b"\n\nid");
    publish(&forged);
    first.hub.send("still here");
    second.wait_for("still here");
    assert!(!second.behind("?").contains("\n\nid\n"), "no field ends an event");
}

#[test]
fn a_message_that_is_too_long_stays_on_its_instance() {
    let Some(server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    let channel = RedisChannel::new(&server.url(), "feed").unwrap().message_bytes_max(1000);
    let brief = Instance { hub: Hub::new().replay(10).joined(&channel), channel };
    brief.wait_for_redis();
    let long = "x".repeat(1000);
    brief.hub.send(long.as_str());
    brief.wait_for(&long);
    assert_eq!(brief.channel.counts().dropped, 1);
    // This message is too long for one of the two receivers.
    first.hub.send("y".repeat(1000));
    first.hub.send("the end");
    second.wait_for("the end");
    brief.wait_for("the end");
    assert!(second.behind("?").contains("yyy") && !brief.behind("?").contains("yyy"));
    assert!(!second.behind("?").contains("xxx"));
    assert_eq!(brief.channel.counts().refused, 1);
}

#[test]
fn a_hub_that_is_dropped_leaves_its_channel_and_ends_its_connections() {
    let Some(server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    let Instance { hub, channel } = first;
    let clone = hub.clone();
    drop(hub);
    clone.send("the last words");
    second.wait_for("the last words");
    drop(clone);
    let subscribers = |server: &Redis| {
        let answer = server.ask("PUBSUB NUMSUB filoplume:channel:feed");
        answer.lines().last().map(str::to_owned)
    };
    eventually("one subscriber is left", || subscribers(&server).as_deref() == Some(":1"));
    // Redis unsubscribes the channel before its answer reaches this process.
    eventually("the channel is not connected", || !channel.is_connected());
    // This is the last user of its URL.
    drop(channel);
    let wake_channels = || server.ask("PUBSUB CHANNELS filoplume:wake:*").matches('$').count();
    eventually("its threads end", || wake_channels() == 1);
}

#[test]
fn a_wrong_url_is_an_error_without_the_password() {
    for url in ["", "http://user:secret@host/", "redis://user:secret@host:port/"] {
        let error = RedisChannel::new(url, "feed").unwrap_err();
        let text = |error: &dyn Debug| format!("{error:?}");
        assert!(!text(&error).contains("secret") && !error.to_string().contains("secret"), "{url}");
    }
}
