//! What long-lived connections hold of the memory budget: bytes that other threads have queued for
//! peers that do not read, and messages that protocols keep while they arrive.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use filoplume_runtime::tcp::{Closed, Io, Protocol, SendError, Sender, TcpService};
use filoplume_runtime::{Peer, Refusal, Request, Response, Server, ServerConfig, pushed};

const DEADLINE: Duration = Duration::from_secs(30);

/// A path for a socket, which is removed at the end. The buffers of Unix sockets are small and do
/// not grow.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("filoplume-memory-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn server(&self, memory_max: usize) -> Server {
        // Only a shortage of memory ends peers that do not read.
        let config = ServerConfig::default().memory_max(memory_max).write_timeout(DEADLINE * 10);
        Server::builder().bind_unix(&self.0).unwrap().config(config).build().unwrap()
    }

    fn connect(&self) -> UnixStream {
        let client = UnixStream::connect(&self.0).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        client
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn used(server: &Server) -> usize {
    server.metrics().unwrap().memory_used
}

/// Echoes, and gives its sender to the test.
struct Echo(mpsc::Sender<Sender>);

impl Protocol for Echo {
    fn open(&mut self, io: &mut Io<'_>) {
        let _ = self.0.send(io.sender());
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        io.send(bytes);
        bytes.len()
    }
}

fn echo() -> (impl TcpService, mpsc::Receiver<Sender>) {
    let (connected, senders) = mpsc::channel();
    (move |_: Peer| Echo(connected.clone()), senders)
}

#[test]
fn queues_of_peers_that_do_not_read_stay_within_the_budget() {
    const MEMORY: usize = 2 << 20;
    /// What the connections keep themselves, 4 KiB each, and unsent output.
    const UNDER_WAY: usize = 1 << 20;

    let (path, (service, senders)) = (SocketPath::new(), echo());
    let server = path.server(MEMORY);
    server.spawn_tcp(service).unwrap();
    let clients: Vec<UnixStream> = (0..100).map(|_| path.connect()).collect();
    let senders: Vec<Sender> =
        clients.iter().map(|_| senders.recv_timeout(DEADLINE).unwrap()).collect();
    // All connections together would keep 25 MiB.
    let (mut refused, mut ended) = (HashSet::new(), HashSet::new());
    let started = Instant::now();
    while refused.is_empty() || ended.is_empty() {
        assert!(started.elapsed() < DEADLINE, "{refused:?} {ended:?} {}", used(&server));
        for (number, sender) in senders.iter().enumerate() {
            match sender.send(vec![b'x'; 8 * 1024]) {
                Ok(()) | Err(SendError::Full) => {}
                Err(SendError::OutOfMemory) => _ = refused.insert(number),
                // The connection was closed: its peer read nothing for a second while memory was
                // short.
                Err(_) => _ = ended.insert(number),
            }
        }
        let used = used(&server);
        assert!(used <= MEMORY + UNDER_WAY, "{used}");
    }
    // Others are served meanwhile.
    let mut other = path.connect();
    other.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    other.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
    drop(clients);
    eventually("all is given back", || used(&server) == 0);
}

#[test]
fn a_stream_of_a_client_that_does_not_read_is_told_that_memory_is_short() {
    let (sent, senders) = mpsc::channel();
    let sent = Mutex::new(sent);
    let path = SocketPath::new();
    let server = path.server(100_000);
    server
        .spawn(move |_: Request| {
            let (sender, body) = pushed::channel();
            let _ = sent.lock().unwrap().send(sender);
            let mut response = Response::default();
            response.set_pushed(body.capacity(1 << 30));
            response
        })
        .unwrap();
    let mut client = path.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let sender = senders.recv_timeout(DEADLINE).unwrap();
    eventually("the client does not take what it is sent", || {
        if sender.waiting() == 0 {
            sender.try_send(vec![b'x'; 4000]).unwrap();
        }
        used(&server) > 0
    });
    let error = (0..1000).find_map(|_| sender.try_send(vec![b'x'; 4000]).err());
    assert_eq!(error, Some(pushed::SendError::OutOfMemory));
    // This waits until the server closes the connection, because the client reads nothing.
    let error = (0..1000).find_map(|_| sender.send_timeout(vec![b'x'; 4000], DEADLINE).err());
    assert_eq!(error, Some(pushed::SendError::Gone));
    eventually("all is given back", || used(&server) == 0);
}

/// Collects a message up to a dot in a buffer of its own.
struct Collect {
    message: Vec<u8>,
    ends: mpsc::Sender<(usize, Closed)>,
}

impl Protocol for Collect {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        self.message.extend_from_slice(bytes);
        if self.message.ends_with(b".") {
            io.send(self.message.len().to_string().as_bytes());
            self.message = Vec::new();
        }
        if !io.set_held(self.message.len()) {
            io.send(b"too much");
            io.close();
        }
        bytes.len()
    }

    fn close(&mut self, reason: Closed) {
        let _ = self.ends.send((self.message.len(), reason));
    }
}

fn collect() -> (impl TcpService, mpsc::Receiver<(usize, Closed)>) {
    let (ends, ended) = mpsc::channel();
    (move |_: Peer| Collect { message: Vec::new(), ends: ends.clone() }, ended)
}

#[test]
fn what_a_protocol_holds_is_counted_until_its_message_is_complete() {
    let (path, (service, _ends)) = (SocketPath::new(), collect());
    let server = path.server(1 << 20);
    server.spawn_tcp(service).unwrap();
    let mut client = path.connect();
    for _ in 0..2 {
        client.write_all(&[b'x'; 10_000]).unwrap();
        eventually("it is counted", || used(&server) == 10_000);
        client.write_all(b".").unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"10001");
        eventually("it is given back", || used(&server) == 0);
    }
    client.write_all(&[b'x'; 10_000]).unwrap();
    eventually("it is counted", || used(&server) == 10_000);
    drop(client);
    eventually("the end gives it back as well", || used(&server) == 0);
}

#[test]
fn a_message_for_which_there_is_no_memory_is_refused() {
    let (path, (service, ends)) = (SocketPath::new(), collect());
    let server = path.server(20_000);
    server.spawn_tcp(service).unwrap();
    let mut client = path.connect();
    // The server may close before all is sent.
    let _ = client.write_all(&[b'x'; 50_000]);
    let (held, reason) = ends.recv_timeout(DEADLINE).unwrap();
    assert!(held > 20_000, "{held}");
    assert_eq!(reason, Closed::ByProtocol);
    let is_counted = |server: &Server| {
        server.metrics().unwrap().refusals().any(|(refusal, _)| refusal == Refusal::Memory)
    };
    eventually("it is counted as refused", || is_counted(&server));
    eventually("all is given back", || used(&server) == 0);
}

#[test]
fn peers_that_do_not_continue_their_messages_are_given_up_while_memory_is_short() {
    let (path, (service, ends)) = (SocketPath::new(), collect());
    let server = path.server(100_000);
    server.spawn_tcp(service).unwrap();
    let mut stuck: Vec<UnixStream> = (0..6).map(|_| path.connect()).collect();
    for client in &mut stuck {
        client.write_all(&[b'x'; 10_000]).unwrap();
    }
    let (held, reason) = ends.recv_timeout(DEADLINE).unwrap();
    assert_eq!((held, reason), (10_000, Closed::TimedOut));
    eventually("memory is free again", || used(&server) < 50_000);
    let mut other = path.connect();
    other.write_all(b"short.").unwrap();
    let mut answer = [0; 1];
    other.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"6");
}

/// A reader of many bytes that stops for the test before the first one.
struct Announced {
    begins: mpsc::SyncSender<()>,
    left: usize,
    has_begun: bool,
}

impl Read for Announced {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if !std::mem::replace(&mut self.has_begun, true) {
            // The second `send` waits until the test has checked the memory.
            let _ = self.begins.send(());
            let _ = self.begins.send(());
        }
        let read = buffer.len().min(self.left);
        buffer[..read].fill(b'x');
        self.left -= read;
        Ok(read)
    }
}

#[test]
fn what_a_reader_keeps_is_charged_from_when_its_peer_does_not_read() {
    const KEPT: usize = 1_000_000;
    let (begins, begun) = mpsc::sync_channel(0);
    let path = SocketPath::new();
    let server = path.server(1 << 30);
    server
        .spawn(move |request: Request| {
            let left = if request.path() == "/long" { 4_000_000 } else { 1000 };
            let reader = Announced { begins: begins.clone(), left, has_begun: false };
            let mut response = Response::default();
            response.add_reader_memory(KEPT / 4).set_stream(reader);
            response.add_reader_memory(KEPT - KEPT / 4);
            response
        })
        .unwrap();
    let mut client = path.connect();
    for target in ["/short", "/long"] {
        write!(client, "GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        begun.recv_timeout(DEADLINE).unwrap();
        assert_eq!(used(&server), 0, "{target}");
        begun.recv_timeout(DEADLINE).unwrap();
        if target == "/long" {
            eventually("it is charged", || used(&server) >= KEPT);
            // The rest is bytes that were read and not sent.
            assert!(used(&server) <= KEPT + 100_000, "{}", used(&server));
        }
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n0\r\n\r\n") {
            let mut buffer = [0; 16 * 1024];
            let read = client.read(&mut buffer).unwrap();
            assert!(read > 0);
            response.extend_from_slice(&buffer[..read]);
        }
        eventually("all is given back", || used(&server) == 0);
    }
}

#[test]
fn a_response_that_ends_early_for_lack_of_memory_is_counted() {
    const LENGTH: usize = 8 << 20;
    let path = SocketPath::new();
    let server = path.server(1 << 20);
    server
        .spawn(|_: Request| {
            let mut response = Response::default();
            response.set_bytes(vec![b'x'; LENGTH]);
            response
        })
        .unwrap();
    let mut client = path.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    eventually("it is counted", || server.metrics().unwrap().ended_for_memory == 1);
    let mut response = Vec::new();
    // The end may also be a reset.
    let _ = client.read_to_end(&mut response);
    assert!(response.starts_with(b"HTTP/1.1 200 "));
    assert!(response.len() < LENGTH, "{}", response.len());
    assert_eq!(server.metrics().unwrap().timed_out, 0);
}
