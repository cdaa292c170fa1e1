//! Tests of output that the socket does not take at once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::*;
use crate::budget::account::Account;
use crate::budget::clients::Clients;
use crate::engine::Engine;
use crate::engine::connection::tests::accept;
use crate::engine::tests::serving;
use crate::protocol::Guest;
use crate::protocol::raw::Raw;
use crate::service::request::Request;
use crate::service::response::Response;
use crate::service::tcp::{Io, Protocol};
use crate::transport::Peer;

const MEMORY_MAX: usize = 4 * 1024 * 1024;

fn server() -> Arc<Engine> {
    let config = ServerConfig::default().memory_max(MEMORY_MAX);
    serving(config, |_: Request| Response::new(204))
}

/// Writes until the socket is full. Returns how many bytes it has taken.
fn fill(connection: &mut Connection) -> usize {
    let mut bytes = 0;
    while let Ok(written) = connection.transport.write(&[b'.'; 4096]) {
        bytes += written;
    }
    bytes
}

/// Reads all that has arrived, after as many bytes.
fn read_after(filled: usize, peer: &mut UnixStream) -> Vec<u8> {
    peer.set_nonblocking(true).unwrap();
    let mut read = Vec::new();
    let _ = peer.read_to_end(&mut read);
    read.split_off(filled)
}

/// Sends this output and this content. Returns what became of them.
fn send(
    connection: &mut Connection,
    output: &[u8],
    content: &'static [u8],
    engine: &Engine,
) -> io::Result<Flushed> {
    let mut buffers = Buffers::take();
    buffers.output.extend_from_slice(output);
    let result = connection.flush_with(&Bytes::from_static(content), &mut buffers, &engine.config);
    assert!(result.is_err() || buffers.output.is_empty(), "it is sent or kept");
    buffers.give_back();
    result
}

#[test]
fn bytes_arrive_in_order_whatever_the_socket_takes() {
    let engine = server();
    let (mut connection, mut peer) = accept(&engine);
    let filled = fill(&mut connection);
    assert_eq!(send(&mut connection, b"a", b"b", &engine).unwrap(), Flushed::Some);
    assert_eq!(send(&mut connection, b"c", b"d", &engine).unwrap(), Flushed::Some);
    assert!(connection.is_writing());
    assert_eq!(read_after(filled, &mut peer), b"");
    assert_eq!(send(&mut connection, b"e", b"f", &engine).unwrap(), Flushed::All);
    assert!(!connection.is_writing());
    assert_eq!(read_after(0, &mut peer), b"abcdef");
}

#[test]
fn bytes_that_are_sent_back_precede_output_that_was_made_after_them() {
    let engine = server();
    let (mut connection, mut peer) = accept(&engine);
    let filled = fill(&mut connection);
    let mut buffers = Buffers::take();
    buffers.input.spare()[..4].copy_from_slice(b"abcd");
    buffers.input.filled(4);
    buffers.output.extend_from_slice(b"!");
    let flushed = connection.send_back(3, &mut buffers, &engine.config).unwrap();
    assert_eq!((flushed, buffers.input.unread()), (Flushed::Some, &b"d"[..]));
    assert_eq!(read_after(filled, &mut peer), b"");
    assert_eq!(connection.flush(&mut buffers, &engine.config).unwrap(), Flushed::All);
    assert_eq!(read_after(0, &mut peer), b"abc!");
    buffers.give_back();
}

/// Returns whether output of this length is kept for a peer that does not read.
fn is_kept(connection: &mut Connection, length: usize, engine: &Engine) -> bool {
    match send(connection, &vec![b'x'; length], b"", engine) {
        Ok(flushed) => {
            assert_eq!(flushed, Flushed::Some);
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
            false
        }
    }
}

#[test]
fn only_short_output_is_kept_while_the_budget_is_used_up() {
    for (used, length, expected) in [
        (MEMORY_MAX / 2, 2 * SHORT_BYTES, true),
        (MEMORY_MAX + 1, SHORT_BYTES, true),
        (MEMORY_MAX + 1, SHORT_BYTES + 1, false),
    ] {
        let engine = server();
        let (mut connection, _peer) = accept(&engine);
        fill(&mut connection);
        let mut others = Charge::default();
        others.set(&engine.account(None), used);
        assert_eq!(is_kept(&mut connection, length, &engine), expected, "{used}, {length}");
    }
}

#[test]
fn only_very_short_output_is_kept_for_a_client_beyond_its_share() {
    for (used, length, expected) in [
        (MEMORY_MAX / 2, SHORT_BYTES, true),
        (MEMORY_MAX - 1, SHORT_BYTES_PUSHED, true),
        (MEMORY_MAX - 1, SHORT_BYTES_PUSHED + 1, false),
    ] {
        let engine = server();
        let (mut connection, _peer) = accept(&engine);
        fill(&mut connection);
        let client = Arc::new(Clients::new(9)).admit("192.0.2.1".parse().unwrap()).unwrap();
        connection.account = Account::new(&engine.memory, client);
        let mut others = Charge::default();
        others.set(&connection.account, used);
        assert_eq!(is_kept(&mut connection, length, &engine), expected, "{used}, {length}");
    }
}

#[test]
fn only_very_short_output_is_kept_for_a_connection_that_others_send_to() {
    for (length, expected) in [(SHORT_BYTES_PUSHED, true), (SHORT_BYTES_PUSHED + 1, false)] {
        let engine = server();
        let (mut connection, _peer) = accept(&engine);
        connection.guest = Guest::Raw(Box::new(Raw::new(Arc::new(|_: Peer| Silent))));
        fill(&mut connection);
        let mut others = Charge::default();
        others.set(&engine.account(None), MEMORY_MAX + 1);
        assert_eq!(is_kept(&mut connection, length, &engine), expected, "{length}");
    }
}

/// A protocol that is never called.
struct Silent;

impl Protocol for Silent {
    fn data(&mut self, _: &[u8], _: &mut Io<'_>) -> usize {
        panic!("a test")
    }
}

#[cfg(feature = "tls-dev")]
#[test]
fn what_a_session_has_taken_is_unsent_until_the_socket_has_taken_it() {
    use crate::engine::connection::tests::over;
    use crate::transport::tests::client::{connect, session};

    let engine = server();
    let (socket, mut peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    // The least that the system allows, so that it takes the rest piece by piece.
    socket2::SockRef::from(&socket).set_send_buffer_size(1).unwrap();
    let mut transport = Transport::unix(mio::net::UnixStream::from_std(socket));
    let (records, mut client) = connect(&rustls::version::TLS13);
    transport.secure(session(records));
    let mut connection = over(&engine, transport, Peer::Unix);
    let before = engine.memory.used();
    assert_eq!(send(&mut connection, b"head", &[7; 60_000], &engine).unwrap(), Flushed::Some);
    let unsent = connection.transport.unsent();
    assert!(connection.is_writing() && unsent > 0);
    assert_eq!(engine.memory.used() - before, unsent, "the session keeps it");
    assert_eq!(send(&mut connection, b"more", b"", &engine).unwrap(), Flushed::Some);
    assert_eq!(engine.memory.used() - before, unsent + 4, "what it keeps is charged once");
    let deadline = connection.unsent.as_ref().unwrap().deadline();
    let mut received = Vec::new();
    loop {
        received.extend(read_after(0, &mut peer));
        match send(&mut connection, b"", b"", &engine).unwrap() {
            Flushed::All => break,
            flushed => assert_eq!(flushed, Flushed::Some),
        }
        let later = connection.unsent.as_ref().unwrap().deadline();
        assert!(later > deadline, "the peer has taken some");
    }
    assert!(!connection.is_writing());
    assert_eq!((connection.transport.unsent(), engine.memory.used()), (0, before));
    received.extend(read_after(0, &mut peer));
    assert_eq!(client.open(&received).0, [&b"head"[..], &[7; 60_000], b"more"].concat());
}

/// A peer takes a little of what the session keeps, and the session itself takes nothing new.
#[cfg(feature = "tls-dev")]
#[test]
fn what_a_peer_takes_of_a_full_session_is_progress() {
    use std::io::Read as _;

    use crate::engine::connection::tests::over;
    use crate::transport::tests::client::{connect, session};

    let engine = server();
    let (socket, mut peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    socket2::SockRef::from(&socket).set_send_buffer_size(1).unwrap();
    let mut transport = Transport::unix(mio::net::UnixStream::from_std(socket));
    transport.secure(session(connect(&rustls::version::TLS13).0));
    let mut connection = over(&engine, transport, Peer::Unix);
    assert_eq!(send(&mut connection, b"", &[7; 300_000], &engine).unwrap(), Flushed::Some);
    let deadline = |connection: &Connection| connection.unsent.as_ref().unwrap().deadline();
    for _ in 0..20 {
        let (unsent, before) = (connection.transport.unsent(), deadline(&connection));
        let mut taken = [0; 1024];
        peer.read_exact(&mut taken).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(send(&mut connection, b"", b"", &engine).unwrap(), Flushed::Some);
        let has_sent = connection.transport.unsent() < unsent;
        assert!(!has_sent || deadline(&connection) > before, "the peer has taken some");
    }
}

#[cfg(feature = "tls-dev")]
#[test]
fn a_session_that_has_more_to_send_is_not_done() {
    use crate::metrics::timeouts::Awaited;
    use crate::transport::tests::client::{connect, session};

    let engine = server();
    let (mut connection, mut peer) = accept(&engine);
    let (records, mut client) = connect(&rustls::version::TLS13);
    connection.transport.secure(session(records));
    // The session takes one write beyond what the socket takes.
    fill(&mut connection);
    assert!(connection.transport.unsent() > 0 && !connection.is_writing());
    assert_eq!(connection.awaited(false), Awaited::ResponseTaken);
    assert_eq!(send(&mut connection, b"", b"", &engine).unwrap(), Flushed::Some);
    assert!(connection.is_writing());
    let mut received = read_after(0, &mut peer);
    assert_eq!(send(&mut connection, b"", b"", &engine).unwrap(), Flushed::All);
    received.extend(read_after(0, &mut peer));
    assert!(client.open(&received).0.iter().all(|byte| *byte == b'.'));
}

#[test]
fn own_bytes_are_charged_while_they_are_kept_and_shared_ones_are_not() {
    let engine = server();
    let (mut connection, mut peer) = accept(&engine);
    fill(&mut connection);
    let before = engine.memory.used();
    assert_eq!(send(&mut connection, b"own", b"shared", &engine).unwrap(), Flushed::Some);
    assert_eq!(engine.memory.used() - before, 3);
    let mut buffers = Buffers::take();
    let mut send_content = |content: &Bytes| {
        connection.flush_with(content, &mut buffers, &engine.config).unwrap();
        engine.memory.used() - before
    };
    let content = Bytes::from(vec![b'x'; 1000]);
    let others = content.clone();
    assert_eq!(send_content(&content), 3);
    drop(others);
    let content = Bytes::from(vec![b'x'; 1000]);
    assert_eq!(send_content(&content), 1003);
    buffers.give_back();
    read_after(0, &mut peer);
    assert_eq!(send(&mut connection, b"", b"", &engine).unwrap(), Flushed::All);
    assert_eq!(engine.memory.used(), before);
}
