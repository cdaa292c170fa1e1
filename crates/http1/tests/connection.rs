//! The state of a connection: between messages, within one, or at its end.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::time::UNIX_EPOCH;

use filoplume_http1::{
    CloseReason, ContentLength, Date, Headers, Limits, Next, ParseError, ServerConnection,
};
use http::StatusCode;

use ContentLength::Known;

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n";

fn date() -> Date {
    Date::new(UNIX_EPOCH)
}

fn announces_close(out: &[u8]) -> bool {
    std::str::from_utf8(out).unwrap().contains("\r\nconnection: close\r\n")
}

#[test]
fn unread_content_closes_the_connection() {
    let mut connection = ServerConnection::new();
    connection.read_head(POST.as_bytes(), &Limits::default()).unwrap().unwrap();
    connection.content_abandoned();
    let mut out = Vec::new();
    connection.write_head(StatusCode::OK, &Headers::new(), Known(0), &date(), &mut out);
    connection.write_done();
    assert!(announces_close(&out));
    assert_eq!(connection.next(), Some(Next::Close(CloseReason::ContentUnread)));
    assert!(connection.read_head(GET.as_bytes(), &Limits::default()).unwrap().is_none());
}

#[test]
fn refused_content_closes_the_connection() {
    let limits = Limits::default();
    let refused = CloseReason::Refused(ParseError::ChunkSizeInvalid);
    let mut connection = ServerConnection::new();
    connection.read_head(POST.as_bytes(), &limits).unwrap().unwrap();
    connection.content_refused(ParseError::ChunkSizeInvalid);
    assert_eq!(connection.will_close(), Some(refused));
    assert_eq!(
        connection.read_head(GET.as_bytes(), &limits).unwrap_err(),
        ParseError::ChunkSizeInvalid
    );
    let mut out = Vec::new();
    connection.write_head(StatusCode::BAD_REQUEST, &Headers::new(), Known(0), &date(), &mut out);
    connection.write_done();
    assert!(announces_close(&out));
    assert_eq!(connection.next(), Some(Next::Close(refused)));
}

#[test]
fn content_that_was_read_cannot_be_refused_or_abandoned() {
    let mut connection = ServerConnection::new();
    connection.read_head(POST.as_bytes(), &Limits::default()).unwrap().unwrap();
    connection.content_done();
    connection.content_refused(ParseError::ChunkSizeInvalid);
    connection.content_abandoned();
    assert_eq!(connection.will_close(), None);
    connection.write_head(StatusCode::OK, &Headers::new(), Known(0), &date(), &mut Vec::new());
    connection.write_done();
    assert_eq!(connection.next(), Some(Next::KeepAlive));
}

/// A server that sends `close` must not process bytes after the last request (RFC 9112 section
/// 9.6).
#[test]
fn no_request_is_read_after_a_close_was_decided() {
    let mut connection = ServerConnection::new();
    connection.close(CloseReason::Shutdown);
    assert!(connection.read_head(GET.as_bytes(), &Limits::default()).unwrap().is_none());
    assert!(connection.is_between_messages());
}

#[test]
fn the_next_request_waits_until_both_halves_are_complete() {
    let limits = Limits::default();
    let mut connection = ServerConnection::new();
    connection.read_head(POST.as_bytes(), &limits).unwrap().unwrap();
    connection.write_head(StatusCode::OK, &Headers::new(), Known(0), &date(), &mut Vec::new());
    connection.write_done();
    assert_eq!(connection.next(), None, "the content was not read");
    assert!(connection.read_head(GET.as_bytes(), &limits).unwrap().is_none());
    connection.content_done();
    assert_eq!(connection.next(), Some(Next::KeepAlive));
    assert!(connection.is_between_messages());
    assert!(connection.read_head(GET.as_bytes(), &limits).unwrap().is_some());
    assert_eq!(connection.next(), None, "nothing was written");
}

#[test]
fn a_request_is_in_progress_from_its_head_to_the_end_of_its_response() {
    let mut connection = ServerConnection::new();
    let told = |connection: &ServerConnection| {
        (
            connection.is_between_messages(),
            connection.has_written_head(),
            connection.reading_is_complete(),
        )
    };
    let write = |connection: &mut ServerConnection, status: StatusCode| {
        connection.write_head(status, &Headers::new(), Known(1), &date(), &mut Vec::new());
    };
    assert_eq!(told(&connection), (true, false, false));
    connection.read_head(POST.as_bytes(), &Limits::default()).unwrap().unwrap();
    assert_eq!(told(&connection), (false, false, false));
    write(&mut connection, StatusCode::EARLY_HINTS);
    assert_eq!(told(&connection), (false, false, false), "an interim head is not a final one");
    write(&mut connection, StatusCode::OK);
    assert_eq!(told(&connection), (false, true, false));
    connection.content_done();
    assert_eq!(told(&connection), (false, true, true));
    connection.write_done();
    assert_eq!(told(&connection), (false, true, true), "`next` was not called");
    connection.next().unwrap();
    assert_eq!(told(&connection), (true, false, false));
    write(&mut connection, StatusCode::REQUEST_TIMEOUT);
    assert_eq!(told(&connection), (false, true, false), "a response may precede the request");
}

#[test]
fn a_refusal_is_permanent() {
    let limits = Limits::default();
    let mut connection = ServerConnection::new();
    assert_eq!(
        connection.read_head(b"GET\r\n", &limits).unwrap_err(),
        ParseError::RequestLineInvalid
    );
    assert_eq!(
        connection.read_head(GET.as_bytes(), &limits).unwrap_err(),
        ParseError::RequestLineInvalid
    );
    let mut out = Vec::new();
    connection.write_head(StatusCode::BAD_REQUEST, &Headers::new(), Known(0), &date(), &mut out);
    connection.write_done();
    assert!(announces_close(&out));
    let refused = CloseReason::Refused(ParseError::RequestLineInvalid);
    assert_eq!(connection.next(), Some(Next::Close(refused)));
}

#[test]
fn the_first_reason_to_close_is_kept() {
    let mut connection = ServerConnection::new();
    connection.close(CloseReason::Shutdown);
    connection.close(CloseReason::Error);
    assert_eq!(connection.will_close(), Some(CloseReason::Shutdown));
}
