//! The floor: what sockets cost when nothing is even parsed.
//!
//! Two threads, each with its own listener (`SO_REUSEPORT`) and its own epoll. Every empty line is taken for the
//! end of a request, and the same bytes answer each. Bodies, targets and `Connection: close` mean nothing here.

use std::mem;
use std::os::fd::RawFd;

use common::WORKERS;
use memchr::memmem;
use raw_sockets::epoll::{self, Epoll, HUNG_UP, WRITABLE};
use raw_sockets::{answer, listener, run_loops, send};

const INPUT_BYTES: usize = 256 * 1024;

/// What ends a head.
const END: &[u8] = b"\r\n\r\n";

#[derive(Default)]
struct Connection {
    /// How much of [`END`] the last read ended with.
    matched: usize,
    /// What the socket did not take.
    unsent: Vec<u8>,
}

struct Loop {
    epoll: Epoll,
    listener: RawFd,
    /// Indexed by file descriptor.
    connections: Vec<Connection>,
    input: Box<[u8]>,
    output: Vec<u8>,
    answer: Vec<u8>,
}

impl Loop {
    fn new(listener: RawFd) -> Self {
        Self {
            epoll: Epoll::open(),
            listener,
            connections: Vec::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            output: Vec::with_capacity(INPUT_BYTES),
            answer: answer(&epoll::http_date(epoll::seconds()), ""),
        }
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

    fn accept(&mut self) {
        let Some(fd) = listener::accept(self.listener) else { return };
        let index = fd as usize;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, Connection::default);
        }
        self.epoll.add(fd);
    }

    fn drive(&mut self, fd: RawFd, events: u32) {
        let mut connection = mem::take(&mut self.connections[fd as usize]);
        if events & WRITABLE != 0 && !connection.unsent.is_empty() {
            let pending = mem::take(&mut connection.unsent);
            connection.unsent = send(fd, &pending).map_or(Vec::new(), <[u8]>::to_vec);
            if connection.unsent.is_empty() {
                self.epoll.expect_reads(fd);
            }
        }
        let open = self.serve(fd, &mut connection);
        if !open || (events & HUNG_UP != 0 && connection.unsent.is_empty()) {
            listener::close(fd);
        } else {
            self.connections[fd as usize] = connection;
        }
    }

    /// Reads, answers and writes until the socket is drained; false when it is to be closed.
    fn serve(&mut self, fd: RawFd, connection: &mut Connection) -> bool {
        while connection.unsent.is_empty() {
            let read = match epoll::recv(fd, &mut self.input) {
                Some(0) => return false,
                Some(read) => read,
                None => return epoll::would_block(),
            };
            for _ in 0..ends(&self.input[..read], &mut connection.matched) {
                self.output.extend_from_slice(&self.answer);
            }
            if !self.output.is_empty() {
                let Some(unsent) = send(fd, &self.output) else { return false };
                connection.unsent.extend_from_slice(unsent);
                self.output.clear();
                if !connection.unsent.is_empty() {
                    self.epoll.expect_writes(fd);
                }
            }
            if read < INPUT_BYTES {
                return true;
            }
        }
        true
    }
}

/// How many heads end in these bytes, which go on where the last ones stopped.
fn ends(bytes: &[u8], matched: &mut usize) -> usize {
    let mut count = 0;
    let mut rest = bytes;
    // What began in the last bytes is finished a byte at a time; the others are searched at once.
    while let (1.., Some((&byte, after))) = (*matched, rest.split_first()) {
        rest = after;
        *matched = match byte {
            byte if byte == END[*matched] => *matched + 1,
            b'\r' => 1,
            _ => 0,
        };
        if *matched == END.len() {
            *matched = 0;
            count += 1;
        }
    }
    if rest.is_empty() {
        return count;
    }
    let mut open = rest;
    for at in memmem::find_iter(rest, END) {
        open = &rest[at + END.len()..];
        count += 1;
    }
    *matched = (1..END.len()).rev().find(|&length| open.ends_with(&END[..length])).unwrap_or(0);
    count
}

fn main() {
    run_loops(WORKERS, |listener| Loop::new(listener).run());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_counted_wherever_they_are_cut() {
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\r\n\r\n";
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let mut matched = 0;
            assert_eq!(ends(first, &mut matched) + ends(second, &mut matched), 2, "cut at {cut}");
        }
    }
}
