//! Connections that were closed at a deadline, counted by what they waited for.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a connection waited for when its deadline passed. Returned by
/// [`Metrics::timeouts`](crate::Metrics::timeouts).
///
/// ```
/// use filoplume_runtime::Awaited;
///
/// assert_eq!(Awaited::FirstByte.to_string(), "first byte");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Awaited {
    /// The end of its TLS handshake.
    Handshake,
    /// The first byte of a request, on a new connection.
    FirstByte,
    /// The rest of a head.
    Head,
    /// The rest of a content or a message.
    Content,
    /// The peer, which had not taken all of its response.
    ResponseTaken,
    /// The next request.
    NextRequest,
    /// Either side of a stream, a WebSocket or another protocol.
    Stream,
    /// The end of a connection that has had its last response.
    Close,
    /// Something else.
    Other,
}

impl Awaited {
    /// All of them, in the order of their counters.
    const ALL: [Self; 9] = [
        Self::Handshake,
        Self::FirstByte,
        Self::Head,
        Self::Content,
        Self::ResponseTaken,
        Self::NextRequest,
        Self::Stream,
        Self::Close,
        Self::Other,
    ];
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handshake => "TLS handshake",
            Self::FirstByte => "first byte",
            Self::Head => "head",
            Self::Content => "content",
            Self::ResponseTaken => "response taken",
            Self::NextRequest => "next request",
            Self::Stream => "stream",
            Self::Close => "close",
            Self::Other => "other",
        })
    }
}

/// The counters. They are rarely changed, so they share cache lines.
#[derive(Debug, Default)]
pub(crate) struct Timeouts([AtomicU64; Awaited::ALL.len()]);

impl Timeouts {
    #[cold]
    pub(crate) fn count(&self, awaited: Awaited) {
        if let Some(count) = self.0.get(awaited as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> TimeoutCounts {
        // A loop: the array's `map` would be unrolled, and programs are to be small.
        let mut counts = [0; Awaited::ALL.len()];
        for (value, count) in counts.iter_mut().zip(&self.0) {
            *value = count.load(Ordering::Relaxed);
        }
        TimeoutCounts(counts)
    }
}

/// The values of the counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeoutCounts([u64; Awaited::ALL.len()]);

impl TimeoutCounts {
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Awaited, u64)> + '_ {
        Awaited::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_under_its_own_name() {
        let timeouts = Timeouts::default();
        for (index, awaited) in Awaited::ALL.into_iter().enumerate() {
            (0..=index).for_each(|_| timeouts.count(awaited));
        }
        let counts = timeouts.read();
        assert_eq!(counts.sum(), 45);
        let expected = Awaited::ALL.into_iter().zip(1..);
        assert!(counts.iter().eq(expected), "{counts:?}");
    }
}
