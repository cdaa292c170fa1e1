//! The floor of echo servers: what sockets cost when every byte is sent back as it came.
//!
//! `echo_epoll ADDRESS [THREADS]`: each thread has its own listener (`SO_REUSEPORT`) and its own edge-triggered epoll;
//! wait, read, write. What a slow peer does not take is kept, and it is not read from until it has taken that.

use std::mem;
use std::os::fd::RawFd;

use common::threads_argument;
use raw_sockets::epoll::{self, Epoll, HUNG_UP, WRITABLE};
use raw_sockets::{listener, run_loops, send};

/// A read that does not fill this has drained the socket.
const INPUT_BYTES: usize = 64 * 1024;

struct Loop {
    epoll: Epoll,
    listener: RawFd,
    /// What each socket did not take, indexed by file descriptor.
    unsent: Vec<Vec<u8>>,
    input: Box<[u8]>,
}

impl Loop {
    fn new(listener: RawFd) -> Self {
        let input = vec![0; INPUT_BYTES].into_boxed_slice();
        Self { epoll: Epoll::open(), listener, unsent: Vec::new(), input }
    }

    fn run(mut self) {
        self.epoll.add_listener(self.listener);
        let mut events = epoll::events();
        loop {
            for event in self.epoll.wait(&mut events) {
                let fd = event.u64 as RawFd;
                if fd == self.listener {
                    self.accept();
                } else {
                    self.drive(fd, event.events);
                }
            }
        }
    }

    /// Takes one connection; the listener is level-triggered, so the next wait names it again.
    fn accept(&mut self) {
        let Some(fd) = listener::accept(self.listener) else { return };
        let index = fd as usize;
        if self.unsent.len() <= index {
            self.unsent.resize_with(index + 1, Vec::new);
        }
        self.epoll.add(fd);
    }

    fn drive(&mut self, fd: RawFd, events: u32) {
        let mut unsent = mem::take(&mut self.unsent[fd as usize]);
        if events & WRITABLE != 0 && !unsent.is_empty() {
            unsent = send(fd, &unsent).map_or(Vec::new(), <[u8]>::to_vec);
            if unsent.is_empty() {
                self.epoll.expect_reads(fd);
            }
        }
        let open = self.echo(fd, &mut unsent);
        if !open || (events & HUNG_UP != 0 && unsent.is_empty()) {
            listener::close(fd);
        } else {
            self.unsent[fd as usize] = unsent;
        }
    }

    /// Reads and writes until the socket is drained; false when it is to be closed.
    fn echo(&mut self, fd: RawFd, unsent: &mut Vec<u8>) -> bool {
        while unsent.is_empty() {
            let read = match epoll::recv(fd, &mut self.input) {
                Some(0) => return false,
                Some(read) => read,
                None => return epoll::would_block(),
            };
            let Some(rest) = send(fd, &self.input[..read]) else { return false };
            if !rest.is_empty() {
                unsent.extend_from_slice(rest);
                self.epoll.expect_writes(fd);
            }
            if read < INPUT_BYTES {
                return true;
            }
        }
        true
    }
}

fn main() {
    run_loops(threads_argument(), |listener| Loop::new(listener).run());
}
