//! The result of one call of a decoder.

use std::ops::Range;

/// The result of one call of [`ContentDecoder::decode`](crate::ContentDecoder::decode).
///
/// ```
/// use filoplume_http1::{ContentDecoder, Framing, Limits};
///
/// let mut decoder = ContentDecoder::new(Framing::Length(5), 1024, &Limits::default())?;
/// let decoded = decoder.decode(b"HelloGET /")?;
/// assert_eq!((decoded.data, decoded.consumed), (0..5, 5));
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Number of bytes consumed from the input, including data. Zero if more input is needed, or if
    /// nothing is left to decode.
    pub consumed: usize,
    /// The range of the data in the input, always within the consumed bytes. It is empty if only
    /// framing was read.
    pub data: Range<usize>,
}
