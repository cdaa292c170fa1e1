//! What the bytes of a peer mean, at every cut.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

mod driver;

use driver::{at_every_cut, masked, refused};
use filoplume_websocket::{Decoder, Limits, ProtocolError, Role};

const LIMITS: Limits = Limits { frame_bytes_max: 300, message_bytes_max: 400, fragments_max: 3 };

/// The frames of a client, as a server reads them.
#[track_caller]
fn server(frames: &[Vec<u8>]) -> String {
    at_every_cut(|| Decoder::new(Role::Server, LIMITS), &frames.concat())
}

/// The bytes of a server, as a client reads them.
#[track_caller]
fn client(bytes: &[u8]) -> String {
    at_every_cut(|| Decoder::new(Role::Client, LIMITS), bytes)
}

#[test]
fn messages_and_control_frames_are_read() {
    let frames = [
        masked(0x81, b"Hello"),
        masked(0x82, &[1, 2, 3]),
        masked(0x81, b""),
        masked(0x82, &[7; 200]),
        masked(0x89, b"there?"),
        masked(0x8a, b""),
        masked(0x88, &[0x03, 0xe8, b'b', b'y', b'e']),
        masked(0x81, b"discarded"),
    ];
    let expected = "text \"Hello\"\nbinary [1, 2, 3]\ntext \"\"\nbinary of 200\nping there?\n\
        pong \nclose 1000 \"bye\"\n";
    assert_eq!(server(&frames), expected);
}

#[test]
fn fragments_become_a_message_and_control_frames_stand_between_them() {
    let frames = [
        masked(0x01, "Gr\u{fc}".as_bytes().split_at(3).0),
        masked(0x89, b"1"),
        masked(0x00, b""),
        masked(0x80, &["Gr\u{fc}".as_bytes().split_at(3).1, b"n"].concat()),
        masked(0x02, &[1]),
        masked(0x80, &[2]),
        masked(0x88, b""),
    ];
    assert_eq!(server(&frames), "ping 1\ntext \"Gr\u{fc}n\"\nbinary [1, 2]\nclose\n");
}

#[test]
fn a_client_reads_unmasked_frames() {
    assert_eq!(client(b"\x81\x05Hello\x01\x01a\x80\x01b"), "text \"Hello\"\ntext \"ab\"\n");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn what_breaks_the_protocol_is_refused() {
    use ProtocolError::*;
    let rows: &[(&str, Vec<u8>, ProtocolError)] = &[
        ("a reserved bit", masked(0xc1, b"a"), ReservedBits),
        ("the second reserved bit", masked(0xa1, b"a"), ReservedBits),
        ("a reserved bit of a ping", masked(0xc9, b"a"), ReservedBits),
        ("an opcode of data", masked(0x83, b"a"), OpcodeReserved),
        ("an opcode of control", masked(0x8b, b"a"), OpcodeReserved),
        ("a fragment of a ping", masked(0x09, b"a"), ControlFragmented),
        ("a fragment of a close", masked(0x08, b""), ControlFragmented),
        ("a long ping", masked(0x89, &[0; 126]), ControlTooLong),
        ("a short length in two bytes", vec![0x82, 0xfe, 0, 125, 0, 0, 0, 0], LengthNotMinimal),
        (
            "a short length in eight bytes",
            vec![0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0],
            LengthNotMinimal,
        ),
        (
            "the highest bit of a length",
            vec![0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            LengthTooLarge,
        ),
        ("no mask", b"\x81\x01a".to_vec(), MaskMissing),
        ("a ping without mask", b"\x89\x00".to_vec(), MaskMissing),
        ("a continuation at the start", masked(0x80, b"a"), ContinuationUnexpected),
        (
            "a message within a message",
            [masked(0x01, b"a"), masked(0x81, b"b")].concat(),
            ContinuationMissing,
        ),
        ("a close frame of one byte", masked(0x88, &[3]), CloseTooShort),
        ("a code below the first", masked(0x88, &[3, 0xe7]), CloseCodeInvalid),
        ("the code of a missing code", masked(0x88, &[3, 0xed]), CloseCodeInvalid),
        ("the code of a lost connection", masked(0x88, &[3, 0xee]), CloseCodeInvalid),
        ("the code of a failed TLS", masked(0x88, &[3, 0xf7]), CloseCodeInvalid),
        ("a code that nobody defined", masked(0x88, &[0x0b, 0xb7]), CloseCodeInvalid),
        ("a code above the last", masked(0x88, &[0x13, 0x88]), CloseCodeInvalid),
        ("a reason that is not UTF-8", masked(0x88, &[3, 0xe8, 0xff]), CloseReasonInvalid),
        ("a reason that is cut", masked(0x88, &[3, 0xe8, 0xc3]), CloseReasonInvalid),
        ("a text that is not UTF-8", masked(0x81, b"a\xffb"), TextInvalid),
        ("a surrogate", masked(0x81, b"\xed\xa0\x80"), TextInvalid),
        ("a character in too many bytes", masked(0x81, b"\xc0\x80"), TextInvalid),
        ("a character that is cut", masked(0x81, b"\xe2\x82"), TextInvalid),
        (
            "a character that is cut by the end of the last fragment",
            [masked(0x01, b"\xe2"), masked(0x80, b"\x82")].concat(),
            TextInvalid,
        ),
        ("a frame above the limit", masked(0x82, &[0; 301]), FrameTooLong),
        (
            "a frame of some exabytes",
            vec![0x82, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            FrameTooLong,
        ),
        (
            "a message above the limit",
            [masked(0x02, &[0; 300]), masked(0x80, &[0; 101])].concat(),
            MessageTooLong,
        ),
        (
            "too many fragments",
            [masked(0x02, b""), masked(0x00, b""), masked(0x00, b""), masked(0x80, b"")].concat(),
            TooManyFragments,
        ),
    ];
    for (name, bytes, error) in rows {
        assert_eq!(server(std::slice::from_ref(bytes)), refused(*error), "{name}");
    }
}

#[test]
fn a_client_refuses_masked_frames() {
    assert_eq!(client(&masked(0x81, b"a")), refused(ProtocolError::MaskUnexpected));
}

#[test]
fn limits_are_reached_before_they_are_exceeded() {
    let frames = [
        masked(0x02, &[0; 300]),
        masked(0x00, &[0; 100]),
        masked(0x80, b""),
        masked(0x89, &[b'x'; 125]),
        masked(0x88, &[[0x0b, 0xb8].as_slice(), &[b'r'; 123]].concat()),
    ];
    let expected =
        format!("binary of 400\nping {}\nclose 3000 {:?}\n", "x".repeat(125), "r".repeat(123));
    assert_eq!(server(&frames), expected);
}

#[test]
fn a_text_is_refused_with_its_first_wrong_byte() {
    let mut decoder = Decoder::new(Role::Server, Limits::default());
    // A fragment, and a frame of which two bytes have arrived.
    let mut first = masked(0x01, b"a\xe2\x82");
    let length = first.len();
    assert_eq!(decoder.receive(&mut first), Ok((length, None)));
    let mut second = masked(0x80, b"\xff, and more that never arrives");
    assert_eq!(decoder.receive(&mut second[..7]), Err(ProtocolError::TextInvalid));
}

#[test]
fn a_length_that_is_announced_takes_no_memory() {
    let mut decoder = Decoder::new(Role::Client, Limits::default());
    let mut input = *b"\x82\x7f\x00\x00\x00\x00\x00\x0f\xff\xffabc";
    assert_eq!(decoder.receive(&mut input), Ok((13, None)));
    assert!(decoder.held_bytes() < 100, "{}", decoder.held_bytes());
    assert!(decoder.is_within_message());
    decoder.release();
    assert!(decoder.held_bytes() >= 3, "an incomplete message is kept");
}

#[test]
fn a_decoder_that_waits_holds_no_memory() {
    let mut decoder = Decoder::new(Role::Client, Limits::default());
    decoder.receive(&mut *b"\x01\x01a".to_owned().as_mut_slice()).unwrap();
    let (_, event) = decoder.receive(&mut [0x80, 1, b'b']).map(|(n, e)| (n, e.is_some())).unwrap();
    assert!(event && decoder.held_bytes() > 0);
    decoder.release();
    assert_eq!(decoder.held_bytes(), 0);
}
