//! Feeds bytes to a `ServerConnection`, answers every request, and writes down what happened.

#![allow(dead_code, reason = "every test crate uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]
#![allow(clippy::needless_pass_by_value, reason = "rows read better with values")]

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use expect_test::Expect;
use filoplume_http1::{
    BodyEncoding, ContentDecoder, ContentLength, Date, Framing, Headers, Limits, Next, ParseError,
    RequestHead, ServerConnection,
};
use http::StatusCode;

/// Content longer than this is refused, to have a small bound to test.
pub(crate) const CONTENT_BYTES_MAX: u64 = 64;

/// The same bytes must mean the same wherever the network cuts them.
#[track_caller]
pub(crate) fn check(input: impl AsRef<[u8]>, expected: Expect) {
    check_limits(input, &Limits::default(), expected);
}

#[track_caller]
pub(crate) fn check_limits(input: impl AsRef<[u8]>, limits: &Limits, expected: Expect) {
    let input = input.as_ref();
    let whole = events(&[input], limits);
    expected.assert_eq(&whole);
    for cut in 1..input.len() {
        let (first, second) = input.split_at(cut);
        assert_eq!(events(&[first, second], limits), whole, "cut at {cut}");
    }
    if input.len() < 2000 {
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        assert_eq!(events(&bytes, limits), whole, "cut everywhere");
    }
}

/// Returns what a connection makes of pieces that arrive one after the other.
pub(crate) fn events(pieces: &[&[u8]], limits: &Limits) -> String {
    let mut driver = Driver::new(limits);
    for piece in pieces {
        driver.receive(piece);
    }
    driver.finish()
}

/// What the bytes at the front of the buffer are for.
enum Turn {
    Head,
    Content(ContentDecoder, String),
    Over,
}

struct Driver<'a> {
    limits: &'a Limits,
    connection: ServerConnection,
    unread: Vec<u8>,
    turn: Turn,
    log: Vec<String>,
}

impl<'a> Driver<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            connection: ServerConnection::new(),
            unread: Vec::new(),
            turn: Turn::Head,
            log: Vec::new(),
        }
    }

    fn receive(&mut self, piece: &[u8]) {
        self.unread.extend_from_slice(piece);
        while self.step() {}
    }

    /// Does one thing and returns whether another may follow without more bytes.
    fn step(&mut self) -> bool {
        match std::mem::replace(&mut self.turn, Turn::Over) {
            Turn::Over => false,
            Turn::Head => match self.connection.read_head(&self.unread, self.limits) {
                Err(error) => {
                    self.refuse(error);
                    false
                }
                Ok(None) => {
                    self.turn = Turn::Head;
                    false
                }
                Ok(Some((head, used))) => {
                    self.unread.drain(..used);
                    self.log.push(line(&head));
                    self.begin_content(&head)
                }
            },
            Turn::Content(mut decoder, mut content) => {
                let decoded = match decoder.decode(&self.unread) {
                    Ok(decoded) => decoded,
                    Err(error) => {
                        assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(error), "an error stays");
                        self.refuse(error);
                        return false;
                    }
                };
                assert!(decoded.data.end <= decoded.consumed, "data is among the consumed bytes");
                assert!(decoded.consumed > 0 || decoder.is_complete() || self.unread.is_empty());
                write!(content, "{}", self.unread[decoded.data].escape_ascii()).unwrap();
                self.unread.drain(..decoded.consumed);
                if !decoder.is_complete() {
                    self.turn = Turn::Content(decoder, content);
                    return decoded.consumed > 0;
                }
                self.log.push(format!("content \"{content}\""));
                let trailers = decoder.take_trailers().unwrap_or_default();
                self.log.extend(
                    trailers.iter().map(|(name, value)| format!("trailer {name}={}", value.escape_ascii())),
                );
                self.connection.content_done();
                self.answer()
            }
        }
    }

    fn begin_content(&mut self, head: &RequestHead) -> bool {
        match ContentDecoder::new(head.framing(), CONTENT_BYTES_MAX, self.limits) {
            Ok(decoder) if decoder.is_complete() => {
                self.connection.content_done();
                self.answer()
            }
            Ok(decoder) => {
                if self.connection.write_continue(&mut Vec::new()) {
                    self.log.push("100".into());
                }
                self.turn = Turn::Content(decoder, String::new());
                true
            }
            Err(error) => {
                self.refuse(error);
                false
            }
        }
    }

    fn answer(&mut self) -> bool {
        let date = Date::new(UNIX_EPOCH);
        let mut out = Vec::new();
        let encoding = self.connection.write_head(
            StatusCode::OK,
            &Headers::new(),
            ContentLength::Known(2),
            &date,
            &mut out,
        );
        if self.connection.is_head_request() {
            assert_eq!(encoding, BodyEncoding::None);
        }
        self.connection.write_done();
        match self.connection.next().expect("both halves are complete") {
            Next::KeepAlive => {
                self.turn = Turn::Head;
                true
            }
            Next::Close(reason) => {
                self.log.push(format!("close {reason:?}"));
                false
            }
        }
    }

    fn refuse(&mut self, error: ParseError) {
        self.log.push(format!("refused {} {error:?}", error.status()));
    }

    fn finish(mut self) -> String {
        match self.turn {
            Turn::Head if self.unread.is_empty() => {}
            Turn::Head | Turn::Content(..) => self.log.push("more".into()),
            Turn::Over => {}
        }
        self.log.join("; ")
    }
}

/// `GET / 1.1 host=h length=3 continue upgrade=websocket`, as far as it applies.
fn line(head: &RequestHead) -> String {
    let version = if head.version() == filoplume_http1::Version::Http11 { "1.1" } else { "1.0" };
    let mut line = format!("{} {} {version}", head.method(), head.target());
    match head.framing() {
        Framing::Empty => {}
        Framing::Length(length) => write!(line, " length={length}").unwrap(),
        Framing::Chunked => line.push_str(" chunked"),
    }
    if head.expects_continue() {
        line.push_str(" continue");
    }
    if let Some(protocol) = head.wants_upgrade() {
        write!(line, " upgrade={protocol}").unwrap();
    }
    line
}
