//! What RFC 9110 says about preferences, conditions and ranges, over plain values: no app, no
//! route, no error.

pub(crate) mod accept;
#[cfg(any(feature = "compression", feature = "static-files"))]
pub(crate) mod accept_encoding;
pub(crate) mod authority;
pub mod conditional;
pub(crate) mod content_disposition;
#[cfg(feature = "static-files")]
pub(crate) mod file_type;
pub(crate) mod media_type;
#[cfg(feature = "static-files")]
pub(crate) mod range;
pub(crate) mod uri;
pub(crate) mod vary;
pub(crate) mod weight;
