//! The decoder never panics, never holds more than its limits, and gives the same events at every
//! split, with and without compression.

#![no_main]

use filoplume_websocket::{Decoder, DeflateConfig, Event, Limits, Role};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { frame_bytes_max: 512, message_bytes_max: 1024, fragments_max: 8 };
/// What inflates an incomplete message.
const INFLATING_BYTES: usize = 48 * 1024;

/// Returns the events, and how the stream ended.
fn run(mut decoder: Decoder, held_bytes_max: usize, input: &[u8], cut: usize) -> Vec<u8> {
    let mut found = Vec::new();
    let mut unused = Vec::new();
    let (first, second) = input.split_at(cut);
    for piece in [first, second] {
        unused.extend_from_slice(piece);
        loop {
            let (used, is_event) = match decoder.receive(&mut unused) {
                Ok((used, event)) => {
                    if let Some(event) = &event {
                        let (kind, content) = match event {
                            Event::Text(text) => (b't', text.as_bytes()),
                            Event::Binary(content) => (b'b', *content),
                            Event::Ping(content) => (b'i', *content),
                            Event::Pong(content) => (b'o', *content),
                            Event::Close(None) => (b'c', [].as_slice()),
                            Event::Close(Some(frame)) => (b'C', frame.reason.as_bytes()),
                        };
                        assert!(content.len() <= LIMITS.message_bytes_max);
                        found.push(kind);
                        found.extend_from_slice(content);
                    }
                    (used, event.is_some())
                }
                Err(error) => {
                    found.extend_from_slice(error.to_string().as_bytes());
                    return found;
                }
            };
            assert!(used <= unused.len());
            unused.drain(..used);
            if !is_event {
                break;
            }
        }
        assert!(unused.len() < 139);
        assert!(decoder.held_bytes() <= held_bytes_max, "{}", decoder.held_bytes());
    }
    found
}

fuzz_target!(|input: &[u8]| {
    let (deflate, _) = DeflateConfig { client_context_takeover: true, ..DeflateConfig::default() }
        .accept("permessage-deflate")
        .expect("the offer is well-formed");
    for role in [Role::Server, Role::Client] {
        for is_compressed in [false, true] {
            let decoder = || {
                let decoder = Decoder::new(role, LIMITS);
                if is_compressed { decoder.with_deflate(&deflate) } else { decoder }
            };
            let inflating = if is_compressed { INFLATING_BYTES } else { 0 };
            let held_max = 4 * LIMITS.message_bytes_max + inflating;
            let whole = run(decoder(), held_max, input, 0);
            for cut in 1..input.len() {
                assert_eq!(run(decoder(), held_max, input, cut), whole, "cut at {cut}");
            }
        }
    }
});
