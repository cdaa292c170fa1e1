//! The floor: what sockets cost when nothing is even parsed.
//!
//! Two threads, each with its own listener (`SO_REUSEPORT`) and its own epoll. Every empty line
//! counts as the end of a request, and all answers are the same bytes. Bodies, targets and
//! `Connection: close` mean nothing here.

use std::os::fd::RawFd;

use common::WORKERS;
use memchr::memmem;
use raw_sockets::epoll::{self, Epoll};
use raw_sockets::event_loop::{Serve, send_or_keep};
use raw_sockets::{answer, run_loops};

const INPUT_BYTES: usize = 256 * 1024;

/// What ends a head.
const END: &[u8] = b"\r\n\r\n";

#[derive(Default)]
struct Connection {
    /// How many bytes of [`END`] the last read ended with.
    matched: usize,
    /// The bytes that the socket did not take.
    unsent: Vec<u8>,
}

struct Floor {
    input: Box<[u8]>,
    output: Vec<u8>,
    answer: Vec<u8>,
}

impl Floor {
    fn new() -> Self {
        Self {
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            output: Vec::with_capacity(INPUT_BYTES),
            answer: answer(&epoll::http_date(epoll::seconds()), ""),
        }
    }
}

impl Serve for Floor {
    type Connection = Connection;

    fn unsent(connection: &mut Connection) -> &mut Vec<u8> {
        &mut connection.unsent
    }

    fn serve(&mut self, epoll: &Epoll, fd: RawFd, connection: &mut Connection) -> bool {
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
                if !send_or_keep(epoll, fd, &self.output, &mut connection.unsent) {
                    return false;
                }
                self.output.clear();
            }
            if read < INPUT_BYTES {
                return true;
            }
        }
        true
    }
}

/// The number of heads that end in these bytes, which continue the last ones.
fn ends(bytes: &[u8], matched: &mut usize) -> usize {
    let mut count = 0;
    let mut rest = bytes;
    // An end that began in the last bytes is finished byte by byte. The rest is searched at once.
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
    run_loops(WORKERS, Floor::new);
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
