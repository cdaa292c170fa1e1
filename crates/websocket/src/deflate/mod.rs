//! Compressed messages: permessage-deflate (RFC 7692).
//!
//! **params** has what two ends agree on, **extensions** the syntax of the header field.
//! **inflater** and **deflater** do the work. Without context takeover they borrow their streams
//! from **streams**, which belong to the thread, so that an idle connection has none.

mod deflater;
mod extensions;
mod inflater;
mod params;
mod streams;

pub(crate) use deflater::Deflater;
pub(crate) use inflater::Inflater;
pub use params::{DeflateConfig, DeflateOptions, DeflateParams};

/// Every message ends with these bytes of an empty block, which are not transferred (RFC 7692
/// section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
