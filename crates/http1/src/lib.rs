//! HTTP/1.0 and HTTP/1.1 for servers and clients, without I/O: the caller passes bytes in and gets
//! bytes out. The crate uses no socket, no clock and no thread.
//!
//! No input causes a panic. If the end of a message is ambiguous (RFC 9112 section 6), the request
//! is refused and the connection closes. The result does not depend on how the network splits the
//! bytes.
//!
//! [`ServerConnection`] keeps the order of messages. [`ContentDecoder`] finds the content after a
//! head. [`ServerConnection::write_head`] frames the response. For clients, [`OutgoingRequest`]
//! writes the head of a request and [`ResponseReader`] reads the responses. [`Limits`] bounds what
//! is accepted.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "a test may panic: that is a failure"
    )
)]

// A module uses only modules that are listed below it. `request` and `response` do not use each
// other, and neither do `server` and `client`. A tidy test checks this order.
//
//   server     client       the order of messages on one connection
//   request    response     heads, read and written
//   content                 the content after a head
//   fields                  the fields and their memory
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
pub use crate::fields::{
    AsHeaderValue, Headers, InvalidHeader, SpareHeads, StaticField, hex_digits,
};
pub use crate::framing::Framing;
pub use crate::limits::Limits;
pub use crate::request::{OutgoingRequest, RequestHead, parse_request_head};
pub use crate::response::{ResponseFraming, ResponseHead, parse_response_head, write_refusal};
pub use crate::server::{CloseReason, Next, ServerConnection};
pub use crate::version::Version;
