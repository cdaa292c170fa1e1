//! The content of a message, which follows the head, and its framing.
//!
//! Content is read by its length or in chunks, with the trailer fields after the last chunk. Chunks
//! are also written. Requests and responses have the same kind of content, so no file here depends
//! on which of them it reads. The content itself is never copied.

mod chunked;
mod decoded;
mod decoder;
mod length;
mod trailers;

pub use crate::content::chunked::{CHUNK_END, LAST_CHUNK, encode_chunk_head, encode_last_chunk};
pub use crate::content::decoded::Decoded;
pub use crate::content::decoder::ContentDecoder;
pub use crate::content::length::{BodyEncoding, ContentLength};
