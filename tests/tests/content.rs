//! The content of requests: it comes back whole, is refused if it is too long, or is left unread.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{Buffered, Client, Process, Streamed, TestServer, chunked, pattern, site};

#[test]
fn a_content_comes_back_byte_for_byte() {
    let servers =
        [TestServer::start(site), TestServer::start(Streamed), TestServer::start(Buffered)];
    let lengths =
        [0, 1, 255, 4095, 4096, 8193, 16_384, 65_535, 65_536, 131_072, 131_073, 1024 * 1024];
    for (index, server) in servers.iter().enumerate() {
        let mut client = server.client();
        for length in lengths {
            let content = pattern(length);
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
        let content = pattern(length);
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
            let content = pattern(150);
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
        server.client().post("/echo", pattern(1000)).body.len(),
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
        let content = pattern(usize::try_from(bound).unwrap() + 1);
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
    client.send(chunked(&pattern(1001), 500));
    assert_eq!(client.response().status, 413);
    client.is_closed();
    assert_eq!(server.client().post("/echo", pattern(1000)).body.len(), 1000);
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
    assert_eq!(server.client().post("/echo", pattern(10)).status, 200);
    assert_eq!(server.client().post("/echo", pattern(11)).status, 413);
    assert_eq!(server.client().post("/other", pattern(11)).status, 200);
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
                client.send(&head).send(pattern(10_000));
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

#[test]
fn an_unread_content_within_the_bound_is_skipped() {
    let config = || ServerConfig::default().unread_content_bytes_max(100_000);
    for server in [TestServer::with(config(), Streamed), TestServer::with(config(), site)] {
        let mut client = server.client();
        for length in [1, 5000, 100_000] {
            let response = client.post("/unread", pattern(length));
            assert_eq!(response.text(), "unread");
            assert!(!response.closes(), "{length} bytes: {response:?}");
            // The bound includes chunk lines.
            client.send("POST /unread HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
            assert_eq!(
                client.send(chunked(&pattern(length * 9 / 10), 700)).response().text(),
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
    for segment in pattern(3000).chunks(1000) {
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
            let content = pattern(4_000_000);
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
        assert_eq!(client.post("/no", pattern(length)).status, 405);
        client.is_alive();
    }
}
