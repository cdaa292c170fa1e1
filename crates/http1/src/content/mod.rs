//! The content of a message: what lies behind a head, as it is framed.
//!
//! It is read by its length or in chunks, with the fields behind the last chunk; chunks are also
//! written. Requests and responses have the same content, so no file here knows which of them it
//! reads, or how the head was written. The content itself is never copied.

mod chunked;
mod decoded;
mod decoder;
mod length;
mod trailers;

pub use crate::content::chunked::{CHUNK_END, LAST_CHUNK, encode_chunk_head, encode_last_chunk};
pub use crate::content::decoded::Decoded;
pub use crate::content::decoder::ContentDecoder;
pub use crate::content::length::{BodyEncoding, ContentLength};
