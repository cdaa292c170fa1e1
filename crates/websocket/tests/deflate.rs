//! Compressed messages: what is agreed, bombs, and what is malformed.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

mod driver;

use driver::{at_every_cut, events, masked, refused};
use filoplume_websocket::{
    Decoder, DeflateConfig, DeflateOptions, DeflateParams, Encoder, Event, Limits, ProtocolError,
    Role,
};

const LIMITS: Limits =
    Limits { frame_bytes_max: 1 << 20, message_bytes_max: 1 << 16, fragments_max: 100 };

fn params(offer: &str) -> DeflateParams {
    let config = DeflateConfig {
        server_context_takeover: true,
        client_context_takeover: true,
        ..DeflateConfig::default()
    };
    config.accept(offer).unwrap().0
}

fn server() -> Decoder {
    Decoder::new(Role::Server, LIMITS).with_deflate(&params("permessage-deflate"))
}

/// Examples of RFC 7692 section 7.2.3.
#[test]
fn the_examples_of_the_rfc_are_inflated() {
    let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let frames = [
        // 7.2.3.1: in one frame, and in two.
        masked(0xc1, &hello),
        masked(0x41, &hello[..3]),
        masked(0x80, &hello[3..]),
        // 7.2.3.2: the second message refers to the first.
        masked(0xc1, &[0xf2, 0x00, 0x11, 0x00, 0x00]),
        // 7.2.3.3: a block without compression.
        masked(0xc1, &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00]),
        // 7.2.3.4: a final block.
        masked(0xc1, &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00]),
        // 7.2.3.5: two blocks.
        masked(
            0xc1,
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
        ),
        // 7.2.3.6: an empty message.
        masked(0xc1, &[0x00]),
        // Messages need not be compressed.
        masked(0x81, b"plain"),
    ];
    let expected = "text \"Hello\"\n".repeat(6) + "text \"\"\ntext \"plain\"\n";
    assert_eq!(at_every_cut(server, &frames.concat()), expected);
}

#[test]
fn what_is_malformed_is_refused() {
    use ProtocolError::*;
    let rows: &[(&str, Vec<Vec<u8>>, ProtocolError)] = &[
        ("a block of a reserved type", vec![masked(0xc1, &[0x07])], DeflateInvalid),
        (
            "a stored block whose lengths differ",
            vec![masked(0xc1, &[0, 5, 0, 5, 0])],
            DeflateInvalid,
        ),
        (
            "a reference before the start",
            vec![masked(0xc1, &[0xf2, 0, 0x11, 0, 0])],
            DeflateInvalid,
        ),
        ("final blocks without end", vec![masked(0xc2, &[3, 0].repeat(100))], DeflateInvalid),
        (
            "a text that is not UTF-8",
            vec![masked(0xc1, &[0, 1, 0, 0xfe, 0xff, 0xff, 0])],
            TextInvalid,
        ),
        (
            "a text that is not UTF-8 before a block of a reserved type",
            vec![masked(0xc1, &[0, 1, 0, 0xfe, 0xff, 0xff, 7])],
            TextInvalid,
        ),
        ("the bit on a continuation", vec![masked(0x41, &[0]), masked(0xc0, &[0])], ReservedBits),
        ("the bit on a ping", vec![masked(0xc9, &[])], ReservedBits),
        ("another bit", vec![masked(0xe1, &[0])], ReservedBits),
    ];
    for (name, frames, error) in rows {
        assert_eq!(at_every_cut(server, &frames.concat()), refused(*error), "{name}");
    }
}

/// RFC 7692 section 7.2.3.4: a message may end with a final block. Some senders do that each time.
#[test]
fn final_blocks_are_counted_in_each_message() {
    let of_blocks = |blocks: usize| {
        let content = [[3, 0].repeat(blocks), vec![0]].concat();
        masked(0xc2, &content)
    };
    let accepted: Vec<u8> = of_blocks(16).repeat(3);
    assert_eq!(events(server(), &[&accepted]), "binary []\n".repeat(3));
    let error = refused(ProtocolError::DeflateInvalid);
    assert_eq!(events(server(), &[&of_blocks(17)]), error);
}

#[test]
fn a_bomb_is_stopped_at_the_limit() {
    let mut bomb = Vec::new();
    let options = DeflateOptions { level: 9, ..DeflateOptions::default() };
    let mut encoder =
        Encoder::new(Role::Server).with_deflate(&params("permessage-deflate"), options);
    encoder.binary(&vec![0; 16 << 20], &mut bomb);
    assert!(bomb.len() < 100_000, "it is compressed: {}", bomb.len());

    let mut decoder =
        Decoder::new(Role::Client, LIMITS).with_deflate(&params("permessage-deflate"));
    assert_eq!(decoder.receive(&mut bomb), Err(ProtocolError::MessageTooLong));
    assert_eq!(decoder.held_bytes(), 0);
}

/// Regression: what a peer sent after this side had closed was inflated until the close timeout.
#[test]
fn messages_are_skipped_on_request_wherever_they_are_cut() {
    let mut bomb = Vec::new();
    let options = DeflateOptions { level: 9, ..DeflateOptions::default() };
    Encoder::new(Role::Client)
        .with_deflate(&params("permessage-deflate"), options)
        .binary(&vec![0; 1 << 20], &mut bomb);
    let frames = [
        bomb,
        masked(0xc1, b"no deflated text"),
        masked(0x81, b"\xff"),
        masked(0x89, b"still there"),
        masked(0x01, b"in two"),
        masked(0x80, b" pieces"),
        masked(0x88, &[0x0f, 0xa0]),
    ];
    let skipping = || {
        let mut decoder = server();
        decoder.skip_messages();
        decoder
    };
    let expected = "ping still there\nclose 4000 \"\"\n";
    assert_eq!(at_every_cut(skipping, &frames.concat()), expected);

    let mut decoder = server();
    assert_eq!(decoder.receive(&mut masked(0x41, &[0xf2, 0x48])), Ok((8, None)));
    decoder.skip_messages();
    assert_eq!(decoder.held_bytes(), 0, "a message that has begun is forgotten");
    let mut rest = [masked(0x80, b"anything"), masked(0x8a, b"")].concat();
    assert_eq!(decoder.receive(&mut rest), Ok((20, Some(Event::Pong(b"")))));
}

#[test]
fn a_message_of_exactly_the_limit_is_accepted() {
    for (length, is_accepted) in [(1 << 16, true), ((1 << 16) + 1, false)] {
        let params = params("permessage-deflate");
        let mut encoder =
            Encoder::new(Role::Server).with_deflate(&params, DeflateOptions::default());
        let mut bytes = Vec::new();
        encoder.binary(&vec![b'a'; length], &mut bytes);
        let decoder = Decoder::new(Role::Client, LIMITS).with_deflate(&params);
        let expected = if is_accepted {
            format!("binary of {length}\n")
        } else {
            refused(ProtocolError::MessageTooLong)
        };
        assert_eq!(events(decoder, &[&bytes]), expected);
    }
}

/// Noise is longer after compression, and the limit is for the message that the program gets.
#[test]
fn the_limit_of_a_message_is_for_its_inflated_bytes() {
    let stored = [0x00, 0x05, 0x00, 0xfa, 0xff, b'H', b'e', b'l', b'l', b'o', 0x00];
    for (message_bytes_max, expected) in
        [(5, "text \"Hello\"\n".to_owned()), (4, refused(ProtocolError::MessageTooLong))]
    {
        let limits = Limits { message_bytes_max, ..LIMITS };
        let server =
            || Decoder::new(Role::Server, limits).with_deflate(&params("permessage-deflate"));
        assert_eq!(at_every_cut(server, &masked(0xc1, &stored)), expected);
    }
}

#[test]
fn every_window_and_context_is_understood() {
    // Nothing repeats within a message, but each message is almost the same as the one before.
    let noise = noise(800);
    let text = |n: u8| {
        let digits = noise.iter().map(|byte| format!("{byte:02x}"));
        digits.chain([n.to_string()]).collect::<String>()
    };
    for bits in [8, 9, 12, 15] {
        for context in [true, false] {
            for level in [0, 1, 6, 9] {
                let params = DeflateParams {
                    server_no_context_takeover: !context,
                    client_no_context_takeover: !context,
                    server_max_window_bits: bits,
                    client_max_window_bits: bits,
                };
                let options = DeflateOptions { level, ..DeflateOptions::default() };
                let mut encoder = Encoder::new(Role::Client).with_deflate(&params, options);
                let mut decoder = Decoder::new(Role::Server, LIMITS).with_deflate(&params);
                let mut sizes = Vec::new();
                for n in 0..4 {
                    let mut bytes = Vec::new();
                    encoder.text(&text(n), &mut bytes);
                    sizes.push(bytes.len());
                    let length = bytes.len();
                    let received = decoder.receive(&mut bytes);
                    assert_eq!(received, Ok((length, Some(Event::Text(&text(n))))), "{params:?}");
                }
                if bits == 15 && level == 9 {
                    assert_eq!(sizes[1] < sizes[0] / 2, context, "{sizes:?}");
                }
            }
        }
    }
}

#[test]
fn short_messages_and_noise_are_sent_as_they_are() {
    let config = DeflateConfig::default();
    let (params, _) = config.accept("permessage-deflate").unwrap();
    let mut encoder = Encoder::new(Role::Server).with_deflate(&params, DeflateOptions::default());
    let mut output = Vec::new();
    encoder.text("short", &mut output);
    assert_eq!(output, b"\x81\x05short");
    output.clear();
    encoder.binary(&noise(1000), &mut output);
    assert_eq!(output.len(), 1004);
    assert_eq!(output[0], 0x82);
}

#[test]
fn the_shortest_message_that_is_compressed_has_the_bytes_of_the_option() {
    let (params, _) = DeflateConfig::default().accept("permessage-deflate").unwrap();
    let set = DeflateOptions { bytes_min: 50, ..DeflateOptions::default() };
    for (options, bytes_min) in [(set, 50), (DeflateOptions::default(), 64)] {
        let mut encoder = Encoder::new(Role::Server).with_deflate(&params, options);
        for (length, first) in [(bytes_min - 1, 0x81), (bytes_min, 0xc1)] {
            let mut output = Vec::new();
            encoder.text(&"a".repeat(length), &mut output);
            assert_eq!(output[0], first, "{length} bytes");
        }
    }
}

/// Bytes that cannot be compressed.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// The thread keeps streams for later messages, which may be those of another peer.
#[test]
fn a_message_cannot_refer_to_one_of_another_connection() {
    let offer = "permessage-deflate; client_no_context_takeover";
    let receive = |mut frame: Vec<u8>| {
        let mut decoder = Decoder::new(Role::Server, LIMITS).with_deflate(&params(offer));
        let (_, event) = decoder.receive(&mut frame)?;
        Ok::<_, ProtocolError>(event == Some(Event::Text("Hello")))
    };
    let hello = masked(0xc1, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
    assert_eq!(receive(hello), Ok(true));
    let reference = masked(0xc1, &[0xf2, 0x00, 0x11, 0x00, 0x00]);
    assert_eq!(receive(reference), Err(ProtocolError::DeflateInvalid));
}
