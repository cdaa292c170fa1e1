//! Passes bytes to a decoder in pieces, and shows what comes out.

#![allow(dead_code, reason = "not every test uses everything")]

use std::fmt::Write as _;

use filoplume_websocket::{Decoder, Event, ProtocolError};

/// Returns the events of the pieces, a line each, and the error that ended them.
pub(crate) fn events(mut decoder: Decoder, pieces: &[&[u8]]) -> String {
    let mut shown = String::new();
    let mut unused = Vec::new();
    for piece in pieces {
        unused.extend_from_slice(piece);
        loop {
            let (used, is_event) = match decoder.receive(&mut unused) {
                Ok((used, event)) => {
                    if let Some(event) = &event {
                        show(event, &mut shown);
                    }
                    (used, event.is_some())
                }
                Err(error) => {
                    writeln!(shown, "{} {error:?}", error.close_code()).unwrap();
                    let mut more = [0xff; 9];
                    let discarded = decoder.receive(&mut more);
                    assert_eq!(discarded, Ok((9, None)), "after an error everything is discarded");
                    return shown;
                }
            };
            assert!(used <= unused.len());
            unused.drain(..used);
            if !is_event {
                break;
            }
        }
        assert!(unused.len() < 139, "{} bytes were left", unused.len());
    }
    shown
}

fn show(event: &Event<'_>, shown: &mut String) {
    match event {
        Event::Text(text) if text.len() > 40 => writeln!(shown, "text of {}", text.len()),
        Event::Text(text) => writeln!(shown, "text {text:?}"),
        Event::Binary(content) if content.len() > 40 => {
            writeln!(shown, "binary of {}", content.len())
        }
        Event::Binary(content) => writeln!(shown, "binary {content:?}"),
        Event::Ping(content) => writeln!(shown, "ping {}", String::from_utf8_lossy(content)),
        Event::Pong(content) => writeln!(shown, "pong {}", String::from_utf8_lossy(content)),
        Event::Close(None) => writeln!(shown, "close"),
        Event::Close(Some(frame)) => writeln!(shown, "close {} {:?}", frame.code, frame.reason),
    }
    .unwrap();
}

/// The result must be the same wherever the network cuts the bytes, and for single bytes.
#[track_caller]
pub(crate) fn at_every_cut(decoder: impl Fn() -> Decoder, input: &[u8]) -> String {
    let whole = events(decoder(), &[input]);
    for cut in 1..input.len() {
        let (first, second) = input.split_at(cut);
        assert_eq!(events(decoder(), &[first, second]), whole, "cut at {cut}");
    }
    let single: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(events(decoder(), &single), whole, "byte by byte");
    whole
}

/// Returns a frame with a mask, as a client sends it.
pub(crate) fn masked(first: u8, content: &[u8]) -> Vec<u8> {
    let key = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![first];
    match content.len() {
        length @ 0..=125 => frame.push(0x80 | u8::try_from(length).unwrap()),
        length => {
            frame.push(0xfe);
            frame.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    frame.extend_from_slice(&key);
    frame.extend(content.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// Names the error of a result, so that rows can be compared.
pub(crate) fn refused(error: ProtocolError) -> String {
    format!("{} {error:?}\n", error.close_code())
}
