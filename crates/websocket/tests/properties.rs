//! Properties: no input causes a panic, no split changes the result, and all output can be read.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

mod driver;

use std::num::NonZeroUsize;

use driver::events;
use filoplume_websocket::{
    Decoder, DeflateConfig, DeflateOptions, DeflateParams, Encoder, HandshakeRequest, Limits, Role,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

const LIMITS: Limits = Limits { frame_bytes_max: 4096, message_bytes_max: 8192, fragments_max: 64 };

fn params() -> impl Strategy<Value = DeflateParams> {
    (any::<bool>(), any::<bool>(), 8..=15_u8, 8..=15_u8).prop_map(|(server, client, a, b)| {
        DeflateParams {
            server_no_context_takeover: server,
            client_no_context_takeover: client,
            server_max_window_bits: a,
            client_max_window_bits: b,
        }
    })
}

/// Mostly well-formed frames of a client, with something unusual between some of them.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        4 => prop::sample::select(vec![0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8a, 0xc1, 0x41]),
        1 => any::<u8>(),
    ];
    let content = prop_oneof![
        vec(any::<u8>(), 0..20),
        "\\PC{0,30}".prop_map(String::into_bytes),
        vec(any::<u8>(), 120..140),
    ];
    vec((first, content), 0..6).prop_map(|frames| {
        frames.iter().flat_map(|(first, content)| driver::masked(*first, content)).collect()
    })
}

fn messages() -> impl Strategy<Value = Vec<String>> {
    vec(prop_oneof!["\\PC{0,80}", "[ab]{0,400}", "[a-z]{100,1000}"], 1..5)
}

proptest! {
    #[test]
    fn no_split_changes_the_result(
        input in prop_oneof![frames(), vec(any::<u8>(), 0..60)],
        cuts in vec(any::<Index>(), 0..4),
        params in prop::option::of(params()),
    ) {
        let decoder = || match &params {
            Some(params) => Decoder::new(Role::Server, LIMITS).with_deflate(params),
            None => Decoder::new(Role::Server, LIMITS),
        };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &input[ends[0]..ends[1]]).collect();
        prop_assert_eq!(events(decoder(), &pieces), events(decoder(), &[&input]));
    }

    #[test]
    fn what_was_written_is_read(
        messages in messages(),
        fragments in prop::option::of(1..300_usize),
        params in prop::option::of(params()),
        level in 0..=9_u32,
        is_server in any::<bool>(),
    ) {
        let ends = (Role::Server, Role::Client);
        let (near, far) = if is_server { ends } else { (ends.1, ends.0) };
        let mut encoder = Encoder::new(near);
        let limits = Limits { fragments_max: 4096, ..LIMITS };
        let mut decoder = Decoder::new(far, limits);
        if let Some(fragments) = fragments.and_then(NonZeroUsize::new) {
            encoder = encoder.with_fragments(fragments);
        }
        if let Some(params) = &params {
            let options = DeflateOptions { level, bytes_min: 0 };
            encoder = encoder.with_deflate(params, options);
            decoder = decoder.with_deflate(params);
        }
        let (mut bytes, mut expected) = (Vec::new(), String::new());
        let show = Decoder::new(Role::Client, limits);
        let mut plain = Vec::new();
        for message in &messages {
            encoder.text(message, &mut bytes);
            encoder.binary(message.as_bytes(), &mut bytes);
            encoder.ping(b"?", &mut bytes).unwrap();
            let mut encoder = Encoder::new(Role::Server);
            encoder.text(message, &mut plain);
            encoder.binary(message.as_bytes(), &mut plain);
            encoder.ping(b"?", &mut plain).unwrap();
        }
        expected.push_str(&events(show, &[&plain]));
        prop_assert_eq!(events(decoder, &[&bytes]), expected);
    }

    #[test]
    fn a_server_and_a_client_agree_on_the_parameters(
        server in configs(),
        client in configs(),
    ) {
        if let Some((agreed, response)) = server.accept(&client.offer()) {
            let found = client.confirm(&response);
            prop_assert!(found.is_some(), "{} {response}", client.offer());
            let found = found.unwrap();
            prop_assert_eq!(found.server_max_window_bits, agreed.server_max_window_bits);
            prop_assert_eq!(found.server_no_context_takeover, agreed.server_no_context_takeover);
            // The client may do less than it was granted, never more.
            prop_assert!(found.client_max_window_bits <= agreed.client_max_window_bits);
            prop_assert!(found.client_no_context_takeover || !agreed.client_no_context_takeover);
        } else {
            prop_assert_eq!(client.server_max_window_bits, 8, "only this offer is declined");
        }
    }

    #[test]
    fn no_offer_causes_a_panic(offer in "\\PC{0,40}", field in vec(any::<u8>(), 0..40)) {
        let _ = DeflateConfig::default().accept(&offer);
        let _ = DeflateConfig::default().confirm(&offer);
        let _ = DeflateConfig::default().accept(&format!("permessage-deflate; {offer}"));
        for name in ["Upgrade", "Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Protocol"] {
            let _ = HandshakeRequest::parse("GET", [(name.as_bytes(), field.as_slice())]);
        }
    }
}

fn configs() -> impl Strategy<Value = DeflateConfig> {
    (any::<bool>(), any::<bool>(), 8..=15_u8, 8..=15_u8).prop_map(|(server, client, a, b)| {
        DeflateConfig {
            server_context_takeover: server,
            client_context_takeover: client,
            server_max_window_bits: a,
            client_max_window_bits: b,
        }
    })
}
