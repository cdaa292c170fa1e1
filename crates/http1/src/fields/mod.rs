//! The fields of a message, and the memory they lie in.
//!
//! A map of fields is an arena and an index, which its thread recycles. What a request says beside
//! its fields may lie in the same place, as plain values. No file here knows what a field means for
//! a message, where its bytes come from, or who is the server and who the client.

mod headers;
mod invalid;
mod parts;
mod span;
mod static_field;
mod storage;

pub use crate::fields::headers::Headers;
pub use crate::fields::invalid::InvalidHeader;
pub(crate) use crate::fields::parts::{Facts, HeadParts, TargetParts};
pub(crate) use crate::fields::span::{Span, offset};
pub use crate::fields::static_field::StaticField;
pub(crate) use crate::fields::storage::{Field, Storage};
