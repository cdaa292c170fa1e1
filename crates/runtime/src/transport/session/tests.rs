//! Tests of what a session sends and receives over a socket that does what the test says.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::RefCell;
use std::collections::VecDeque;

use rustls::AlertDescription;
use rustls::version::TLS13;

use super::*;
use crate::transport::tests::client::{Client, connect, session};

/// A socket that notes what is done with it.
#[derive(Default)]
struct Script {
    /// What each read returns in turn. After that, reads would block.
    arrives: RefCell<VecDeque<Vec<u8>>>,
    /// How many bytes it takes until it is full. `None` means that it never is.
    takes: Cell<Option<usize>>,
    /// Why it sends nothing any more.
    broken: Cell<Option<io::ErrorKind>>,
    sent: RefCell<Vec<u8>>,
    calls: RefCell<Vec<&'static str>>,
    patience: Option<Duration>,
}

impl Script {
    fn of<const N: usize>(arrives: [Vec<u8>; N]) -> Self {
        Self { arrives: RefCell::new(arrives.into()), ..Self::default() }
    }

    fn add(&self, arrives: Vec<u8>) {
        self.arrives.borrow_mut().push_back(arrives);
    }

    /// Returns what was sent since the last call.
    fn sent(&self) -> Vec<u8> {
        self.sent.take()
    }

    /// Returns what was called since the last call.
    fn calls(&self) -> Vec<&'static str> {
        self.calls.take()
    }
}

impl Wire for Script {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.calls.borrow_mut().push("receive");
        let mut arrives = self.arrives.borrow_mut();
        let bytes = arrives.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        assert!(!bytes.is_empty() || arrives.is_empty(), "the end comes last");
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        if length < bytes.len() {
            arrives.push_front(bytes[length..].to_vec());
        }
        Ok(length)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.calls.borrow_mut().push("send");
        if let Some(error) = self.broken.get() {
            return Err(error.into());
        }
        let takes = self.takes.get().unwrap_or(bytes.len()).min(bytes.len());
        if takes == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.takes.set(self.takes.get().map(|left| left - takes));
        self.sent.borrow_mut().extend_from_slice(&bytes[..takes]);
        Ok(takes)
    }

    fn patience(&self) -> Option<Duration> {
        self.patience
    }
}

fn pair() -> (Session, Client) {
    let (records, client) = connect(&TLS13);
    (session(records), client)
}

/// Returns a session that has something of its own to send.
fn pair_with_reply(reply: &[u8]) -> (Session, Client) {
    let (mut records, client) = connect(&TLS13);
    records.keep(Vec::new(), &mut reply.to_vec());
    (session(records), client)
}

fn read(session: &mut Session, wire: &Script, length: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; length];
    let read = session.read(wire, &mut [IoSliceMut::new(&mut buffer)])?;
    buffer.truncate(read);
    Ok(buffer)
}

fn kind_of<T: fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_reply_is_sent_before_a_read_that_may_wait_and_not_before_one_that_does_not() {
    let (mut session, mut client) = pair();
    let wire = Script::of([client.seal(b"content")]);
    assert_eq!(read(&mut session, &wire, 3).unwrap(), b"con");
    let Session::Own(own) = &mut session else { panic!("it has one handle") };
    own.records.keep(Vec::new(), &mut b"reply".to_vec());
    wire.calls();
    assert_eq!(read(&mut session, &wire, 9).unwrap(), b"tent");
    assert!(wire.calls().is_empty(), "a response follows, probably");
    assert_eq!(kind_of(read(&mut session, &wire, 9)), io::ErrorKind::WouldBlock);
    assert_eq!(wire.calls(), ["send", "receive"]);
    assert_eq!(wire.sent(), b"reply");
}

#[test]
fn a_shared_session_sends_its_reply_after_each_read_unless_another_thread_writes() {
    let (session, mut client) = pair_with_reply(b"reply");
    let mut session = session.share();
    let Session::Shared(shared) = session.second_handle().unwrap() else { panic!("it is shared") };
    let wire = Script::of([client.seal(b"a"), client.seal(b"b")]);
    let writes = shared.sending.lock();
    assert_eq!(read(&mut session, &wire, 9).unwrap(), b"a");
    assert_eq!((wire.calls(), session.unsent()), (vec!["receive"], 0));
    drop(writes);
    assert_eq!(read(&mut session, &wire, 9).unwrap(), b"b");
    assert_eq!(wire.calls(), ["receive", "send"]);
    assert_eq!(wire.sent(), b"reply");
}

#[test]
fn the_client_is_told_why_its_record_is_refused() {
    for is_shared in [false, true] {
        let (mut session, mut client) = pair();
        if is_shared {
            session = session.share();
        }
        let forged = [&[0x17, 3, 3, 0, 20][..], &[0; 20]].concat();
        let wire = Script::of([forged]);
        assert_eq!(kind_of(read(&mut session, &wire, 9)), io::ErrorKind::InvalidData);
        let expected = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
        assert_eq!(client.fail_to_open(&wire.sent()), expected);
    }
}

#[test]
fn a_read_looks_again_only_if_there_may_be_more() {
    let (mut session, mut client) = pair();
    let wire = Script::of([client.seal(b"content")]);
    assert!(!session.has_more());
    assert_eq!(read(&mut session, &wire, 3).unwrap(), b"con");
    assert!(session.has_more(), "the session has it");
    assert_eq!(read(&mut session, &wire, 9).unwrap(), b"tent");
    assert!(session.has_more(), "the socket was not asked");
    assert_eq!(kind_of(read(&mut session, &wire, 9)), io::ErrorKind::WouldBlock);
    assert!(!session.has_more());
    assert_eq!(session.held_bytes(), 0);
}

#[test]
fn a_read_that_has_filled_its_buffer_says_that_there_may_be_more() {
    for is_shared in [false, true] {
        let (mut session, mut client) = pair();
        if is_shared {
            session = session.share();
        }
        let records = client.seal(&[7; 2 * RECEIVE_BYTES]);
        let wire = Script::of([records[..RECEIVE_BYTES].to_vec()]);
        let first = read(&mut session, &wire, 2 * RECEIVE_BYTES).unwrap();
        assert!(session.has_more());
        assert_eq!(kind_of(read(&mut session, &wire, 9)), io::ErrorKind::WouldBlock);
        assert!(!session.has_more(), "the socket has no more");
        wire.add(records[RECEIVE_BYTES..].to_vec());
        let mut rest = 2 * RECEIVE_BYTES - first.len();
        while rest > 0 {
            rest -= read(&mut session, &wire, 2 * RECEIVE_BYTES).unwrap().len();
        }
        assert!(!session.has_more());
    }
}

#[test]
fn a_read_without_room_does_not_touch_the_socket() {
    let (mut session, mut client) = pair();
    let wire = Script::of([client.seal(b"content")]);
    assert_eq!(read(&mut session, &wire, 0).unwrap(), b"");
    assert!(wire.calls().is_empty());
    assert!(session.has_more());
}

#[test]
fn an_end_without_goodbye_is_an_error_each_time() {
    let (mut session, mut client) = pair();
    let record = client.seal(b"content");
    let wire = Script::of([record[..9].to_vec(), Vec::new()]);
    assert_eq!(kind_of(read(&mut session, &wire, 9)), io::ErrorKind::UnexpectedEof);
    assert_eq!(kind_of(read(&mut session, &wire, 9)), io::ErrorKind::UnexpectedEof);
    assert_eq!(wire.calls(), ["receive"; 2], "it is not read again");
}

#[test]
fn after_the_goodbye_of_the_client_the_other_direction_goes_on() {
    let (mut session, mut client) = pair();
    let wire = Script::of([[client.seal(b"last"), client.seal_goodbye()].concat(), Vec::new()]);
    assert_eq!(read(&mut session, &wire, 9).unwrap(), b"last");
    assert!(session.has_more(), "the end is to be read");
    wire.calls();
    for _ in 0..2 {
        assert_eq!(read(&mut session, &wire, 9).unwrap(), b"");
    }
    assert!(wire.calls().is_empty());
    assert_eq!(session.write(&wire, &[IoSlice::new(b"response")]).unwrap(), 8);
    assert_eq!(client.open(&wire.sent()), (b"response".to_vec(), false));
}

#[test]
fn a_record_that_comes_in_parts_is_waited_for_once() {
    for (patience, expected) in [(None, 12), (Some(Duration::MAX), 12), (Some(Duration::ZERO), 1)] {
        let (mut session, mut client) = pair();
        let record = client.seal(b"content");
        let mut parts: VecDeque<_> = record[..11].iter().map(|byte| vec![*byte]).collect();
        parts.push_back(record[11..].to_vec());
        let wire = Script { arrives: RefCell::new(parts), patience, ..Script::default() };
        let result = read(&mut session, &wire, 9);
        // The clock may not have moved between two of the parts.
        assert!((expected..=12).contains(&wire.calls().len()));
        match patience {
            Some(Duration::ZERO) => assert_eq!(kind_of(result), io::ErrorKind::WouldBlock),
            _ => assert_eq!(result.unwrap(), b"content"),
        }
    }
}

#[test]
fn only_the_next_write_is_the_last_one_and_only_if_it_is_complete() {
    let content = [7; RECORDS_PER_WRITE * RECORD_BYTES + 1];
    let (mut session, mut client) = pair();
    let wire = Script::default();
    session.end_with_next_write();
    let written = session.write(&wire, &[IoSlice::new(&content)]).unwrap();
    assert_eq!(written, content.len() - 1);
    let rest = &content[written..];
    assert_eq!(session.write(&wire, &[IoSlice::new(rest)]).unwrap(), 1);
    assert_eq!(client.open(&wire.sent()), (content.to_vec(), false));
    session.end_with_next_write();
    session.write(&wire, &[IoSlice::new(b"end")]).unwrap();
    assert_eq!(client.open(&wire.sent()), (b"end".to_vec(), true));
    assert!(!session.say_goodbye(&wire));
    assert_eq!(wire.sent(), b"", "it was said");
}

#[test]
fn what_the_socket_does_not_take_is_kept_and_sent_first() {
    let (mut session, mut client) = pair();
    let wire = Script::default();
    wire.takes.set(Some(5));
    assert_eq!(session.write(&wire, &[IoSlice::new(b"first")]).unwrap(), 5);
    let kept = session.unsent();
    assert!(kept > 5 && session.settle(&wire).unwrap());
    assert_eq!(
        kind_of(session.write(&wire, &[IoSlice::new(b"second")])),
        io::ErrorKind::WouldBlock
    );
    assert!(session.say_goodbye(&wire), "it is left too");
    assert!(session.unsent() > kept);
    wire.takes.set(Some(3));
    assert!(session.settle(&wire).unwrap());
    wire.takes.set(None);
    assert!(!session.settle(&wire).unwrap());
    assert_eq!(client.open(&wire.sent()), (b"first".to_vec(), true));
    assert_eq!((session.unsent(), session.abandon()), (0, false));
}

#[test]
fn a_session_that_abandons_its_records_says_so() {
    for is_shared in [false, true] {
        let (mut session, _) = pair();
        if is_shared {
            session = session.share();
        }
        assert!(!session.abandon());
        let wire = Script::default();
        wire.takes.set(Some(5));
        session.write(&wire, &[IoSlice::new(b"content")]).unwrap();
        assert!(session.abandon());
        assert_eq!((session.unsent(), session.abandon()), (0, false));
    }
}

#[test]
fn a_socket_that_fails_ends_the_session_unless_it_is_only_full() {
    let (mut session, _) = pair();
    let wire = Script::default();
    wire.takes.set(Some(5));
    session.write(&wire, &[IoSlice::new(b"content")]).unwrap();
    wire.broken.set(Some(io::ErrorKind::ConnectionReset));
    assert_eq!(kind_of(session.settle(&wire)), io::ErrorKind::ConnectionReset);
    assert_eq!(
        kind_of(session.write(&wire, &[IoSlice::new(b"x")])),
        io::ErrorKind::ConnectionReset
    );
    assert!(!session.say_goodbye(&wire), "nothing is to be waited for");
}
