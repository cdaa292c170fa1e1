//! Why requests and connections are refused: each reason is counted, and logged at a bounded rate.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use filoplume_http1::ParseError;

use crate::budget::throttle::Throttle;
use crate::transport::Peer;

/// Why the engine refused a request, or ended a connection that did not keep to its bounds.
///
/// What a service refuses by itself, such as a path that it does not have, is not among them.
///
/// ```
/// use filoplume_runtime::{ParseError, Refusal};
///
/// let refusal = Refusal::Request(ParseError::HeadTooLong);
/// assert_eq!(refusal.status(), Some(431));
/// assert_eq!(refusal.to_string(), "head is too long");
/// assert_eq!(Refusal::ClientConnections.status(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The request is malformed, or over one of the [limits](crate::Limits). Its status says which.
    Request(ParseError),
    /// A head or a content did not come in time: `408`.
    Late,
    /// The peer did not take its response in time: the connection was cut.
    Stalled,
    /// No thread would have been free [in time](crate::ServerConfig::queue_timeout): `503`, or the
    /// end of a connection whose response had begun.
    Overloaded,
    /// So much is buffered of all peers that no more could be: `503`, or the end of a connection
    /// whose response had begun. See [`memory_max`](crate::ServerConfig::memory_max).
    Memory,
    /// The client has [as many connections as it
    /// may](crate::ServerConfig::connections_per_client_max): closed.
    ClientConnections,
    /// As many threads [wait for the client](crate::ServerConfig::connections_per_client_max) as
    /// may: `503` to a content that its handler reads as it arrives, the end of a connection that
    /// asked for an upgrade.
    ClientThreads,
    /// The connection does not begin with a valid [PROXY
    /// header](crate::ServerBuilder::proxy_protocol): closed.
    ProxyHeader,
}

/// The reasons beside those of the parser, in the order of their rows.
const OTHERS: [Refusal; 7] = [
    Refusal::Late,
    Refusal::Stalled,
    Refusal::Overloaded,
    Refusal::Memory,
    Refusal::ClientConnections,
    Refusal::ClientThreads,
    Refusal::ProxyHeader,
];

const ROWS: usize = ParseError::ALL.len() + OTHERS.len();

impl Refusal {
    /// Returns the status that answers it; `None` if the connection ends without a word.
    pub const fn status(self) -> Option<u16> {
        match self {
            Self::Request(error) => Some(error.status()),
            Self::Late => Some(408),
            Self::Overloaded | Self::Memory | Self::ClientThreads => Some(503),
            Self::Stalled | Self::ClientConnections | Self::ProxyHeader => None,
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        ParseError::ALL.into_iter().map(Self::Request).chain(OTHERS)
    }

    /// Whether the operator may have to do something; else it is what the open internet sends every
    /// day.
    fn concerns_operator(self) -> bool {
        matches!(
            self,
            Self::Overloaded
                | Self::Memory
                | Self::ClientConnections
                | Self::ClientThreads
                | Self::ProxyHeader
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Late => f.write_str("request did not come in time"),
            Self::Stalled => f.write_str("peer did not take its response in time"),
            Self::Overloaded => f.write_str("no thread would be free in time"),
            Self::Memory => f.write_str("the memory for what peers send and are sent is used up"),
            Self::ClientConnections => f.write_str("client has too many connections"),
            Self::ClientThreads => f.write_str("too many threads wait for the client"),
            Self::ProxyHeader => f.write_str("no valid PROXY header"),
        }
    }
}

/// What an engine refused, by reason.
#[derive(Debug)]
pub(crate) struct Refusals {
    rows: [Row; ROWS],
}

#[derive(Debug)]
struct Row {
    count: AtomicU64,
    log: Throttle,
}

impl Refusals {
    pub(crate) fn new() -> Self {
        Self {
            rows: std::array::from_fn(|_| Row { count: AtomicU64::new(0), log: Throttle::new() }),
        }
    }

    /// Counts a refusal, and logs it unless there was a line about the same reason within a second.
    pub(crate) fn note(&self, refusal: Refusal, peer: Peer) {
        self.note_because(refusal, peer, String::new);
    }

    /// The same, and the log says more of the reason.
    #[cold]
    pub(crate) fn note_because(
        &self,
        refusal: Refusal,
        peer: Peer,
        because: impl FnOnce() -> String,
    ) {
        let Some(row) =
            Refusal::all().position(|known| known == refusal).and_then(|row| self.rows.get(row))
        else {
            return;
        };
        row.count.fetch_add(1, Ordering::Relaxed);
        let Some(left_out) = row.log.admit() else { return };
        let status = refusal.status();
        let because = because();
        let because = (!because.is_empty()).then_some(because);
        if refusal.concerns_operator() {
            tracing::warn!(reason = %refusal, status, %peer, because, left_out, "refused");
        } else {
            tracing::info!(reason = %refusal, status, %peer, because, left_out, "refused");
        }
    }

    /// The reasons that have occurred, with how often.
    pub(crate) fn read(&self) -> Vec<(Refusal, u64)> {
        let counts = self.rows.iter().map(|row| row.count.load(Ordering::Relaxed));
        Refusal::all().zip(counts).filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_row_of_its_own_and_a_text() {
        let refusals = Refusals::new();
        let all: Vec<Refusal> = Refusal::all().collect();
        assert_eq!(all.len(), ROWS);
        for (times, refusal) in all.iter().enumerate() {
            assert!(!refusal.to_string().is_empty());
            for _ in 0..times {
                refusals.note(*refusal, Peer::Unix);
            }
        }
        let expected: Vec<(Refusal, u64)> = all.into_iter().zip(0..).skip(1).collect();
        assert_eq!(refusals.read(), expected, "what never occurred is not listed");
    }
}
