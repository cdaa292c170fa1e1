//! Every bound on what a peer may send, with the reason for its default.

/// The bounds on what a peer sends. A peer that exceeds one is closed with 1009.
///
/// ```
/// use filoplume_websocket::{Decoder, Limits, ProtocolError, Role};
///
/// let limits = Limits { frame_bytes_max: 4, ..Limits::default() };
/// let mut decoder = Decoder::new(Role::Client, limits);
/// let refused = decoder.receive(&mut [0x81, 5]).unwrap_err();
/// assert_eq!(refused, ProtocolError::FrameTooLong);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest content of a single frame, as it is transferred.
    pub frame_bytes_max: usize,
    /// Longest message: the sum of its fragments, after inflating.
    pub message_bytes_max: usize,
    /// Most fragments of a message.
    pub fragments_max: usize,
}

impl Limits {
    /// As long as a message, so that a message need not be fragmented.
    pub const FRAME_BYTES_MAX: usize = Self::MESSAGE_BYTES_MAX;
    /// Messages of applications are rarely longer than some KiB, and a peer can make each of its
    /// sockets hold this much.
    pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
    /// Enough for a message of 1 MiB in fragments of 64 bytes. Without this bound, a peer could
    /// send empty fragments forever without exceeding another one.
    pub const FRAGMENTS_MAX: usize = 16 * 1024;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: Self::FRAME_BYTES_MAX,
            message_bytes_max: Self::MESSAGE_BYTES_MAX,
            fragments_max: Self::FRAGMENTS_MAX,
        }
    }
}
