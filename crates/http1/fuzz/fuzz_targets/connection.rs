//! A connection that answers every request never panics, never stalls with unread bytes, and gives
//! the same output at every split.

#![no_main]

use std::time::UNIX_EPOCH;

use filoplume_http1::{
    ContentDecoder, ContentLength, Date, Headers, Limits, Next, ServerConnection,
};
use http::StatusCode;
use libfuzzer_sys::fuzz_target;

/// Feeds the input in two parts, split at `cut`, and returns the output.
fn run(input: &[u8], cut: usize) -> Vec<u8> {
    let limits = Limits { head_bytes_max: 512, fields_max: 16, ..Limits::default() };
    let date = Date::new(UNIX_EPOCH);
    let mut connection = ServerConnection::new();
    let mut decoder: Option<ContentDecoder> = None;
    let mut content = Vec::new();
    let mut out = Vec::new();
    let mut at = 0;
    for end in [cut, input.len()] {
        loop {
            let unread = input.get(at..end).unwrap_or_default();
            if let Some(reading) = &mut decoder {
                let decoded = match reading.decode(unread) {
                    Ok(decoded) => decoded,
                    Err(error) => {
                        out.extend_from_slice(error.to_string().as_bytes());
                        return out;
                    }
                };
                content.extend_from_slice(
                    unread.get(decoded.data).expect("data lies within the input"),
                );
                at += decoded.consumed;
                if !reading.is_complete() {
                    if decoded.consumed == 0 {
                        break;
                    }
                    continue;
                }
                decoder = None;
                connection.content_done();
            } else {
                match connection.read_head(unread, &limits) {
                    Ok(None) => break,
                    Ok(Some((head, used))) => {
                        at += used;
                        let Ok(reading) = ContentDecoder::new(head.framing(), 1024, &limits) else {
                            return out;
                        };
                        if !reading.is_complete() {
                            decoder = Some(reading);
                            continue;
                        }
                    }
                    Err(error) => {
                        out.extend_from_slice(error.to_string().as_bytes());
                        return out;
                    }
                }
            }
            let length = ContentLength::Known(content.len() as u64);
            connection.write_head(StatusCode::OK, &Headers::new(), length, &date, &mut out);
            out.append(&mut content);
            connection.write_done();
            if connection.next() != Some(Next::KeepAlive) {
                return out;
            }
        }
    }
    out
}

fuzz_target!(|input: &[u8]| {
    let whole = run(input, input.len());
    let cut = input.first().map_or(0, |&byte| usize::from(byte) % input.len());
    assert_eq!(run(input, cut), whole);
    assert_eq!(run(input, input.len() / 2), whole);
});
