//! A client that checks whether a response is complete.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::RunningApp;

/// Timeout for everything that should happen soon.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The first response, as far as it was received.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) content: Vec<u8>,
    /// Whether a client would consider the content complete.
    pub(super) is_whole: bool,
    /// The bytes after the response.
    pub(super) rest: Vec<u8>,
}

/// Sends a request and reads until the connection ends.
pub(super) fn ask(address: SocketAddr, request: &[u8]) -> Received {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.set_write_timeout(Some(TIMEOUT)).unwrap();
    let mut writer = socket.try_clone().unwrap();
    let request = request.to_vec();
    let sends = thread::spawn(move || {
        let _ = writer.write_all(&request);
    });
    let mut received = Vec::new();
    let ended = socket.read_to_end(&mut received).map(drop);
    let _ = socket.shutdown(Shutdown::Both);
    sends.join().unwrap();
    let timed_out = ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    assert!(!timed_out, "the connection stays open after {} bytes", received.len());
    answer(&received, ended.is_ok())
}

fn answer(received: &[u8], ended_well: bool) -> Received {
    let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Received {
            status: 0,
            head: String::new(),
            content: vec![],
            is_whole: false,
            rest: vec![],
        };
    };
    let (head, behind) =
        (String::from_utf8(received[..end].to_vec()).unwrap(), &received[end + 4..]);
    let status = head[9..12].parse().unwrap();
    let field = |name: &str| {
        head.lines().find_map(|line| {
            line.to_lowercase().strip_prefix(name).map(|value| value.trim().to_owned())
        })
    };
    let (content, is_whole, rest) = if let Some(length) = field("content-length:") {
        let length: usize = length.parse().unwrap();
        let (content, rest) = behind.split_at(length.min(behind.len()));
        (content.to_vec(), content.len() == length, rest)
    } else if field("transfer-encoding:").is_some() {
        chunks(behind)
    } else {
        (behind.to_vec(), ended_well, &[][..])
    };
    Received { status, head, content, is_whole, rest: rest.to_vec() }
}

fn chunks(mut bytes: &[u8]) -> (Vec<u8>, bool, &[u8]) {
    let mut content = Vec::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let length =
            usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        bytes = &bytes[end + 2..];
        let there = length.min(bytes.len());
        content.extend_from_slice(&bytes[..there]);
        let Some(behind) = bytes.get(length..).and_then(|behind| behind.strip_prefix(b"\r\n"))
        else {
            break;
        };
        bytes = behind;
        if length == 0 {
            return (content, true, bytes);
        }
    }
    (content, false, &[])
}

pub(super) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "timed out: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until the server has released everything: no connection, no open file in the folder. Also
/// checks that nothing panicked.
pub(super) fn wait_until_released(app: &RunningApp, folder: &std::path::Path, what: &str) {
    eventually(&format!("{what}: no connection is left"), || {
        app.server().metrics().is_some_and(|metrics| metrics.connections == 0)
    });
    let metrics = app.server().metrics().unwrap();
    assert_eq!((metrics.panics, metrics.leased, metrics.pool.panics), (0, 0, 0), "{what}");
    eventually(&format!("{what}: no file is left open"), || open_files(folder) == 0);
}

/// Returns how many descriptors of this process belong to files in a folder.
fn open_files(folder: &std::path::Path) -> usize {
    let folder = folder.canonicalize().unwrap();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let paths = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    // The folder itself is open as long as it is served.
    paths.filter(|path| path.starts_with(&folder) && *path != folder).count()
}

#[test]
fn a_truncated_response_is_not_complete() {
    let rows = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", true, true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", true, false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", true, true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true, false),
        ("HTTP/1.1 200 OK\r\n\r\nabc", true, true),
        ("HTTP/1.1 200 OK\r\n\r\nabc", false, false),
        ("HTTP/1.1 200 OK\r\nConte", true, false),
    ];
    for (text, ended_well, is_whole) in rows {
        let answer = answer(text.as_bytes(), ended_well);
        assert_eq!(answer.is_whole, is_whole, "{text}");
    }
}
