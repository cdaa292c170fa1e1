//! Chunked content gives the same data, trailers and end, whether it arrives at once or byte by
//! byte.

#![no_main]

use filoplume_http1::{ContentDecoder, Framing, Limits, ParseError};
use libfuzzer_sys::fuzz_target;

/// Content, trailers as text, consumed bytes.
type Outcome = Result<(Vec<u8>, Option<String>, usize), ParseError>;

fn decode(input: &[u8], step: usize) -> Outcome {
    let limits = Limits {
        chunk_line_bytes_max: 64,
        chunk_extension_bytes_max: 128,
        trailer_bytes_max: 128,
        ..Limits::default()
    };
    let mut decoder = ContentDecoder::new(Framing::Chunked, 4096, &limits)?;
    let mut content = Vec::new();
    let mut consumed = 0;
    while !decoder.is_complete() {
        let unread = input.get(consumed..).expect("never more than the input is consumed");
        if unread.is_empty() {
            break;
        }
        let unread = unread.get(..step).unwrap_or(unread);
        let decoded = decoder.decode(unread)?;
        assert!(decoded.consumed > 0 && decoded.data.end <= decoded.consumed);
        content.extend_from_slice(unread.get(decoded.data).expect("data lies within the input"));
        consumed += decoded.consumed;
    }
    Ok((content, decoder.take_trailers().map(|trailers| format!("{trailers:?}")), consumed))
}

fuzz_target!(|input: &[u8]| {
    let whole = decode(input, usize::MAX);
    assert_eq!(decode(input, 1), whole);
    assert_eq!(decode(input, 7), whole);
});
