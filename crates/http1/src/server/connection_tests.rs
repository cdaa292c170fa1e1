//! The common path and the cold path give the same result, for the head of a request and for that
//! of a response.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use super::*;

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n";

/// Reads a head with `read_head`, and with `read_head_if_plain` followed by `read_head_cold`, on
/// connections in the state that `prepare` creates. Returns whether `read_head_if_plain` accepted
/// the head.
fn read_both_ways(input: &[u8], prepare: impl Fn(&mut ServerConnection)) -> bool {
    let limits = Limits::default();
    let (mut plain, mut any) = (ServerConnection::new(), ServerConnection::new());
    prepare(&mut plain);
    prepare(&mut any);
    let before = format!("{plain:?}");
    let expected = any.read_head(input, &limits);
    match plain.read_head_if_plain(input, &limits) {
        None => {
            assert_eq!(
                format!("{plain:?}"),
                before,
                "a parser that returns `None` changes nothing"
            );
            let other = plain.read_head_cold(input, &limits);
            assert_eq!(format!("{other:?}"), format!("{expected:?}"));
            assert_eq!(format!("{plain:?}"), format!("{any:?}"));
            false
        }
        Some((head, used)) => {
            let (expected, expected_used) = expected.unwrap().unwrap();
            assert_eq!((format!("{head:?}"), used), (format!("{expected:?}"), expected_used));
            assert_eq!(format!("{plain:?}"), format!("{any:?}"));
            true
        }
    }
}

#[test]
fn a_plain_head_is_read_as_any_other() {
    let closes = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let head_only = "HEAD /a?b HTTP/1.1\r\nHost: h\r\n\r\n";
    for plain in [GET, POST, closes, head_only] {
        let followed = format!("{plain}and what follows");
        assert!(read_both_ways(followed.as_bytes(), |_| {}), "{plain}");
        for cut in 0..plain.len() {
            assert!(!read_both_ways(&plain.as_bytes()[..cut], |_| {}), "{plain} cut at {cut}");
        }
    }
    for other in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "nonsense",
    ] {
        assert!(!read_both_ways(other.as_bytes(), |_| {}), "{other}");
    }
}

#[test]
fn a_head_in_pieces_is_read_once_it_is_whole() {
    let limits = Limits::default();
    for head in [GET, POST] {
        for cut in 1..head.len() {
            let mut connection = ServerConnection::new();
            let part = &head.as_bytes()[..cut];
            assert!(connection.read_head(part, &limits).unwrap().is_none());
            assert!(connection.is_between_messages(), "{head} cut at {cut}");
            assert_eq!(
                connection.read_head(head.as_bytes(), &limits).unwrap().unwrap().1,
                head.len()
            );
            assert!(!connection.is_between_messages());
        }
        let mut connection = ServerConnection::new();
        for end in 0..head.len() {
            assert!(connection.read_head(&head.as_bytes()[..end], &limits).unwrap().is_none());
        }
        assert!(connection.read_head(head.as_bytes(), &limits).unwrap().is_some());
    }
}

#[test]
fn without_input_the_next_head_is_expected_as_before() {
    let mut connection = ServerConnection::new();
    assert!(connection.read_head(b"", &Limits::default()).unwrap().is_none());
    assert_eq!(connection.reading, Reading::Head);
}

#[test]
fn a_head_in_many_pieces_is_one_partial_head() {
    let mut connection = ServerConnection::new();
    for end in 1..GET.len() {
        let input = &GET.as_bytes()[..end];
        assert!(connection.read_head(input, &Limits::default()).unwrap().is_none());
        let Reading::PartialHead(partial) = connection.reading else { panic!("{connection:?}") };
        // The attempts of before are remembered, or a slow head would be parsed for each byte.
        let fresh = PartialHead::new(input);
        assert_eq!(partial == fresh, end == 1, "after {end} bytes");
    }
}

#[test]
fn no_plain_head_is_read_when_a_head_may_not_come() {
    let limits = Limits::default();
    assert!(!read_both_ways(GET.as_bytes(), |connection| connection.close(CloseReason::Shutdown)));
    assert!(!read_both_ways(GET.as_bytes(), |connection| {
        connection.read_head(POST.as_bytes(), &limits).unwrap().unwrap();
    }));
    assert!(!read_both_ways(GET.as_bytes(), |connection| {
        connection.read_head(GET.as_bytes(), &limits).unwrap().unwrap();
    }));
    assert!(!read_both_ways(GET.as_bytes(), |connection| {
        connection.read_head(b"nonsense\r\n\r\n", &limits).unwrap_err();
    }));
}

/// Writes the response head of one exchange with the common path and with the cold path.
fn heads(
    request: &str,
    close: bool,
    headers: &Headers,
    length: u64,
) -> [(BodyEncoding, String); 2] {
    let date = Date::new(std::time::UNIX_EPOCH);
    let written = |is_cold: bool| {
        let mut connection = ServerConnection::new();
        connection.read_head(request.as_bytes(), &Limits::default()).unwrap().unwrap();
        if close {
            connection.close(CloseReason::Shutdown);
        }
        let (content, mut out) = (ContentLength::Known(length), Vec::new());
        let encoding = if is_cold {
            connection.write_head_cold(StatusCode::OK, headers, content, &date, &mut out)
        } else {
            connection.write_head(StatusCode::OK, headers, content, &date, &mut out)
        };
        connection.write_done();
        assert_eq!(connection.writing, Writing::Complete);
        (encoding, String::from_utf8(out).unwrap())
    };
    [written(false), written(true)]
}

#[test]
fn the_common_path_and_the_cold_path_write_the_same_head() {
    let mut some = Headers::new();
    some.append("content-type", "text/plain").unwrap();
    some.append("x", "y").unwrap();
    let mut deciding = some.clone();
    deciding.append("connection", "close").unwrap();
    deciding.append("date", "today").unwrap();
    for method in ["GET", "HEAD", "CONNECT"] {
        for fields in ["HTTP/1.1\r\n", "HTTP/1.0\r\n", "HTTP/1.0\r\nConnection: keep-alive\r\n"] {
            let target = if method == "CONNECT" { "h:1" } else { "/" };
            let request = format!("{method} {target} {fields}Host: h\r\n\r\n");
            for headers in [&Headers::new(), &some, &deciding] {
                for (close, length) in [(false, 0), (false, 1), (true, 1), (false, u64::MAX)] {
                    let [common, cold] = heads(&request, close, headers, length);
                    assert_eq!(common, cold, "{request}");
                }
            }
        }
    }
}

const EXPECTS: &str =
    "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";

#[test]
fn nobody_is_told_to_continue_with_a_content_that_has_arrived() {
    for (has_arrived, is_told) in [(false, true), (true, false)] {
        let mut connection = ServerConnection::new();
        connection.read_head(EXPECTS.as_bytes(), &Limits::default()).unwrap().unwrap();
        if has_arrived {
            connection.content_done();
        }
        assert_eq!(connection.write_continue(&mut Vec::new()), is_told);
    }
}

#[test]
fn a_connection_that_would_close_does_not_announce_that_to_the_next_protocol() {
    let mut connection = ServerConnection::new();
    connection.read_head(GET.as_bytes(), &Limits::default()).unwrap().unwrap();
    connection.close(CloseReason::Shutdown);
    let (date, mut out) = (Date::new(std::time::UNIX_EPOCH), Vec::new());
    let (status, content) = (StatusCode::SWITCHING_PROTOCOLS, ContentLength::None);
    connection.write_head(status, &Headers::new(), content, &date, &mut out);
    let head = String::from_utf8(out).unwrap();
    assert!(head.contains("connection: upgrade\r\n"), "{head}");
    assert_eq!(connection.will_close(), Some(CloseReason::Upgraded));
}
