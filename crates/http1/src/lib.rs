//! HTTP/1.0 and HTTP/1.1 as bytes in, bytes out, for servers and for clients: no socket, no clock,
//! no thread.
//!
//! What a peer sends never panics and is never guessed at: when it is in doubt where a message ends
//! (RFC 9112 section 6), the request is refused and the connection closes. The answer is the same
//! wherever the network cuts the bytes.
//!
//! [`ServerConnection`] keeps the order of messages; [`ContentDecoder`] finds the content behind a
//! head; [`ServerConnection::write_head`] frames the response. For clients [`OutgoingRequest`]
//! writes a request's head and [`ResponseReader`] reads what comes back. What is accepted is
//! bounded by [`Limits`].

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "a test may panic: that is a failure"
    )
)]

// A module uses only what stands below it. `request` and `response` do not know each other, and
// neither do `server` and `client`. A tidy test holds this order.
//
//   server     client       the order of messages on one connection
//   request    response     heads, read and written
//   content                 what lies behind a head
//   fields                  the fields, and the memory they lie in
//   framing                 how a message ends: one rule for both sides
//   scan  syntax  limits  error  version  date

mod client;
mod content;
mod date;
mod error;
mod fields;
mod framing;
mod limits;
mod request;
mod response;
mod scan;
mod server;
mod syntax;
#[cfg(test)]
mod variations;
mod version;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use crate::client::{PeerClosed, ResponseEvent, ResponseReader};
pub use crate::content::{
    BodyEncoding, CHUNK_END, ContentDecoder, ContentLength, Decoded, LAST_CHUNK, encode_chunk_head,
    encode_last_chunk,
};
pub use crate::date::Date;
pub use crate::error::ParseError;
pub use crate::fields::{Headers, InvalidHeader, StaticField};
pub use crate::framing::Framing;
pub use crate::limits::Limits;
pub use crate::request::{OutgoingRequest, RequestHead, parse_request_head};
pub use crate::response::{ResponseFraming, ResponseHead, parse_response_head, write_refusal};
pub use crate::server::{CloseReason, Next, ServerConnection};
pub use crate::version::Version;
