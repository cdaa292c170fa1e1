//! The head of a response, written by a server and read by a client.
//!
//! `encode` writes heads and refusals for a server. For a client, `plain` is the fast path, which
//! parses the common form of a head in one pass. Heads that it does not accept go to `parse`, the
//! general parser, which alone refuses responses. `framing` determines how a response ends, and
//! `head` is the result. No file here depends on earlier messages of the connection; of the
//! request, only the method is passed in.

mod encode;
mod framing;
mod head;
mod parse;
mod plain;

pub use crate::response::encode::write_refusal;
pub(crate) use crate::response::encode::{
    ConnectionField, LengthField, write_ok_head, write_refusal_head, write_response_head,
};
pub use crate::response::framing::ResponseFraming;
pub use crate::response::head::ResponseHead;
pub use crate::response::parse::parse_response_head;
