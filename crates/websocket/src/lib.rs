//! WebSocket (RFC 6455) for servers and clients, without I/O: the caller passes bytes in and gets
//! bytes out. The crate uses no socket, no clock and no thread.
//!
//! No input causes a panic, and the result does not depend on how the network splits the bytes. A
//! text is checked while it arrives, and an incomplete message takes memory only for the part that
//! has arrived.
//!
//! [`HandshakeRequest`] reads a client's handshake, [`ClientHandshake`] is the other side of it.
//! [`Decoder`] reads messages, [`Encoder`] writes them, [`Limits`] bounds what is accepted. With
//! the feature `deflate` messages are compressed (RFC 7692): see [`DeflateConfig`].

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "a test may panic: that is a failure"
    )
)]
#![cfg_attr(
    not(feature = "deflate"),
    allow(rustdoc::broken_intra_doc_links, reason = "an optional item")
)]

// A module uses only modules that are listed below it. A tidy test checks this order.
//
//   decoder  encoder  handshake
//   deflate                       compressed messages, if the feature is on
//   frame                         the head of a frame
//   error  close  role  mask  limits

mod close;
mod decoder;
#[cfg(feature = "deflate")]
mod deflate;
mod encoder;
mod error;
mod frame;
mod handshake;
mod limits;
mod mask;
mod role;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use crate::close::{CLOSE_REASON_BYTES_MAX, CloseCode, CloseFrame};
pub use crate::decoder::{Decoder, Event};
#[cfg(feature = "deflate")]
pub use crate::deflate::{DeflateConfig, DeflateOptions, DeflateParams};
pub use crate::encoder::{ControlTooLong, Encoder};
pub use crate::error::ProtocolError;
pub use crate::frame::{CONTROL_BYTES_MAX, FrameHead, Opcode};
pub use crate::handshake::{
    ClientHandshake, HandshakeError, HandshakeRequest, HandshakeResponse, VERSION,
};
pub use crate::limits::Limits;
pub use crate::mask::apply_mask;
pub use crate::role::Role;
