//! Connections with a PROXY header, of HTTP and of raw services.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::{Write, read_to_string};
use std::time::{Duration, Instant};

use filoplume_runtime::tcp::{self, Io, Protocol};
use filoplume_runtime::{Peer, Request, Response, Server, ServerConfig};
use filoplume_tests::{Client, Ended, TestServer, eventually, is_cut_off, receive};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The deadline of a head, in tests of this deadline.
const SHORT: Duration = Duration::from_millis(300);

/// Responds with the peer's address.
#[expect(clippy::needless_pass_by_value, reason = "a service is given its request")]
fn peer(request: Request) -> Response {
    Response::from(request.peer().to_string())
}

fn server() -> TestServer {
    TestServer::behind_proxy(ServerConfig::default(), peer)
}

fn block(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &length, rest].concat()
}

fn ipv4() -> Vec<u8> {
    block(0x21, 0x11, &[203, 0, 113, 7, 198, 51, 100, 2, 0x1f, 0x90, 0x01, 0xbb])
}

fn ipv6() -> Vec<u8> {
    let mut rest = [0; 36];
    rest[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    rest[15] = 1;
    rest[33] = 80;
    block(0x21, 0x21, &rest)
}

/// Asserts that the header sets the peer of all requests, with a request in the same write and
/// wherever the header is cut.
#[track_caller]
fn check(header: &[u8], expected: Option<&str>) {
    let server = server();
    let bytes = [header, GET].concat();
    for cut in 0..bytes.len() {
        let mut client = server.client();
        let own = client.tcp().local_addr().unwrap().to_string();
        let expected = expected.unwrap_or(&own);
        client.send(&bytes[..cut]).send(&bytes[cut..]);
        assert_eq!(client.response().text(), expected, "cut at {cut}");
        assert_eq!(client.get("/").text(), expected, "the second request, cut at {cut}");
    }
    assert_eq!(server.metrics().proxy_headers_refused, 0);
}

/// Asserts that the connection ends without a response, and that this is counted.
#[track_caller]
fn is_refused(bytes: &[u8]) {
    let server = server();
    let mut client = server.client();
    client.send(bytes);
    let ended = client.read_until_end();
    assert!(
        matches!(&ended, Ended::Closed(said) | Ended::Reset(said) if said.is_empty()),
        "{ended}"
    );
    server.is_left_by_all();
    let metrics = server.metrics();
    assert_eq!((metrics.proxy_headers_refused, metrics.requests, metrics.timed_out), (1, 0, 0));
    // The next connection is not affected.
    let mut other = server.client();
    assert_eq!(other.send([LINE, GET].concat()).response().text(), "192.0.2.1:56324");
}

#[test]
fn a_line_names_the_client() {
    check(LINE, Some("192.0.2.1:56324"));
    check(b"PROXY TCP6 2001:db8::1 ::1 80 443\r\n", Some("[2001:db8::1]:80"));
}

#[test]
fn a_block_names_the_client() {
    check(&ipv4(), Some("203.0.113.7:8080"));
    check(&ipv6(), Some("[2001:db8::1]:80"));
}

#[test]
fn bytes_after_the_addresses_of_a_block_are_skipped() {
    let mut rest = ipv4()[16..].to_vec();
    rest.extend_from_slice(&[0x04, 0, 9]);
    rest.extend_from_slice(b"PROXY TCP");
    let header = block(0x21, 0x11, &rest);
    check(&header, Some("203.0.113.7:8080"));
    let mut longest = ipv4()[16..].to_vec();
    longest.resize(536 - 16, 0);
    let server = server();
    let mut client = server.client();
    client.send([&block(0x21, 0x11, &longest), GET].concat());
    assert_eq!(client.response().text(), "203.0.113.7:8080");
}

#[test]
fn without_a_named_client_the_peer_is_that_of_the_socket() {
    check(b"PROXY UNKNOWN\r\n", None);
    check(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None);
    check(&block(0x20, 0x00, &[]), None);
    check(&block(0x20, 0x11, &ipv4()[16..]), None);
    check(&block(0x21, 0x00, &[]), None);
}

#[test]
fn a_connection_without_a_header_is_closed() {
    is_refused(GET);
    is_refused(b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
}

#[test]
fn a_header_that_is_malformed_closes_the_connection() {
    is_refused(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n");
    is_refused(b"PROXY TCP4 192.0.2.1 198.51.100.2 +1 443\r\n");
    is_refused(&block(0x22, 0x11, &ipv4()[16..]));
    is_refused(&block(0x21, 0x11, &ipv4()[16..20]));
    is_refused(&[0; 64]);
}

#[test]
fn a_header_that_is_too_long_closes_the_connection() {
    is_refused(&[b"PROXY UNKNOWN ", &[b'x'; 100][..]].concat());
    let mut rest = ipv4()[16..].to_vec();
    rest.resize(536 - 16 + 1, 0);
    is_refused(&block(0x21, 0x11, &rest));
}

#[test]
fn a_second_header_is_not_a_request() {
    let server = server();
    let mut client = server.client();
    client.send([LINE, LINE, GET].concat());
    assert_eq!(client.response().status, 400);
    assert_eq!(server.metrics().proxy_headers_refused, 0);
}

#[test]
fn requests_after_a_header_may_be_pipelined() {
    let server = server();
    let mut client = server.client();
    client.send([ipv6().as_slice(), GET, GET, GET].concat());
    for _ in 0..3 {
        assert_eq!(client.response().text(), "[2001:db8::1]:80");
    }
}

#[test]
fn a_header_has_the_deadline_of_the_head() {
    let server = TestServer::behind_proxy(ServerConfig::default().head_timeout(SHORT), peer);
    let mut silent = server.client();
    let started = Instant::now();
    silent.is_closed();
    assert!(started.elapsed() < Duration::from_secs(5));
    // A header that drips does not extend the deadline, and neither does a head after it.
    for bytes in [[b"PROXY UNKNOWN ", &[b'x'; 80][..]].concat(), [LINE, GET].concat()] {
        let mut slow = server.client();
        let took = slow.drip(&bytes, Duration::from_millis(20));
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    eventually("all have run into the deadline", || server.metrics().timed_out == 3);
    assert_eq!(server.metrics().proxy_headers_refused, 0);
}

#[test]
fn a_peer_that_disconnects_within_its_header_is_not_a_refusal() {
    let server = server();
    for cut in [0, 1, 5, 20, LINE.len() - 1] {
        let mut client = server.client();
        client.send(&LINE[..cut]).finish();
        client.is_closed();
    }
    server.is_left_by_all();
    assert_eq!(server.metrics().proxy_headers_refused, 0);
}

#[test]
fn one_address_may_expect_a_header_and_another_not() {
    let builder = Server::builder().bind("127.0.0.1:0").unwrap().proxy_protocol().unwrap();
    let server = builder.bind("127.0.0.1:0").unwrap().build().unwrap();
    server.spawn(peer).unwrap();
    let [proxied, plain] = server.local_addrs() else { panic!("two addresses") };
    // More connections than one loop keeps: the ones passed on to other loops expect the header
    // too.
    let mut clients: Vec<_> = (0..40).map(|_| Client::connect(*proxied)).collect();
    for client in &mut clients {
        assert_eq!(client.send([LINE, GET].concat()).response().text(), "192.0.2.1:56324");
    }
    let mut client = Client::connect(*plain);
    let own = client.tcp().local_addr().unwrap().to_string();
    assert_eq!(client.get("/").text(), own);
    assert_eq!(client.send([LINE, GET].concat()).response().status, 400);
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
}

#[test]
fn a_unix_socket_may_expect_a_header() {
    let path = std::env::temp_dir().join(format!("filoplume-proxy-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    let server =
        Server::builder().bind_unix(&path).unwrap().proxy_protocol().unwrap().build().unwrap();
    server.spawn(peer).unwrap();
    let mut client = Client::connect_unix(&path);
    assert_eq!(client.send([LINE, GET].concat()).response().text(), "192.0.2.1:56324");
    let mut local = Client::connect_unix(&path);
    assert_eq!(local.send([&block(0x20, 0, &[]), GET].concat()).response().text(), "unix");
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
}

#[test]
fn a_connection_without_a_header_does_not_delay_a_shutdown() {
    let server = server();
    let mut client = server.client();
    eventually("it is connected", || server.metrics().connections == 1);
    server.server().shutdown_handle().shutdown_within(Duration::from_secs(60));
    client.is_closed();
    server.server().wait();
}

#[test]
fn proxy_protocol_without_an_address_is_an_error() {
    assert!(Server::builder().proxy_protocol().is_err());
}

#[test]
fn behind_a_proxy_the_peer_is_the_named_client() {
    let greets = |peer: Peer| Greets(peer.to_string());
    struct Greets(String);
    impl Protocol for Greets {
        fn open(&mut self, io: &mut Io<'_>) {
            assert_eq!(io.peer().to_string(), self.0);
            io.send(self.0.as_bytes());
            io.close();
        }
        fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
            bytes.len()
        }
    }
    let server =
        Server::builder().bind("127.0.0.1:0").unwrap().proxy_protocol().unwrap().build().unwrap();
    server.spawn_tcp(greets).unwrap();
    let server = TestServer::of(server);
    let mut client = server.stream();
    client.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 10 20\r\n").unwrap();
    assert_eq!(read_to_string(client).unwrap(), "192.0.2.1:10");
    let mut client = server.stream();
    client.write_all(b"no header\r\n\r\n").unwrap();
    is_cut_off(&mut client);
}

#[test]
fn bytes_in_the_segment_of_a_proxy_header_are_not_lost() {
    let server =
        Server::builder().bind("127.0.0.1:0").unwrap().proxy_protocol().unwrap().build().unwrap();
    server.spawn_tcp(tcp::lines(|line| line.into())).unwrap();
    let server = TestServer::of(server);
    let mut client = server.stream();
    client.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 10 20\r\nhello\n").unwrap();
    assert_eq!(receive(&mut client, 6), b"hello\n");
}
