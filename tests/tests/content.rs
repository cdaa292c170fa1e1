//! The content of requests: collected, streamed, refused or left unread.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{ErrorKind, Read};
use std::sync::mpsc;
use std::time::Duration;

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, DEADLINE, Process, TestServer, eventually, reset, site};

/// Returns binary data with a long period.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + n / 251).to_le_bytes()[0]).collect()
}

fn chunked(content: &[u8], chunk: usize) -> Vec<u8> {
    let mut encoded = Vec::new();
    for chunk in content.chunks(chunk) {
        encoded.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        encoded.extend(chunk);
        encoded.extend(b"\r\n");
    }
    encoded.extend(b"0\r\n\r\n");
    encoded
}

/// A site that reads contents only as streams.
struct Streamed;

impl Service for Streamed {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().streamed()
    }

    fn call(&self, request: Request) -> Response {
        site(request)
    }
}

/// A site that reads contents only as a whole.
struct Buffered;

impl Service for Buffered {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().buffered()
    }

    fn call(&self, request: Request) -> Response {
        assert!(request.body().as_slice().is_some(), "the content is in memory");
        site(request)
    }
}

#[test]
fn a_content_comes_back_byte_for_byte() {
    let servers =
        [TestServer::start(site), TestServer::start(Streamed), TestServer::start(Buffered)];
    let lengths =
        [0, 1, 255, 4095, 4096, 8193, 16_384, 65_535, 65_536, 131_072, 131_073, 1024 * 1024];
    for (index, server) in servers.iter().enumerate() {
        let mut client = server.client();
        for length in lengths {
            let content = bytes(length);
            let response = client.post("/echo", &content);
            assert!(response.body == content, "{length} bytes to server {index}: {response:?}");
            for chunk in [length.max(1), 1000] {
                client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
                let response = client.send(chunked(&content, chunk)).response();
                assert!(
                    response.body == content,
                    "{length} bytes in chunks of {chunk}: {response:?}"
                );
            }
        }
        client.is_alive();
    }
}

#[test]
fn a_content_longer_than_the_buffer_is_streamed_and_comes_back() {
    let server = TestServer::start(site);
    let mut client = server.client();
    for length in [1024 * 1024 + 1, 3_000_000, 10_000_000] {
        let content = bytes(length);
        assert!(client.post("/echo", &content).body == content, "{length} bytes");
        client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
        let response = client.send(chunked(&content, 100_000)).response();
        assert!(response.body == content, "{length} bytes in chunks");
    }
    client.is_alive();
}

#[test]
fn a_content_in_several_segments_is_read_to_its_end() {
    for server in [TestServer::start(site), TestServer::start(Streamed)] {
        let mut client = server.client();
        for segment in [1, 3, 50] {
            let content = bytes(150);
            client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 150\r\n\r\n");
            let (last, before) = content.split_last().unwrap();
            for segment in before.chunks(segment) {
                client.send(segment).is_silent_for(Duration::from_millis(1));
            }
            assert_eq!(client.send([*last]).response().body, content, "in segments of {segment}");
        }
        client.is_alive();
    }
}

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
fn a_content_over_the_bound_is_refused_before_it_is_read() {
    let config = ServerConfig::default().content_bytes_max(1000);
    let server = TestServer::with(config, site);
    for rest in ["", "some bytes of it"] {
        let mut client = server.client();
        client
            .send(format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n\r\n{rest}"));
        let response = client.response();
        assert_eq!(response.status, 413);
        assert!(response.closes());
        client.is_closed();
    }
    assert_eq!(
        server.client().post("/echo", bytes(1000)).body.len(),
        1000,
        "the bound itself is allowed"
    );
}

#[test]
fn a_chunked_content_over_the_bound_is_refused_while_it_arrives() {
    for bound in [1000, 3_000_000] {
        let config = ServerConfig::default().content_bytes_max(bound);
        let server = TestServer::with(config, Buffered);
        let mut client = server.client();
        client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
        let content = bytes(usize::try_from(bound).unwrap() + 1);
        // The server may stop reading, but it keeps the connection until its response is read.
        let _ = client.try_send(chunked(&content, 1000));
        assert_eq!(client.response().status, 413, "over {bound}");
    }
}

#[test]
fn a_plan_that_collects_contents_refuses_longer_ones() {
    let server =
        TestServer::with(ServerConfig::default().buffered_content_bytes_max(1000), Buffered);
    let mut client = server.client();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n\r\n");
    assert_eq!(client.response().status, 413);
    let mut client = server.client();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunked(&bytes(1001), 500));
    assert_eq!(client.response().status, 413);
    client.is_closed();
    assert_eq!(server.client().post("/echo", bytes(1000)).body.len(), 1000);
}

#[test]
fn a_plan_may_have_a_bound_of_its_own() {
    struct Small;
    impl Service for Small {
        fn plan(&self, request: &mut Request) -> Plan {
            let plan = Plan::new();
            if request.path() == "/echo" { plan.content_bytes_max(10) } else { plan }
        }
        fn call(&self, request: Request) -> Response {
            site(request)
        }
    }
    let server = TestServer::start(Small);
    assert_eq!(server.client().post("/echo", bytes(10)).status, 200);
    assert_eq!(server.client().post("/echo", bytes(11)).status, 413);
    assert_eq!(server.client().post("/other", bytes(11)).status, 200);
}

#[test]
fn a_declared_length_allocates_nothing() {
    const HUGE: u64 = 400_000_000_000;
    let no_bound = || {
        ServerConfig::default()
            .content_bytes_max(u64::MAX)
            .buffered_content_bytes_max(u64::MAX)
            .unread_content_bytes_max(u64::MAX)
    };
    let servers = [
        TestServer::with(no_bound(), site),
        TestServer::with(no_bound(), Buffered),
        TestServer::with(no_bound(), Streamed),
    ];
    let before = Process::this().virtual_bytes();
    for server in &servers {
        for target in ["/echo", "/unread"] {
            let head =
                format!("POST {target} HTTP/1.1\r\nHost: t\r\nContent-Length: {HUGE}\r\n\r\n");
            let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
            for client in &mut clients {
                client.send(&head).send(bytes(10_000));
            }
            server.client().is_alive();
            let grown = Process::this().virtual_bytes().saturating_sub(before);
            assert!(grown < HUGE / 4, "{grown} more bytes of addresses");
        }
    }
    for server in &servers {
        server.is_left_by_all();
        server.client().is_alive();
    }
    let server = TestServer::start(site);
    let mut client = server.client();
    client.send(format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {HUGE}\r\n\r\n"));
    assert_eq!(client.response().status, 413, "with the default bound");
}

const EXPECTS: &str =
    "POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

#[test]
fn a_peer_that_expects_100_continue_gets_it_when_its_content_is_read() {
    for server in
        [TestServer::start(site), TestServer::start(Streamed), TestServer::start(Buffered)]
    {
        let mut client = server.client();
        for _ in 0..3 {
            client.send(EXPECTS);
            let interim = client.response();
            assert_eq!((interim.status, interim.lines.len()), (100, 1), "{interim:?}");
            assert_eq!(client.send("hello").response().text(), "hello");
        }
        client.send(
            "POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-Continue\r\nTransfer-Encoding: \
             chunked\r\n\r\n",
        );
        assert_eq!(client.response().status, 100);
        assert_eq!(client.send("5\r\nhello\r\n0\r\n\r\n").response().text(), "hello");
    }
}

#[test]
fn a_peer_that_does_not_wait_for_100_continue_gets_one_response() {
    for server in [TestServer::start(site), TestServer::start(Streamed)] {
        let mut client = server.client();
        client.send(format!("{EXPECTS}hello"));
        let mut response = client.response();
        if response.status == 100 {
            response = client.response();
        }
        assert_eq!(response.text(), "hello");
        client.is_alive();
    }
}

#[test]
fn a_peer_whose_content_is_not_read_gets_no_100_continue() {
    struct Refuses;
    impl Service for Refuses {
        fn plan(&self, request: &mut Request) -> Plan {
            match request.path() {
                "/refused" => Plan::refuse(Response::new(404)),
                "/too-long" => Plan::new().content_bytes_max(4),
                _ => Plan::new().streamed(),
            }
        }
        fn call(&self, request: Request) -> Response {
            site(request)
        }
    }
    let server = TestServer::start(Refuses);
    for (path, status) in [("/refused", 404), ("/too-long", 413), ("/unread", 200)] {
        let mut client = server.client();
        client.send(EXPECTS.replace("/echo", path));
        let response = client.response();
        assert_eq!(response.status, status, "{path}");
        assert!(response.closes(), "it is not known whether the content arrives: {response:?}");
        client.is_closed();
    }
}

#[test]
fn http_1_0_gets_no_interim_response() {
    let server = TestServer::start(site);
    let mut client = server.client();
    client.send(EXPECTS.replace("HTTP/1.1", "HTTP/1.0")).is_silent_for(Duration::from_millis(50));
    assert_eq!(client.send("hello").response().text(), "hello");
}

#[test]
fn an_unread_content_within_the_bound_is_skipped() {
    let config = || ServerConfig::default().unread_content_bytes_max(100_000);
    for server in [TestServer::with(config(), Streamed), TestServer::with(config(), site)] {
        let mut client = server.client();
        for length in [1, 5000, 100_000] {
            let response = client.post("/unread", bytes(length));
            assert_eq!(response.text(), "unread");
            assert!(!response.closes(), "{length} bytes: {response:?}");
            // The bound includes chunk lines.
            client.send("POST /unread HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
            assert_eq!(
                client.send(chunked(&bytes(length * 9 / 10), 700)).response().text(),
                "unread"
            );
            client.is_alive();
        }
    }
}

#[test]
fn an_unread_content_that_arrives_late_and_in_segments_is_skipped() {
    let server = TestServer::start(Streamed);
    let mut client = server.client();
    client.send("POST /unread HTTP/1.1\r\nHost: t\r\nContent-Length: 3000\r\n\r\n");
    assert_eq!(client.response().text(), "unread");
    for segment in bytes(3000).chunks(1000) {
        client.send(segment).is_silent_for(Duration::from_millis(5));
    }
    client.is_alive();
}

#[test]
fn an_unread_content_over_the_bound_ends_the_connection_and_the_answer_arrives() {
    let config = || ServerConfig::default().unread_content_bytes_max(1000);
    for (index, server) in
        [TestServer::with(config(), Streamed), TestServer::with(config(), site)].iter().enumerate()
    {
        for is_chunked in [false, true] {
            let content = bytes(4_000_000);
            let mut client = server.client();
            if is_chunked {
                client
                    .send("POST /unread HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
                let _ = client.try_send(chunked(&content, 10_000));
            } else {
                client.send("POST /unread HTTP/1.1\r\nHost: t\r\nContent-Length: 4000000\r\n\r\n");
                let _ = client.try_send(&content);
            }
            let response = client.try_response();
            let response =
                response.unwrap_or_else(|ended| panic!("server {index}, {is_chunked}: {ended}"));
            assert_eq!(response.text(), "unread");
            client.is_closed();
        }
    }
}

#[test]
fn a_refused_plan_leaves_the_connection_usable_if_the_content_is_short() {
    struct Refuses;
    impl Service for Refuses {
        fn plan(&self, request: &mut Request) -> Plan {
            if request.path() == "/no" { Plan::refuse(Response::new(405)) } else { Plan::new() }
        }
        fn call(&self, request: Request) -> Response {
            site(request)
        }
    }
    let server = TestServer::start(Refuses);
    let mut client = server.client();
    for length in [0, 10, 100_000] {
        assert_eq!(client.post("/no", bytes(length)).status, 405);
        client.is_alive();
    }
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
    assert_eq!(client.post("/", bytes(10)).text(), "10 bytes");
    assert_eq!(client.post("/", bytes(11)).status, 413);
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

#[test]
fn a_body_may_be_the_response_while_it_is_read() {
    struct Mirrors;
    impl Service for Mirrors {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().streamed()
        }
        fn call(&self, request: Request) -> Response {
            let mut response = Response::default();
            response.set_stream(request.into_body());
            response
        }
    }
    let server = TestServer::start(Mirrors);
    let mut client = server.client();
    for length in [0, 10, 100_000, 5_000_000] {
        let content = bytes(length);
        let head = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n");
        let mut sender = client.tcp().try_clone().unwrap();
        let sent = content.clone();
        let sends = std::thread::spawn(move || {
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
    let content = bytes(150_000);
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
        .post("/", |mut content: filoplume::Body| {
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
