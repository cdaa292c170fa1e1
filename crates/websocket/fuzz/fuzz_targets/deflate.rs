//! Compressed messages are inflated to the original, with all parameters. Offers never cause a
//! panic.

#![no_main]

use std::num::NonZeroUsize;

use filoplume_websocket::{
    Decoder, DeflateConfig, DeflateOptions, DeflateParams, Encoder, Event, Limits, Role,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[bits, flags, level, fragments], content)) = input.split_first_chunk::<4>() else {
        return;
    };
    if let Ok(offer) = std::str::from_utf8(content) {
        let _ = DeflateConfig::default().accept(offer);
        let _ = DeflateConfig::default().confirm(offer);
    }
    let params = DeflateParams {
        server_no_context_takeover: flags & 1 != 0,
        client_no_context_takeover: flags & 2 != 0,
        server_max_window_bits: 8 + bits % 8,
        client_max_window_bits: 8 + bits / 8 % 8,
    };
    let options = DeflateOptions { level: u32::from(level % 10), bytes_min: 0 };
    let (near, far) =
        if flags & 4 == 0 { (Role::Server, Role::Client) } else { (Role::Client, Role::Server) };
    let mut encoder = Encoder::new(near).with_deflate(&params, options);
    if let Some(fragments) = NonZeroUsize::new(usize::from(fragments)) {
        encoder = encoder.with_fragments(fragments);
    }
    let mut decoder = Decoder::new(far, Limits::default()).with_deflate(&params);
    // Several messages, so that later ones refer to earlier ones.
    for part in [content, content.split_at(content.len() / 2).1, content] {
        let mut bytes = Vec::new();
        encoder.binary(part, &mut bytes);
        let length = bytes.len();
        assert_eq!(decoder.receive(&mut bytes), Ok((length, Some(Event::Binary(part)))));
    }
});
