//! The reader of a body fails: the client can tell that the body is incomplete. And how many
//! responses are sent together.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Call, Fault, Over, PLAIN, Plan};
use crate::buffers::OUTPUT_BYTES;
use crate::{Request, Response, Server, ServerConfig, pushed};

#[test]
fn an_incomplete_body_that_is_delimited_by_the_end_of_the_connection_ends_in_a_reset() {
    let plan = Arc::new(Plan::new(Call::Accept, u64::MAX, 0, Fault::OneByte));
    for reads in 0..5 {
        for version in ["1.0", "1.1"] {
            let running = PLAIN.server(&plan, Over::Tcp);
            let mut socket = running.connect();
            let _other = socket.other_handle();
            write!(
                socket,
                "GET /breaks/{reads} HTTP/{version}\r\nHost: t\r\nConnection: close\r\n\r\n"
            )
            .unwrap();
            let mut received = Vec::new();
            let ended = socket.read_to_end(&mut received);
            let is_reset = ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
            // In a chunked body the missing last chunk is visible.
            assert_eq!(is_reset, version == "1.0", "{reads} reads, {version}: {received:?}");
            assert!(is_reset || !received.ends_with(b"0\r\n\r\n"));
            running.end();
        }
    }
}

#[test]
fn a_silent_body_that_is_delimited_by_the_end_of_the_connection_ends_in_a_reset() {
    let server = Server::builder().bind("127.0.0.1:0").unwrap().build().unwrap();
    let senders = Mutex::new(Vec::new());
    server
        .spawn(move |_: Request| {
            let (sender, body) = pushed::channel();
            senders.lock().push(sender);
            let mut response = Response::default();
            response.set_pushed(body);
            response
        })
        .unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
    let ended = client.read(&mut byte).map_err(|error| error.kind());
    assert_eq!(ended, Err(io::ErrorKind::ConnectionReset));
}

#[test]
fn pipelined_responses_are_sent_before_all_of_them_are_in_memory() {
    const RESPONSES: usize = 64;
    const BYTES: usize = 8000;
    let plan = Arc::new(Plan::new(Call::Write, u64::MAX, 0, Fault::OneByte));
    let mut config = ServerConfig::default().event_loops(1);
    config.faults = Some(Arc::clone(&plan));
    let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
    server.spawn(|_: Request| Response::from("x".repeat(BYTES))).unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let requests = "GET / HTTP/1.1\r\nHost: t\r\n\r\n".repeat(RESPONSES - 1);
    write!(client, "{requests}GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received.len() > RESPONSES * BYTES);
    // A part has at least 64 KiB, and at most one response more.
    let parts = received.len() / (OUTPUT_BYTES + 2 * BYTES);
    assert!(plan.calls() >= parts as u64, "{} writes, {parts} parts", plan.calls());
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
}
