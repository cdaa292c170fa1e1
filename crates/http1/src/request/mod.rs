//! The head of a request, read by a server and written by a client.
//!
//! `plain` takes the common form in one pass and refuses nothing; what it does not take goes to
//! `parse`, which decides. `target` takes targets and `Host` apart, `framing` says what the fields
//! decide, `head` is the result, and `encode` is the other way. No file here knows what came before
//! on the connection, or anything of responses.

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
