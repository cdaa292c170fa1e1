//! Masking (RFC 6455 section 5.3): every byte from a client is combined with one of four key bytes.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Masks or unmasks bytes in place; the two are the same operation.
///
/// `offset` is the position of the first byte in the content of its frame, so that a frame can be
/// unmasked piece by piece.
///
/// ```
/// use filoplume_websocket::apply_mask;
///
/// let mut content = *b"Hello";
/// apply_mask(&mut content, [0x37, 0xfa, 0x21, 0x3d], 0);
/// assert_eq!(content, [0x7f, 0x9f, 0x4d, 0x51, 0x58]);
/// ```
pub fn apply_mask(bytes: &mut [u8], key: [u8; 4], offset: usize) {
    let mut key = key;
    key.rotate_left(offset % 4);
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    // Eight bytes at a time. The compiler uses wider instructions if the processor has them.
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        if let Ok(chunk) = <&mut [u8; 8]>::try_from(chunk) {
            *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
        }
    }
    for (byte, key) in chunks.into_remainder().iter_mut().zip(key.into_iter().cycle()) {
        *byte ^= key;
    }
}

/// Where a client's masking keys come from.
///
/// A key must not be predictable (RFC 6455 section 10.3): a page that knows the next key could make
/// a proxy see bytes of its choice.
#[derive(Clone, Debug)]
pub(crate) enum MaskKeys {
    /// A keyed hash of a counter. The standard library's hasher has its key from the system.
    Random { hasher: RandomState, counter: u64 },
    /// Always the same key, for tests and measurements.
    Fixed([u8; 4]),
}

impl MaskKeys {
    pub(crate) fn random() -> Self {
        Self::Random { hasher: RandomState::new(), counter: 0 }
    }

    pub(crate) fn next(&mut self) -> [u8; 4] {
        match self {
            Self::Random { hasher, counter } => {
                *counter = counter.wrapping_add(1);
                let [a, b, c, d, ..] = hasher.hash_one(*counter).to_ne_bytes();
                [a, b, c, d]
            }
            Self::Fixed(key) => *key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_of_a_frame_is_masked_as_the_whole_is() {
        let key = [1, 2, 4, 8];
        for length in 0..40 {
            let plain: Vec<u8> = (0..length).collect();
            let expected: Vec<u8> =
                plain.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            for cut in 0..=plain.len() {
                let mut masked = plain.clone();
                let (first, second) = masked.split_at_mut(cut);
                apply_mask(first, key, 0);
                apply_mask(second, key, cut);
                assert_eq!(masked, expected, "{length} bytes cut at {cut}");
            }
        }
    }

    #[test]
    fn random_keys_differ() {
        let mut keys = MaskKeys::random();
        let first: Vec<_> = (0..8).map(|_| keys.next()).collect();
        assert!(first.iter().any(|key| *key != first[0]), "{first:?}");
    }
}
