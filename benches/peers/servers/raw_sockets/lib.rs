//! What the raw servers share: the loop with its epoll, sockets, and prepared answers. Each server
//! handles the bytes in its own way.

pub mod epoll;
pub mod event_loop;
pub mod listener;

use std::os::fd::RawFd;
use std::thread;

use common::{HELLO, address_argument};

use crate::event_loop::{EventLoop, Serve};

/// Runs this many loops, each with a server and a listener of its own, until the process is ended.
pub fn run_loops<S: Serve>(count: usize, server: impl Fn() -> S + Copy + Send + 'static) {
    let address = address_argument();
    // All listeners exist before the first connection comes, so that every connection is spread
    // over the same number of them.
    let listeners: Vec<RawFd> = (0..count).map(|_| listener::bind(address)).collect();
    let threads: Vec<_> = listeners
        .into_iter()
        .map(|listener| thread::spawn(move || EventLoop::new(listener, server()).run()))
        .collect();
    for thread in threads {
        thread.join().expect("a loop does not end");
    }
}

/// The whole answer to a plain request, with `fields` among its headers.
pub fn answer(date: &str, fields: &str) -> Vec<u8> {
    let length = HELLO.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nDate: \
         {date}\r\n{fields}\r\n{HELLO}"
    )
    .into_bytes()
}

/// Sends bytes. Returns the rest that the socket did not take, or `None` if the connection is
/// broken.
pub fn send(fd: RawFd, bytes: &[u8]) -> Option<&[u8]> {
    match epoll::send(fd, bytes) {
        Some(sent) => Some(&bytes[sent..]),
        None if epoll::would_block() => Some(bytes),
        None => None,
    }
}
