//! The content codings of a request (RFC 9110, 8.4).

/// Returns whether `Content-Encoding` says that the content is coded. `identity` and empty elements
/// say nothing.
pub(crate) fn is_coded<'a>(values: impl Iterator<Item = &'a [u8]>) -> bool {
    elements(values).next().is_some()
}

/// Returns whether all codings can be decoded.
pub(crate) fn is_decodable<'a>(values: impl Iterator<Item = &'a [u8]>) -> bool {
    #[cfg(feature = "compression")]
    return codings_of(values).is_some();
    #[cfg(not(feature = "compression"))]
    return !is_coded(values);
}

/// Returns the names in `Content-Encoding`, in the order in which the codings were applied.
fn elements<'a>(values: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    values
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"))
}

#[cfg(feature = "compression")]
pub(crate) use self::decodable::{ACCEPTED_CODINGS, ContentCoding, codings_of};

#[cfg(feature = "compression")]
mod decodable {
    use super::elements;

    /// The codings that can be decoded, as `Accept-Encoding` names them.
    pub(crate) const ACCEPTED_CODINGS: &str = "gzip, deflate, br, zstd";

    /// The most codings that one content may have. Clients use one. Each needs memory for its
    /// window and multiplies the work that a short content can cause.
    const CODINGS_MAX: usize = 3;

    /// A coding that can be decoded.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum ContentCoding {
        Gzip,
        /// The zlib format (RFC 9110, 8.4.1.2).
        Deflate,
        Brotli,
        Zstd,
    }

    impl ContentCoding {
        fn of(name: &[u8]) -> Option<Self> {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            Some(match name {
                _ if is("gzip") || is("x-gzip") => Self::Gzip,
                _ if is("deflate") => Self::Deflate,
                _ if is("br") => Self::Brotli,
                _ if is("zstd") => Self::Zstd,
                _ => return None,
            })
        }
    }

    /// Returns the codings in the order in which they were applied. Returns `None` if one of them
    /// cannot be decoded, or if there are too many, or too many with large windows.
    pub(crate) fn codings_of<'a>(
        values: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Vec<ContentCoding>> {
        let mut codings = Vec::new();
        for name in elements(values) {
            if codings.len() == CODINGS_MAX {
                return None;
            }
            codings.push(ContentCoding::of(name)?);
        }
        // Each of these two has a window of megabytes, and clients have no reason to compress
        // twice.
        let is_large =
            |coding: &&ContentCoding| matches!(coding, ContentCoding::Brotli | ContentCoding::Zstd);
        (codings.iter().filter(is_large).count() <= 1).then_some(codings)
    }
}

#[cfg(all(test, feature = "compression"))]
mod tests {
    use super::ContentCoding::{Brotli, Deflate, Gzip, Zstd};
    use super::*;

    #[test]
    fn codings_are_listed_in_the_order_of_their_application() {
        let rows: [(&[&str], Option<&[ContentCoding]>); 11] = [
            (&[], Some(&[])),
            (&["", "identity, ,IDENTITY"], Some(&[])),
            (&["gzip"], Some(&[Gzip])),
            (&["X-GZip"], Some(&[Gzip])),
            (&["deflate"], Some(&[Deflate])),
            (&["gzip ,\tbr"], Some(&[Gzip, Brotli])),
            (&["zstd", "identity, gzip"], Some(&[Zstd, Gzip])),
            (&["gzip, gzip, gzip, gzip"], None),
            (&["compress"], None),
            (&["gzip, \u{e4}"], None),
            (&["gzip;q=1"], None),
        ];
        for (values, expected) in rows {
            let values = || values.iter().map(|value| value.as_bytes());
            assert_eq!(codings_of(values()).as_deref(), expected);
            assert_eq!(is_coded(values()), expected != Some(&[]));
            assert_eq!(is_decodable(values()), expected.is_some());
        }
    }
}
