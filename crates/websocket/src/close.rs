//! Why a connection was closed (RFC 6455 section 7.4).

use std::fmt;

/// A code that says why a connection was closed.
///
/// ```
/// use filoplume_websocket::CloseCode;
///
/// assert_eq!(CloseCode::GOING_AWAY.value(), 1001);
/// assert_eq!(CloseCode::new(4000).map(CloseCode::value), Some(4000));
/// // This one is never sent: it means that no close frame arrived.
/// assert_eq!(CloseCode::new(1006), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server shuts down, or the browser leaves the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the rules of the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// The peer sent a kind of data that this end does not accept.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// The content of a message does not match its type, such as a text that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// The peer broke a rule that has no code of its own.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message is longer than this end accepts.
    pub const TOO_BIG: Self = Self(1009);
    /// The client expected an extension that the server did not negotiate.
    pub const EXTENSION_MISSING: Self = Self(1010);
    /// The server met an unexpected condition.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The service is restarted; the client may connect again.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// The service is overloaded; the client may connect again later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);
    /// The close frame has no code. Never sent.
    pub const NONE: Self = Self(1005);
    /// The connection ended without a close frame. Never sent.
    pub const ABNORMAL: Self = Self(1006);

    /// Returns the code, or `None` if it may not be sent: 1000 to 1003 and 1007 to 1014 are
    /// defined, and 3000 to 4999 are for libraries and applications.
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),
            _ => None,
        }
    }

    /// Returns the code as a number.
    pub const fn value(self) -> u16 {
        self.0
    }

    /// Returns whether the code may stand in a close frame.
    ///
    /// ```
    /// use filoplume_websocket::CloseCode;
    ///
    /// assert!(CloseCode::NORMAL.is_sendable());
    /// assert!(!CloseCode::ABNORMAL.is_sendable());
    /// ```
    pub const fn is_sendable(self) -> bool {
        Self::new(self.0).is_some()
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<CloseCode> for u16 {
    fn from(code: CloseCode) -> Self {
        code.0
    }
}

/// The content of a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseFrame<'a> {
    /// Why the connection is closed.
    pub code: CloseCode,
    /// A text for the log, at most 123 bytes.
    pub reason: &'a str,
}

/// Longest reason in a close frame: a control frame has at most 125 bytes, and the code takes two.
pub const CLOSE_REASON_BYTES_MAX: usize = 123;
