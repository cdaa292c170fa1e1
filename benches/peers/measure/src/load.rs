//! Our own load: a closed loop over kept connections, which knows what each single connection got.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::poll::Poll;

/// Nothing that is measured here takes as long; without it a server that loses a request would stop us.
const STALLED_AFTER: Duration = Duration::from_secs(30);

const INPUT_BYTES: usize = 64 * 1024;
const HEADERS_MAX: usize = 32;

/// When a closed loop ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this long; what is outstanding then is abandoned.
    Elapsed(Duration),
    /// After so many answers on each connection.
    AnsweredEach(u64),
}

/// What is asked, again and again.
#[derive(Clone, Debug)]
pub struct Question {
    bytes: Vec<u8>,
    /// How many requests the bytes hold: all are written at once, and all answers awaited.
    depth: u64,
}

impl Question {
    pub fn get(target: &str) -> Self {
        Self::new(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes())
    }

    pub fn post(target: &str, length: usize) -> Self {
        let head = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        let mut bytes = head.into_bytes();
        bytes.resize(bytes.len() + length, b'x');
        Self::new(bytes)
    }

    pub fn pipelined(self, depth: usize) -> Self {
        Self { bytes: self.bytes.repeat(depth), depth: self.depth * depth as u64 }
    }

    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, depth: 1 }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Answers per connection.
    pub answered: Vec<u64>,
    /// Microseconds from writing a question to reading its answer.
    pub latency: Histogram<u64>,
    /// The longest wait, answered or not when the time was up.
    pub longest: Duration,
    pub elapsed: Duration,
    /// Connections that the server closed or broke.
    pub broken: u64,
    /// Answers with a status other than 2xx.
    pub refused: u64,
}

impl Outcome {
    pub fn total(&self) -> u64 {
        self.answered.iter().sum()
    }
}

/// Open connections to one server.
#[derive(Debug)]
pub struct Clients {
    connections: Vec<Connection>,
}

impl Clients {
    /// Opens the connections one after the other; each has been accepted by the kernel, not yet by the server.
    pub fn connect(address: SocketAddr, count: usize) -> io::Result<Self> {
        let connections = (0..count).map(|_| Connection::open(address)).collect::<io::Result<_>>()?;
        Ok(Self { connections })
    }

    /// Asks on every connection until it is over, from so many threads.
    pub fn run(&mut self, question: &Question, until: Until, threads: usize) -> io::Result<Outcome> {
        let start = Instant::now();
        let share = self.connections.len().div_ceil(threads);
        let parts: Vec<io::Result<Part>> = thread::scope(|scope| {
            let workers: Vec<_> = self
                .connections
                .chunks_mut(share)
                .map(|connections| scope.spawn(move || drive(connections, question, until, start)))
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("a client does not panic")).collect()
        });
        let elapsed = start.elapsed();
        let mut outcome = Outcome {
            answered: self.connections.iter().map(|connection| connection.answered).collect(),
            latency: histogram(),
            longest: Duration::ZERO,
            elapsed,
            broken: 0,
            refused: 0,
        };
        for part in parts {
            let part = part?;
            outcome.latency.add(&part.latency).expect("both have the same bounds");
            outcome.longest = outcome.longest.max(part.longest);
            outcome.broken += part.broken;
            outcome.refused += part.refused;
        }
        Ok(outcome)
    }

    /// How many of the connections have been closed from the other side.
    pub fn closed_by_server(&mut self) -> usize {
        let is_closed = |connection: &mut Connection| match connection.stream.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        self.connections.iter_mut().filter_map(|connection| is_closed(connection).then_some(())).count()
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// An answer whose end has not come.
    unread: Vec<u8>,
    /// How much of the question the socket has taken.
    written: usize,
    asked_at: Instant,
    /// Answers of this question that have not come.
    awaited: u64,
    answered: u64,
    open: bool,
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let now = Instant::now();
        Ok(Self {
            stream,
            unread: Vec::new(),
            written: 0,
            asked_at: now,
            awaited: 0,
            answered: 0,
            open: true,
        })
    }

    fn ask(&mut self, question: &Question, now: Instant) -> io::Result<()> {
        self.asked_at = now;
        self.awaited = question.depth;
        self.written = 0;
        self.write(question)
    }

    fn write(&mut self, question: &Question) -> io::Result<()> {
        while self.written < question.bytes.len() {
            match self.stream.write(&question.bytes[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What one thread saw.
struct Part {
    latency: Histogram<u64>,
    longest: Duration,
    broken: u64,
    refused: u64,
}

fn drive(
    connections: &mut [Connection],
    question: &Question,
    until: Until,
    start: Instant,
) -> io::Result<Part> {
    let mut part = Part { latency: histogram(), longest: Duration::ZERO, broken: 0, refused: 0 };
    let poll = Poll::new()?;
    let mut input = vec![0; INPUT_BYTES];
    let mut active = 0;
    for (index, connection) in connections.iter_mut().enumerate().filter(|(_, connection)| connection.open) {
        connection.answered = 0;
        poll.add(connection.stream.as_raw_fd(), index)?;
        connection.ask(question, Instant::now())?;
        active += 1;
    }
    let deadline = match until {
        Until::Elapsed(length) => Some(start + length),
        Until::AnsweredEach(_) => None,
    };
    let mut ready = Vec::new();
    while active > 0 {
        let now = Instant::now();
        let left = deadline.map_or(STALLED_AFTER, |deadline| deadline.saturating_duration_since(now));
        if left.is_zero() {
            break;
        }
        poll.wait(&mut ready, left)?;
        if ready.is_empty() && deadline.is_none() {
            return Err(io::Error::other(format!(
                "{active} connections had no answer for {STALLED_AFTER:?}"
            )));
        }
        for &index in &ready {
            let connection = &mut connections[index];
            if !connection.open {
                continue;
            }
            match receive(connection, question, until, &mut input, &mut part) {
                Ok(true) => {}
                Ok(false) => {
                    poll.remove(connection.stream.as_raw_fd())?;
                    active -= 1;
                }
                Err(_) => {
                    connection.open = false;
                    poll.remove(connection.stream.as_raw_fd())?;
                    part.broken += 1;
                    active -= 1;
                }
            }
        }
    }
    let now = Instant::now();
    for connection in connections.iter().filter(|connection| connection.open && connection.awaited > 0) {
        part.longest = part.longest.max(now - connection.asked_at);
    }
    Ok(part)
}

/// Takes what came and asks again; false when this connection has all its answers.
fn receive(
    connection: &mut Connection,
    question: &Question,
    until: Until,
    input: &mut [u8],
    part: &mut Part,
) -> io::Result<bool> {
    connection.write(question)?;
    loop {
        let kept = connection.unread.len();
        input[..kept].copy_from_slice(&connection.unread);
        let read = match connection.stream.read(&mut input[kept..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        };
        let is_drained = kept + read < input.len();
        let now = Instant::now();
        connection.unread.clear();
        take_answers(connection, &input[..kept + read], now, part)?;
        if connection.awaited == 0 {
            if matches!(until, Until::AnsweredEach(count) if connection.answered >= count) {
                return Ok(false);
            }
            connection.ask(question, now)?;
        }
        if is_drained {
            return Ok(true);
        }
    }
}

fn take_answers(connection: &mut Connection, input: &[u8], now: Instant, part: &mut Part) -> io::Result<()> {
    let waited = now - connection.asked_at;
    let mut rest = input;
    while let Some(answer) = Answer::at_start_of(rest)? {
        rest = &rest[answer.bytes..];
        if !(200..300).contains(&answer.status) {
            part.refused += 1;
        }
        part.latency.saturating_record(waited.as_micros() as u64);
        part.longest = part.longest.max(waited);
        connection.answered += 1;
        connection.awaited = connection.awaited.checked_sub(1).ok_or(io::ErrorKind::InvalidData)?;
    }
    connection.unread.extend_from_slice(rest);
    Ok(())
}

struct Answer {
    status: u16,
    bytes: usize,
}

impl Answer {
    /// The first answer if it is complete.
    fn at_start_of(input: &[u8]) -> io::Result<Option<Self>> {
        if input.is_empty() {
            return Ok(None);
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let head = match response.parse(input) {
            Ok(httparse::Status::Complete(head)) => head,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        };
        let length: usize = response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("content-length"))
            .and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok())
            .ok_or_else(|| io::Error::other("an answer without Content-Length"))?;
        let bytes = head + length;
        Ok((input.len() >= bytes).then_some(Self { status: response.code.unwrap_or(0), bytes }))
    }
}

/// From a microsecond to a minute, three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order")
}
