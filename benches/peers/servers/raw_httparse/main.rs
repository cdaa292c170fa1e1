//! The reference: what HTTP costs when nothing else is done.
//!
//! Two threads, each with its own listener (`SO_REUSEPORT`) and its own epoll; wait, read, parse,
//! write. Every request is parsed with httparse, bodies are read, pipelined requests are answered
//! with one write, and `Connection: close` is honoured, as is `Connection: keep-alive` in HTTP/1.0,
//! which ab speaks. The answer is the same for every target but `/json`; only `/sleep` and `/cpu`
//! block the loop first. Nothing else of a server is here: no routes, no time-outs, no limits on
//! writes.
//!
//! `raw_httparse ADDRESS counted` puts a number into each answer, so that no two heads are the
//! same. A client that recognises repeated heads then has to parse every one.

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::{env, mem, str, thread};

use common::{WORKERS, message_json, spin, time};
use memchr::memmem;
use raw_sockets::epoll::{self, Epoll};
use raw_sockets::event_loop::{Serve, send_or_keep};
use raw_sockets::run_loops;

/// A read that does not fill a buffer of this length has drained the socket. A 64 KiB body and its
/// head fit.
const INPUT_BYTES: usize = 256 * 1024;

/// The maximum length of a head that arrives in pieces.
const HEAD_BYTES_MAX: usize = 16 * 1024;

const HEADERS_MAX: usize = 32;

#[derive(Default)]
struct Connection {
    /// The start of a head that is not complete.
    unread: Vec<u8>,
    /// The bytes that the socket did not take.
    unsent: Vec<u8>,
    body_left: usize,
    /// Whether a head was parsed, and the answer waits until the body is complete.
    owed: bool,
    closing: bool,
    /// Whether the client speaks HTTP/1.0, and is told that the connection stays open.
    is_told_kept: bool,
    /// Whether the answer is a message that is serialized for this request.
    wants_json: bool,
}

impl Connection {
    /// Reads from a head how long the content is and whether the connection stays open.
    #[inline]
    fn begin_request(&mut self, request: &httparse::Request<'_, '_>) {
        self.owed = true;
        let is_old = request.version == Some(0);
        self.closing = is_old;
        self.is_told_kept = false;
        for header in &*request.headers {
            if header.name.eq_ignore_ascii_case("content-length") {
                let digits = str::from_utf8(header.value).unwrap_or("");
                self.body_left = digits.parse().unwrap_or(0);
            } else if header.name.eq_ignore_ascii_case("connection") {
                self.is_told_kept = is_old && header.value.eq_ignore_ascii_case(b"keep-alive");
                self.closing =
                    !self.is_told_kept && (is_old || header.value.eq_ignore_ascii_case(b"close"));
            }
        }
    }
}

struct Reference {
    input: Box<[u8]>,
    output: Vec<u8>,
    seconds: i64,
    date: String,
    answer: Vec<u8>,
    kept_answer: Vec<u8>,
    last_answer: Vec<u8>,
    /// The number of answers so far, if each answer contains it.
    count: Option<Count>,
}

impl Serve for Reference {
    type Connection = Connection;

    fn woke(&mut self) {
        self.set_date();
    }

    fn unsent(connection: &mut Connection) -> &mut Vec<u8> {
        &mut connection.unsent
    }

    fn serve(&mut self, epoll: &Epoll, fd: RawFd, connection: &mut Connection) -> bool {
        while connection.unsent.is_empty() {
            if connection.closing {
                return false;
            }
            let kept = connection.unread.len();
            if kept > HEAD_BYTES_MAX {
                return false;
            }
            self.input[..kept].copy_from_slice(&connection.unread);
            let read = match epoll::recv(fd, &mut self.input[kept..]) {
                Some(0) => return false,
                Some(read) => read,
                None => return epoll::would_block(),
            };
            connection.unread.clear();
            let drained = read < INPUT_BYTES - kept;
            self.answer(connection, kept + read);
            if !self.output.is_empty() {
                if !send_or_keep(epoll, fd, &self.output, &mut connection.unsent) {
                    return false;
                }
                self.output.clear();
            }
            if drained {
                return !(connection.closing && connection.unsent.is_empty());
            }
        }
        true
    }
}

impl Reference {
    fn new(is_counted: bool) -> Self {
        Self {
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            output: Vec::with_capacity(INPUT_BYTES),
            seconds: 0,
            date: String::new(),
            answer: Vec::new(),
            kept_answer: Vec::new(),
            last_answer: Vec::new(),
            count: is_counted.then_some(Count([b'0'; COUNT_DIGITS])),
        }
    }

    /// Appends an answer to the output for each request that is complete in the input.
    fn answer(&mut self, connection: &mut Connection, length: usize) {
        let mut rest = &self.input[..length];
        loop {
            let body = connection.body_left.min(rest.len());
            connection.body_left -= body;
            rest = &rest[body..];
            if connection.body_left > 0 {
                return;
            }
            if mem::take(&mut connection.owed) {
                if connection.wants_json {
                    write_json(&mut self.output, &self.date, connection.closing);
                } else {
                    let answer = match (connection.closing, connection.is_told_kept) {
                        (true, _) => &self.last_answer,
                        (false, true) => &self.kept_answer,
                        (false, false) => &self.answer,
                    };
                    let start = self.output.len();
                    self.output.extend_from_slice(answer);
                    if let Some(count) = &mut self.count {
                        count.write_next(&mut self.output[start..]);
                    }
                }
            }
            if rest.is_empty() || connection.closing {
                return;
            }
            let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
            let mut request = httparse::Request::new(&mut []);
            match request.parse_with_uninit_headers(rest, &mut headers) {
                Ok(httparse::Status::Complete(head)) => rest = &rest[head..],
                Ok(httparse::Status::Partial) => {
                    connection.unread.extend_from_slice(rest);
                    return;
                }
                Err(_) => {
                    connection.closing = true;
                    self.output.extend_from_slice(
                        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
                    );
                    return;
                }
            }
            connection.begin_request(&request);
            let target = request.path.unwrap_or("");
            connection.wants_json = target == "/json";
            if target.starts_with("/sleep") {
                thread::sleep(time(target));
            } else if target.starts_with("/cpu") {
                spin(time(target));
            }
        }
    }

    /// Renews the prepared answers when the second has changed.
    fn set_date(&mut self) {
        let now = epoll::seconds();
        if now == self.seconds {
            return;
        }
        self.seconds = now;
        self.date = epoll::http_date(now);
        let count = if self.count.is_some() { COUNT } else { "" };
        self.answer = raw_sockets::answer(&self.date, count);
        self.kept_answer = raw_sockets::answer(&self.date, &format!("{count}{KEEP}"));
        self.last_answer = raw_sockets::answer(&self.date, &format!("{count}{CLOSE}"));
    }
}

const CLOSE: &str = "Connection: close\r\n";
const KEEP: &str = "Connection: keep-alive\r\n";

/// The field whose digits differ in every answer.
const COUNT: &str = "Answer-Count: 0000000000\r\n";
const COUNT_DIGITS: usize = 10;
const COUNT_NAME: &[u8] = b"Answer-Count: ";

/// A number in decimal digits. It is cheaper to increment them than to format a number again.
struct Count([u8; COUNT_DIGITS]);

impl Count {
    /// Increments the number, and writes it over the digits of the answer.
    fn write_next(&mut self, answer: &mut [u8]) {
        for digit in self.0.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                break;
            }
            *digit = b'0';
        }
        let name = memmem::find(answer, COUNT_NAME).expect("a counted answer has the field");
        let digits = name + COUNT_NAME.len();
        answer[digits..digits + COUNT_DIGITS].copy_from_slice(&self.0);
    }
}

fn write_json(output: &mut Vec<u8>, date: &str, closing: bool) {
    let content = message_json();
    let close = if closing { CLOSE } else { "" };
    let length = content.len();
    write!(
        output,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nDate: \
         {date}\r\n{close}\r\n"
    )
    .expect("memory takes everything");
    output.extend_from_slice(&content);
}

fn main() {
    let is_counted = env::args().nth(2).is_some_and(|argument| argument == "counted");
    run_loops(WORKERS, move || Reference::new(is_counted));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_the_next_number() {
        let mut count = Count(*b"0000000098");
        let mut answer = raw_sockets::answer("today", COUNT);
        let length = answer.len();
        for expected in ["0000000099", "0000000100"] {
            count.write_next(&mut answer);
            assert!(
                str::from_utf8(&answer)
                    .unwrap()
                    .contains(&format!("\r\nAnswer-Count: {expected}\r\n"))
            );
        }
        assert_eq!(answer.len(), length);
    }
}
