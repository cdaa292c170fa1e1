//! The memory of values that are deserialized from JSON.
//!
//! A content of two bytes per element becomes a value of 32 bytes per element or more, and an
//! object with one field takes 640 bytes for seven. The memory budget counts contents until their
//! handlers take them. If it did not count the values, a few hundred requests could take all memory
//! of the machine while their handlers wait for a database.

use std::sync::OnceLock;

use filoplume_runtime::HeldMemory;

/// Shorter contents are not counted. The values of one such content per thread fit into any server,
/// and most requests then pay nothing.
pub(crate) const COUNTED_BYTES_MIN: usize = 4 * 1024;

/// Returns how much memory a [`serde_json::Value`] of this content takes at most, approximately.
/// Other types mostly take less, and how much is not known before they are there.
///
/// Characters within texts count as well, because a scan that does not look for the ends of texts
/// is several times as fast.
pub(crate) fn estimate(content: &[u8]) -> usize {
    let of = |byte, bytes: usize| count(content, byte).saturating_mul(bytes);
    // The texts, and the first elements of arrays and objects, which need memory for several.
    content.len()
        + of(b'{', OBJECT_BYTES)
        + of(b'[', ARRAY_BYTES)
        + of(b',', ELEMENT_BYTES)
        + of(b'"', QUOTE_BYTES)
}

/// One node of a map, which has room for eleven fields.
const OBJECT_BYTES: usize = 672;

/// An array has room for four elements from the beginning.
const ARRAY_BYTES: usize = 4 * 32 + 16;

/// An array that grows has up to three times the memory of its elements for a moment. A map whose
/// fields come in their order has half-empty nodes.
const ELEMENT_BYTES: usize = 112;

/// The smallest allocation for a text, which has two quotes, has 32 bytes.
const QUOTE_BYTES: usize = 16;

/// Counts a byte. The chunks are short enough for counters of one byte, which the compiler makes
/// vectors of.
fn count(content: &[u8], byte: u8) -> usize {
    let of_chunk = |chunk: &[u8]| chunk.iter().map(|&other| u8::from(other == byte)).sum::<u8>();
    content.chunks(usize::from(u8::MAX)).map(|chunk| usize::from(of_chunk(chunk))).sum()
}

/// Memory that counts in the budget until the request is answered.
///
/// A parameter cannot hold it, because handlers take values out of their [`Json`](crate::Json).
#[derive(Default)]
pub(crate) struct HeldForValue(OnceLock<HeldMemory>);

impl HeldForValue {
    /// Keeps the memory. A request has one content, so there is one at most.
    pub(crate) fn keep(&self, memory: HeldMemory) {
        let _ = self.0.set(memory);
    }
}

/// A copy is for the response to an error, and the value is that of the original.
impl Clone for HeldForValue {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_much_in_memory_is_estimated_as_much() {
        let per_byte = |unit: &str| {
            let content = format!("[{}0]", unit.repeat(10_000));
            estimate(content.as_bytes()) / content.len()
        };
        for (unit, least, most) in [
            ("[],", 80, 90),
            ("[0],", 60, 70),
            ("{\"\":0},", 110, 120),
            ("0,", 50, 60),
            ("\"text of some length, as people write it\",", 6, 8),
        ] {
            let per_byte = per_byte(unit);
            assert!((least..most).contains(&per_byte), "{unit}: {per_byte}");
        }
    }

    #[test]
    fn bytes_are_counted_beyond_the_end_of_a_chunk() {
        for length in [0, 1, 254, 255, 256, 1000] {
            assert_eq!(count(&vec![b','; length], b','), length);
            assert_eq!(count(&vec![b'.'; length], b','), 0);
        }
    }
}
