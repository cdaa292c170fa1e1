//! Each side reads what the other writes: requests and responses with content, at any split.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::time::UNIX_EPOCH;

use filoplume_http1::{
    BodyEncoding, CHUNK_END, ContentDecoder, ContentLength, Date, Framing, Headers, LAST_CHUNK,
    Limits, OutgoingRequest, PeerClosed, ResponseEvent, ResponseReader, ServerConnection,
    encode_chunk_head, parse_request_head,
};
use http::{Method, StatusCode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Fields that neither frame a message nor have an effect on a reader.
fn headers() -> impl Strategy<Value = Headers> {
    let value = vec(prop_oneof![8 => 0x20..0x7f_u8, 1 => 0x80..=0xff_u8, 1 => Just(b'\t')], 0..24);
    vec(("x-[a-zA-Z0-9!#$%&'*+.^_`|~-]{0,12}", value), 0..6).prop_map(|fields| {
        let mut headers = Headers::new();
        for (name, value) in &fields {
            headers.append(name, value).unwrap();
        }
        headers
    })
}

/// Content, and what the writer knows about its length.
fn content() -> impl Strategy<Value = (Vec<u8>, ContentLength)> {
    (vec(any::<u8>(), 0..200), any::<bool>()).prop_map(|(content, is_known)| {
        let length = if is_known {
            ContentLength::Known(content.len() as u64)
        } else {
            ContentLength::Unknown
        };
        (content, length)
    })
}

/// Writes content in the given encoding, in chunks of a few bytes if it is chunked.
fn write(encoding: BodyEncoding, content: &[u8], chunk_len: usize, out: &mut Vec<u8>) {
    match encoding {
        BodyEncoding::None => {}
        BodyEncoding::Length(_) | BodyEncoding::UntilClose => out.extend_from_slice(content),
        BodyEncoding::Chunked => {
            for chunk in content.chunks(chunk_len) {
                encode_chunk_head(chunk.len(), out);
                out.extend_from_slice(chunk);
                out.extend_from_slice(CHUNK_END);
            }
            out.extend_from_slice(LAST_CHUNK);
        }
    }
}

/// The parts of a response that a client has read.
#[derive(Default)]
struct Read {
    /// The statuses, those of interim responses first.
    statuses: Vec<u16>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    content: Vec<u8>,
    /// The meaning of the end of the connection, if the response did not end before.
    end: Option<PeerClosed>,
}

/// Reads a response that arrives in two pieces.
fn read_response(pieces: [&[u8]; 2], method: &Method) -> Read {
    let mut reader = ResponseReader::new();
    let mut read = Read::default();
    let (mut unread, mut has_ended) = (Vec::new(), false);
    for piece in pieces {
        unread.extend_from_slice(piece);
        loop {
            let (used, event) = reader.receive(&unread, method, &Limits::default()).unwrap();
            let waits = event.is_none();
            match event {
                Some(ResponseEvent::Interim(head)) => read.statuses.push(head.status().as_u16()),
                Some(ResponseEvent::Head(head)) => {
                    read.statuses.push(head.status().as_u16());
                    read.fields = head
                        .fields()
                        .map(|(name, value)| (name.to_vec(), value.to_vec()))
                        .collect();
                }
                Some(ResponseEvent::Content(run)) => read.content.extend_from_slice(run),
                Some(ResponseEvent::End) => has_ended = true,
                None => {}
            }
            unread.drain(..used);
            if waits {
                break;
            }
        }
    }
    read.end = (!has_ended).then(|| reader.peer_closed(&unread));
    read
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(600)
    })]

    #[test]
    fn a_server_reads_the_request_that_a_client_writes(
        method in select(vec!["GET", "POST", "PUT", "HEAD", "DELETE", "PROPFIND"]),
        target in "(/[!-~&&[^#\\\\]]{0,40}|https?://[a-z]{1,8}(:[0-9]{1,4})?(/[a-z]{0,4})?)",
        authority in "[a-z]{0,8}|[a-z]{1,4}:[0-9]{1,4}|\\[::[0-9a-f]{1,4}\\]",
        headers in headers(),
        (content, length) in content(),
        closes in any::<bool>(),
        chunk_len in 1..40_usize,
        cut in any::<Index>(),
    ) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = OutgoingRequest {
            method: &method,
            target: &target,
            authority: &authority,
            headers: &headers,
            content: length,
            closes,
        };
        let mut bytes = Vec::new();
        let encoding = request.write_head(&mut bytes).unwrap();
        let head_len = bytes.len();
        write(encoding, &content, chunk_len, &mut bytes);

        // There is no head before its last byte.
        let before = &bytes[..cut.index(head_len)];
        prop_assert!(parse_request_head(before, &Limits::default()).unwrap().is_none());
        let (head, used) = parse_request_head(&bytes, &Limits::default()).unwrap().unwrap();
        prop_assert_eq!(used, head_len);
        prop_assert_eq!(head.method(), &method);
        prop_assert_eq!(head.target(), &target);
        prop_assert_eq!(head.is_persistent(), !closes);
        prop_assert_eq!(head.headers().get("host"), Some(authority.as_bytes()));
        let sent: Vec<(&str, &[u8])> = headers.iter().collect();
        let received: Vec<(&str, &[u8])> =
            head.headers().iter().filter(|(name, _)| name.starts_with("x-")).collect();
        // Whitespace around a value is not part of it.
        prop_assert_eq!(received.len(), sent.len());
        for ((name, value), (sent_name, sent_value)) in received.iter().zip(&sent) {
            prop_assert_eq!(name, sent_name);
            prop_assert_eq!(*value, trimmed(sent_value));
        }
        let expected = match length {
            ContentLength::Known(length) => Framing::Length(length),
            _ => Framing::Chunked,
        };
        prop_assert_eq!(head.framing(), expected);

        let mut decoder = ContentDecoder::new(head.framing(), 1000, &Limits::default()).unwrap();
        let (mut read, mut at) = (Vec::new(), head_len);
        while !decoder.is_complete() {
            let decoded = decoder.decode(&bytes[at..]).unwrap();
            prop_assert!(decoded.consumed > 0);
            read.extend_from_slice(&bytes[at..][decoded.data]);
            at += decoded.consumed;
        }
        prop_assert_eq!(read, content);
        prop_assert_eq!(at, bytes.len());
    }

    #[test]
    fn a_client_reads_the_response_that_a_server_writes(
        method in select(vec!["GET", "POST", "HEAD"]),
        version in select(vec!["1.1", "1.0"]),
        has_interim in any::<bool>(),
        status in select(vec![200_u16, 201, 204, 205, 206, 304, 404, 413, 500, 599]),
        headers in headers(),
        (content, length) in content(),
        chunk_len in 1..40_usize,
        cut in any::<Index>(),
    ) {
        let mut connection = ServerConnection::new();
        let request = format!("{method} / HTTP/{version}\r\nHost: h\r\n\r\n");
        connection.read_head(request.as_bytes(), &Limits::default()).unwrap().unwrap();
        let date = Date::new(UNIX_EPOCH);
        let mut bytes = Vec::new();
        if has_interim {
            let none = ContentLength::None;
            connection.write_head(StatusCode::EARLY_HINTS, &headers, none, &date, &mut bytes);
        }
        let final_status = StatusCode::from_u16(status).unwrap();
        let encoding = connection.write_head(final_status, &headers, length, &date, &mut bytes);
        write(encoding, &content, chunk_len, &mut bytes);

        let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let read = read_response([first, second], &method);
        // HTTP/1.0 has no interim responses.
        let interim = (has_interim && version == "1.1").then_some(103);
        let expected: Vec<u16> = interim.into_iter().chain([status]).collect();
        prop_assert_eq!(read.statuses, expected);
        prop_assert_eq!(read.fields.iter().filter(|(name, _)| name == b"date").count(), 1);
        let is_extension = |field: &&(Vec<u8>, Vec<u8>)| field.0.starts_with(b"x-");
        let received: Vec<_> = read.fields.iter().filter(is_extension).collect();
        prop_assert_eq!(received.len(), headers.len());
        for ((name, value), (sent_name, sent_value)) in received.into_iter().zip(headers.iter()) {
            prop_assert_eq!(name.as_slice(), sent_name.as_bytes());
            prop_assert_eq!(value.as_slice(), trimmed(sent_value));
        }
        let has_content = method != Method::HEAD && ![204, 205, 304].contains(&status);
        prop_assert_eq!(read.content, if has_content { content } else { Vec::new() });
        let is_until_close = encoding == BodyEncoding::UntilClose;
        prop_assert_eq!(read.end, is_until_close.then_some(PeerClosed::Ended));
    }
}

fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}
