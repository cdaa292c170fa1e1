//! Kept connections that ask in step: each sends a question, and then each reads an answer. They
//! are for counts, where the exact number of requests matters and their speed does not. Loads are
//! made by gust and wrk.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const HEADERS_MAX: usize = 32;

/// Half of the shortest queue of connections that a peer listens with.
const BATCH: usize = 64;

/// What is asked of every connection.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    /// A request for this target.
    Get(&'static str),
    /// This many bytes, which must come back.
    Echo(usize),
}

impl Question {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Get(target) => {
                format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
            }
            Self::Echo(length) => vec![b'e'; length],
        }
    }

    /// Whether this is a good answer. `None` if it is not complete.
    fn is_answered_by(self, answer: &[u8]) -> io::Result<Option<bool>> {
        match self {
            Self::Get(_) => {
                Ok(if_complete(answer)?.map(|(status, _)| (200..300).contains(&status)))
            }
            Self::Echo(length) if answer.len() < length => Ok(None),
            Self::Echo(_) => Ok(Some(answer == self.bytes())),
        }
    }
}

/// Open connections to one server.
#[derive(Debug)]
pub struct Clients {
    connections: Vec<Connection>,
    /// When a connection stops waiting for an answer, so that no server can delay us for long.
    deadline: Instant,
}

impl Clients {
    /// Opens the connections one after the other. The kernel has accepted them, and the server may
    /// do so later.
    pub fn connect(address: SocketAddr, count: usize, within: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + within;
        let connections =
            (0..count).map(|_| Connection::open(address, deadline)).collect::<io::Result<_>>()?;
        Ok(Self { connections, deadline })
    }

    /// Opens as many connections as the server answers in time. It opens a few at once, so that the
    /// server's queue does not overflow. Also returns the number of answers.
    pub fn connect_answered(
        address: SocketAddr,
        count: usize,
        question: Question,
        within: Duration,
    ) -> (Self, u64) {
        let deadline = Instant::now() + within;
        let mut all = Self { connections: Vec::new(), deadline };
        let mut answers = 0;
        while all.connections.len() < count && Instant::now() < deadline {
            let batch = BATCH.min(count - all.connections.len());
            // The rest cannot be opened either. The answers so far are the result.
            let Ok(mut clients) = Self::connect(address, batch, left(deadline)) else { break };
            answers += clients.ask_each(question, 1);
            all.connections.append(&mut clients.connections);
        }
        (all, answers)
    }

    /// Asks this many times on each connection. Returns the number of good answers.
    pub fn ask_each(&mut self, question: Question, times: u64) -> u64 {
        let bytes = question.bytes();
        let mut answers = 0;
        for _ in 0..times {
            for connection in &mut self.connections {
                connection.ask(&bytes);
            }
            for connection in &mut self.connections {
                answers += u64::from(connection.receive(question, self.deadline));
            }
        }
        answers
    }

    /// Like `ask_each`, and fails if an answer is missing.
    pub fn ask_each_and_expect(&mut self, question: Question, times: u64) -> io::Result<()> {
        let expected = self.connections.len() as u64 * times;
        match self.ask_each(question, times) {
            answers if answers == expected => Ok(()),
            answers => {
                Err(io::Error::other(format!("{answers} of {expected} requests were answered")))
            }
        }
    }

    /// How many of the connections the server has closed.
    pub fn closed_by_server(&mut self) -> usize {
        self.connections
            .iter_mut()
            .filter_map(|connection| connection.is_closed().then_some(()))
            .count()
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// Whether a question was sent, and the connection is not known to be broken.
    awaits: bool,
}

impl Connection {
    fn open(address: SocketAddr, deadline: Instant) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, left(deadline))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, awaits: false })
    }

    fn ask(&mut self, question: &[u8]) {
        self.awaits = self.stream.write_all(question).is_ok();
    }

    /// Whether a good answer came.
    fn receive(&mut self, question: Question, deadline: Instant) -> bool {
        self.awaits && self.read_answer(question, deadline).unwrap_or(false)
    }

    fn read_answer(&mut self, question: Question, deadline: Instant) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(left(deadline)))?;
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece)? {
                0 => return Ok(false),
                read => answer.extend_from_slice(&piece[..read]),
            }
            if let Some(is_good) = question.is_answered_by(&answer)? {
                return Ok(is_good);
            }
        }
    }

    fn is_closed(&mut self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        match self.stream.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// The time until the deadline, and at least a millisecond: a timeout of zero is invalid.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// The status and the content of an answer, or `None` if it is not complete. It does not use the
/// reader of `filoplume-http1`, because no server here may be judged by its own parser. All answers
/// to these questions have a `Content-Length`.
pub fn if_complete(input: &[u8]) -> io::Result<Option<(u16, &[u8])>> {
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
    Ok(response.code.zip(input.get(head..head + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_with_its_last_byte() {
        let answer = b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nok";
        for cut in 0..answer.len() {
            assert_eq!(if_complete(&answer[..cut]).unwrap(), None, "cut at {cut}");
        }
        assert_eq!(if_complete(answer).unwrap(), Some((204, b"ok".as_slice())));
    }

    #[test]
    fn an_echo_is_the_same_bytes() {
        let is_answered = |answer: &[u8]| Question::Echo(3).is_answered_by(answer).unwrap();
        assert_eq!([is_answered(b"ee"), is_answered(b"eee")], [None, Some(true)]);
        assert_eq!([is_answered(b"eex"), is_answered(b"eeee")], [Some(false); 2]);
    }
}
