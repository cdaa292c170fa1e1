//! The head of a request, read by a server and written by a client.
//!
//! `plain` is the fast path: it parses the common form of a head in one pass. Heads that it does
//! not accept go to `parse`, the general parser, which alone refuses requests. `target` splits
//! targets and checks `Host`. `framing` interprets the fields. `head` is the result. `encode`
//! writes heads. No file here depends on earlier messages of the connection, or on responses.

mod encode;
mod framing;
mod head;
mod parse;
mod plain;
mod target;

pub use crate::request::encode::OutgoingRequest;
pub use crate::request::head::RequestHead;
pub use crate::request::parse::parse_request_head;
pub(crate) use crate::request::parse::{parse_if_not_plain, parse_if_plain};
