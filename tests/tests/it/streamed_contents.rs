//! The content of requests that handlers read while it arrives.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{ErrorKind, Read};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use filoplume_runtime::{Body, Plan, Request, Response, ServerConfig, Service, pushed};
use filoplume_tests::{DEADLINE, TestServer, chunked, eventually, pattern, reset, site};

#[test]
fn a_handler_reads_a_stream_while_it_arrives() {
    let (said, heard) = mpsc::channel();
    struct Listens(mpsc::Sender<Vec<u8>>);
    impl Service for Listens {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().streamed()
        }
        fn call(&self, mut request: Request) -> Response {
            let mut buffer = [0; 100];
            loop {
                match request.body_mut().read(&mut buffer).unwrap() {
                    0 => return Response::from("heard"),
                    read => self.0.send(buffer[..read].to_vec()).unwrap(),
                }
            }
        }
    }
    let server = TestServer::start(Listens(said));
    let mut client = server.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    for word in ["one", "two", "three"] {
        client.send(format!("{:x}\r\n{word}\r\n", word.len()));
        // Each word is sent after the handler has received the previous one.
        let mut read = Vec::new();
        while read.len() < word.len() {
            read.extend(heard.recv_timeout(Duration::from_secs(10)).expect("the handler reads"));
        }
        assert_eq!(read, word.as_bytes());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response().text(), "heard");
}

#[test]
fn a_malformed_stream_is_an_error_of_the_read() {
    let (said, heard) = mpsc::channel();
    struct Reads(mpsc::Sender<ErrorKind>);
    impl Service for Reads {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().streamed()
        }
        fn call(&self, mut request: Request) -> Response {
            let error =
                request.body_mut().read_to_end(&mut Vec::new()).expect_err("no whole content");
            self.0.send(error.kind()).unwrap();
            Response::new(400)
        }
    }
    let server = TestServer::start(Reads(said));
    let head = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let mut client = server.client();
    client.send(head).send("bad\n");
    let response = client.response();
    assert_eq!(response.status, 400);
    client.is_closed();
    assert_eq!(heard.recv().unwrap(), ErrorKind::InvalidData);
    let mut client = server.client();
    client.send(head).finish();
    assert_eq!(client.response().status, 400, "the other direction is still open");
    assert_eq!(heard.recv().unwrap(), ErrorKind::UnexpectedEof);
    client.is_closed();
    // A reset must look like any other disconnection to the handler, and not like an error of its
    // own.
    for start in
        [head, "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"]
    {
        let mut client = server.client();
        let requests = server.metrics().requests;
        client.send(start);
        eventually("it is read", || server.metrics().requests > requests);
        reset(client);
        assert_eq!(heard.recv().unwrap(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_stream_longer_than_the_bound_of_its_reader_is_too_large() {
    struct Bounded;
    impl Service for Bounded {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().streamed()
        }
        fn call(&self, request: Request) -> Response {
            match request.into_body().into_bytes(10) {
                Ok(bytes) => Response::from(format!("{} bytes", bytes.len())),
                Err(error) if error.kind() == ErrorKind::FileTooLarge => Response::new(413),
                Err(_) => Response::new(400),
            }
        }
    }
    let server = TestServer::start(Bounded);
    let mut client = server.client();
    assert_eq!(client.post("/", pattern(10)).text(), "10 bytes");
    assert_eq!(client.post("/", pattern(11)).status, 413);
    client.send(
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello \
         world\r\n0\r\n\r\n",
    );
    assert_eq!(client.response().status, 413);
    client.send(
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    assert_eq!(client.response().text(), "5 bytes");
}

/// Sends the content of a request as the body of its response.
struct Mirrors {
    status: u16,
}

impl Service for Mirrors {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().streamed()
    }

    fn call(&self, request: Request) -> Response {
        let mut response = Response::new(self.status);
        response.set_stream(request.into_body());
        response
    }
}

#[test]
fn a_body_that_a_status_does_not_allow_returns_its_content() {
    let server = TestServer::start(Mirrors { status: 204 });
    let mut client = server.client();
    for length in [10, 100_000] {
        client.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n"));
        client.send(pattern(length));
        let response = client.response();
        assert_eq!(response.status, 204);
        assert!(!response.closes(), "the content was complete");
    }
}

#[test]
fn a_body_may_be_the_response_while_it_is_read() {
    let server = TestServer::start(Mirrors { status: 200 });
    let mut client = server.client();
    for length in [0, 10, 100_000, 5_000_000] {
        let content = pattern(length);
        let head = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n");
        let mut sender = client.tcp().try_clone().unwrap();
        let sent = content.clone();
        let sends = thread::spawn(move || {
            std::io::Write::write_all(&mut sender, head.as_bytes()).unwrap();
            std::io::Write::write_all(&mut sender, &sent).unwrap();
        });
        let response = client.response();
        assert!(response.body == content, "{length} bytes: {response:?}");
        sends.join().unwrap();
    }
    client.send(
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    assert_eq!(client.response().text(), "hello");
}

#[test]
fn requests_behind_a_streamed_content_are_answered() {
    struct ReadsSome;
    impl Service for ReadsSome {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().streamed()
        }
        fn call(&self, mut request: Request) -> Response {
            if let Some(length) = request.query_value("read").and_then(|length| length.parse().ok())
            {
                let read = request.body_mut().take(length).read_to_end(&mut Vec::new()).unwrap();
                return Response::from(format!("read {read}"));
            }
            site(request)
        }
    }
    let server = TestServer::start(ReadsSome);
    let content = pattern(150_000);
    for read in [0, 1, 1000, 16_384, 149_999, 150_000] {
        for is_chunked in [false, true] {
            for is_finished in [false, true] {
                let mut client = server.client();
                let mut sent = Vec::new();
                for _ in 0..3 {
                    sent.extend(format!("POST /?read={read} HTTP/1.1\r\nHost: t\r\n").into_bytes());
                    if is_chunked {
                        sent.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                        sent.extend(chunked(&content, 10_000));
                    } else {
                        sent.extend(b"Content-Length: 150000\r\n\r\n");
                        sent.extend(&content);
                    }
                    sent.extend(b"GET /behind HTTP/1.1\r\nHost: t\r\n\r\n");
                }
                client.send(&sent);
                if is_finished {
                    client.finish();
                }
                for n in 0..3 {
                    let what = format!(
                        "{read} read, chunked: {is_chunked}, finished: {is_finished}, round {n}"
                    );
                    let response =
                        client.try_response().unwrap_or_else(|ended| panic!("{what}: {ended}"));
                    assert_eq!(response.text(), format!("read {read}"), "{what}");
                    let response =
                        client.try_response().unwrap_or_else(|ended| panic!("{what}: {ended}"));
                    assert_eq!(response.text(), "GET /behind", "{what}");
                }
                if is_finished {
                    client.is_closed();
                }
            }
        }
    }
}

#[test]
fn a_streamed_content_that_does_not_arrive_is_not_an_error_of_the_program() {
    let (told, statuses) = mpsc::channel();
    let app = filoplume::App::new()
        .post("/", |mut content: Body| {
            Ok::<_, filoplume::Error>(std::io::read_to_string(&mut content)?)
        })
        .with(move |request: Request, next: filoplume::middleware::Next<'_>| {
            told.send(0).unwrap();
            let response = next.run(request);
            told.send(response.status().as_u16()).unwrap();
            response
        });
    let config = ServerConfig::default()
        .content_timeout(Duration::from_millis(100))
        .buffered_content_bytes_max(10);
    let server = TestServer::with(config, app.build().unwrap());
    let begin = || {
        let mut client = server.client();
        client.send(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nmore than is collected",
        );
        assert_eq!(statuses.recv_timeout(DEADLINE).unwrap(), 0, "it has begun");
        client
    };

    drop(begin());
    assert_eq!(statuses.recv_timeout(DEADLINE).unwrap(), 400);
    let response = begin().response();
    assert_eq!(response.status, 408);
    assert!(
        response.closes() && response.text().contains("the content did not arrive in time"),
        "{response:?}"
    );
    assert_eq!(statuses.recv_timeout(DEADLINE).unwrap(), 408);
}

/// The system reports a socket until its last handle is closed, and the next connection gets the
/// place of one that has ended.
#[test]
fn a_content_that_is_read_elsewhere_does_not_disturb_the_next_connection() {
    struct Elsewhere {
        bodies: mpsc::Sender<Body>,
        senders: mpsc::Sender<pushed::Sender>,
    }
    impl Service for Elsewhere {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().streamed()
        }
        fn call(&self, request: Request) -> Response {
            if request.path() != "/stream" {
                self.bodies.send(request.into_body()).unwrap();
                return Response::from("taken");
            }
            let (sender, body) = pushed::channel();
            self.senders.send(sender).unwrap();
            let mut response = Response::default();
            response.set_pushed(body);
            response
        }
    }
    let (bodies, body) = mpsc::channel();
    let (senders, sender) = mpsc::channel();
    let config = ServerConfig::default().event_loops(1).linger_timeout(Duration::from_millis(50));
    let server = TestServer::with(config, Elsewhere { bodies, senders });
    let mut uploads = server.client();
    uploads.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\nbegin");
    assert_eq!(uploads.response().text(), "taken");
    let _elsewhere = body.recv_timeout(DEADLINE).unwrap();
    // Bytes that nobody reads keep the connection lingering, until its time is over.
    eventually("the lingering connection is closed", || server.metrics().connections == 0);
    let mut follows = server.client();
    follows.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    follows.read_head_only().unwrap();
    let sender = sender.recv_timeout(DEADLINE).unwrap();
    // Its end must not look like the end of the other client.
    drop(uploads);
    thread::sleep(Duration::from_millis(200));
    sender.send("still here").unwrap();
    assert_eq!(follows.read_exactly(15), b"a\r\nstill here\r\n");
}
