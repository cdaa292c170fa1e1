//! Raw TCP services over sockets: bytes, lines, messages, custom protocols, and peers that
//! misbehave.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write, read_to_string};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::tcp::{self, Closed, Io, Protocol, Reply, TcpService};
use filoplume_runtime::{BlockingStream, Peer, Server, ServerConfig};
use filoplume_tests::{DEADLINE, Gate, TestServer, eventually};

fn receive(client: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

/// Reads to the end of the connection, which may be a reset.
fn is_cut_off(client: &mut TcpStream) {
    let mut rest = Vec::new();
    match client.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + n / 251).to_le_bytes()[0]).collect()
}

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
fn an_echo_returns_its_input_however_it_is_cut() {
    let server = TestServer::raw(ServerConfig::default(), tcp::bytes(|bytes| bytes.into()));
    for length in [1, 100, 2954, 65_536, 300_000] {
        let sent = pattern(length);
        let mut client = server.stream();
        let mut reader = client.try_clone().unwrap();
        let echo = thread::spawn(move || receive(&mut reader, length));
        for piece in sent.chunks(length.div_ceil(7)) {
            client.write_all(piece).unwrap();
        }
        assert!(echo.join().unwrap() == sent, "{length} bytes");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_to_string(client).unwrap(), "");
    }
}

#[test]
fn a_peer_that_does_not_read_is_not_read_from() {
    let server = TestServer::raw(ServerConfig::default(), tcp::bytes(|bytes| bytes.into()));
    let mut client = server.stream();
    let sent = pattern(16 * 1024 * 1024);
    let mut writer = client.try_clone().unwrap();
    let copy = sent.clone();
    let writes = thread::spawn(move || writer.write_all(&copy).unwrap());
    // The server takes only as much as the sockets hold and one read returns.
    let others = thread::spawn({
        let mut other = server.stream();
        move || {
            for _ in 0..1000 {
                other.write_all(b"ping").unwrap();
                assert_eq!(receive(&mut other, 4), b"ping");
            }
        }
    });
    others.join().unwrap();
    assert!(!writes.is_finished(), "the server took all of it");
    assert!(receive(&mut client, sent.len()) == sent);
    writes.join().unwrap();
}

#[test]
fn bytes_may_be_answered_with_others_or_with_none() {
    let server = TestServer::raw(
        ServerConfig::default(),
        tcp::bytes(|bytes| match bytes {
            b"?" => "yes".into(),
            b"tail" => bytes[1..].into(),
            b"bye" => Reply::from(b"end").and_close(),
            _ => None::<Vec<u8>>.into(),
        }),
    );
    let mut client = server.stream();
    for (asked, answer) in [("?", "yes"), ("tail", "ail"), ("?", "yes")] {
        client.write_all(asked.as_bytes()).unwrap();
        assert_eq!(receive(&mut client, answer.len()), answer.as_bytes());
    }
    client.write_all(b"bye").unwrap();
    assert_eq!(read_to_string(client).unwrap(), "end");
    let mut client = server.stream();
    client.write_all(b"nothing to say to that").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_string(client).unwrap(), "");
}

#[test]
fn lines_are_found_wherever_they_are_cut() {
    let server = TestServer::raw(
        ServerConfig::default(),
        tcp::lines(|line| format!("<{}>", line.escape_ascii()).into()),
    );
    let sent = b"one\r\n\ntw\ro\nlast";
    let expected = "<one>\n<>\n<tw\\ro>\n<last>\n";
    for cut in 0..=sent.len() {
        let mut client = server.stream();
        client.write_all(&sent[..cut]).unwrap();
        if cut > 4 {
            // The rest arrives with another read.
            assert_eq!(receive(&mut client, 6), b"<one>\n");
        }
        client.write_all(&sent[cut..]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let rest = read_to_string(client).unwrap();
        assert_eq!(rest, if cut > 4 { &expected[6..] } else { expected }, "cut at {cut}");
    }
}

#[test]
fn a_line_over_the_maximum_length_is_refused() {
    let server = TestServer::raw(
        ServerConfig::default(),
        tcp::lines(|line| line.len().to_string().into()).line_bytes_max(10),
    );
    let mut client = server.stream();
    client.write_all(b"0123456789\n0123456789\r\n01234567890\nmore\n").unwrap();
    assert_eq!(receive(&mut client, 6), b"10\n10\n");
    is_cut_off(&mut client);

    let mut client = server.stream();
    client.write_all(b"0123456789").unwrap();
    client.write_all(b"\r").unwrap();
    client.write_all(b"\n").unwrap();
    assert_eq!(receive(&mut client, 3), b"10\n");
    client.write_all(b"without an end, and long").unwrap();
    is_cut_off(&mut client);
    let mut last = server.stream();
    last.write_all(b"0123456789x").unwrap();
    last.shutdown(Shutdown::Write).unwrap();
    is_cut_off(&mut last);
}

#[test]
fn a_line_that_ends_the_connection_is_the_last() {
    let server = TestServer::raw(
        ServerConfig::default(),
        tcp::lines(|line| match line {
            b"quit" => Reply::from("bye").and_close(),
            line => line.into(),
        }),
    );
    let mut client = server.stream();
    client.write_all(b"a\nquit\nb\n").unwrap();
    assert_eq!(read_to_string(client).unwrap(), "a\nbye\n");
}

fn message(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

#[test]
fn messages_are_separated_wherever_they_are_cut() {
    let server = TestServer::raw(
        ServerConfig::default(),
        tcp::messages(|message| message.to_ascii_uppercase().into()),
    );
    let sent = [message(b"one"), message(b""), message(b"three")].concat();
    let expected = [message(b"ONE"), message(b""), message(b"THREE")].concat();
    for cut in 0..=sent.len() {
        let mut client = server.stream();
        client.write_all(&sent[..cut]).unwrap();
        let first = if cut >= 7 { receive(&mut client, 7) } else { Vec::new() };
        client.write_all(&sent[cut..]).unwrap();
        let rest = receive(&mut client, expected.len() - first.len());
        assert_eq!([first, rest].concat(), expected, "cut at {cut}");
    }
}

#[test]
fn a_long_message_may_arrive_in_many_pieces() {
    let server = TestServer::raw(ServerConfig::default(), tcp::messages(|message| message.into()));
    let long = message(&pattern(1024 * 1024));
    let mut client = server.stream();
    let mut reader = client.try_clone().unwrap();
    let length = long.len();
    let echo = thread::spawn(move || receive(&mut reader, 2 * length));
    for _ in 0..2 {
        for piece in long.chunks(10_000) {
            client.write_all(piece).unwrap();
        }
    }
    assert!(echo.join().unwrap() == [long.as_slice(), &long].concat());
}

#[test]
fn a_message_announced_as_too_long_ends_the_connection_before_it_arrives() {
    let server = TestServer::raw(
        ServerConfig::default(),
        tcp::messages(|message| message.into()).message_bytes_max(10),
    );
    let mut client = server.stream();
    client.write_all(&message(b"0123456789")).unwrap();
    assert_eq!(receive(&mut client, 14), message(b"0123456789"));
    client.write_all(&[0, 0, 0, 11]).unwrap();
    is_cut_off(&mut client);
    let mut client = server.stream();
    client.write_all(&[0xff; 4]).unwrap();
    is_cut_off(&mut client);
}

#[test]
fn a_blocking_stream_has_its_own_thread() {
    let server = TestServer::raw(
        ServerConfig::default(),
        tcp::blocking(|stream: BlockingStream| {
            let mut writer = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { return };
                writeln!(writer, "{}", line.len()).unwrap();
            }
        }),
    );
    let mut clients: Vec<_> = (0..20).map(|_| server.stream()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.write_all(b"four\n").unwrap();
        }
        for client in &mut clients {
            assert_eq!(receive(client, 2), b"4\n");
        }
    }
}

#[test]
fn a_service_that_blocks_delays_no_other_connection() {
    let gate = Gate::new();
    let config = ServerConfig::default().event_loops(1);
    let server = TestServer::raw(config, {
        let gate = gate.clone();
        tcp::lines(move |line| {
            if line == b"wait" {
                gate.pass();
            }
            line.into()
        })
    });
    let mut slow: Vec<_> = (0..10).map(|_| server.stream()).collect();
    let mut quick = server.stream();
    for client in &mut slow {
        client.write_all(b"wait\n").unwrap();
    }
    // All of them wait at the same time.
    gate.holds(10);
    for _ in 0..100 {
        quick.write_all(b"quick\n").unwrap();
        assert_eq!(receive(&mut quick, 6), b"quick\n");
    }
    gate.open();
    for client in &mut slow {
        assert_eq!(receive(client, 5), b"wait\n");
    }
    let metrics = server.metrics();
    assert!(metrics.hand_overs > 0 && metrics.routes_learned > 0, "{metrics:?}");
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

#[test]
fn an_incomplete_message_has_a_deadline_although_bytes_trickle_in() {
    let config = ServerConfig::default().content_timeout(Duration::from_millis(300));
    let server = TestServer::raw(config, tcp::lines(|line| line.into()));
    let mut client = server.stream();
    let started = Instant::now();
    while started.elapsed() < DEADLINE && client.write_all(b"x").is_ok() {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
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
fn behind_a_proxy_the_peer_is_the_named_client() {
    let greets = |peer: Peer| Greets(peer.to_string());
    struct Greets(String);
    impl Protocol for Greets {
        fn open(&mut self, io: &mut Io<'_>) {
            assert_eq!(io.peer().to_string(), self.0);
            io.send(self.0.as_bytes());
            io.close();
        }
        fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
            bytes.len()
        }
    }
    let server =
        Server::builder().bind("127.0.0.1:0").unwrap().proxy_protocol().unwrap().build().unwrap();
    server.spawn_tcp(greets).unwrap();
    let server = TestServer::of(server);
    let mut client = server.stream();
    client.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 10 20\r\n").unwrap();
    assert_eq!(read_to_string(client).unwrap(), "192.0.2.1:10");
    let mut client = server.stream();
    client.write_all(b"no header\r\n\r\n").unwrap();
    is_cut_off(&mut client);
}

#[test]
fn bytes_in_the_segment_of_a_proxy_header_are_not_lost() {
    let server =
        Server::builder().bind("127.0.0.1:0").unwrap().proxy_protocol().unwrap().build().unwrap();
    server.spawn_tcp(tcp::lines(|line| line.into())).unwrap();
    let server = TestServer::of(server);
    let mut client = server.stream();
    client.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 10 20\r\nhello\n").unwrap();
    assert_eq!(receive(&mut client, 6), b"hello\n");
}

#[cfg(unix)]
#[test]
fn unix_sockets_are_served_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.sock");
    let server = Server::builder().bind_unix(&path).unwrap().build().unwrap();
    server.spawn_tcp(tcp::lines(|line| line.into())).unwrap();
    let server = TestServer::of(server);
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client.write_all(b"local\n").unwrap();
    let mut line = [0; 6];
    client.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"local\n");
    assert_eq!(server.metrics().connections, 1);
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
