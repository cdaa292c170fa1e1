//! The content codings that a client accepts (RFC 9110, 12.4.2 and 12.5.3).

use super::weight::{WEIGHT_MAX, Weight, parse_weight};

/// The weights in an `Accept-Encoding`, for the codings that this crate supports.
#[derive(Debug, Default)]
pub(crate) struct AcceptEncoding {
    zstd: Option<Weight>,
    brotli: Option<Weight>,
    gzip: Option<Weight>,
    identity: Option<Weight>,
    any: Option<Weight>,
}

impl AcceptEncoding {
    /// Parses the values of all `Accept-Encoding` fields.
    pub(crate) fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut accepted = Self::default();
        let values = values.filter_map(|value| std::str::from_utf8(value).ok());
        for element in values.flat_map(|value| value.split(',')) {
            // Malformed elements are ignored.
            let Some((name, weight)) = weighted(element) else { continue };
            let Some(place) = accepted.place(name) else { continue };
            // The first of several weights counts.
            place.get_or_insert(weight);
        }
        accepted
    }

    fn place(&mut self, name: &str) -> Option<&mut Option<Weight>> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        Some(match name {
            "*" => &mut self.any,
            _ if is("zstd") => &mut self.zstd,
            _ if is("br") => &mut self.brotli,
            _ if is("gzip") || is("x-gzip") => &mut self.gzip,
            _ if is("identity") => &mut self.identity,
            _ => return None,
        })
    }

    /// Returns the weight of a coding, named as in `Content-Encoding`. It is 0 if the coding is not
    /// accepted.
    pub(crate) fn weight(&self, coding: &str) -> Weight {
        let said = match coding {
            "zstd" => self.zstd,
            "br" => self.brotli,
            "gzip" => self.gzip,
            _ => None,
        };
        said.or(self.any).unwrap_or(0)
    }

    /// Returns the weight of uncoded content, if it was given. Without a weight, uncoded content is
    /// acceptable, but any accepted coding is preferred.
    pub(crate) fn identity(&self) -> Option<Weight> {
        self.identity.or(self.any.filter(|&any| any == 0))
    }
}

/// Parses a coding and its weight. Returns `None` if it is malformed.
fn weighted(element: &str) -> Option<(&str, Weight)> {
    let mut parts = element.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let Some(parameter) = parts.next() else { return Some((name, WEIGHT_MAX)) };
    let (key, value) = parameter.split_once('=')?;
    let is_weight = key.trim().eq_ignore_ascii_case("q");
    is_weight.then(|| parse_weight(value.trim())).flatten().map(|weight| (name, weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_weight_counts() {
        let rows = [
            // zstd, br, gzip
            ("", [0, 0, 0], None),
            ("gzip;q=0.5, gzip, X-GZIP", [0, 0, 500], None),
            ("*;q=0.3, br", [300, 1000, 300], None),
            ("zstd, *;q=0", [1000, 0, 0], Some(0)),
            ("identity;q=0.8, *;q=0", [0, 0, 0], Some(800)),
            // Not well-formed: as if it were not there.
            ("br;level=3, zstd;q=2, ;q=1, gzip;q", [0, 0, 0], None),
        ];
        for (value, weights, identity) in rows {
            let accepted = AcceptEncoding::of([value.as_bytes()].into_iter());
            assert_eq!(
                ["zstd", "br", "gzip"].map(|coding| accepted.weight(coding)),
                weights,
                "{value}"
            );
            assert_eq!(accepted.identity(), identity, "{value}");
        }
    }

    #[test]
    fn several_fields_are_one_list_and_binary_values_are_ignored() {
        let accepted =
            AcceptEncoding::of([b"br;q=0.1".as_slice(), b"zstd, \xff", b"gzip"].into_iter());
        assert_eq!(["zstd", "br", "gzip"].map(|coding| accepted.weight(coding)), [0, 100, 1000]);
    }
}
