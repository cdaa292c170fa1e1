//! The engine's plain path does not allocate: what a request needs is there from the requests before.
//!
//! Alone in its file, because the counter counts the whole process.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use filoplume_runtime::{Response, Server};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
const CONNECTIONS: usize = 8;
const ROUNDS: usize = 500;

/// Asks on every connection in turn. Allocates nothing itself.
fn ask_all(clients: &mut [TcpStream], rounds: usize) {
    let mut buffer = [0; 1024];
    for _ in 0..rounds {
        for client in clients.iter_mut() {
            client.write_all(REQUEST).unwrap();
            let mut read = 0;
            while !buffer[..read].ends_with(b"Hello, World!") {
                let more = client.read(&mut buffer[read..]).unwrap();
                assert_ne!(more, 0, "the server goes on");
                read += more;
            }
        }
    }
}

#[test]
fn a_plain_request_on_a_kept_connection_allocates_nothing() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let server = Server::bind("127.0.0.1:0").unwrap();
    server
        .spawn(|_request| {
            let mut response = Response::default();
            response.send_text("Hello, World!");
            response
        })
        .unwrap();
    let address = server.local_addr().unwrap();
    let mut clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            client
        })
        .collect();
    // Buffers and stashes fill, and the first looks of the watchdog pass.
    ask_all(&mut clients, ROUNDS);
    let before = dhat::HeapStats::get().total_blocks;
    ask_all(&mut clients, ROUNDS);
    let allocated = dhat::HeapStats::get().total_blocks - before;
    // A hand-over to another thread allocates, and a busy machine may cause one: that is a handful
    // in thousands of requests, not one in each.
    let requests = (CONNECTIONS * ROUNDS) as u64;
    assert!(allocated < requests / 50, "{allocated} allocations in {requests} requests");
    server.shutdown_handle().shutdown();
    server.wait();
}
