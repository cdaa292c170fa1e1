//! Files that lie compressed beside their originals, and which of them a client takes (RFC 9110, 12.5.3).

use crate::semantics::weight::{WEIGHT_MAX, Weight, parse_weight};

/// A coding of which a sibling may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coding {
    /// As `Accept-Encoding` and `Content-Encoding` name it.
    pub(super) name: &'static str,
    /// What the name of the sibling has at its end.
    pub(super) suffix: &'static str,
}

/// The best first: where the client has no preference the smallest is sent.
const CODINGS: [Coding; 3] = [
    Coding { name: "br", suffix: ".br" },
    Coding { name: "zstd", suffix: ".zst" },
    Coding { name: "gzip", suffix: ".gz" },
];

/// Returns the codings that the client prefers to no coding, the best first.
pub(super) fn accepted(accept_encoding: &str) -> impl Iterator<Item = Coding> {
    let weights: Vec<(&str, Weight)> = accept_encoding.split(',').filter_map(weighted).collect();
    let weight_of = |name: &str| {
        let find = |wanted: &str| weights.iter().find(|(of, _)| of.eq_ignore_ascii_case(wanted));
        let alias = if name == "gzip" { find("x-gzip") } else { None };
        find(name).or(alias).or_else(|| find("*")).map_or(0, |(_, weight)| *weight)
    };
    let identity = weights.iter().find(|(of, _)| of.eq_ignore_ascii_case("identity"));
    // What is not mentioned is acceptable, but it is the last choice.
    let at_least = identity.map_or(1, |(_, weight)| (*weight).max(1));
    let mut accepted: Vec<(Weight, Coding)> =
        CODINGS.iter().map(|coding| (weight_of(coding.name), *coding)).collect();
    accepted.retain(|(weight, _)| *weight >= at_least);
    // Stable: ours among equals.
    accepted.sort_by_key(|(weight, _)| WEIGHT_MAX - weight);
    accepted.into_iter().map(|(_, coding)| coding)
}

/// A coding and its weight; `None` if it is not well-formed.
fn weighted(element: &str) -> Option<(&str, Weight)> {
    let mut parts = element.split(';');
    let name = parts.next()?.trim();
    if name.is_empty() {
        return None;
    }
    let weight = match parts.next() {
        None => WEIGHT_MAX,
        Some(parameter) => {
            let (key, value) = parameter.trim().split_once('=')?;
            if !key.eq_ignore_ascii_case("q") {
                return None;
            }
            parse_weight(value)?
        }
    };
    Some((name, weight))
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
            // Not well-formed: as if it were not there.
            ("br;q=2, gzip", "gzip"),
            ("br;q=0.1234, gzip", "gzip"),
            ("br;q=, br;level=3, ;q=1, gzip;q=-1", ""),
        ];
        for (accept, expected) in rows {
            let names: Vec<&str> = accepted(accept).map(|coding| coding.name).collect();
            assert_eq!(names.join(" "), expected, "{accept}");
        }
    }
}
