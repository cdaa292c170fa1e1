//! The examples that do not speak HTTP, started and used.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use filoplume_tests::{DEADLINE, Example, installed};

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client
}

#[test]
fn echo_echoes_on_one_thread_and_on_two() {
    for threads in [1, 2] {
        let mut echo = Example("echo").start_tcp(threads);
        let mut clients: Vec<_> = (0..100).map(|_| connect(echo.address())).collect();
        for round in 0..20_u8 {
            for client in &mut clients {
                client.write_all(&[round; 100]).unwrap();
            }
            for client in &mut clients {
                let mut bytes = [0; 100];
                client.read_exact(&mut bytes).unwrap();
                assert_eq!(bytes, [round; 100]);
            }
        }
        echo.signal("TERM");
        assert!(echo.ends_within(Duration::from_secs(10)).success());
    }
}

/// `ab` accepts the echo of its own request as a response: a head without content that keeps the
/// connection alive.
#[test]
fn echo_serves_ab() {
    if !installed("ab") {
        return;
    }
    let echo = Example("echo").start_tcp(1);
    let url = format!("http://{}/", echo.address());
    let told =
        Command::new("ab").args(["-q", "-k", "-n", "20000", "-c", "200", &url]).output().unwrap();
    let report = String::from_utf8_lossy(&told.stdout);
    let figure = |name: &str| {
        let line = report
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("no {name} in {report}"));
        line.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap()
    };
    assert_eq!(figure("Complete requests:"), 20_000);
    assert_eq!(figure("Failed requests:"), 0);
    assert_eq!(figure("Keep-Alive requests:"), 20_000);
}

struct Guest {
    lines: BufReader<TcpStream>,
}

impl Guest {
    fn new(address: SocketAddr) -> Self {
        let mut guest = Self { lines: BufReader::new(connect(address)) };
        guest.hears("* your name?");
        guest
    }

    fn named(address: SocketAddr, name: &str) -> Self {
        let mut guest = Self::new(address);
        guest.says(name).hears(&format!("* welcome, {name}"));
        guest
    }

    fn says(&mut self, line: &str) -> &mut Self {
        self.lines.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        self
    }

    #[track_caller]
    fn hears(&mut self, expected: &str) -> &mut Self {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end_matches('\n'), expected);
        self
    }
}

#[test]
fn line_chat_sends_each_line_to_all_others() {
    let chat = Example("line_chat").start_tcp(2);
    let mut ada = Guest::named(chat.address(), "Ada");
    let mut guests: Vec<Guest> = Vec::new();
    for number in 0..50 {
        let name = format!("guest{number}");
        let guest = Guest::named(chat.address(), &name);
        ada.hears(&format!("* {name} is here"));
        for other in &mut guests {
            other.hears(&format!("* {name} is here"));
        }
        guests.push(guest);
    }
    ada.says("hello all").says("and good bye");
    for guest in &mut guests {
        guest.hears("Ada: hello all").hears("Ada: and good bye");
    }
    guests[0].says("hello Ada");
    ada.hears("guest0: hello Ada");
    ada.says("/quit").hears("* bye").hears("");
    for guest in &mut guests[1..] {
        guest.hears("guest0: hello Ada").hears("* Ada is gone");
    }
}

#[test]
fn line_chat_sends_nothing_after_quit_and_no_control_characters() {
    let chat = Example("line_chat").start_tcp(1);
    let mut ada = Guest::named(chat.address(), "Ada");
    let mut bob = Guest::named(chat.address(), "Bob");
    ada.hears("* Bob is here");
    ada.says("\u{1b}[31mred\rtea\u{9b}2J\r");
    bob.hears("Ada: [31mredtea2J");
    // In one write, so that the server finds the second line behind the first one.
    ada.says("/quit\nstill here").hears("* bye");
    bob.hears("* Ada is gone");
}

#[test]
fn line_chat_requires_a_free_and_plain_name() {
    let chat = Example("line_chat").start_tcp(1);
    let mut ada = Guest::named(chat.address(), "Ada");
    let mut other = Guest::new(chat.address());
    for name in ["Ada", "", "two words", "a\u{202e}b", &"x".repeat(33)] {
        other.says(name).hears("* another name, please");
    }
    other.says("Bob").hears("* welcome, Bob");
    ada.hears("* Bob is here");
    drop(ada);
    other.hears("* Ada is gone");
    other.says(&"x".repeat(2000)).hears("");
}

#[test]
fn line_chat_does_not_wait_for_clients_that_do_not_read() {
    let chat = Example("line_chat").start_tcp(1);
    let mut ada = Guest::named(chat.address(), "Ada");
    let deaf = Guest::named(chat.address(), "Deaf");
    ada.hears("* Deaf is here");
    let mut bob = Guest::named(chat.address(), "Bob");
    ada.hears("* Bob is here");
    let line = "x".repeat(1000);
    // Far more than sockets and mailbox hold.
    for _ in 0..12_000 {
        ada.says(&line);
        bob.hears(&format!("Ada: {line}"));
    }
    drop(deaf);
    bob.hears("* Deaf is gone");
}

#[test]
fn flood_responds_without_requests() {
    let flood = Example("flood").start_tcp(1);
    let mut client = connect(flood.address());
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World!";
    let mut bytes = vec![0; response.len() * 50_000];
    client.read_exact(&mut bytes).unwrap();
    assert!(bytes.chunks(response.len()).all(|one| one == response));
    // A flooding connection does not starve others on its loop.
    let mut other = connect(flood.address());
    let mut first = [0; 15];
    other.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
}
