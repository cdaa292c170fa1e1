//! Properties: no input causes a panic, no split changes the result, and all output can be read.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

mod driver;

use std::time::UNIX_EPOCH;

use driver::events;
use filoplume_http1::{
    CHUNK_END, ContentDecoder, ContentLength, Date, Framing, Headers, Limits, ServerConnection,
    encode_chunk_head, encode_last_chunk, parse_request_head,
};
use http::StatusCode;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Valid and invalid pieces of requests. Random bytes alone would never get past the method.
const PIECES: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\n",
    b"POST /a?b HTTP/1.1\r\n",
    b"HEAD http://h/ HTTP/1.0\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"CONNECT h:1 HTTP/1.1\r\n",
    b"GET / HTTP/2.0\r\n",
    b"GET / ",
    b"Host: h\r\n",
    b"Host: [::1]:80\r\n",
    b"Host:\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive, upgrade\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: x\r\n",
    b"A: b\r\n",
    b"A:",
    b" ",
    b"\t",
    b":",
    b"\r\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b"\0",
    b"\xff",
    b"abc",
    b"3\r\nabc\r\n",
    b"3;a=\"b\"\r\nabc\r\n",
    b"0\r\n\r\n",
    b"0\r\nA: b\r\n\r\n",
    b"0\r\nHost: b\r\n\r\n",
    b"ffffffffffffffff\r\n",
];

/// Mostly complete requests, with something unusual between some of them.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => select(PIECES).prop_map(<[u8]>::to_vec),
        4 => select(vec![
            &b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..],
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        ]).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..4),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Splits bytes at random positions.
fn cut<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut from = 0;
    for place in places {
        pieces.push(&bytes[from..place]);
        from = place;
    }
    pieces.push(&bytes[from..]);
    pieces
}

fn decode(pieces: &[&[u8]], framing: Framing) -> (Vec<u8>, Headers, usize) {
    let mut decoder = ContentDecoder::new(framing, u64::MAX, &Limits::default()).unwrap();
    let (mut content, mut unread, mut consumed) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        unread.extend_from_slice(piece);
        while !decoder.is_complete() && !unread.is_empty() {
            let decoded = decoder.decode(&unread).unwrap();
            assert!(decoded.consumed > 0);
            content.extend_from_slice(&unread[decoded.data]);
            unread.drain(..decoded.consumed);
            consumed += decoded.consumed;
        }
    }
    assert!(decoder.is_complete());
    (content, decoder.take_trailers().unwrap_or_default(), consumed)
}

fn field() -> impl Strategy<Value = (String, Vec<u8>)> {
    ("x-[a-zA-Z0-9!#$%&'*+.^_`|~-]{0,12}", vec(any::<u8>(), 0..24))
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    })]

    #[test]
    fn no_split_changes_the_events(bytes in stream(), cuts in vec(any::<Index>(), 0..6)) {
        let limits = Limits {
            head_bytes_max: 128,
            trailer_bytes_max: 32,
            fields_max: 6,
            ..Limits::default()
        };
        prop_assert_eq!(events(&cut(&bytes, &cuts), &limits), events(&[&bytes], &limits));
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        events(&[&bytes], &Limits::default());
    }

    #[test]
    fn a_changed_byte_gives_the_same_events_at_every_split(
        at in any::<Index>(),
        byte in any::<u8>(),
        place in any::<Index>(),
    ) {
        let mut bytes = b"POST http://h:80/a?b HTTP/1.1\r\nHost: [::1]:80\r\n\
            Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n\
            3;a=\"b\"\r\nabc\r\n0\r\nA: b\r\n\r\n\
            GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let limits = Limits::default();
        prop_assert_eq!(events(&cut(&bytes, &[place]), &limits), events(&[&bytes], &limits));
    }

    #[test]
    fn chunks_that_were_written_are_read(
        chunks in vec(vec(any::<u8>(), 0..300), 0..8),
        trailers in vec(field(), 0..4),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let mut written = Vec::new();
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            encode_chunk_head(chunk.len(), &mut written);
            written.extend_from_slice(chunk);
            written.extend_from_slice(CHUNK_END);
        }
        let mut sent = Headers::new();
        for (name, value) in &trailers {
            let _ = sent.append(name, value);
        }
        encode_last_chunk(&sent, &mut written);
        let len = written.len();
        written.extend_from_slice(b"GET / HTTP/1.1");
        let (content, received, consumed) = decode(&cut(&written, &cuts), Framing::Chunked);
        prop_assert_eq!(content, chunks.concat());
        prop_assert_eq!(received, sent);
        prop_assert_eq!(consumed, len);
    }

    #[test]
    fn content_with_a_length_is_read_to_its_end(
        content in vec(any::<u8>(), 0..300),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let bytes = [content.as_slice(), b"more"].concat();
        let framing = Framing::Length(content.len() as u64);
        let (read, _, consumed) = decode(&cut(&bytes, &cuts), framing);
        prop_assert_eq!(consumed, content.len());
        prop_assert_eq!(read, content);
    }

    #[test]
    fn fields_that_were_written_are_read(
        fields in vec(field(), 0..8),
        target in "/[!-~&&[^#\\\\]]{0,40}",
    ) {
        let mut headers = Headers::new();
        for (name, value) in &fields {
            let is_legal =
                value.iter().all(|&byte| byte == b'\t' || (byte >= 0x20 && byte != 0x7f));
            prop_assert_eq!(headers.append(name, value).is_ok(), is_legal);
        }
        let mut connection = ServerConnection::new();
        let request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        connection.read_head(request, &Limits::default()).unwrap().unwrap();
        let mut out = Vec::new();
        let (length, date) = (ContentLength::Known(0), Date::new(UNIX_EPOCH));
        connection.write_head(StatusCode::OK, &headers, length, &date, &mut out);
        let response = String::from_utf8_lossy(&out);
        let lines = response.matches("\r\n").count();
        prop_assert_eq!(lines, headers.len() + 4, "no value added a line");

        // The same lines after a request line are the same fields.
        let lines = out.split_inclusive(|&byte| byte == b'\n').skip(1).collect::<Vec<_>>().concat();
        let request = [format!("GET {target} HTTP/1.0\r\n").as_bytes(), &lines].concat();
        let (head, used) = parse_request_head(&request, &Limits::default()).unwrap().unwrap();
        prop_assert_eq!(used, request.len());
        prop_assert_eq!(head.target(), target);
        let mut received = head.headers().clone();
        prop_assert!(received.remove("date") && received.remove("content-length"));
        prop_assert_eq!(received, headers);
    }
}
