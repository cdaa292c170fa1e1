//! Connections that are closed at a deadline, counted by what they waited for.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use filoplume_runtime::{Awaited, Request, Response, Server, ServerConfig};

/// For events that are due soon, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A deadline that passes during the test.
const SHORT: Duration = Duration::from_millis(100);

/// A deadline that does not.
const LONG: Duration = Duration::from_secs(600);

/// More than the buffers of both sockets take.
const MUCH: usize = 32 << 20;

/// Opens connections of one kind until one is counted under `expected`, and expects that `never`
/// stays at zero. A slow machine may also read the bytes of a connection only after its deadline,
/// so another kind may be counted meanwhile.
#[track_caller]
fn check(config: ServerConfig, sent: &str, expected: Awaited, never: &[Awaited]) {
    let config = config.linger_timeout(SHORT);
    let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
    server
        .spawn(|request: Request| {
            let mut response = Response::default();
            if request.path() == "/much" {
                response.set_bytes(vec![b'x'; MUCH]);
            }
            response
        })
        .unwrap();
    let address = server.local_addr().unwrap();
    let count_of = |wanted: Awaited| {
        let metrics = server.metrics().unwrap();
        let sum: u64 = metrics.timeouts().map(|(_, count)| count).sum();
        assert_eq!(sum, metrics.timed_out);
        metrics.timeouts().find(|(awaited, _)| *awaited == wanted).unwrap().1
    };
    let deadline = Instant::now() + PATIENCE;
    while count_of(expected) == 0 {
        assert!(Instant::now() < deadline, "{expected}: {:?}", server.metrics());
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(sent.as_bytes()).unwrap();
        if expected == Awaited::ResponseTaken {
            // It reads nothing, so the response stays unsent until the connection is given up.
            while count_of(expected) == 0 && Instant::now() < deadline {
                std::thread::yield_now();
            }
        } else {
            // The server closes it, with or without a response.
            let _ = client.read_to_end(&mut Vec::new());
        }
    }
    for awaited in never {
        assert_eq!(count_of(*awaited), 0, "{expected}: {awaited}");
    }
    server.shutdown_handle().shutdown();
    server.wait();
}

fn patient() -> ServerConfig {
    ServerConfig::default()
        .head_timeout(LONG)
        .content_timeout(LONG)
        .write_timeout(LONG)
        .keep_alive_timeout(LONG)
}

#[test]
fn a_head_that_does_not_begin_or_end_is_told_apart() {
    use Awaited::{Content, FirstByte, Head, NextRequest, ResponseTaken};
    let config = || patient().head_timeout(SHORT);
    check(config(), "", FirstByte, &[Head, Content, ResponseTaken, NextRequest]);
    check(config(), "GET / HT", Head, &[Content, ResponseTaken, NextRequest]);
}

#[test]
fn a_content_a_response_and_the_next_request_are_told_apart() {
    use Awaited::{Content, FirstByte, Head, NextRequest, ResponseTaken};
    let half = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf";
    check(
        patient().content_timeout(SHORT),
        half,
        Content,
        &[FirstByte, Head, ResponseTaken, NextRequest],
    );
    let much = "GET /much HTTP/1.1\r\nhost: a\r\n\r\n";
    check(
        patient().write_timeout(SHORT),
        much,
        ResponseTaken,
        &[FirstByte, Head, Content, NextRequest],
    );
    let whole = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    check(
        patient().keep_alive_timeout(SHORT),
        whole,
        NextRequest,
        &[FirstByte, Content, ResponseTaken],
    );
}
