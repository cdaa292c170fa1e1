//! Raw TCP services over sockets: bytes, lines, messages and blocking streams.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write, read_to_string};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::tcp::{self, Reply};
use filoplume_runtime::{BlockingStream, Server, ServerConfig};
use filoplume_tests::{DEADLINE, Gate, TestServer, is_cut_off, pattern, receive};

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
