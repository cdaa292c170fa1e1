//! In the steady state, a request and its response need no heap allocation.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::time::UNIX_EPOCH;

use filoplume_http1::{
    ContentLength, Date, Headers, Limits, Next, ResponseEvent, ResponseReader, ServerConnection,
};
use http::{Method, StatusCode};

const REQUEST: &[u8] = b"GET /plaintext?a=b HTTP/1.1\r\nHost: localhost:8080\r\n\
      User-Agent: test\r\nAccept: */*\r\n\r\n";

fn exchange(connection: &mut ServerConnection, limits: &Limits, date: &Date, out: &mut Vec<u8>) {
    let (head, used) = connection.read_head(REQUEST, limits).unwrap().unwrap();
    assert_eq!(used, REQUEST.len());
    assert_eq!(head.path(), "/plaintext");
    let mut headers = Headers::new();
    headers.append("content-type", "text/plain").unwrap();
    headers.append("server", "filoplume").unwrap();
    connection.write_head(StatusCode::OK, &headers, ContentLength::Known(13), date, out);
    out.extend_from_slice(b"Hello, world!");
    connection.write_done();
    assert_eq!(connection.next(), Some(Next::KeepAlive));
}

#[test]
fn a_request_and_its_response_do_not_allocate() {
    let limits = Limits::default();
    let date = Date::new(UNIX_EPOCH);
    let mut connection = ServerConnection::new();
    let mut out = Vec::with_capacity(4096);
    exchange(&mut connection, &limits, &date, &mut out);
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            out.clear();
            exchange(&mut connection, &limits, &date, &mut out);
        }
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn the_state_of_an_idle_connection_is_small() {
    assert!(size_of::<ServerConnection>() <= 16, "{}", size_of::<ServerConnection>());
    assert_eq!(size_of::<Headers>(), 2 * size_of::<usize>());
}

/// One response for each framing that keeps the connection open.
const RESPONSES: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: x\r\n\
      Content-Length: 13\r\n\r\nHello, world!",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n0\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\n\r\n",
];

fn read_responses(reader: &mut ResponseReader, limits: &Limits) -> usize {
    let mut ended = 0;
    for response in RESPONSES {
        let mut unread = *response;
        loop {
            let (used, event) = reader.receive(unread, &Method::GET, limits).unwrap();
            unread = &unread[used..];
            match event {
                Some(ResponseEvent::End) => break ended += 1,
                Some(_) => {}
                None => panic!("the response is complete"),
            }
        }
    }
    ended
}

#[test]
fn reading_a_response_does_not_allocate() {
    let limits = Limits::default();
    let mut reader = ResponseReader::new();
    read_responses(&mut reader, &limits);
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            assert_eq!(read_responses(&mut reader, &limits), RESPONSES.len());
        }
    });
    assert_eq!(counted.count_total, 0);
}
