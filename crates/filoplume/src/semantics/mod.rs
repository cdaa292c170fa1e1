//! The rules of RFC 9110 for preferences, conditions and ranges, over plain values. This module
//! does not depend on apps, routes or errors.

pub(crate) mod accept;
#[cfg(any(feature = "compression", feature = "static-files"))]
pub(crate) mod accept_encoding;
pub(crate) mod authority;
pub mod conditional;
pub(crate) mod content_coding;
pub(crate) mod content_disposition;
#[cfg(feature = "static-files")]
pub(crate) mod file_type;
pub(crate) mod media_type;
pub(crate) mod origin;
#[cfg(feature = "static-files")]
pub(crate) mod range;
pub(crate) mod uri;
pub(crate) mod vary;
pub(crate) mod weight;
