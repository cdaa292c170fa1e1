//! The one-pass parser for plain heads and the general parser give the same result.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use super::connection::ServerConnection;
use crate::{CloseReason, Limits};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n";

/// Reads a head with `read_head`, and with `read_plain_head` followed by `read_other_head`, on
/// connections in the state that `prepare` creates. Returns whether `read_plain_head` accepted the
/// head.
fn read_both_ways(input: &[u8], prepare: impl Fn(&mut ServerConnection)) -> bool {
    let limits = Limits::default();
    let (mut plain, mut any) = (ServerConnection::new(), ServerConnection::new());
    prepare(&mut plain);
    prepare(&mut any);
    let before = format!("{plain:?}");
    let expected = any.read_head(input, &limits);
    match plain.read_plain_head(input, &limits) {
        None => {
            assert_eq!(
                format!("{plain:?}"),
                before,
                "a parser that returns `None` changes nothing"
            );
            let other = plain.read_other_head(input, &limits);
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
