//! The pace of transfers, with a clock that jumps: a slow but steady transfer may take longer than
//! the timeout, and one that stops is aborted.
//!
//! Every step is two thirds of the timeout, which is an hour, so a busy machine cannot exceed it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};

use super::Jumps;
use crate::tcp::{Closed, Io, Protocol};
use crate::{Plan, Request, Response, Server, ServerConfig, Service};

const PATIENCE: Duration = Duration::from_secs(30);

/// How long a peer may be silent, in seconds.
const TIMEOUT: i64 = 3600;

/// The time between two pieces, in seconds.
const STEP: i64 = TIMEOUT / 3 * 2;

const STEPS: usize = 6;

/// Each byte extends the deadline by a second, so a piece extends it by more than a step. The
/// timeout bounds the extension.
const BYTES_PER_SECOND_MIN: u64 = 1;

/// Bytes of an uploaded piece: more than a read takes beside the content, and less than a turn.
const UPLOADED: usize = 10_000;

/// Bytes of a downloaded piece: more than the system's buffers hold.
const DOWNLOADED: usize = 8 << 20;

/// More than all pieces and the system's buffers together.
const DOWNLOAD: usize = (STEPS + 3) * DOWNLOADED;

/// Pieces of a body whose reader is slower than the client, and the time that each takes, in
/// seconds. The loop reads the clock after 16 of them, which take less than the timeout. All of
/// them together take longer.
const SLOW_PIECES: usize = 48;
const SLOW_PIECE_TIME: i64 = TIMEOUT / 24;

/// Receives contents in each way, and sends long ones.
struct Site {
    jumps: Arc<Jumps>,
}

/// A body that takes time to read. The socket is never full, so its connection never waits.
struct SlowReader {
    jumps: Arc<Jumps>,
    pieces_left: usize,
}

impl Read for SlowReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.pieces_left == 0 {
            return Ok(0);
        }
        self.pieces_left -= 1;
        self.jumps.monotonic.fetch_add(SLOW_PIECE_TIME, Ordering::SeqCst);
        // A full buffer ends a round.
        buffer.fill(b'r');
        Ok(buffer.len())
    }
}

impl Service for Site {
    fn plan(&self, request: &mut Request) -> Plan {
        match request.path() {
            "/unread" => Plan::new().streamed().on_loop(),
            _ => Plan::new().on_loop(),
        }
    }

    fn call(&self, mut request: Request) -> Response {
        let mut response = Response::default();
        match request.path() {
            "/unread" => return Response::from("unread"),
            "/bytes" => response.set_bytes(vec![b'b'; DOWNLOAD]),
            "/slow" => response.set_stream(SlowReader {
                jumps: Arc::clone(&self.jumps),
                pieces_left: SLOW_PIECES,
            }),
            "/stream" => response.set_stream(io::repeat(b's').take(DOWNLOAD as u64)),
            _ => match io::copy(request.body_mut(), &mut io::sink()) {
                Ok(length) => return Response::from(length.to_string()),
                Err(_) => return Response::new(400),
            },
        };
        response
    }
}

/// Answers lines, `much` with a long message, and reports how its connections end.
struct Lines {
    ends: mpsc::Sender<(Closed, bool)>,
    /// Whether its deadline has passed.
    is_late: bool,
}

impl Protocol for Lines {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return 0 };
        let (line, _) = bytes.split_at(end + 1);
        if line == b"much\n" {
            io.send(&vec![b'm'; DOWNLOAD]);
        } else {
            io.send(format!("{}\n", line.len()).as_bytes());
        }
        line.len()
    }

    fn unread_bytes_max(&self) -> usize {
        1 << 20
    }

    fn deadline(&mut self, io: &mut Io<'_>) {
        self.is_late = true;
        io.close();
    }

    fn close(&mut self, reason: Closed) {
        // After the test nobody receives it.
        let _ = self.ends.send((reason, self.is_late));
    }
}

/// A server with one event loop, whose clock the test moves.
struct Paced {
    server: Server,
    jumps: Arc<Jumps>,
    /// A connection that makes the loop check its deadlines.
    ticker: TcpStream,
    tick: &'static [u8],
    tock: &'static [u8],
}

impl Paced {
    fn start(
        tick: &'static [u8],
        tock: &'static [u8],
        spawn: impl FnOnce(&Server, &Arc<Jumps>),
    ) -> Self {
        let jumps = Arc::new(Jumps::default());
        let hour = Duration::from_secs(TIMEOUT.unsigned_abs());
        let mut config = ServerConfig::default()
            .event_loops(1)
            .keep_alive_timeout(hour * 1000)
            .content_timeout(hour)
            .write_timeout(hour)
            .bytes_per_second_min(BYTES_PER_SECOND_MIN);
        config.jumps = Some(Arc::clone(&jumps));
        let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
        spawn(&server, &jumps);
        let ticker = connect(&server);
        Self { server, jumps, ticker, tick, tock }
    }

    fn http() -> Self {
        let tock = b"content-length: 1\r\n\r\n0";
        Self::start(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n", tock, |server, jumps| {
            server.spawn(Site { jumps: Arc::clone(jumps) }).unwrap();
        })
    }

    fn raw() -> (Self, mpsc::Receiver<(Closed, bool)>) {
        let (ends, ended) = mpsc::channel();
        let ends = Mutex::new(ends);
        let service = move |_| Lines { ends: ends.lock().clone(), is_late: false };
        (Self::start(b"tick\n", b"5\n", |server, _| server.spawn_tcp(service).unwrap()), ended)
    }

    fn client(&self) -> TcpStream {
        connect(&self.server)
    }

    /// Advances the server's clock. The server notices it when something wakes it.
    fn pass(&self, seconds: i64) {
        self.jumps.monotonic.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Makes the loop handle its events and check its deadlines. Does so twice, because the loop
    /// may have been between the two. Then waits until only the loop's thread is busy: another
    /// thread may have continued with a connection, and would see the clock after the next step.
    fn look(&mut self) {
        for _ in 0..2 {
            self.ticker.write_all(self.tick).unwrap();
            let answer = receive_until(&mut self.ticker, self.tock);
            assert!(answer.ends_with(self.tock), "{:?}", String::from_utf8_lossy(&answer));
        }
        let late = Instant::now() + PATIENCE;
        loop {
            let pool = self.server.metrics().unwrap().pool;
            if pool.threads - pool.idle == 1 && pool.queued == 0 {
                return;
            }
            assert!(Instant::now() < late, "a thread is still busy: {pool:?}");
            thread::yield_now();
        }
    }

    /// Sends a piece after each step, then the last one, if any.
    fn upload(&mut self, client: &mut TcpStream, piece: &[u8], last: Option<&[u8]>) {
        self.look();
        for step in 0..STEPS {
            self.pass(STEP);
            client.write_all(piece).unwrap_or_else(|error| panic!("step {step}: {error}"));
            self.look();
        }
        match last {
            Some(last) => client.write_all(last).unwrap(),
            None => {
                self.pass(2 * TIMEOUT);
                self.look();
            }
        }
    }

    /// Reads a piece after each step.
    fn download(&mut self, client: &mut TcpStream) {
        let mut piece = vec![0; DOWNLOADED];
        for step in 0..STEPS {
            client.read_exact(&mut piece).unwrap_or_else(|error| panic!("step {step}: {error}"));
            self.look();
            self.pass(STEP);
        }
    }

    fn end(self) {
        let metrics = self.server.metrics().unwrap();
        assert_eq!((metrics.panics, metrics.pool.panics), (0, 0));
        self.server.shutdown_handle().shutdown_within(Duration::ZERO);
        self.server.wait();
    }
}

pub(super) fn connect(server: &Server) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Most of a downloaded piece must not arrive before it is read.
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    socket.connect(&server.local_addr().unwrap().into()).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // A piece must arrive before its tick, and must not wait for the ACK of the previous piece.
    socket.set_nodelay(true).unwrap();
    socket
}

/// Returns the bytes up to `end`, or up to the end of the connection.
pub(super) fn receive_until(socket: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(end) && socket.read(&mut byte).unwrap() == 1 {
        received.push(byte[0]);
    }
    received
}

/// Returns the number of bytes up to the end of the connection, which may be a reset.
fn count_rest(socket: &mut TcpStream) -> usize {
    let mut count = 0;
    let mut piece = vec![0; 64 * 1024];
    loop {
        match socket.read(&mut piece) {
            Ok(0) => return count,
            Ok(read) => count += read,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return count,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The target, and whether the content is chunked.
const UPLOADS: [(&str, bool); 4] =
    [("/", false), ("/", true), ("/unread", false), ("/unread", true)];

/// Begins an upload. Returns one piece of it, and its end.
fn begin(client: &mut TcpStream, target: &str, is_chunked: bool) -> (Vec<u8>, &'static [u8]) {
    let framing = match is_chunked {
        false => format!("Content-Length: {}", STEPS * UPLOADED + 5),
        true => "Transfer-Encoding: chunked".to_owned(),
    };
    write!(client, "POST {target} HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n").unwrap();
    if target == "/unread" {
        assert!(receive_until(client, b"unread").starts_with(b"HTTP/1.1 200 "));
    }
    let piece = "x".repeat(UPLOADED);
    if is_chunked {
        (format!("{UPLOADED:x}\r\n{piece}\r\n").into_bytes(), b"0\r\n\r\n")
    } else {
        (piece.into_bytes(), b"12345")
    }
}

#[test]
fn an_upload_that_keeps_the_pace_may_take_longer_than_the_timeout() {
    for (target, is_chunked) in UPLOADS {
        let mut paced = Paced::http();
        let mut client = paced.client();
        let (piece, last) = begin(&mut client, target, is_chunked);
        paced.upload(&mut client, &piece, Some(last));
        // A skipped content has no response, but the connection is kept.
        write!(client, "GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
        let answers = receive_until(&mut client, b"content-length: 1\r\n\r\n0");
        assert!(answers.starts_with(b"HTTP/1.1 200 "), "{target}, {is_chunked}");
        assert_eq!(paced.server.metrics().unwrap().timed_out, 0, "{target}, {is_chunked}");
        paced.end();
    }
}

#[test]
fn an_upload_that_stops_is_aborted_whatever_came_before() {
    for (target, is_chunked) in UPLOADS {
        let mut paced = Paced::http();
        let mut client = paced.client();
        let (piece, _) = begin(&mut client, target, is_chunked);
        paced.upload(&mut client, &piece, None);
        let rest = receive_until(&mut client, b"nothing ends like this");
        let is_told = rest.starts_with(b"HTTP/1.1 408 ");
        assert_eq!(
            is_told,
            target != "/unread",
            "{target}, {is_chunked}: {:?}",
            String::from_utf8_lossy(&rest)
        );
        assert_eq!(paced.server.metrics().unwrap().timed_out, 1, "{target}, {is_chunked}");
        paced.end();
    }
}

#[test]
fn a_raw_message_that_keeps_the_pace_may_take_longer_than_the_timeout() {
    let (mut paced, _ended) = Paced::raw();
    let mut client = paced.client();
    client.write_all(b"begun").unwrap();
    paced.upload(&mut client, &[b'x'; UPLOADED], Some(b"\n"));
    assert_eq!(receive_until(&mut client, b"\n"), b"60006\n");
    paced.end();
}

#[test]
fn a_raw_message_that_stops_is_aborted() {
    let (mut paced, ended) = Paced::raw();
    let mut client = paced.client();
    client.write_all(b"begun").unwrap();
    paced.upload(&mut client, &[b'x'; UPLOADED], None);
    assert_eq!(count_rest(&mut client), 0);
    assert_eq!(ended.recv_timeout(PATIENCE), Ok((Closed::TimedOut, true)));
    paced.end();
}

#[test]
fn a_raw_message_that_trickles_is_aborted() {
    let (mut paced, ended) = Paced::raw();
    let mut client = paced.client();
    client.write_all(b"begun").unwrap();
    paced.look();
    for _ in 0..2 {
        paced.pass(STEP);
        // The second write may fail, because the connection may be closed.
        let _ = client.write_all(b".");
        paced.look();
    }
    assert_eq!(ended.recv_timeout(PATIENCE), Ok((Closed::TimedOut, true)));
    paced.end();
}

#[test]
fn the_deadline_of_a_raw_message_begins_when_the_previous_one_is_consumed() {
    let (mut paced, _ended) = Paced::raw();
    let mut client = paced.client();
    client.write_all(b"one").unwrap();
    for _ in 0..4 {
        paced.look();
        paced.pass(STEP);
        // The end of a message, and the start of the next.
        client.write_all(b"\none").unwrap();
        assert_eq!(receive_until(&mut client, b"\n"), b"4\n");
    }
    paced.end();
}

#[test]
fn a_download_that_keeps_the_pace_may_take_longer_than_the_timeout() {
    for target in ["/bytes", "/stream"] {
        let mut paced = Paced::http();
        let mut client = paced.client();
        write!(client, "GET {target} HTTP/1.0\r\n\r\n").unwrap();
        receive_until(&mut client, b"\r\n\r\n");
        paced.download(&mut client);
        assert_eq!(count_rest(&mut client), DOWNLOAD - STEPS * DOWNLOADED, "{target}");
        assert_eq!(paced.server.metrics().unwrap().timed_out, 0, "{target}");
        paced.end();
    }
}

#[test]
fn a_download_that_the_peer_stops_reading_is_aborted() {
    for target in ["/bytes", "/stream"] {
        let mut paced = Paced::http();
        let mut client = paced.client();
        write!(client, "GET {target} HTTP/1.0\r\n\r\n").unwrap();
        receive_until(&mut client, b"\r\n\r\n");
        paced.download(&mut client);
        paced.pass(TIMEOUT);
        paced.look();
        assert!(count_rest(&mut client) < DOWNLOAD - STEPS * DOWNLOADED, "{target}");
        assert_eq!(paced.server.metrics().unwrap().timed_out, 1, "{target}");
        paced.end();
    }
}

#[test]
fn a_peer_of_a_raw_protocol_may_read_slowly_but_must_not_stop() {
    for stops in [false, true] {
        let (mut paced, ended) = Paced::raw();
        let mut client = paced.client();
        client.write_all(b"much\n").unwrap();
        paced.download(&mut client);
        if stops {
            paced.pass(TIMEOUT);
            paced.look();
            // The protocol's `deadline` is not called for a peer that does not read.
            assert_eq!(ended.recv_timeout(PATIENCE), Ok((Closed::TimedOut, false)));
            assert!(count_rest(&mut client) < DOWNLOAD - STEPS * DOWNLOADED);
        } else {
            let mut rest = vec![0; DOWNLOAD - STEPS * DOWNLOADED];
            client.read_exact(&mut rest).unwrap();
            client.write_all(b"tick\n").unwrap();
            assert_eq!(receive_until(&mut client, b"\n"), b"5\n");
        }
        paced.end();
    }
}

#[test]
fn a_body_that_is_read_slowly_may_take_longer_than_the_timeout() {
    let paced = Paced::http();
    let mut client = paced.client();
    client.write_all(b"GET /slow HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    let mut received = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    while !received.ends_with(b"0\r\n\r\n") {
        let read = client.read(&mut piece).unwrap();
        assert!(read > 0, "the response was aborted after {} bytes", received.len());
        received.extend_from_slice(&piece[..read]);
    }
    assert!(received.len() >= SLOW_PIECES * 16 * 1024, "{} bytes", received.len());
    paced.end();
}
