//! Precompressed variants of files, and which of them a client accepts (RFC 9110, 12.5.3).

use crate::semantics::accept_encoding::AcceptEncoding;
use crate::semantics::weight::{WEIGHT_MAX, Weight};

/// A coding that a precompressed variant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    /// The name in `Accept-Encoding` and `Content-Encoding`.
    pub(super) name: &'static str,
    /// The suffix of the variant's file name.
    pub(super) suffix: &'static str,
}

/// In order of preference: if the client has none, the smallest variant is sent.
const VARIANTS: [Variant; 3] = [
    Variant { name: "br", suffix: ".br" },
    Variant { name: "zstd", suffix: ".zst" },
    Variant { name: "gzip", suffix: ".gz" },
];

/// Returns the codings that the client prefers to the uncompressed file, in order of preference,
/// from the values of `Accept-Encoding`.
pub(super) fn accepted_variants<'a>(
    values: impl Iterator<Item = &'a [u8]>,
) -> impl Iterator<Item = Variant> {
    let accept = AcceptEncoding::of(values);
    // `identity` is acceptable if it is not mentioned, but as the last choice.
    let at_least = accept.identity().map_or(1, |weight| weight.max(1));
    let mut accepted: Vec<(Weight, Variant)> =
        VARIANTS.iter().map(|coding| (accept.weight(coding.name), *coding)).collect();
    accepted.retain(|(weight, _)| *weight >= at_least);
    // The sort is stable, so our order decides among equal weights.
    accepted.sort_by_key(|(weight, _)| WEIGHT_MAX - weight);
    accepted.into_iter().map(|(_, coding)| coding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_come_in_the_order_of_their_weights() {
        let rows = [
            ("", ""),
            ("identity", ""),
            ("gzip", "gzip"),
            ("GZIP", "gzip"),
            ("x-gzip", "gzip"),
            ("gzip, deflate, br, zstd", "br zstd gzip"),
            ("gzip;q=1.0, br;q=0.9", "gzip br"),
            ("br;q=0, gzip;q=0.001", "gzip"),
            ("*", "br zstd gzip"),
            ("*;q=0", ""),
            ("*, br;q=0", "zstd gzip"),
            ("gzip;q=0.5, identity;q=0.8", ""),
            ("gzip;q=0.5, identity;q=0.5", "gzip"),
            ("gzip;q=0, identity;q=0", ""),
            ("br ; q=0.5 ,gzip;q=0.7", "gzip br"),
            // A malformed value counts as missing.
            ("br;q=2, gzip", "gzip"),
            ("br;q=0.1234, gzip", "gzip"),
            ("br;q=, br;level=3, ;q=1, gzip;q=-1", ""),
        ];
        for (accept, expected) in rows {
            let names: Vec<&str> = accepted_variants([accept.as_bytes()].into_iter())
                .map(|coding| coding.name)
                .collect();
            assert_eq!(names.join(" "), expected, "{accept}");
        }
    }
}
