//! Finds the end of a run of bytes, eight bytes at a time without a branch between them.
//!
//! A test on a word sets the highest bit of each byte that ends a run. Sums and differences carry
//! from one byte into the next, so only the first mark is reliable: all bytes before it belong to
//! the run, and the bytes after it do not matter. Past the end of the input, bytes read as zeros,
//! which end every run.

const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);

/// The size of a vector register on every x86-64 and every 64-bit ARM. Twice the size made long
/// values cheaper, but common ones more expensive.
const BLOCK_BYTES: usize = 16;

/// Returns how many bytes from `start` are in [`TARGET_PATH`](crate::syntax::TARGET_PATH).
#[inline(always)]
pub(crate) fn path_run(bytes: &[u8], start: usize) -> usize {
    run(bytes, start, |word| {
        not_visible(word) | equal(word, b'#') | equal(word, b'?') | equal(word, b'\\')
    })
}

/// Returns how many bytes from `start` may occur in a query: path bytes, question marks and
/// backslashes.
#[inline(always)]
pub(crate) fn query_run(bytes: &[u8], start: usize) -> usize {
    run(bytes, start, |word| not_visible(word) | equal(word, b'#'))
}

/// Returns how many bytes from `start` are letters, digits and hyphens. Nearly all field names have
/// only these.
#[inline(always)]
pub(crate) fn name_run(bytes: &[u8], start: usize) -> usize {
    run(bytes, start, |word| {
        let lower = word | u64::from_ne_bytes([0x20; 8]);
        let letter = at_least(lower, b'a') & !at_least(lower, b'z' + 1);
        let digit = at_least(word, b'0') & !at_least(word, b'9' + 1);
        (!(letter | digit) & not_equal(word, b'-')) | word
    })
}

/// Returns how many bytes from `start` are in [`VALUE`](crate::syntax::VALUE) and not HTAB.
#[inline(always)]
pub(crate) fn value_run(bytes: &[u8], start: usize) -> usize {
    // Values may be long. The compiler turns the test of a whole block into a few vector
    // instructions.
    let mut rest = bytes.get(start..).unwrap_or_default();
    let mut blocks_len: usize = 0;
    while let Some((block, tail)) = rest.split_first_chunk::<BLOCK_BYTES>() {
        if block.iter().fold(false, |ends, &byte| ends | (byte < 0x20) | (byte == 0x7f)) {
            break;
        }
        rest = tail;
        blocks_len = blocks_len.wrapping_add(BLOCK_BYTES);
    }
    let start = start.wrapping_add(blocks_len);
    run(bytes, start, |word| (below(word, 0x20) | equal(word, 0x7f)) & !word)
        .wrapping_add(blocks_len)
}

/// Returns whether all bytes are in [`VALUE`](crate::syntax::VALUE). Most values are short, and
/// comparisons were measured to be cheaper for them than a table. For longer values, whole blocks
/// are tested first.
#[inline]
pub(crate) fn is_value(value: &[u8]) -> bool {
    let tested = if value.len() < 16 { 0 } else { value_run(value, 0) };
    let mut rest = value.iter().skip(tested);
    rest.all(|&byte| (byte >= 0x20 && byte != 0x7f) || byte == b'\t')
}

/// Returns how many bytes at the start are letters and hyphens. For names without digits it is a
/// cheaper [`name_run`].
#[inline(always)]
pub(crate) fn letter_run(bytes: &[u8]) -> usize {
    run_of_words(bytes, |word| {
        let lower = word | u64::from_ne_bytes([0x20; 8]);
        let letter = at_least(lower, b'a') & !at_least(lower, b'z' + 1);
        (!letter & not_equal(word, b'-')) | word
    })
}

/// Returns how many bytes at the start are visible ASCII or spaces. For short values it is a
/// cheaper [`value_run`].
#[inline(always)]
pub(crate) fn printable_run(bytes: &[u8]) -> usize {
    run_of_words(bytes, |word| below(word, 0x20) | word.wrapping_add(ONES) | word)
}

/// Returns how many of the first eight bytes are digits, up to the first other byte.
#[inline(always)]
pub(crate) fn digit_run_of_word(bytes: &[u8]) -> usize {
    let word = first_word(bytes);
    let digit = at_least(word, b'0') & !at_least(word, b'9' + 1);
    let found = (!digit | word) & HIGHS;
    found.trailing_zeros() as usize / 8
}

/// Returns the first eight bytes as a little-endian word, filled with zeros past the end.
#[inline(always)]
pub(crate) fn first_word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or_else(|| short_word(bytes), |eight| u64::from_le_bytes(*eight))
}

#[inline(always)]
fn run_of_words(bytes: &[u8], stops: impl Fn(u64) -> u64) -> usize {
    let mut rest = bytes;
    loop {
        let (word, tail) = match rest.split_first_chunk() {
            Some((eight, tail)) => (u64::from_le_bytes(*eight), tail),
            None => (short_word(rest), [].as_slice()),
        };
        let found = stops(word) & HIGHS;
        if found != 0 {
            return bytes
                .len()
                .wrapping_sub(rest.len())
                .wrapping_add(found.trailing_zeros() as usize / 8);
        }
        rest = tail;
    }
}

/// Returns fewer than eight bytes as a word.
#[cold]
#[inline(never)]
fn short_word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte))
}

/// Returns whether `line` begins with `Host: ` in any case.
#[inline(always)]
pub(crate) fn begins_with_host(line: &[u8]) -> bool {
    const HOST: Prefix = Prefix::new(b"host: \0\0");
    line.first_chunk().is_some_and(|eight| HOST.matches(u64::from_le_bytes(*eight)))
}

/// A prefix of up to eight bytes, compared without regard to case.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    text: u64,
    /// The bits in which upper and lower case differ.
    case: u64,
    /// The bits of the bytes that the prefix has.
    bits: u64,
}

impl Prefix {
    /// Returns the prefix `text`, which must be in lower case and padded with zeros.
    pub(crate) const fn new(text: &[u8; 8]) -> Self {
        let (mut case, mut bits) = ([0; 8], [0; 8]);
        let mut at = 0;
        while at < 8 {
            #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
            if text[at] != 0 {
                bits[at] = 0xff;
                case[at] = if text[at].is_ascii_lowercase() { 0x20 } else { 0 };
            }
            at = at.wrapping_add(1);
        }
        Self {
            text: u64::from_le_bytes(*text),
            case: u64::from_le_bytes(case),
            bits: u64::from_le_bytes(bits),
        }
    }

    #[inline(always)]
    pub(crate) fn matches(self, word: u64) -> bool {
        (word | self.case) & self.bits == self.text
    }
}

#[inline(always)]
fn run(bytes: &[u8], start: usize, stops: impl Fn(u64) -> u64) -> usize {
    let all = bytes.get(start..).unwrap_or_default();
    let mut rest = all;
    while let Some((eight, tail)) = rest.split_first_chunk() {
        let found = stops(u64::from_le_bytes(*eight)) & HIGHS;
        if found != 0 {
            return all
                .len()
                .wrapping_sub(rest.len())
                .wrapping_add(found.trailing_zeros() as usize / 8);
        }
        rest = tail;
    }
    let found = stops(last_word(bytes, rest.len())) & HIGHS;
    all.len().wrapping_sub(rest.len()).wrapping_add(found.trailing_zeros() as usize / 8)
}

/// Returns the last `len` bytes, fewer than eight, as a word. It reads the last eight bytes and
/// shifts out the ones before.
#[inline(always)]
fn last_word(bytes: &[u8], len: usize) -> u64 {
    let word = bytes.last_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
    let before = 8usize.wrapping_sub(len).wrapping_mul(8);
    u32::try_from(before).ok().and_then(|before| word.checked_shr(before)).unwrap_or(0)
}

/// Marks bytes that are not visible ASCII: controls, the space, DEL, and bytes from 0x80 up.
#[inline(always)]
fn not_visible(word: u64) -> u64 {
    below(word, 0x21) | word.wrapping_add(ONES) | word
}

/// Marks bytes below `limit`, and perhaps some from 0x80 up.
#[inline(always)]
fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(u64::from_ne_bytes([limit; 8]))
}

/// Marks bytes from `least` to 0x7f, and perhaps some from 0x80 up. If all bytes are below 0x80
/// nothing carries, so every mark and every missing mark is reliable.
#[inline(always)]
fn at_least(word: u64, least: u8) -> u64 {
    word.wrapping_add(u64::from_ne_bytes([0x80_u8.wrapping_sub(least); 8]))
}

/// Marks bytes that are not `byte`. Nothing carries, as in [`at_least`].
#[inline(always)]
fn not_equal(word: u64, byte: u8) -> u64 {
    (word ^ u64::from_ne_bytes([byte; 8])).wrapping_add(u64::from_ne_bytes([0x7f; 8]))
}

/// Marks bytes that are `byte`, and perhaps some from 0x80 up.
#[inline(always)]
fn equal(word: u64, byte: u8) -> u64 {
    (word ^ u64::from_ne_bytes([byte; 8])).wrapping_sub(ONES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::{TARGET_PATH, VALUE};

    /// Puts every byte at every position of runs of several lengths, with and without bytes after
    /// them.
    #[track_caller]
    fn check(run: fn(&[u8], usize) -> usize, has: impl Fn(u8) -> bool) {
        check_pairs(run, &has);
        check_repeated(run, &has);
        for len in 0..20 {
            for place in 0..len {
                for byte in 0..=u8::MAX {
                    let mut bytes = vec![b'a'; 8 + len];
                    bytes[8 + place] = byte;
                    let expected = if has(byte) { len } else { place };
                    assert_eq!(run(&bytes, 8), expected, "{byte:#04x} at {place} of {len}");
                    bytes.push(b' ');
                    bytes.push(0);
                    bytes.extend_from_slice(&[byte; 9]);
                    let ended = bytes[8..].iter().position(|&byte| !has(byte)).unwrap();
                    assert_eq!(
                        run(&bytes, 8),
                        ended,
                        "{byte:#04x} at {place} of {len}, with more after it"
                    );
                }
            }
        }
    }

    /// Puts every pair of bytes into a word: the test of one byte must not disturb the next.
    #[track_caller]
    fn check_pairs(run: fn(&[u8], usize) -> usize, has: impl Fn(u8) -> bool) {
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                let mut bytes = *b"aaaaaaaaa";
                (bytes[3], bytes[4]) = (first, second);
                let expected = bytes.iter().position(|&byte| !has(byte)).unwrap_or(bytes.len());
                assert_eq!(run(&bytes, 0), expected, "{first:#04x}, {second:#04x}");
            }
        }
    }

    /// Tests whole words and blocks of one repeated byte.
    #[track_caller]
    fn check_repeated(run: fn(&[u8], usize) -> usize, has: impl Fn(u8) -> bool) {
        for byte in 0..=u8::MAX {
            let expected = if has(byte) { 40 } else { 0 };
            assert_eq!(run(&[byte; 40], 0), expected, "{byte:#04x}");
        }
    }

    #[test]
    fn runs_agree_with_the_character_classes() {
        check(path_run, |byte| TARGET_PATH.has(byte));
        check(query_run, |byte| TARGET_PATH.has(byte) || matches!(byte, b'?' | b'\\'));
        check(name_run, |byte| byte.is_ascii_alphanumeric() || byte == b'-');
        check(value_run, |byte| VALUE.has(byte) && byte != b'\t');
        check(
            |bytes, at| letter_run(&bytes[at..]),
            |byte| byte.is_ascii_alphabetic() || byte == b'-',
        );
        check(|bytes, at| printable_run(&bytes[at..]), |byte| matches!(byte, b' '..=b'~'));
    }

    #[test]
    fn a_run_at_or_past_the_end_is_empty() {
        for bytes in [&b""[..], b"a", b"abcdefgh"] {
            assert_eq!(path_run(bytes, bytes.len()), 0);
            assert_eq!(path_run(bytes, bytes.len() + 9), 0);
        }
    }

    #[test]
    fn digits_of_a_word_are_counted() {
        for place in 0..8 {
            for byte in 0..=u8::MAX {
                let mut bytes = *b"09909090";
                bytes[place] = byte;
                let expected = if byte.is_ascii_digit() { 8 } else { place };
                assert_eq!(digit_run_of_word(&bytes), expected, "{byte:#04x} at {place}");
            }
        }
        assert_eq!(digit_run_of_word(b"1234"), 4);
    }

    #[test]
    fn fewer_than_eight_bytes_are_filled_with_zeros() {
        for len in 0..=9 {
            let mut expected = [0; 8];
            expected[..len.min(8)].copy_from_slice(&b"abcdefghi"[..len.min(8)]);
            assert_eq!(first_word(&b"abcdefghi"[..len]).to_le_bytes(), expected);
        }
    }

    #[test]
    fn only_the_field_host_begins_with_host() {
        for line in ["Host: h\r\n", "host: h\r\n", "HOST: h\r\n"] {
            assert!(begins_with_host(line.as_bytes()));
            for place in 0..6 {
                for byte in 0..=u8::MAX {
                    let mut changed = line.as_bytes().to_vec();
                    changed[place] = byte;
                    let expected = changed[..6].eq_ignore_ascii_case(b"host: ");
                    assert_eq!(begins_with_host(&changed), expected, "{byte:#04x} at {place}");
                }
            }
        }
        assert!(!begins_with_host(b"Host: h"));
    }
}
