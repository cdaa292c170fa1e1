//! Feeds bytes to a `ServerConnection`, answers every request, and records the events.

#![allow(dead_code, reason = "every test crate uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]
#![allow(clippy::needless_pass_by_value, reason = "test rows are easier to read with values")]

#[path = "../../../../tests/src/corpus.rs"]
#[allow(unreachable_pub, reason = "the file is shared, and its items are public elsewhere")]
pub(crate) mod corpus;

use std::time::UNIX_EPOCH;

use corpus::{shown_content, shown_field, shown_head};
use expect_test::Expect;
use filoplume_http1::{
    BodyEncoding, ContentDecoder, ContentLength, Date, Framing, Headers, Limits, Next, ParseError,
    RequestHead, ServerConnection, Version,
};
use http::StatusCode;

/// Longer content is refused. The limit is small so that tests can exceed it.
pub(crate) const CONTENT_BYTES_MAX: u64 = 64;

/// Checks that the same bytes give the same events at every split.
#[track_caller]
pub(crate) fn check_limits(input: impl AsRef<[u8]>, limits: &Limits, expected: Expect) {
    let input = input.as_ref();
    let whole = events(&[input], limits);
    // Fields are left out: these rows have hundreds of them, which only fill the head.
    let told: Vec<&str> =
        whole.iter().map(String::as_str).filter(|event| !event.starts_with("field ")).collect();
    expected.assert_eq(&told.join("; "));
    if let Err((cut, other)) = at_every_cut(input, limits, &whole) {
        panic!("{cut}: {}", other.join("; "));
    }
}

/// Compares the events of all splits of the input. Returns the number of splits, or the one that
/// differs.
pub(crate) fn at_every_cut(
    input: &[u8],
    limits: &Limits,
    expected: &[String],
) -> Result<usize, (String, Vec<String>)> {
    let mut cuts = 0;
    for cut in 1..input.len() {
        let (first, second) = input.split_at(cut);
        let found = events(&[first, second], limits);
        if found != expected {
            return Err((format!("cut at {cut}"), found));
        }
        cuts += 1;
    }
    if input.len() < 2000 {
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        let found = events(&bytes, limits);
        if found != expected {
            return Err(("byte by byte".into(), found));
        }
        cuts += 1;
    }
    Ok(cuts)
}

/// Returns the events of a connection for pieces that arrive one after the other.
pub(crate) fn events(pieces: &[&[u8]], limits: &Limits) -> Vec<String> {
    let mut driver = Driver::new(limits);
    for piece in pieces {
        driver.receive(piece);
    }
    driver.finish()
}

/// What the bytes at the front of the buffer belong to.
enum Turn {
    Head,
    Content(ContentDecoder, Vec<u8>),
    Over,
}

struct Driver<'a> {
    limits: &'a Limits,
    connection: ServerConnection,
    unread: Vec<u8>,
    turn: Turn,
    events: Vec<String>,
}

impl<'a> Driver<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            connection: ServerConnection::new(),
            unread: Vec::new(),
            turn: Turn::Head,
            events: Vec::new(),
        }
    }

    fn receive(&mut self, piece: &[u8]) {
        self.unread.extend_from_slice(piece);
        while self.step() {}
    }

    /// Does one step, and returns whether another step may follow without more bytes.
    fn step(&mut self) -> bool {
        match std::mem::replace(&mut self.turn, Turn::Over) {
            Turn::Over => false,
            Turn::Head => match self.connection.read_head(&self.unread, self.limits) {
                Err(error) => {
                    let again = self.connection.read_head(&self.unread, self.limits);
                    assert_eq!(again.err(), Some(error), "a refusal stays");
                    self.refuse(error);
                    false
                }
                Ok(None) => {
                    self.turn = Turn::Head;
                    false
                }
                Ok(Some((head, used))) => {
                    self.unread.drain(..used);
                    self.events.extend(head_events(&head));
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
                content.extend_from_slice(&self.unread[decoded.data]);
                self.unread.drain(..decoded.consumed);
                if !decoder.is_complete() {
                    self.turn = Turn::Content(decoder, content);
                    return decoded.consumed > 0;
                }
                self.events.push(shown_content(&content));
                let shared = decoder.trailers().cloned();
                let trailers = decoder.take_trailers();
                assert_eq!(shared, trailers, "trailers can be read before they are taken");
                let trailers = trailers.unwrap_or_default();
                self.events.extend(
                    trailers.iter().filter_map(|(name, value)| shown_field("trailer", name, value)),
                );
                self.connection.content_done();
                self.answer()
            }
        }
    }

    fn begin_content(&mut self, head: &RequestHead) -> bool {
        match ContentDecoder::new(head.framing(), CONTENT_BYTES_MAX, self.limits) {
            Ok(decoder) if decoder.is_complete() => {
                assert!(!head.framing().has_content(), "there is nothing to read");
                self.connection.content_done();
                self.answer()
            }
            Ok(decoder) => {
                assert!(head.framing().has_content(), "there is something to read");
                if self.connection.write_continue(&mut Vec::new()) {
                    self.events.push("continue".into());
                }
                self.turn = Turn::Content(decoder, Vec::new());
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
                self.events.push("keep-alive".into());
                self.turn = Turn::Head;
                true
            }
            Next::Close(reason) => {
                self.events.push(format!("close {reason:?}"));
                false
            }
        }
    }

    fn refuse(&mut self, error: ParseError) {
        self.events.push(format!("refused {} {error:?}", error.status()));
    }

    fn finish(mut self) -> Vec<String> {
        match self.turn {
            Turn::Head if self.unread.is_empty() => {}
            Turn::Head | Turn::Content(..) => self.events.push("waiting".into()),
            Turn::Over => {}
        }
        self.events
    }
}

/// Returns the events of a head, as `tests/corpus/README.md` lists them.
fn head_events(head: &RequestHead) -> Vec<String> {
    let minor_version = if head.version() == Version::Http11 { 1 } else { 0 };
    let mut events =
        shown_head(head.method().as_str(), head.target(), minor_version, head.authority());
    events.extend(
        head.headers().iter().filter_map(|(name, value)| shown_field("field", name, value)),
    );
    match head.framing() {
        Framing::Empty => {}
        Framing::Length(length) => events.push(format!("length {length}")),
        Framing::Chunked => events.push("chunked".into()),
    }
    if let Some(protocol) = head.wants_upgrade() {
        events.push(format!("upgrade {protocol}"));
    }
    events
}
