//! The fields of a message, and their memory.
//!
//! A map of fields is an arena and an index, which the thread recycles. The other parts of a
//! request head may be stored with them, as plain values. No file here interprets fields, and none
//! depends on whether the bytes belong to a server or a client.

mod headers;
mod hex;
mod invalid;
mod parts;
mod secret;
mod span;
mod stash;
mod static_field;
mod storage;
mod tokens;
mod value;

pub use crate::fields::headers::Headers;
pub use crate::fields::hex::hex_digits;
pub use crate::fields::invalid::InvalidHeader;
pub(crate) use crate::fields::parts::{Facts, HeadParts, TargetParts};
pub(crate) use crate::fields::span::{Span, offset};
pub use crate::fields::stash::SpareHeads;
pub use crate::fields::static_field::StaticField;
pub(crate) use crate::fields::storage::{Field, Storage};
pub(crate) use crate::fields::tokens::{FIELDS_FEW, is_after_crlf, reason};
pub use crate::fields::value::AsHeaderValue;
