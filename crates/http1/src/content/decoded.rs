//! What a decoder says of the bytes it was given.

use std::ops::Range;

/// What one call of [`ContentDecoder::decode`](crate::ContentDecoder::decode) found.
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
    /// Bytes of the input that are done with, data included. Zero if more input is needed, or
    /// nothing is left to decode.
    pub consumed: usize,
    /// Where data lies in the input, always among the consumed bytes. May be empty when only
    /// framing was read.
    pub data: Range<usize>,
}
