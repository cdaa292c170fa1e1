//! Protocols of the program over sockets: what they are told, their deadlines, and their ends.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write, read_to_string};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::tcp::{Closed, Io, Protocol, Sender, TcpService};
use filoplume_runtime::{Peer, ServerConfig};
use filoplume_tests::{DEADLINE, TestServer, eventually, is_cut_off, receive};

/// A protocol that calls its function for data, and reports why it ended.
struct Told<D> {
    data: D,
    ended: mpsc::Sender<Closed>,
}

impl<D: FnMut(&[u8], &mut Io<'_>) -> usize + Send + 'static> Protocol for Told<D> {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        (self.data)(bytes, io)
    }

    fn close(&mut self, reason: Closed) {
        self.ended.send(reason).unwrap();
    }
}

/// Returns a service whose connections report why they ended.
fn told<D>(data: D) -> (impl TcpService, Receiver<Closed>)
where
    D: FnMut(&[u8], &mut Io<'_>) -> usize + Clone + Send + Sync + 'static,
{
    let (ended, ends) = mpsc::channel();
    let service = move |_: Peer| Told { data: data.clone(), ended: ended.clone() };
    (service, ends)
}

fn echo_all(bytes: &[u8], io: &mut Io<'_>) -> usize {
    io.send(bytes);
    bytes.len()
}

#[test]
fn a_panic_ends_its_connection_and_no_other() {
    let (service, ends) = told(|bytes: &[u8], io: &mut Io<'_>| {
        assert_ne!(bytes, b"panic");
        echo_all(bytes, io)
    });
    let server = TestServer::raw(ServerConfig::default(), service);
    let mut other = server.stream();
    for _ in 0..50 {
        let mut client = server.stream();
        client.write_all(b"panic").unwrap();
        is_cut_off(&mut client);
        assert_eq!(ends.recv_timeout(DEADLINE).unwrap(), Closed::Panicked);
        other.write_all(b"fine").unwrap();
        assert_eq!(receive(&mut other, 4), b"fine");
    }
    eventually("all but one are closed", || server.metrics().connections == 1);
    assert_eq!(server.metrics().panics, 50);
}

#[test]
fn each_end_has_its_reason() {
    let config = || {
        ServerConfig::default()
            .keep_alive_timeout(Duration::from_millis(300))
            .content_timeout(Duration::from_millis(100))
            .linger_timeout(Duration::from_millis(50))
    };
    let reason = |data: fn(&[u8], &mut Io<'_>) -> usize,
                  client: &dyn Fn(TcpStream) -> Option<TcpStream>| {
        let (service, ends) = told(data);
        let server = TestServer::raw(config(), service);
        let kept = client(server.stream());
        let reason = ends.recv_timeout(DEADLINE).unwrap();
        assert!(ends.try_recv().is_err(), "told twice");
        drop(kept);
        reason
    };
    let sends = |bytes: &'static [u8]| {
        move |mut client: TcpStream| {
            client.write_all(bytes).unwrap();
            Some(client)
        }
    };
    let leaves = |mut client: TcpStream| {
        client.write_all(b"x").unwrap();
        receive(&mut client, 1);
        None
    };
    let resets = |mut client: TcpStream| {
        client.write_all(b"x").unwrap();
        thread::sleep(Duration::from_millis(50));
        // The echo is unread, so closing causes a reset.
        drop(client);
        None
    };
    let closes: fn(&[u8], &mut Io<'_>) -> usize = |bytes, io| {
        io.close();
        bytes.len()
    };
    assert_eq!(reason(closes, &sends(b"x")), Closed::ByProtocol);
    assert_eq!(reason(echo_all, &leaves), Closed::ByPeer);
    assert_eq!(reason(echo_all, &resets), Closed::Broken);
    assert_eq!(reason(|_, _| 0, &sends(&[0; 64 * 1024 + 1])), Closed::TooLong);
    let started = Instant::now();
    assert_eq!(reason(|_, _| 0, &sends(b"some, and never more")), Closed::TimedOut);
    assert!(started.elapsed() >= Duration::from_millis(90), "{:?}", started.elapsed());
    let started = Instant::now();
    assert_eq!(reason(echo_all, &sends(b"silent from now on")), Closed::TimedOut);
    assert!(started.elapsed() >= Duration::from_millis(290), "{:?}", started.elapsed());
}

/// Counts down with its own deadlines.
struct Ticks(u32);

impl Protocol for Ticks {
    fn open(&mut self, io: &mut Io<'_>) {
        io.set_timeout(Duration::from_millis(20));
    }

    fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
        bytes.len()
    }

    fn deadline(&mut self, io: &mut Io<'_>) {
        io.send(format!("{}\n", self.0).as_bytes());
        if self.0 == 0 {
            return io.close();
        }
        self.0 -= 1;
        io.set_timeout(Duration::from_millis(20));
    }
}

#[test]
fn a_protocol_has_its_own_deadlines_whatever_arrives() {
    let server = TestServer::raw(ServerConfig::default(), |_: Peer| Ticks(3));
    let mut client = server.stream();
    let started = Instant::now();
    for _ in 0..10 {
        client.write_all(b"does not matter").unwrap();
    }
    assert_eq!(read_to_string(client).unwrap(), "3\n2\n1\n0\n");
    assert!(started.elapsed() >= Duration::from_millis(75));
}

/// Sends the next piece when the last one is written, then closes.
struct Pieces {
    left: usize,
    ended: mpsc::Sender<Closed>,
}

impl Protocol for Pieces {
    fn open(&mut self, io: &mut Io<'_>) {
        io.notify_drained();
    }

    fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
        bytes.len()
    }

    fn drained(&mut self, io: &mut Io<'_>) {
        if self.left == 0 {
            return io.close();
        }
        self.left -= 1;
        io.send(&[b'x'; 100_000]);
        io.notify_drained();
    }

    fn close(&mut self, reason: Closed) {
        self.ended.send(reason).unwrap();
    }
}

#[test]
fn a_producer_is_called_when_there_is_room() {
    let (ended, ends) = mpsc::channel();
    let config = ServerConfig::default().event_loops(1).write_timeout(Duration::from_millis(300));
    let server = TestServer::raw(config, move |_: Peer| Pieces { left: 200, ended: ended.clone() });
    let mut client = server.stream();
    // Neither a producer nor one whose peer does not read starves others on its loop.
    let stuck = server.stream();
    assert_eq!(receive(&mut client, 200 * 100_000), vec![b'x'; 200 * 100_000]);
    assert_eq!(read_to_string(client).unwrap(), "");
    let reasons = [(); 2].map(|()| ends.recv_timeout(DEADLINE).unwrap());
    assert!(reasons.contains(&Closed::TimedOut), "{reasons:?}");
    drop(stuck);
    eventually("both are closed", || server.metrics().connections == 0);
}

#[test]
fn a_producer_whose_peer_reads_fast_does_not_starve_others() {
    struct EchoOrFlood;
    impl Protocol for EchoOrFlood {
        fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
            if bytes == b"flood" {
                io.notify_drained();
            } else {
                io.send(bytes);
            }
            bytes.len()
        }
        fn drained(&mut self, io: &mut Io<'_>) {
            io.send(&[b'x'; 1000]);
            io.notify_drained();
        }
    }
    let server = TestServer::raw(ServerConfig::default().event_loops(1), |_: Peer| EchoOrFlood);
    let mut flooded = server.stream();
    flooded.write_all(b"flood").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; 1 << 20];
        while !stopped.load(Ordering::Relaxed) {
            assert_ne!(flooded.read(&mut bytes).unwrap(), 0);
        }
    });
    for _ in 0..20 {
        let mut client = server.stream();
        for _ in 0..20 {
            client.write_all(b"ping").unwrap();
            assert_eq!(receive(&mut client, 4), b"ping");
        }
    }
    stop.store(true, Ordering::Relaxed);
    reader.join().unwrap();
}

#[test]
fn a_protocol_may_respond_after_a_half_close() {
    struct Sum(u64);
    impl Protocol for Sum {
        fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
            self.0 += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
            bytes.len() & !1
        }
        fn end(&mut self, rest: &[u8], io: &mut Io<'_>) {
            io.send(format!("{} {}", self.0, rest.len()).as_bytes());
            io.set_timeout(Duration::from_millis(50));
        }
        fn deadline(&mut self, io: &mut Io<'_>) {
            io.send(b" later");
            io.close();
        }
    }
    let server = TestServer::raw(ServerConfig::default(), |_: Peer| Sum(0));
    let mut client = server.stream();
    client.write_all(&[1; 5]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_string(client).unwrap(), "5 1 later");
}

#[test]
fn bytes_that_are_sent_back_and_not_used_are_passed_again() {
    // Echoes all bytes, and uses them only if there are at least four.
    let server = TestServer::raw(
        ServerConfig::default(),
        told(|bytes: &[u8], io: &mut Io<'_>| {
            io.send(bytes);
            io.send(b";");
            if bytes.len() < 4 { 0 } else { bytes.len() }
        })
        .0,
    );
    let mut client = server.stream();
    for (sent, answer) in [("ab", "ab;"), ("c", "abc;"), ("defg", "abcdefg;"), ("h", "h;")] {
        client.write_all(sent.as_bytes()).unwrap();
        assert_eq!(receive(&mut client, answer.len()), answer.as_bytes());
    }
}

#[test]
fn a_detached_connection_keeps_unused_input() {
    let (service, ends) = told(|bytes: &[u8], io: &mut Io<'_>| {
        let Some(used) = bytes.iter().position(|&byte| byte == b'!') else { return 0 };
        io.send(b"switching ");
        io.detach(|mut stream| {
            let mut bytes = [0; 8];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        used + 1
    });
    let server = TestServer::raw(ServerConfig::default(), service);
    let mut client = server.stream();
    client.write_all(b"go!more").unwrap();
    assert_eq!(receive(&mut client, 10), b"switching ");
    assert_eq!(ends.recv_timeout(DEADLINE).unwrap(), Closed::Detached);
    client.write_all(b"rest").unwrap();
    assert_eq!(read_to_string(client).unwrap(), "morerest");
}

#[test]
fn shutdown_ends_idle_connections_and_tells_every_protocol() {
    let (service, ends) = told(echo_all);
    let server = TestServer::raw(ServerConfig::default(), service);
    let mut clients: Vec<_> = (0..50).map(|_| server.stream()).collect();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
        receive(client, 1);
    }
    let started = Instant::now();
    server.server().shutdown_handle().shutdown();
    for mut client in clients {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
        drop(client);
        assert_eq!(ends.recv_timeout(DEADLINE).unwrap(), Closed::Shutdown);
    }
    server.server().wait();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn every_protocol_is_told_of_the_shutdown_deadline() {
    let (service, ends) = told(|_: &[u8], _: &mut Io<'_>| 0);
    let server = TestServer::raw(ServerConfig::default(), service);
    let mut client = server.stream();
    client.write_all(b"never used").unwrap();
    eventually("it is connected", || server.metrics().connections == 1);
    server.server().shutdown_handle().shutdown_within(Duration::from_millis(100));
    server.server().wait();
    assert_eq!(ends.recv_timeout(DEADLINE).unwrap(), Closed::Shutdown);
    is_cut_off(&mut client);
}

#[test]
fn thousands_of_short_connections_are_served() {
    let (service, ends) = told(echo_all);
    let server = TestServer::raw(ServerConfig::default(), service);
    let address = server.address();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(move || {
                for round in 0..250_u32 {
                    let mut client = TcpStream::connect(address).unwrap();
                    client.set_read_timeout(Some(DEADLINE)).unwrap();
                    client.write_all(&round.to_be_bytes()).unwrap();
                    assert_eq!(receive(&mut client, 4), round.to_be_bytes());
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for _ in 0..2000 {
        assert_eq!(ends.recv_timeout(DEADLINE).unwrap(), Closed::ByPeer);
    }
    eventually("all are closed", || server.metrics().connections == 0);
}

/// Sends back one byte each time it may read, and pauses. Gives its sender to the test.
struct Paused {
    opened: mpsc::Sender<Sender>,
}

impl Protocol for Paused {
    fn open(&mut self, io: &mut Io<'_>) {
        self.opened.send(io.sender()).unwrap();
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        io.send(&bytes[..1]);
        io.pause();
        1
    }

    fn end(&mut self, bytes: &[u8], io: &mut Io<'_>) {
        assert!(bytes.is_empty(), "it gets all input before the end");
        io.send(b"end");
        io.close();
    }

    fn notified(&mut self, io: &mut Io<'_>) {
        io.resume();
    }

    fn shutdown(&mut self, io: &mut Io<'_>) {
        io.send(b"bye");
        io.close();
    }
}

fn paused(config: ServerConfig) -> (TestServer, Receiver<Sender>) {
    let (opened, senders) = mpsc::channel();
    let server = TestServer::raw(config, move |_: Peer| Paused { opened: opened.clone() });
    (server, senders)
}

fn nothing_arrives(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    stream.read(&mut [0]).expect_err("it is paused");
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
}

#[test]
fn a_paused_protocol_gets_its_input_and_the_end_when_it_resumes() {
    // A message that is not complete has a deadline of its own, and a pause has none.
    let config = ServerConfig::default().content_timeout(Duration::from_millis(20));
    let (server, senders) = paused(config);
    let mut client = server.stream();
    let sender = senders.recv_timeout(DEADLINE).unwrap();
    client.write_all(b"abc").unwrap();
    assert_eq!(receive(&mut client, 1), b"a");
    nothing_arrives(&mut client);
    // More input does not end the pause, and bytes from senders are still sent.
    client.write_all(b"d").unwrap();
    nothing_arrives(&mut client);
    sender.send("meanwhile").unwrap();
    assert_eq!(receive(&mut client, 9), b"meanwhile");
    client.shutdown(Shutdown::Write).unwrap();
    for expected in [b"b", b"c", b"d"] {
        nothing_arrives(&mut client);
        sender.notify();
        assert_eq!(receive(&mut client, 1), expected);
    }
    nothing_arrives(&mut client);
    sender.notify();
    assert_eq!(read_to_string(&mut client).unwrap(), "end");
}

#[test]
fn a_peer_cannot_send_more_than_the_buffers_hold_while_it_is_paused() {
    let (server, senders) = paused(ServerConfig::default());
    let mut client = server.stream();
    let sender = senders.recv_timeout(DEADLINE).unwrap();
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut sent = 0_u64;
    while let Ok(written @ 1..) = client.write(&[7; 64 * 1024]) {
        sent += written as u64;
        assert!(sent < 1 << 30, "nobody stops it");
    }
    assert_eq!(receive(&mut client, 1), [7]);
    assert!(server.metrics().bytes_read < 1 << 20, "{}", server.metrics().bytes_read);
    sender.notify();
    assert_eq!(receive(&mut client, 1), [7]);
}

#[test]
fn a_paused_protocol_is_told_of_the_shutdown() {
    let (server, senders) = paused(ServerConfig::default());
    let mut client = server.stream();
    senders.recv_timeout(DEADLINE).unwrap();
    client.write_all(b"abc").unwrap();
    assert_eq!(receive(&mut client, 1), b"a");
    server.server().shutdown_handle().shutdown();
    assert_eq!(receive(&mut client, 3), b"bye");
}
