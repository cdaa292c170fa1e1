//! Chooses the coding of a response (RFC 9110, 12.5.3).

use super::Coding;
use crate::semantics::accept_encoding::AcceptEncoding;
use crate::semantics::weight::Weight;

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The coding, or `None` for no compression.
    pub(super) coding: Option<Coding>,
    /// Whether the client refuses uncompressed content.
    pub(super) refuses_identity: bool,
}

/// Chooses one of the offered codings, which are in order of preference.
pub(super) fn choose<'a>(values: impl Iterator<Item = &'a [u8]>, offered: &[Coding]) -> Choice {
    let accepted = AcceptEncoding::of(values);
    let identity = accepted.identity();
    let mut best: Option<(Weight, Coding)> = None;
    for &coding in offered {
        let weight = accepted.weight(coding.name());
        // Among equal weights, the first one that is offered wins.
        if weight > 0 && best.is_none_or(|(most, _)| weight > most) {
            best = Some((weight, coding));
        }
    }
    // A client that prefers uncompressed content gives `identity` a higher weight.
    let best = best.filter(|(weight, _)| identity.is_none_or(|identity| *weight >= identity));
    Choice { coding: best.map(|(_, coding)| coding), refuses_identity: identity == Some(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(accept_encoding: &str) -> Choice {
        let offered = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
        choose([accept_encoding.as_bytes()].into_iter(), &offered)
    }

    #[test]
    fn the_highest_weight_wins_then_our_order() {
        for (accept_encoding, expected) in [
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip, br", Some(Coding::Brotli)),
            ("gzip;q=1.0, br;q=0.9, zstd;q=0.1", Some(Coding::Gzip)),
            ("gzip;q=0.501, br;q=0.5", Some(Coding::Gzip)),
            ("X-GZIP", Some(Coding::Gzip)),
            ("*", Some(Coding::Zstd)),
            ("*;q=0.5, zstd;q=0", Some(Coding::Brotli)),
            ("zstd;q=0, *;q=0", None),
            ("deflate, compress", None),
            ("", None),
            ("identity", None),
            ("identity;q=0.5, gzip;q=0.4", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Coding::Gzip)),
            ("identity;q=1, *;q=0.5", None),
            ("br ; Q=0.8 , gzip;q=0.9", Some(Coding::Gzip)),
            ("gzip;q=0, gzip", None),
        ] {
            assert_eq!(choice(accept_encoding).coding, expected, "{accept_encoding}");
        }
    }

    #[test]
    fn without_accept_encoding_nothing_is_compressed() {
        let choice = choose([].into_iter(), &[Coding::Gzip]);
        assert_eq!(choice, Choice { coding: None, refuses_identity: false });
    }

    #[test]
    fn identity_is_refused_only_explicitly() {
        for (accept_encoding, refuses) in [
            ("identity;q=0, gzip", true),
            ("gzip, *;q=0", true),
            ("identity, *;q=0", false),
            ("gzip", false),
            ("*", false),
        ] {
            assert_eq!(choice(accept_encoding).refuses_identity, refuses, "{accept_encoding}");
        }
    }

    #[test]
    fn a_coding_with_an_invalid_weight_is_not_accepted() {
        for bad in ["2", "0.1234", ""] {
            assert_eq!(choice(&format!("gzip;q={bad}")).coding, None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_choice_is_always_one_of_the_offered_codings(
            values in proptest::collection::vec(
                "([a-z*;,=q. 0-9\"-]|gzip|br|zstd|identity|\\PC){0,40}",
                0..4,
            ),
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40),
        ) {
            let values = values.iter().map(String::as_bytes).chain([&bytes[..]]);
            let coding = choose(values, &[Coding::Gzip]).coding;
            proptest::prop_assert!(matches!(coding, None | Some(Coding::Gzip)));
        }
    }
}
