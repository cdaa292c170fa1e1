//! The head of a response, written by a server and read by a client.
//!
//! `encode` writes heads and refusals. For a client, `plain` takes the common form in one pass and
//! refuses nothing; what it does not take goes to `parse`, which decides. `framing` says how a
//! response ends, and `head` is the result. No file here knows what came before on the connection;
//! of the request it is told the method.

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
