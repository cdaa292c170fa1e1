//! A connection that answers every request never panics, never stalls with unread bytes, and gives
//! the same output at every split.

#![no_main]

use std::time::UNIX_EPOCH;

use filoplume_http1::{
    ContentDecoder, ContentLength, Date, Headers, Limits, Next, ParseError, ServerConnection,
};
use http::StatusCode;
use libfuzzer_sys::fuzz_target;

/// Feeds the input in two parts, split at `cut`, and returns the output, with the error at its end.
fn run(input: &[u8], cut: usize) -> Vec<u8> {
    let mut out = Vec::new();
    if let Err(error) = serve(input, cut, &mut out) {
        out.extend_from_slice(error.to_string().as_bytes());
    }
    out
}

/// Answers each request with its content, until the connection closes or a request is refused.
fn serve(input: &[u8], cut: usize, out: &mut Vec<u8>) -> Result<(), ParseError> {
    let limits = Limits { head_bytes_max: 512, fields_max: 16, ..Limits::default() };
    let date = Date::new(UNIX_EPOCH);
    let mut connection = ServerConnection::new();
    let mut decoder: Option<ContentDecoder> = None;
    let mut content = Vec::new();
    let mut at = 0;
    for end in [cut, input.len()] {
        loop {
            let unread = input.get(at..end).unwrap_or_default();
            if let Some(reading) = &mut decoder {
                let decoded = reading.decode(unread)?;
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
                let Some((head, used)) = connection.read_head(unread, &limits)? else { break };
                at += used;
                let reading = ContentDecoder::new(head.framing(), 1024, &limits)?;
                if !reading.is_complete() {
                    decoder = Some(reading);
                    continue;
                }
            }
            let length = ContentLength::Known(content.len() as u64);
            connection.write_head(StatusCode::OK, &Headers::new(), length, &date, out);
            out.append(&mut content);
            connection.write_done();
            if connection.next() != Some(Next::KeepAlive) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let whole = run(input, input.len());
    let cut = input.first().map_or(0, |&byte| usize::from(byte) % input.len());
    assert_eq!(run(input, cut), whole);
    assert_eq!(run(input, input.len() / 2), whole);
});
