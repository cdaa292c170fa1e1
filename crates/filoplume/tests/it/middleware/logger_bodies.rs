//! Lines of the access log for bodies that are read or sent after the handler has returned.

use std::io::{self, Write};

use filoplume::middleware::{Logger, Tracing};
use filoplume::prelude::*;

use super::ask;
use super::logger::{Failing, Sink, briefly, wait_for_a_line};

/// Regression: the line said 200 and had no error.
#[test]
fn a_response_that_is_broken_off_is_logged_as_broken_off() {
    use filoplume::response::Reader;

    let sink = Sink::default();
    let text = || io::Cursor::new("abc");
    let client = App::new()
        .get("/whole", move || Reader::sized(text(), 3))
        .get("/failing", move || Reader::new(io::Read::chain(text(), Failing)))
        .get("/short", move || Reader::sized(text(), 5))
        .with(Logger::new().json().to(sink.clone()))
        .test();
    for path in ["/whole", "/failing", "/short"] {
        client.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    client.raw("HEAD /whole HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        briefly(&sink),
        [
            r#""GET" "/whole" 200 3 null"#,
            r#""GET" "/failing" 200 3 "broken off: the disk is gone""#,
            r#""GET" "/short" 200 3 "broken off: the reader ended early""#,
            r#""HEAD" "/whole" 200 3 null"#,
        ]
    );
}

/// The kernel sends it, and not the reader.
#[test]
fn a_file_that_was_sent_whole_is_logged_with_its_length() {
    const LENGTH: usize = 300_000;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("long.bin"), vec![7; LENGTH]).unwrap();
    let sink = Sink::default();
    let app = App::new()
        .files("/files", StaticFiles::folder(folder.path()))
        .with(Logger::new().json().to(sink.clone()))
        .start("127.0.0.1:0")
        .unwrap();
    let mut socket = std::net::TcpStream::connect(app.local_addr()).unwrap();
    write!(socket, "GET /files/long.bin HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    let answer = io::copy(&mut socket, &mut io::sink()).unwrap();
    assert!(answer > LENGTH as u64);
    wait_for_a_line(&sink);
    assert_eq!(briefly(&sink), [format!(r#""GET" "/files/long.bin" 200 {LENGTH} null"#)]);
}

/// Its first read is interrupted, as by a signal.
struct Interrupted(bool, io::Cursor<&'static str>);

impl io::Read for Interrupted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.0, false) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.1.read(buffer)
    }
}

#[test]
fn an_interrupted_read_is_no_end_and_a_stream_has_the_trace_of_middleware_further_in() {
    let sink = Sink::default();
    let reader = || Interrupted(true, io::Cursor::new("abc"));
    let app = App::new()
        .get("/", move || filoplume::response::Reader::sized(reader(), 3))
        .with(Logger::new().json().to(sink.clone()))
        .with(Tracing::new());
    let service = app.build().unwrap();
    ask(&service, "192.0.2.7:4711", "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(briefly(&sink), [r#""GET" "/" 200 3 null"#]);
    let line: serde_json::Value = serde_json::from_str(&sink.text()).unwrap();
    assert_eq!(line["trace_id"].as_str().map(str::len), Some(32), "{line}");
}
