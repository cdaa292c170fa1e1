//! Tests of output that the socket does not take at once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::*;
use crate::budget::account::Account;
use crate::budget::clients::Clients;
use crate::engine::Engine;
use crate::engine::connection::tests::{accept, engine};
use crate::service::request::Request;
use crate::service::response::Response;

const MEMORY_MAX: usize = 4 * 1024 * 1024;

fn server() -> Arc<Engine> {
    let config = ServerConfig::default().memory_max(MEMORY_MAX);
    engine(config, |_: Request| Response::new(204))
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
