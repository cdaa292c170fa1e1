//! The encoding of protobuf messages, as far as OTLP needs it.

/// The kinds of fields, as the low bits of a tag.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

fn tag(out: &mut Vec<u8>, field: u32, kind: u32) {
    varint(out, u64::from(field << 3 | kind));
}

/// Writes an integer, an enum or a bool. Negative integers are written in two's complement.
pub(crate) fn int(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

pub(crate) fn fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes bytes, a text or an encoded message.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    tag(out, field, LENGTH);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Writes a message. `write` writes its fields.
pub(crate) fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, LENGTH);
    let start = out.len();
    write(out);
    let mut length = Vec::with_capacity(5);
    varint(&mut length, (out.len() - start) as u64);
    out.splice(start..start, length);
}

/// A field that was read. Only varints and messages have a value here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    Int(u64),
    Bytes(&'a [u8]),
    Other,
}

/// Reads the next field of a message, and returns its number and the rest.
pub(crate) fn read(input: &[u8]) -> Option<(u64, Read<'_>, &[u8])> {
    let (tag, rest) = read_varint(input)?;
    let (value, rest) = match u32::try_from(tag & 7).ok()? {
        VARINT => read_varint(rest).map(|(value, rest)| (Read::Int(value), rest))?,
        FIXED64 => (Read::Other, rest.get(8..)?),
        FIXED32 => (Read::Other, rest.get(4..)?),
        LENGTH => {
            let (length, rest) = read_varint(rest)?;
            let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (Read::Bytes(value), rest)
        }
        _ => return None,
    };
    Some((tag >> 3, value, rest))
}

fn read_varint(input: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in input.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, input.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_encoded_as_the_documentation_of_protobuf_shows() {
        let mut out = Vec::new();
        int(&mut out, 1, 150);
        assert_eq!(out, [0x08, 0x96, 0x01]);
        out.clear();
        bytes(&mut out, 2, b"testing");
        assert_eq!(out, b"\x12\x07testing");
        out.clear();
        message(&mut out, 3, |out| int(out, 1, 150));
        assert_eq!(out, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        out.clear();
        fixed64(&mut out, 7, 1);
        fixed32(&mut out, 16, 0x101);
        assert_eq!(out, [0x39, 1, 0, 0, 0, 0, 0, 0, 0, 0x85, 0x01, 1, 1, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(field in 1u32..1000, value: u64, text: Vec<u8>) {
            let mut out = Vec::new();
            int(&mut out, field, value);
            message(&mut out, field, |out| out.extend_from_slice(&text));
            let (number, read_value, rest) = read(&out).unwrap();
            prop_assert_eq!((number, read_value), (u64::from(field), Read::Int(value)));
            let (number, read_value, rest) = read(rest).unwrap();
            prop_assert_eq!((number, read_value), (u64::from(field), Read::Bytes(&text)));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn no_input_panics(input: Vec<u8>) {
            let mut rest = input.as_slice();
            while let Some((_, _, next)) = read(rest) {
                prop_assert!(next.len() < rest.len());
                rest = next;
            }
        }
    }
}
