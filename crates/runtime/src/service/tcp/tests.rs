//! Tests of the services made of closures: what one call of them does for much input.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::Server;
use crate::budget::account::Account;
use crate::budget::memory::Memory;
use crate::buffers::{INPUT_BYTES, OUTPUT_BYTES};
use crate::service::mailbox::WakeConnection;

/// Stands for the loop, which needs no wake-up.
struct NoLoop;

impl WakeConnection for NoLoop {
    fn wake_connection(&self, _: usize) {}
}

/// What a call has used and sent, and whether it wants to see the rest of its input.
#[derive(Debug, PartialEq, Eq)]
struct Called {
    used: usize,
    output: Vec<u8>,
    resumes: bool,
}

fn call(protocol: &mut dyn Protocol, input: &[u8]) -> Called {
    let mut output = Vec::new();
    let mut asked = Asked::default();
    let mut io = Io {
        peer: &Peer::Unix,
        now: Instant::now(),
        output: &mut output,
        given: input.as_ptr_range(),
        asked: &mut asked,
        mailbox: &mut None,
        home: &|| Weak::<NoLoop>::new() as Weak<dyn WakeConnection>,
        token: 0,
        crowd: 1,
        calls: &mut None,
        held: &mut None,
        account: &Account::new(&Memory::new(None), None),
        config: &ServerConfig::default(),
    };
    let used = protocol.data(input, &mut io);
    assert!(asked.end.is_none());
    Called { used, output, resumes: asked.reading == Some(Reading::Resumed) }
}

/// Both services with this answer to everything, and with a message of theirs.
fn services(
    answer: impl Fn() -> Vec<u8> + Send + Sync + 'static,
) -> [(Box<dyn Protocol>, &'static [u8]); 2] {
    let answer = Arc::new(answer);
    let of_lines = Arc::clone(&answer);
    [
        (lines(move |_| of_lines().into()).accept(Peer::Unix), b"\n"),
        (messages(move |_| answer().into()).accept(Peer::Unix), &[0; 4]),
    ]
}

#[test]
fn a_call_whose_output_is_long_leaves_the_rest_of_the_input_to_the_next_one() {
    const ANSWER_BYTES: usize = OUTPUT_BYTES / 16;
    for (mut protocol, message) in services(|| vec![b'x'; ANSWER_BYTES]) {
        let input = message.repeat(INPUT_BYTES / message.len() / 16);
        let (mut rest, mut sent) = (&input[..], 0);
        while !rest.is_empty() {
            let called = call(&mut *protocol, rest);
            rest = &rest[called.used..];
            sent += called.output.len();
            assert!(called.output.len() < OUTPUT_BYTES + ANSWER_BYTES + message.len());
            assert_eq!(called.resumes, !rest.is_empty());
        }
        let count = input.len() / message.len();
        // The end of a line is one byte, and so long is the prefix of a message.
        assert_eq!(sent, count * (ANSWER_BYTES + message.len()));
    }
}

#[test]
fn a_call_ends_when_its_turn_is_over() {
    let slow = || {
        thread::sleep(Duration::from_millis(2));
        vec![b'x']
    };
    let answers = [&b"x\n"[..], b"\0\0\0\x01x"];
    for ((mut protocol, message), answer) in services(slow).into_iter().zip(answers) {
        for (count, resumes) in [(3, true), (1, false)] {
            let called = call(&mut *protocol, &message.repeat(count));
            let output = answer.to_vec();
            assert_eq!(called, Called { used: message.len(), output, resumes });
        }
    }
}

#[test]
fn a_flood_is_answered_completely() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    server.spawn_tcp(lines(|line| [line, &[b'.'; 99]].concat().into())).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut sender = client.try_clone().unwrap();
    let sends = thread::spawn(move || {
        sender.write_all(&b"\n".repeat(INPUT_BYTES)).unwrap();
        sender.write_all(b"rest").unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    sends.join().unwrap();
    let (answers, last) = received.split_at(100 * INPUT_BYTES);
    assert!(answers.chunks(100).all(|answer| answer.ends_with(b".\n")));
    assert_eq!(last, [b"rest", &[b'.'; 99][..], b"\n"].concat());
}
