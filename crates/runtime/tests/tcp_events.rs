//! The events of raw protocols that come from other threads, from themselves and from a shutdown.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use filoplume_runtime::tcp::{Closed, Io, Protocol, Sender};
use filoplume_runtime::{Peer, Server};

const DEADLINE: Duration = Duration::from_secs(30);

fn connect(server: &Server) -> TcpStream {
    let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client
}

/// Sends an `n` when it is notified, and says goodbye at a shutdown.
struct Notified {
    senders: mpsc::Sender<Sender>,
    ends: mpsc::Sender<Closed>,
}

impl Protocol for Notified {
    fn open(&mut self, io: &mut Io<'_>) {
        let _ = self.senders.send(io.sender());
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        if bytes.ends_with(b"end") {
            io.close();
        }
        bytes.len()
    }

    fn notified(&mut self, io: &mut Io<'_>) {
        io.send(b"n");
    }

    fn shutdown(&mut self, io: &mut Io<'_>) {
        io.send(b"goodbye");
    }

    fn close(&mut self, reason: Closed) {
        let _ = self.ends.send(reason);
    }
}

#[test]
fn another_thread_notifies_a_protocol_that_waits() {
    let (senders, connected) = mpsc::channel();
    let (ends, _ended) = mpsc::channel();
    let server = Server::bind("127.0.0.1:0").unwrap();
    server
        .spawn_tcp(move |_: Peer| Notified { senders: senders.clone(), ends: ends.clone() })
        .unwrap();
    let mut client = connect(&server);
    let sender = connected.recv_timeout(DEADLINE).unwrap();
    let mut byte = [0];
    for _ in 0..3 {
        sender.notify();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"n");
    }
    sender.close();
    sender.notify();
    assert_eq!(client.read(&mut byte).unwrap(), 0, "nothing follows the end");
}

#[test]
fn a_protocol_says_goodbye_at_a_shutdown_and_waits_for_the_answer() {
    let (senders, connected) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let server = Server::bind("127.0.0.1:0").unwrap();
    server
        .spawn_tcp(move |_: Peer| Notified { senders: senders.clone(), ends: ends.clone() })
        .unwrap();
    let mut client = connect(&server);
    connected.recv_timeout(DEADLINE).unwrap();
    let shutdown = server.shutdown_handle();
    shutdown.shutdown();
    let mut goodbye = [0; 7];
    client.read_exact(&mut goodbye).unwrap();
    assert_eq!(goodbye, *b"goodbye");
    client.write_all(b"more").unwrap();
    client.write_all(b"end").unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    assert_eq!(ended.recv_timeout(DEADLINE).unwrap(), Closed::ByProtocol);
}

/// Uses one byte per call, and answers it with many.
struct OneByOne;

impl Protocol for OneByOne {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        io.send(&[bytes[0]; 100_000]);
        io.resume();
        1
    }
}

#[test]
fn a_protocol_resumes_where_it_stopped() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    server.spawn_tcp(|_: Peer| OneByOne).unwrap();
    let mut client = connect(&server);
    let sent: Vec<u8> = (0..100).collect();
    client.write_all(&sent).unwrap();
    let mut received = vec![0; 100 * 100_000];
    client.read_exact(&mut received).unwrap();
    let firsts: Vec<u8> = received.chunks(100_000).map(|chunk| chunk[0]).collect();
    assert_eq!(firsts, sent);
}
