//! The answer of a closure.

use std::borrow::Cow;
use std::fmt;

/// An answer: borrowed or owned bytes, or nothing. It may also close the connection.
///
/// ```
/// use filoplume_runtime::tcp::{Reply, lines};
///
/// let service = lines(|line| match line {
///     b"time" => "too late".into(),
///     b"quit" => Reply::from("bye").and_close(),
///     b"" => Reply::none(),
///     other => other.into(),
/// });
/// ```
pub struct Reply<'a> {
    pub(super) bytes: Option<Cow<'a, [u8]>>,
    pub(super) closes: bool,
}

impl Reply<'_> {
    /// Returns an empty answer: nothing is sent.
    pub fn none() -> Self {
        Self { bytes: None, closes: false }
    }

    /// Closes the connection after this answer is sent.
    #[must_use]
    pub fn and_close(mut self) -> Self {
        self.closes = true;
        self
    }
}

impl<'a> From<&'a [u8]> for Reply<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(Cow::Borrowed(bytes)), closes: false }
    }
}

impl<'a> From<&'a str> for Reply<'a> {
    fn from(text: &'a str) -> Self {
        text.as_bytes().into()
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Reply<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl From<Vec<u8>> for Reply<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: Some(Cow::Owned(bytes)), closes: false }
    }
}

impl From<String> for Reply<'_> {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl<'a, R: Into<Self>> From<Option<R>> for Reply<'a> {
    fn from(reply: Option<R>) -> Self {
        reply.map_or_else(Self::none, Into::into)
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.bytes.as_deref().map(<[u8]>::len);
        f.debug_struct("Reply").field("bytes", &length).field("closes", &self.closes).finish()
    }
}
