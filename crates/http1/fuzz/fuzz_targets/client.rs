//! The reader of a client never panics, never stalls with unread bytes, and gives the same events
//! at every split.
//!
//! Fuzz targets have debug assertions, so every plain head is parsed by both parsers and compared.

#![no_main]

use filoplume_http1::{Limits, PeerClosed, ResponseEvent, ResponseReader};
use http::Method;
use libfuzzer_sys::fuzz_target;

/// Returns the events: statuses, contents and ends, and how the stream ended.
fn run(input: &[u8], method: &Method, cut: usize) -> Vec<u8> {
    let limits = Limits { head_bytes_max: 512, fields_max: 16, ..Limits::default() };
    let mut reader = ResponseReader::new();
    let mut found = Vec::new();
    let mut content = Vec::new();
    let mut at = 0;
    for end in [cut, input.len()] {
        loop {
            let unread = input.get(at..end).unwrap_or_default();
            let (used, event) = match reader.receive(unread, method, &limits) {
                Ok(received) => received,
                Err(error) => {
                    // The amount of content before an error depends on the split.
                    found.extend_from_slice(error.to_string().as_bytes());
                    return found;
                }
            };
            assert!(used <= unread.len());
            at += used;
            match event {
                Some(ResponseEvent::Interim(head) | ResponseEvent::Head(head)) => {
                    found.extend_from_slice(head.status().as_str().as_bytes());
                    for (name, value) in head.fields() {
                        assert!(!name.is_empty());
                        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
                        found.extend_from_slice(name);
                        found.extend_from_slice(value);
                    }
                }
                Some(ResponseEvent::Content(run)) => {
                    assert!(!run.is_empty() && run.len() <= used);
                    content.extend_from_slice(run);
                }
                Some(ResponseEvent::End) => found.append(&mut content),
                None => break,
            }
        }
    }
    match reader.peer_closed(input.get(at..).unwrap_or_default()) {
        PeerClosed::BetweenResponses => found.push(0),
        PeerClosed::Ended => found.append(&mut content),
        PeerClosed::Truncated => found.push(1),
    }
    found
}

fuzz_target!(|input: &[u8]| {
    for method in [Method::GET, Method::HEAD] {
        let whole = run(input, &method, 0);
        for cut in 1..input.len() {
            assert_eq!(run(input, &method, cut), whole, "cut at {cut}");
        }
    }
});
