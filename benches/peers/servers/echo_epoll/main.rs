//! The floor of echo servers: what sockets cost when every byte is sent back as it came.
//!
//! `echo_epoll ADDRESS [THREADS]`: each thread has its own listener (`SO_REUSEPORT`) and its own
//! edge-triggered epoll; wait, read, write. Bytes that a slow peer does not take are kept, and
//! nothing more is read from that peer until it has taken them.

use std::os::fd::RawFd;

use common::threads_argument;
use raw_sockets::epoll::{self, Epoll};
use raw_sockets::event_loop::{Serve, send_or_keep};
use raw_sockets::run_loops;

/// A read that does not fill a buffer of this length has drained the socket.
const INPUT_BYTES: usize = 64 * 1024;

struct Echo {
    input: Box<[u8]>,
}

impl Serve for Echo {
    /// What the socket did not take.
    type Connection = Vec<u8>;

    fn unsent(connection: &mut Vec<u8>) -> &mut Vec<u8> {
        connection
    }

    fn serve(&mut self, epoll: &Epoll, fd: RawFd, unsent: &mut Vec<u8>) -> bool {
        while unsent.is_empty() {
            let read = match epoll::recv(fd, &mut self.input) {
                Some(0) => return false,
                Some(read) => read,
                None => return epoll::would_block(),
            };
            if !send_or_keep(epoll, fd, &self.input[..read], unsent) {
                return false;
            }
            if read < INPUT_BYTES {
                return true;
            }
        }
        true
    }
}

fn main() {
    run_loops(threads_argument(), || Echo { input: vec![0; INPUT_BYTES].into_boxed_slice() });
}
