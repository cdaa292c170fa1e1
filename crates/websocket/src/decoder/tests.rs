//! What the decoder holds.

use super::*;
use crate::deflate::DeflateConfig;

#[test]
fn a_decoder_that_skips_messages_has_no_window() {
    let config = DeflateConfig { client_context_takeover: true, ..DeflateConfig::default() };
    let (params, _) = config.accept("permessage-deflate").expect("it is a good offer");
    let mut decoder = Decoder::new(Role::Server, Limits::default()).with_deflate(&params);
    let has_window =
        |decoder: &Decoder| decoder.inflater.as_ref().is_some_and(|it| it.has_stream());
    // The first part of "Hello", with a mask of zeros.
    let mut input = *b"\x41\x83\0\0\0\0\xf2\x48\xcd";
    assert_eq!(decoder.receive(&mut input), Ok((9, None)));
    assert!(has_window(&decoder));
    decoder.skip_messages();
    assert!(!has_window(&decoder));
}

#[test]
fn the_window_of_an_incomplete_message_is_held_until_it_is_complete_or_discarded() {
    for discards in [false, true] {
        let (params, _) = DeflateConfig::default().accept("permessage-deflate").expect("good");
        let mut decoder = Decoder::new(Role::Server, Limits::default()).with_deflate(&params);
        // "Hello" in two parts, with masks of zeros.
        let (mut first, mut rest) =
            (*b"\x41\x83\0\0\0\0\xf2\x48\xcd", *b"\x80\x84\0\0\0\0\xc9\xc9\x07\x00");
        assert_eq!(decoder.receive(&mut first), Ok((9, None)));
        assert!(decoder.held_bytes() > 32 * 1024, "{}", decoder.held_bytes());
        if discards {
            decoder.discard();
        } else {
            let event = decoder.receive(&mut rest);
            assert_eq!(event, Ok((10, Some(Event::Text("Hello")))));
            decoder.release();
        }
        assert_eq!(decoder.held_bytes(), 0);
        assert!(decoder.inflater.as_ref().is_some_and(|inflater| !inflater.has_stream()));
    }
}

#[test]
fn a_decoder_that_discards_everything_is_not_within_a_message() {
    let mut decoder = Decoder::new(Role::Client, Limits::default());
    assert_eq!(decoder.receive(&mut *b"\x01\x05Hello".to_vec().as_mut_slice()), Ok((7, None)));
    assert!(decoder.is_within_message() && decoder.held_bytes() > 0);
    decoder.discard();
    assert!(!decoder.is_within_message() && decoder.held_bytes() == 0);
}
