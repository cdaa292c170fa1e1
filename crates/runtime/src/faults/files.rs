//! Bodies that are files: the client gets the same bytes however they are sent, and notices if a
//! body is incomplete.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{Call, Fault, Plan};
use crate::{FileBody, Request, Response, ResponseBody, Server, ServerConfig, Service};

const PATIENCE: Duration = Duration::from_secs(30);

/// Longer than the buffers of a connection on this machine.
const LONG: usize = 12 << 20;

/// The bytes that are read into memory: the first piece, which is sent with the head, and the last
/// one. Shorter bodies have no other pieces.
const READ_BYTES: usize = 2 * 64 * 1024;

/// A file of this process.
struct Stored(PathBuf);

impl Stored {
    fn new(length: usize) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("filoplume-file-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, content(length)).unwrap();
        Self(path)
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Bytes whose order matters.
#[expect(clippy::cast_possible_truncation, reason = "it is below 251")]
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|index| ((index / 7 + index / 4099) % 251) as u8).collect()
}

/// How the handler answers.
#[derive(Clone, Copy)]
enum Sends {
    /// The offset, and the number of bytes from there on.
    Range(u64, u64),
    /// More bytes than the file has.
    TooMany(u64),
    /// A body that fails when the system has sent a part of it.
    Failing(u64),
}

struct Site {
    path: PathBuf,
    sends: Sends,
    failed: Arc<Mutex<Vec<String>>>,
}

impl Service for Site {
    fn call(&self, _: Request) -> Response {
        let file = File::open(&self.path).unwrap();
        let mut response = Response::default();
        match self.sends {
            Sends::Range(offset, length) => {
                response.set_file(file, offset, length);
            }
            Sends::TooMany(length) => {
                response.set_file(file, 0, length);
            }
            Sends::Failing(length) => {
                let content = Box::new(Failing(file, 0));
                *response.body_mut() = ResponseBody::File { content, length };
            }
        }
        response
    }

    fn body_failed(&self, _: Option<&str>, error: &io::Error) {
        self.failed.lock().push(error.to_string());
    }
}

struct Failing(File, u64);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1 += read as u64;
        Ok(read)
    }
}

impl FileBody for Failing {
    fn part(&self) -> Option<(&File, u64)> {
        Some((&self.0, self.1))
    }

    fn advance(&mut self, _: u64) -> io::Result<()> {
        Err(io::Error::other("it was changed"))
    }
}

/// Answers one request of a client that reads all of it. Returns what was received after the head,
/// and the errors that the service was told.
fn answer(stored: &Stored, sends: Sends, plan: &Arc<Plan>) -> (Vec<u8>, Vec<String>) {
    let mut config = ServerConfig::default().event_loops(1);
    config.faults = Some(Arc::clone(plan));
    let builder = Server::builder().bind("127.0.0.1:0").unwrap();
    let server = builder.config(config).build().unwrap();
    let failed = Arc::<Mutex<Vec<String>>>::default();
    let site = Site { path: stored.0.clone(), sends, failed: Arc::clone(&failed) };
    server.spawn(site).unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(client, "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
    let mut received = Vec::new();
    if let Err(error) = client.read_to_end(&mut received) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
    let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let failed = failed.lock().clone();
    (received.split_off(head + 4), failed)
}

#[test]
fn the_system_sends_what_is_between_the_first_and_the_last_piece() {
    let stored = Stored::new(LONG + 10);
    let expected = content(LONG + 10);
    for length in [1, 1000, READ_BYTES, READ_BYTES + 1, 1_000_003, LONG] {
        for offset in [0, 7] {
            let plan = Arc::new(Plan::new(Call::SendFile, u64::MAX, 0, Fault::OneByte));
            let sends = Sends::Range(offset as u64, length as u64);
            let (received, failed) = answer(&stored, sends, &plan);
            assert!(received == expected[offset..offset + length], "{length} from {offset}");
            assert!(failed.is_empty(), "{failed:?}");
            assert_eq!(plan.calls() > 0, length > READ_BYTES, "{length}: {}", plan.calls());
        }
    }
}

#[test]
fn a_file_arrives_whole_wherever_the_system_cannot_send_it() {
    let length = 1_000_003;
    let stored = Stored::new(length);
    let expected = content(length);
    for fault in [
        Fault::Error(Errno::INTR),
        Fault::Error(Errno::AGAIN),
        Fault::Error(Errno::INVAL),
        Fault::Error(Errno::NOSYS),
        Fault::Error(Errno::IO),
        Fault::OneByte,
    ] {
        for first in 1..6 {
            let plan = Arc::new(Plan::new(Call::SendFile, first, 2, fault));
            let sends = Sends::Range(0, length as u64);
            let (received, failed) = answer(&stored, sends, &plan);
            assert!(received == expected, "{fault:?} from call {first} on");
            assert!(failed.is_empty(), "{failed:?}");
        }
    }
}

#[test]
fn a_file_that_is_shorter_than_announced_is_broken_off_and_reported() {
    let length = 500_000;
    let stored = Stored::new(length);
    let plan = Arc::new(Plan::new(Call::SendFile, u64::MAX, 0, Fault::OneByte));
    let announced = length as u64 + 200_000;
    let (received, failed) = answer(&stored, Sends::TooMany(announced), &plan);
    assert!(received.len() <= length && content(length).starts_with(&received));
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].contains("200000 bytes early"), "{failed:?}");
}

#[test]
fn a_body_that_fails_behind_a_piece_that_was_sent_is_broken_off_and_reported() {
    let stored = Stored::new(LONG);
    let plan = Arc::new(Plan::new(Call::SendFile, u64::MAX, 0, Fault::OneByte));
    let (received, failed) = answer(&stored, Sends::Failing(LONG as u64), &plan);
    assert!(received.len() < LONG, "{}", received.len());
    assert_eq!(failed, ["it was changed"]);
}
