//! Response bodies that other threads push.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use filoplume_runtime::pushed::{self, Pushed, SendError, Sender};
use filoplume_runtime::{Headers, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, DEADLINE, Ended, Framing, TestServer, eventually};

/// Gives the sender of each response to the test.
struct Pushes {
    senders: mpsc::Sender<Sender>,
    failures: mpsc::Sender<String>,
    options: fn(Pushed, &Request) -> Pushed,
}

impl Service for Pushes {
    fn call(&self, request: Request) -> Response {
        if request.path() == "/plain" {
            return Response::from("plain");
        }
        let (sender, body) = pushed::channel();
        let mut response = Response::default();
        response.set_pushed((self.options)(body, &request));
        self.senders.send(sender).unwrap();
        response
    }

    fn body_failed(&self, route: Option<&str>, error: &std::io::Error) {
        self.failures.send(format!("{}: {error}", route.unwrap_or_default())).unwrap();
    }
}

struct Pushing {
    server: TestServer,
    senders: Receiver<Sender>,
    failures: Receiver<String>,
}

impl Pushing {
    fn start() -> Self {
        Self::with(ServerConfig::default(), |body, _| body)
    }

    fn with(config: ServerConfig, options: fn(Pushed, &Request) -> Pushed) -> Self {
        let (senders, sent) = mpsc::channel();
        let (failures, failed) = mpsc::channel();
        let server = TestServer::with(config, Pushes { senders, failures, options });
        Self { server, senders: sent, failures: failed }
    }

    /// Sends a request. Returns the sender of its response.
    fn get(&self, client: &mut Client) -> Sender {
        client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
        self.sender()
    }

    fn sender(&self) -> Sender {
        self.senders.recv_timeout(DEADLINE).unwrap()
    }

    fn failure(&self) -> String {
        self.failures.recv_timeout(DEADLINE).unwrap()
    }
}

/// Returns the chunk with this content.
fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[test]
fn pieces_arrive_as_they_are_pushed_and_the_last_sender_completes_the_response() {
    let pushing = Pushing::start();
    let mut client = pushing.server.client();
    let sender = pushing.get(&mut client);
    let head = client.read_head_only().unwrap();
    assert_eq!((head.status, head.header("transfer-encoding")), (200, Some("chunked")));
    for text in ["first", "second"] {
        let expected = chunk(text);
        sender.send(text).unwrap();
        assert_eq!(client.read_exactly(expected.len()), expected.as_bytes());
    }
    let clone = sender.clone();
    drop(sender);
    clone.send("third").unwrap();
    drop(clone);
    let rest = format!("{}0\r\n\r\n", chunk("third"));
    assert_eq!(client.read_exactly(rest.len()), rest.as_bytes());
    // The connection is used again.
    assert_eq!(client.get("/plain").text(), "plain");
}

#[test]
fn a_pushed_body_needs_no_thread_while_it_is_silent() {
    let pushing = Pushing::with(ServerConfig::default().threads_max(4), |body, _| body);
    let mut streams: Vec<(Client, Sender)> = (0..50)
        .map(|_| {
            let mut client = pushing.server.client();
            let sender = pushing.get(&mut client);
            client.read_head_only().unwrap();
            (client, sender)
        })
        .collect();
    assert_eq!(pushing.server.client().get("/plain").text(), "plain");
    let text = "to all";
    for (_, sender) in &streams {
        sender.send(text).unwrap();
    }
    for (client, sender) in &mut streams {
        assert_eq!(client.read_exactly(chunk(text).len()), chunk(text).as_bytes());
        sender.finish();
        assert_eq!(client.read_exactly(5), b"0\r\n\r\n");
    }
}

#[test]
fn what_is_pushed_before_the_response_begins_is_sent_with_it() {
    let server = TestServer::start(|_: Request| {
        let (sender, body) = pushed::channel();
        sender.send("all").unwrap();
        // `send` does not wait here: this thread would wait for itself.
        let full = sender.send(vec![b'x'; pushed::CAPACITY]);
        assert_eq!(full, Err(SendError::Full));
        let mut response = Response::default();
        response.set_pushed(body);
        response
    });
    let response = server.client().get("/");
    assert_eq!((response.status, response.text()), (200, "all"));
}

#[test]
fn a_response_to_head_has_no_body_and_the_sender_learns_it() {
    let pushing = Pushing::start();
    let mut client = pushing.server.client();
    client.send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head_response().status, 200);
    let sender = pushing.sender();
    eventually("the sender knows", || sender.check() == Err(SendError::Gone));
    assert_eq!(client.get("/plain").text(), "plain");
}

#[test]
fn a_body_for_http_1_0_ends_with_the_connection_and_is_reset_if_it_fails() {
    let pushing = Pushing::start();
    for fails in [false, true] {
        let mut client = pushing.server.client();
        client.send("GET /stream HTTP/1.0\r\n\r\n");
        let sender = pushing.sender();
        sender.send("text").unwrap();
        eventually("it is sent", || sender.waiting() == 0);
        if fails {
            client.read_head_only().unwrap();
            assert_eq!(client.read_exactly(4), b"text");
            sender.fail("no more");
            assert!(matches!(client.read_until_end(), Ended::Reset(_)), "a close would look whole");
            assert!(pushing.failure().ends_with(": no more"));
        } else {
            drop(sender);
            let response = client.response();
            assert_eq!((response.framing, response.text()), (Framing::UntilEnd, "text"));
        }
    }
}

#[test]
fn a_failed_body_is_cut_short_behind_what_was_sent_and_reported_with_its_route() {
    let pushing = Pushing::start();
    type Row = (&'static str, fn(Sender));
    let rows: [Row; 3] = [
        ("the database is away", |sender| sender.fail("the database is away")),
        ("panicked", |sender| {
            let panicked = thread::spawn(move || {
                let _sender = sender;
                panic!("a test");
            });
            assert!(panicked.join().is_err());
        }),
        // A failure takes precedence over an end that was not sent yet.
        ("later", |sender| {
            sender.fail("later");
            sender.finish();
        }),
    ];
    for (reason, end) in rows {
        let mut client = pushing.server.client();
        let sender = pushing.get(&mut client);
        sender.send("some").unwrap();
        client.read_head_only().unwrap();
        end(sender.clone());
        assert_eq!(client.read_to_end(), chunk("some").as_bytes(), "no last chunk: {reason}");
        let failure = pushing.failure();
        assert!(failure.contains(reason) && failure.contains("/stream"), "{failure}");
        assert_eq!(sender.send("more"), Err(SendError::Ended));
    }
}

#[test]
fn a_client_that_leaves_is_noticed_while_nothing_is_sent() {
    let pushing = Pushing::start();
    type Leave = (&'static str, fn(Client));
    let half_closes: Leave = ("half-closes", |mut client| {
        // The server closes the other direction.
        client.finish().read_until_end();
    });
    let leave = [("closes", drop as _), ("resets", filoplume_tests::reset as _), half_closes];
    for (how, leave) in leave {
        let mut client = pushing.server.client();
        let sender = pushing.get(&mut client);
        client.read_head_only().unwrap();
        assert!(sender.is_open());
        leave(client);
        eventually(how, || sender.check() == Err(SendError::Gone));
    }
    pushing.server.is_left_by_all();
}

#[test]
fn a_slow_client_bounds_what_waits_and_wakes_the_sender_when_it_reads() {
    let pushing = Pushing::with(ServerConfig::default(), |body, _| body.capacity(1000));
    let mut client = pushing.server.client();
    let sender = pushing.get(&mut client);
    client.read_head_only().unwrap();
    let total = 16 * 1024 * 1024;
    let (done, is_done) = mpsc::channel();
    thread::spawn({
        let sender = sender.clone();
        move || {
            for _ in 0..total / 1000 {
                sender.send(vec![b'x'; 1000]).unwrap();
            }
            done.send(()).unwrap();
        }
    });
    eventually("the buffers are full", || {
        sender.try_send(vec![b'y'; 1000]) == Err(SendError::Full)
            && sender.send_timeout(vec![b'y'; 1000], Duration::from_millis(100))
                == Err(SendError::Full)
    });
    assert!(sender.waiting() <= 1000);
    assert!(is_done.try_recv().is_err(), "the sockets hold less");
    drop(sender);
    // The response ends when the other thread has sent everything.
    let read = thread::spawn(move || {
        let mut bytes = 0;
        while bytes < total {
            bytes += client.read_some(1 << 20).unwrap();
        }
        client
    });
    let mut client = read.join().unwrap();
    eventually("everything is sent", || {
        // This read times out once everything is read.
        let _ = client.read_some(1 << 20);
        is_done.try_recv().is_ok()
    });
}

#[test]
fn a_client_that_does_not_read_is_closed_after_the_write_timeout() {
    let config = ServerConfig::default().write_timeout(Duration::from_millis(300));
    let pushing = Pushing::with(config, |body, _| body);
    let mut client = pushing.server.client();
    let sender = pushing.get(&mut client);
    let error = (0..).find_map(|_| sender.send(vec![b'x'; 60_000]).err());
    assert_eq!(error, Some(SendError::Gone));
    pushing.server.is_left_by_all();
    assert_eq!(pushing.server.metrics().timed_out, 1);
}

#[test]
fn a_silent_body_has_no_deadline_and_may_have_keep_alive_bytes() {
    let short = ServerConfig::default()
        .keep_alive_timeout(Duration::from_millis(20))
        .write_timeout(Duration::from_millis(20))
        .head_timeout(Duration::from_millis(20));
    let pushing = Pushing::with(short, |body, request| match request.query() {
        Some(_) => body.keep_alive(Duration::from_millis(30), ":\n"),
        None => body,
    });
    let mut silent = pushing.server.client();
    let sender = pushing.get(&mut silent);
    silent.read_head_only().unwrap();
    let mut kept = pushing.server.client();
    kept.send("GET /stream?kept HTTP/1.1\r\nHost: a\r\n\r\n");
    let kept_sender = pushing.sender();
    kept.read_head_only().unwrap();
    for _ in 0..10 {
        assert_eq!(kept.read_exactly(chunk(":\n").len()), chunk(":\n").as_bytes());
    }
    // Many times the length of the timeouts has passed.
    sender.send("late").unwrap();
    assert_eq!(silent.read_exactly(chunk("late").len()), chunk("late").as_bytes());
    assert_eq!(pushing.server.metrics().timed_out, 0);
    drop((sender, kept_sender));
}

#[test]
fn a_request_behind_a_pushed_body_waits_for_its_end() {
    let pushing = Pushing::start();
    let mut client = pushing.server.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\nGET /plain HTTP/1.1\r\nHost: a\r\n\r\n");
    let sender = pushing.sender();
    sender.send("first").unwrap();
    let head = client.read_head_only().unwrap();
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    assert_eq!(client.read_exactly(chunk("first").len()), chunk("first").as_bytes());
    // Input that arrives meanwhile stays unread, and is not mistaken for a close by the peer.
    client.send("GET /plain HTTP/1.1\r\nHost: a\r\n\r\n");
    client.is_silent_for(Duration::from_millis(50));
    assert!(sender.is_open());
    drop(sender);
    assert_eq!(client.read_exactly(5), b"0\r\n\r\n");
    for _ in 0..2 {
        assert_eq!(client.response().text(), "plain");
    }
}

#[test]
fn what_each_of_many_threads_sends_stays_in_order() {
    let pushing = Pushing::start();
    let mut client = pushing.server.client();
    let sender = pushing.get(&mut client);
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let sender = sender.clone();
            thread::spawn(move || {
                for number in 0..500 {
                    sender.send(format!("{thread}:{number}\n")).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let response = client.response();
    for thread in 0..8 {
        let prefix = format!("{thread}:");
        let numbers: Vec<usize> = response
            .text()
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix)?.parse().ok())
            .collect();
        assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn only_the_latest_bytes_of_a_key_wait_for_a_slow_client() {
    // Before the response begins, everything waits.
    let server = TestServer::start(|_: Request| {
        let (sender, body) = pushed::channel();
        for value in 0..100_000 {
            sender.send_latest(1, format!("a={value};")).unwrap();
            sender.send_latest(2, format!("b={value};")).unwrap();
        }
        let mut response = Response::default();
        response.set_pushed(body);
        response
    });
    assert_eq!(server.client().get("/").text(), "a=99999;b=99999;");
}

#[test]
fn a_shutdown_ends_an_endless_body_and_waits_for_others() {
    for is_endless in [true, false] {
        let options: fn(Pushed, &Request) -> Pushed =
            if is_endless { |body, _| body.endless() } else { |body, _| body };
        let pushing = Pushing::with(ServerConfig::default(), options);
        let mut client = pushing.server.client();
        let sender = pushing.get(&mut client);
        client.read_head_only().unwrap();
        sender.send("one").unwrap();
        assert_eq!(client.read_exactly(chunk("one").len()), chunk("one").as_bytes());
        pushing.server.server().shutdown_handle().shutdown_within(DEADLINE);
        eventually("the sender is told", || sender.is_stopping());
        if is_endless {
            eventually("the body ends", || sender.check() == Err(SendError::Stopping));
            assert_eq!(client.read_to_end(), b"0\r\n\r\n", "it ends complete");
        } else {
            sender.send("two").unwrap();
            drop(sender);
            let rest = format!("{}0\r\n\r\n", chunk("two"));
            assert_eq!(client.read_to_end(), rest.as_bytes());
        }
        pushing.server.server().wait();
    }
}

#[test]
fn a_body_that_outlasts_the_drain_time_is_cut_short() {
    let pushing = Pushing::start();
    let mut client = pushing.server.client();
    let sender = pushing.get(&mut client);
    client.read_head_only().unwrap();
    pushing.server.server().shutdown_handle().shutdown_within(Duration::from_millis(50));
    pushing.server.server().wait();
    // The server counts as ended a moment before its connections are dropped.
    eventually("the sender knows", || sender.check() == Err(SendError::Gone));
    assert_eq!(client.read_to_end(), b"", "no last chunk");
}

#[test]
fn trailers_are_sent_to_clients_that_read_them() {
    let pushing = Pushing::with(ServerConfig::default(), |body, request| body.trailers(request));
    let rows = [
        ("HTTP/1.1\r\nHost: a\r\nTE: gzip, Trailers", "4\r\ntext\r\n0\r\nsum: 7\r\n\r\n"),
        ("HTTP/1.1\r\nHost: a\r\nTE: gzip", "4\r\ntext\r\n0\r\n\r\n"),
        ("HTTP/1.0\r\nTE: trailers", "text"),
    ];
    for (request, expected) in rows {
        let mut client = pushing.server.client();
        client.send(format!("GET /stream {request}\r\nConnection: close\r\n\r\n"));
        let sender = pushing.sender();
        sender.send("text").unwrap();
        let mut trailers = Headers::new();
        trailers.append("sum", "7").unwrap();
        sender.finish_with(trailers);
        let answer = String::from_utf8(client.read_to_end()).unwrap();
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, expected, "{request}");
    }
}
