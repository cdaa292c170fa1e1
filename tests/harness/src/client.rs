//! A client that sends exactly the bytes it is given and reads responses strictly.
//!
//! It does not use the reader of `filoplume-http1`: these tests judge what that crate writes, so a
//! mistake that its reader and its writer share would not be found.

mod response;
mod tls;

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, SockAddr, Type};

use crate::wait::DEADLINE;

pub use response::{Framing, Response};

/// How long one read may wait before the deadline is checked.
const TICK: Duration = Duration::from_millis(20);

/// A connection.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    /// Bytes that were read and not used.
    input: Vec<u8>,
    deadline: Duration,
    /// The current read timeout of the socket.
    tick: Option<Duration>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// Why no response could be read.
#[derive(Debug)]
pub enum Ended {
    /// The peer closed, with these bytes of a response before it.
    Closed(Vec<u8>),
    /// The peer reset the connection, with these bytes of a response before it.
    Reset(Vec<u8>),
    /// The deadline passed after these bytes.
    Silent(Vec<u8>),
}

impl Ended {
    /// Returns whether a part of a response was received.
    pub fn is_truncated(&self) -> bool {
        match self {
            Self::Closed(bytes) | Self::Reset(bytes) | Self::Silent(bytes) => !bytes.is_empty(),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, bytes) = match self {
            Self::Closed(bytes) => ("closed", bytes),
            Self::Reset(bytes) => ("reset", bytes),
            Self::Silent(bytes) => ("silent", bytes),
        };
        let start = bytes.get(..bytes.len().min(300)).unwrap_or_default();
        write!(f, "{what} after {} bytes: {}", bytes.len(), start.escape_ascii())
    }
}

impl Client {
    /// Connects over TCP.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// Connects over TCP.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        Self::over_tcp(TcpStream::connect_timeout(&address, DEADLINE)?)
    }

    /// Connects over TCP from this address. All of 127.0.0.0/8 belongs to this machine on Linux, so
    /// a test may have many clients.
    #[track_caller]
    pub fn connect_from(from: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::from(SocketAddr::from((from, 0)))).unwrap();
        socket.connect_timeout(&address.into(), DEADLINE).unwrap();
        Self::over_tcp(socket.into()).unwrap()
    }

    /// Returns a client with this connection.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn over_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Self {
            socket: Socket::Tcp(stream),
            input: Vec::new(),
            deadline: DEADLINE,
            tick: Some(TICK),
        })
    }

    /// Connects over a Unix socket.
    #[track_caller]
    pub fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(TICK)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self {
            socket: Socket::Unix(stream),
            input: Vec::new(),
            deadline: DEADLINE,
            tick: Some(TICK),
        }
    }

    /// Sets how long to wait for responses.
    pub fn patience(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Returns the socket.
    pub fn tcp(&self) -> &TcpStream {
        match &self.socket {
            Socket::Tcp(stream) => stream,
            Socket::Tls(stream) => &stream.sock,
            Socket::Unix(_) => panic!("not a TCP connection"),
        }
    }

    /// Sends bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes).unwrap_or_else(|error| panic!("cannot send: {error}"));
        self
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(stream) => stream.write_all(bytes.as_ref()),
            Socket::Unix(stream) => stream.write_all(bytes.as_ref()),
            Socket::Tls(stream) => stream.write_all(bytes.as_ref()).and_then(|()| stream.flush()),
        }
    }

    /// Sends a request without content and reads the response.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")).response()
    }

    /// Sends a request with content and reads the response.
    #[track_caller]
    pub fn post(&mut self, target: &str, content: impl AsRef<[u8]>) -> Response {
        let content = content.as_ref();
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        self.send([head.as_bytes(), content].concat()).response()
    }

    /// Closes the direction to the server.
    pub fn finish(&mut self) -> &mut Self {
        match &mut self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Socket::Tls(stream) => {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
                stream.sock.shutdown(Shutdown::Write).unwrap();
            }
        }
        self
    }

    /// Reads a response.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.try_response().unwrap_or_else(|ended| panic!("no response: {ended}"))
    }

    /// Reads the response to a `HEAD`, which has no content whatever its head says.
    #[track_caller]
    pub fn head_response(&mut self) -> Response {
        self.read_head_only().unwrap_or_else(|ended| panic!("no response: {ended}"))
    }

    /// Reads a complete response.
    ///
    /// # Errors
    ///
    /// How the connection ended instead.
    pub fn try_response(&mut self) -> Result<Response, Ended> {
        let mut response = self.read_head_only()?;
        match response.framing {
            Framing::None => {}
            Framing::Length => {
                let length = response
                    .header("content-length")
                    .and_then(|length| length.parse().ok())
                    .unwrap();
                self.need(length, &response)?;
                response.body = self.input.drain(..length).collect();
            }
            Framing::Chunked => self.read_chunks(&mut response)?,
            Framing::UntilEnd => match self.read_until_end() {
                Ended::Closed(body) => response.body = body,
                other => return Err(other),
            },
        }
        Ok(response)
    }

    /// Reads a response head and leaves the bytes after it.
    ///
    /// # Errors
    ///
    /// How the connection ended instead.
    pub fn read_head_only(&mut self) -> Result<Response, Ended> {
        let end = loop {
            match find(&self.input, b"\r\n\r\n") {
                Some(end) => break end,
                None => self.fill()?,
            }
        };
        let head: Vec<u8> = self.input.drain(..end + 4).collect();
        let head = String::from_utf8(head).expect("a response head is text");
        Ok(Response::parse(&head))
    }

    /// Reads to the end of the connection. Panics if it does not end, or is reset.
    #[track_caller]
    pub fn read_to_end(&mut self) -> Vec<u8> {
        match self.read_until_end() {
            Ended::Closed(bytes) => bytes,
            other => panic!("the connection does not end in order: {other}"),
        }
    }

    /// Reads until the connection ends in any way.
    pub fn read_until_end(&mut self) -> Ended {
        loop {
            if let Err(ended) = self.fill() {
                return ended;
            }
        }
    }

    /// Panics unless the connection ends in an orderly way and without another byte.
    #[track_caller]
    pub fn is_closed(&mut self) {
        let rest = self.read_to_end();
        assert!(rest.is_empty(), "received more: {}", rest.escape_ascii());
    }

    /// Panics if anything is received within `time`, or the connection ends.
    #[track_caller]
    pub fn is_silent_for(&mut self, time: Duration) {
        let patience = std::mem::replace(&mut self.deadline, time);
        let result = if self.input.is_empty() { self.fill() } else { Ok(()) };
        self.deadline = patience;
        match result {
            Err(Ended::Silent(_)) => {}
            Err(ended) => panic!("the connection ended: {ended}"),
            Ok(()) => panic!("received {}", self.input.escape_ascii()),
        }
    }

    /// Panics unless the connection still answers a request.
    #[track_caller]
    pub fn is_alive(&mut self) {
        assert_eq!(self.get("/still-there").text(), "GET /still-there");
    }

    /// Sends one byte per `interval` until the server sends something, closes, or all bytes are
    /// sent. Returns how long it took.
    pub fn drip(&mut self, bytes: &[u8], interval: Duration) -> Duration {
        let started = Instant::now();
        let patience = std::mem::replace(&mut self.deadline, interval);
        for byte in bytes {
            if self.try_send([*byte]).is_err() || !matches!(self.fill(), Err(Ended::Silent(_))) {
                break;
            }
        }
        self.deadline = patience;
        started.elapsed()
    }

    /// Reads at most `bytes_max` bytes and discards them.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn read_some(&mut self, bytes_max: usize) -> io::Result<usize> {
        let mut buffer = vec![0; bytes_max];
        match &mut self.socket {
            Socket::Tcp(stream) => stream.read(&mut buffer),
            Socket::Unix(stream) => stream.read(&mut buffer),
            Socket::Tls(stream) => tls::read_session(stream, &mut buffer),
        }
    }

    /// Reads exactly `length` bytes.
    #[track_caller]
    pub fn read_exactly(&mut self, length: usize) -> Vec<u8> {
        while self.input.len() < length {
            self.fill().unwrap_or_else(|ended| panic!("{length} bytes expected: {ended}"));
        }
        self.input.drain(..length).collect()
    }

    fn set_tick(&mut self, tick: Duration) {
        // A timeout of zero is not allowed.
        let tick = Some(tick.max(Duration::from_micros(100)));
        if self.tick == tick {
            return;
        }
        match &self.socket {
            Socket::Tcp(stream) => stream.set_read_timeout(tick).unwrap(),
            Socket::Unix(stream) => stream.set_read_timeout(tick).unwrap(),
            Socket::Tls(stream) => stream.sock.set_read_timeout(tick).unwrap(),
        }
        self.tick = tick;
    }

    fn read_chunks(&mut self, response: &mut Response) -> Result<(), Ended> {
        loop {
            let end = loop {
                match find(&self.input, b"\r\n") {
                    Some(end) => break end,
                    None => self.fill_for(response)?,
                }
            };
            let line: Vec<u8> = self.input.drain(..end + 2).collect();
            let size = std::str::from_utf8(&line[..end]).unwrap();
            assert!(
                size.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "a strange chunk size: {size:?}"
            );
            let size = usize::from_str_radix(size, 16).unwrap();
            self.need(size + 2, response)?;
            response.body.extend(self.input.drain(..size));
            let end: Vec<u8> = self.input.drain(..2).collect();
            assert_eq!(end, b"\r\n", "a chunk ends with its line");
            if size == 0 {
                return Ok(());
            }
            response.chunks.push(size);
        }
    }

    /// Reads until `length` bytes are in the input.
    fn need(&mut self, length: usize, response: &Response) -> Result<(), Ended> {
        while self.input.len() < length {
            self.fill_for(response)?;
        }
        Ok(())
    }

    /// Reads more of a response whose head is complete.
    fn fill_for(&mut self, response: &Response) -> Result<(), Ended> {
        let with_head = |mut bytes: Vec<u8>| {
            bytes.splice(0..0, response.lines[0].bytes());
            bytes
        };
        self.fill().map_err(|ended| match ended {
            Ended::Closed(bytes) => Ended::Closed(with_head(bytes)),
            Ended::Reset(bytes) => Ended::Reset(with_head(bytes)),
            Ended::Silent(bytes) => Ended::Silent(with_head(bytes)),
        })
    }

    fn fill(&mut self) -> Result<(), Ended> {
        let end = Instant::now() + self.deadline;
        self.set_tick(self.deadline.min(TICK));
        let mut buffer = [0; 64 * 1024];
        loop {
            let result = match &mut self.socket {
                Socket::Tcp(stream) => stream.read(&mut buffer),
                Socket::Unix(stream) => stream.read(&mut buffer),
                Socket::Tls(stream) => tls::read_session(stream, &mut buffer),
            };
            match result {
                Ok(0) => return Err(Ended::Closed(std::mem::take(&mut self.input))),
                Ok(read) => {
                    self.input.extend_from_slice(&buffer[..read]);
                    return Ok(());
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if Instant::now() >= end {
                        return Err(Ended::Silent(self.input.clone()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Ended::Reset(std::mem::take(&mut self.input))),
            }
        }
    }
}

/// Sends a request without content, whose response is read later.
pub fn ask(client: &mut Client, target: &str) {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
}

/// Ends a connection with a reset, like a client that has crashed.
pub fn reset(client: Client) {
    socket2::SockRef::from(client.tcp()).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
