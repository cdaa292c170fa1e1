//! The responses that a client reads, at every split of the bytes.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]
#![allow(clippy::needless_pass_by_value, reason = "test rows are easier to read with values")]

use std::fmt::Write;

use expect_test::{Expect, expect};
use filoplume_http1::{
    Limits, ParseError, PeerClosed, ResponseEvent, ResponseFraming, ResponseReader,
    parse_response_head,
};
use http::Method;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Checks that the same bytes give the same events at every split. The connection ends after them.
#[track_caller]
fn check(input: impl AsRef<[u8]>, expected: Expect) {
    check_response(&Method::GET, input.as_ref(), expected);
}

#[track_caller]
fn check_response(method: &Method, input: &[u8], expected: Expect) {
    expected.assert_eq(&at_every_cut(method, input));
}

#[track_caller]
fn at_every_cut(method: &Method, input: &[u8]) -> String {
    let whole = events(method, &[input], &Limits::default());
    for cut in 1..input.len() {
        let (first, second) = input.split_at(cut);
        assert_eq!(events(method, &[first, second], &Limits::default()), whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(events(method, &bytes, &Limits::default()), whole, "cut everywhere");
    whole
}

/// Returns the events of a reader for pieces that arrive one after the other.
fn events(method: &Method, pieces: &[&[u8]], limits: &Limits) -> String {
    let mut reader = ResponseReader::new();
    let mut unread = Vec::new();
    let mut log = String::new();
    let mut content = String::new();
    for piece in pieces {
        unread.extend_from_slice(piece);
        loop {
            let (used, event) = match reader.receive(&unread, method, limits) {
                Ok(received) => received,
                Err(error) => {
                    assert_eq!(
                        reader.receive(b"HTTP/1.1 200 OK\r\n\r\n", method, limits).unwrap_err(),
                        error
                    );
                    assert!(!reader.is_persistent(), "no response may follow a refused one");
                    // The amount of content before an error depends on the split.
                    write!(log, "refused {error:?}").unwrap();
                    return log;
                }
            };
            let waits = event.is_none();
            match event {
                Some(ResponseEvent::Interim(head)) => {
                    write!(log, "{} interim; ", head.status().as_u16()).unwrap();
                }
                Some(ResponseEvent::Head(head)) => {
                    let stays = if head.is_persistent() { "stays" } else { "closes" };
                    write!(log, "{} {:?} {stays}; ", head.status().as_u16(), head.framing())
                        .unwrap();
                }
                Some(ResponseEvent::Content(run)) => {
                    assert!(!run.is_empty());
                    write!(content, "{}", run.escape_ascii()).unwrap();
                }
                Some(ResponseEvent::End) => {
                    assert!(!reader.is_within_response());
                    write!(log, "\"{content}\" end; ").unwrap();
                    content.clear();
                }
                None => {}
            }
            unread.drain(..used);
            if waits {
                break;
            }
        }
    }
    match reader.peer_closed(&unread) {
        PeerClosed::BetweenResponses => log.push_str("closed"),
        PeerClosed::Ended => write!(log, "\"{content}\" ended by the close").unwrap(),
        PeerClosed::Truncated => log.push_str("truncated"),
    }
    log
}

#[test]
fn a_length_ends_a_response() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 404 Not Found\r\ncontent-length: \
         0\r\n\r\n",
        expect![[r#"200 Length(3) stays; "abc" end; 404 Length(0) stays; "" end; closed"#]],
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
        expect!["200 Length(4) stays; truncated"],
    );
}

#[test]
fn chunks_end_a_response() {
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: \
         chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n",
        expect![[r#"200 Chunked stays; "abcde" end; truncated"#]],
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nDigest: x\r\n\r\n",
        expect![[r#"200 Chunked stays; "" end; closed"#]],
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        expect!["200 Chunked stays; truncated"],
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd",
        expect!["200 Chunked stays; refused ChunkEndInvalid"],
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\rx",
        expect!["200 Chunked stays; refused TrailerInvalid"],
    );
}

#[test]
fn the_close_ends_a_response_without_framing_fields() {
    check(
        "HTTP/1.1 200 OK\r\n\r\nabc\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        expect![[
            r#"200 UntilClose closes; "abc\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" ended by the close"#
        ]],
    );
    check("HTTP/1.0 200 OK\r\n\r\n", expect![[r#"200 UntilClose closes; "" ended by the close"#]]);
}

#[test]
fn some_responses_have_no_content_whatever_their_fields_say() {
    let length = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    check_response(&Method::HEAD, length, expect![[r#"200 Empty stays; "" end; closed"#]]);
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check_response(&Method::HEAD, chunked, expect![[r#"200 Empty stays; "" end; closed"#]]);
    check(
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        expect![[r#"204 Empty stays; "" end; closed"#]],
    );
    check(
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        expect![[r#"304 Empty stays; "" end; 204 Empty stays; "" end; closed"#]],
    );
}

/// A repeated head is found in the cache, but its meaning depends on the method and the limits.
#[test]
fn the_meaning_of_a_repeated_head_depends_on_method_and_limits() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 3\r\n\r\n";
    let mut reader = ResponseReader::new();
    let strict = Limits { fields_max: 1, ..Limits::default() };
    let framing = |reader: &mut ResponseReader, method: &Method, input: &[u8]| {
        let (used, event) = reader.receive(input, method, &Limits::default()).unwrap();
        let Some(ResponseEvent::Head(head)) = event else { panic!("{event:?}") };
        assert_eq!((used, head.field("a")), (HEAD.len(), Some(b"b".as_slice())));
        let framing = head.framing();
        while !matches!(
            reader.receive(b"abc", method, &Limits::default()).unwrap().1,
            Some(ResponseEvent::End)
        ) {}
        framing
    };
    for _ in 0..3 {
        assert_eq!(framing(&mut reader, &Method::GET, HEAD), ResponseFraming::Length(3));
        assert_eq!(
            framing(&mut reader, &Method::GET, &[HEAD, b"abc"].concat()),
            ResponseFraming::Length(3)
        );
        assert_eq!(framing(&mut reader, &Method::HEAD, HEAD), ResponseFraming::Empty);
    }
    reader.restart();
    assert_eq!(framing(&mut reader, &Method::GET, HEAD), ResponseFraming::Length(3));
    assert_eq!(reader.receive(HEAD, &Method::GET, &strict).unwrap_err(), ParseError::TooManyFields);
    reader.restart();
    let other = [&HEAD[..HEAD.len() - 5], b"4\r\n\r\n"].concat();
    assert_eq!(framing(&mut reader, &Method::GET, HEAD), ResponseFraming::Length(3));
    assert_eq!(framing(&mut reader, &Method::CONNECT, HEAD), ResponseFraming::HandedOver);
    reader.restart();
    let (_, event) = reader.receive(&other, &Method::GET, &Limits::default()).unwrap();
    assert!(matches!(
        event,
        Some(ResponseEvent::Head(head)) if head.framing() == ResponseFraming::Length(4)
    ));
}

/// A reader pauses its cache when every head is different, and resumes later.
#[test]
fn the_meaning_of_a_head_does_not_depend_on_earlier_heads() {
    let mut reader = ResponseReader::new();
    // Runs of equal heads and of different heads, of many lengths.
    let lengths =
        (0..24).flat_map(|run| (0..run * run).map(move |at| if run % 2 == 0 { run } else { at }));
    for length in lengths {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let (used, event) =
            reader.receive(head.as_bytes(), &Method::GET, &Limits::default()).unwrap();
        let Some(ResponseEvent::Head(found)) = event else { panic!("{event:?}") };
        assert_eq!((used, found.framing()), (head.len(), ResponseFraming::Length(length)));
        assert_eq!(found.field("content-length"), Some(length.to_string().as_bytes()));
        while !matches!(
            reader.receive(&[b'x'; 600], &Method::GET, &Limits::default()).unwrap().1,
            Some(ResponseEvent::End)
        ) {}
    }
}

#[test]
fn interim_responses_come_before_the_final_one() {
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 \
         OK\r\nContent-Length: 1\r\n\r\na",
        expect![[r#"100 interim; 103 interim; 200 Length(1) stays; "a" end; closed"#]],
    );
}

#[test]
fn another_protocol_begins_after_101_and_after_connect() {
    check(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        expect![[r#"101 HandedOver closes; "" end; closed"#]],
    );
    let tunnel = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcdef";
    check_response(
        &Method::CONNECT,
        tunnel,
        expect![[r#"200 HandedOver closes; "" end; truncated"#]],
    );
    let refused = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
    check_response(
        &Method::CONNECT,
        refused,
        expect![[r#"403 Length(2) stays; "no" end; closed"#]],
    );
}

#[test]
fn persistence_follows_version_and_options() {
    check(
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        expect![[r#"200 Length(0) closes; "" end; closed"#]],
    );
    check(
        "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n",
        expect![[r#"200 Length(0) stays; "" end; closed"#]],
    );
    check(
        "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 \
         OK\r\n\r\n",
        expect![[r#"200 Length(0) closes; "" end; truncated"#]],
    );
}

/// A client may send another request when the response is complete, and only if the connection
/// stays open (RFC 9112 section 9.3).
#[test]
fn a_reader_knows_whether_a_response_is_complete_and_another_may_follow() {
    let limits = Limits::default();
    for (fields, stays) in [("", true), ("Connection: close\r\n", false)] {
        let input = format!(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n{fields}Content-Length: 1\r\n\r\na"
        );
        let (mut reader, mut unread) = (ResponseReader::new(), input.as_bytes());
        let mut told = vec![(reader.is_within_response(), reader.is_persistent())];
        // The interim head, the final one, the content and the end.
        for _ in 0..4 {
            let (used, event) = reader.receive(unread, &Method::GET, &limits).unwrap();
            assert!(event.is_some());
            unread = &unread[used..];
            told.push((reader.is_within_response(), reader.is_persistent()));
        }
        assert_eq!(
            told,
            [(false, true), (false, true), (true, stays), (true, stays), (false, stays)]
        );
        assert!(unread.is_empty());
        reader.restart();
        assert!(reader.is_persistent(), "the connection is a new one");
    }
}

#[test]
fn a_status_line_has_one_form() {
    check(
        "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
        expect![[r#"200 Length(0) stays; "" end; closed"#]],
    );
    check(
        "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
        expect![[r#"200 Length(0) stays; "" end; closed"#]],
    );
    check(
        "HTTP/1.1 299 Caf\u{e9}\r\nContent-Length: 0\r\n\r\n",
        expect![[r#"299 Length(0) stays; "" end; closed"#]],
    );
    check(
        "HTTP/1.1 999 x\r\nContent-Length: 0\r\n\r\n",
        expect![[r#"999 Length(0) stays; "" end; closed"#]],
    );
    for line in [
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 +20 OK\r\n\r\n",
        "HTTP/1.1 200 \0\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\u{15}\u{3}\u{1}",
    ] {
        let seen = at_every_cut(&Method::GET, line.as_bytes());
        assert_eq!(seen, "refused StatusLineInvalid", "{line:?}");
    }
}

#[test]
fn a_response_with_two_framings_is_refused() {
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
    check(
        head("Content-Length: 3\r\nTransfer-Encoding: chunked"),
        expect!["refused AmbiguousLength"],
    );
    check(head("Content-Length: 3\r\nContent-Length: 3"), expect!["refused LengthRepeated"]);
    for length in ["+5", "-1", "0x5", "5,5", "5 5", "", "18446744073709551616"] {
        check(head(&format!("Content-Length: {length}")), expect!["refused LengthInvalid"]);
    }
    check(head("Transfer-Encoding: gzip, chunked"), expect!["refused CodingUnsupported"]);
    check(head("Transfer-Encoding: chunked, gzip"), expect!["refused CodingInvalid"]);
    check(
        head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        expect!["refused CodingInvalid"],
    );
    check(
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        expect!["refused CodingInHttp10"],
    );
}

#[test]
fn fields_are_as_strict_as_those_of_requests() {
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
    check(head("A : b"), expect!["refused FieldNameInvalid"]);
    check(head(": b"), expect!["refused FieldNameInvalid"]);
    check(head("A: b\0"), expect!["refused FieldValueInvalid"]);
    check(head("A: b\r\n c"), expect!["refused FieldNameInvalid"]);
    check("HTTP/1.1 200 OK\nA: b\r\n\r\n", expect!["refused LineEndInvalid"]);
    check("HTTP/1.1 200 OK\r\nA: b\n\r\n", expect!["refused LineEndInvalid"]);
    check("HTTP/1.1 200 OK\r\nA: b\r\n\n", expect!["refused LineEndInvalid"]);
}

#[test]
fn heads_have_limits() {
    let limits = Limits { head_bytes_max: 64, fields_max: 2, ..Limits::default() };
    let refusal =
        |input: &str| parse_response_head(input.as_bytes(), &Method::GET, &limits).unwrap_err();
    let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(64));
    assert_eq!(refusal(&long), ParseError::HeadTooLong);
    assert_eq!(
        refusal("HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\nE: f\r\n\r\n"),
        ParseError::TooManyFields
    );
    let many = format!("HTTP/1.1 204 x\r\n{}\r\n", "a:b\r\n".repeat(100));
    check(many, expect![[r#"204 Empty stays; "" end; closed"#]]);
}

#[test]
fn fields_are_found_by_name_and_in_order() {
    let input =
        b"HTTP/1.1 200 OK\r\nServer:  x y \r\nset-cookie: a\r\nSet-Cookie:b\r\nEmpty:\r\n\r\n";
    let (head, used) =
        parse_response_head(input, &Method::GET, &Limits::default()).unwrap().unwrap();
    assert_eq!(used, input.len());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields: Vec<_> =
        head.fields().map(|(name, value)| text(name) + "=" + &text(value)).collect();
    assert_eq!(fields, ["Server=x y", "set-cookie=a", "Set-Cookie=b", "Empty="]);
    assert_eq!(head.field("SERVER"), Some(b"x y".as_slice()));
    assert_eq!(head.field("absent"), None);
}

/// Valid and invalid pieces of responses.
const PIECES: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n",
    b"Content-Length: 3\r\n\r\nabc",
    b"Content-Length: 0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"Connection: close\r\n",
    b"A: b\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"0\r\nA: b\r\n\r\n",
    b"\r\n\r\n",
    b"\r\n",
    b"\r",
    b"\n",
    b"\0",
    b"\xff",
    b"HTTP/",
];

proptest! {
    #[test]
    fn no_split_changes_the_events(pieces in vec(select(PIECES), 1..12), head in any::<bool>()) {
        let method = if head { Method::HEAD } else { Method::GET };
        at_every_cut(&method, &pieces.concat());
    }

    #[test]
    fn nothing_panics(bytes in vec(any::<u8>(), 0..64)) {
        at_every_cut(&Method::GET, &bytes);
        at_every_cut(&Method::GET, &[b"HTTP/1.1 200 OK\r\n", bytes.as_slice()].concat());
    }
}

#[test]
fn a_205_ends_as_its_fields_say() {
    check(
        "HTTP/1.1 205 Reset Content\r\nContent-Length: 1\r\n\r\na",
        expect![[r#"205 Length(1) stays; "a" end; closed"#]],
    );
}
