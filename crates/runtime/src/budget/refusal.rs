//! The reasons for which requests and connections are refused. Each reason is counted, and logged
//! at a bounded rate.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use filoplume_http1::ParseError;

use crate::budget::throttle::Throttle;
use crate::client_address::is_private;
use crate::transport::Peer;

/// The reason why the engine refused a request or closed a connection that exceeded its limits.
///
/// Responses of the service, such as a `404`, are not refusals.
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
    /// The request is malformed or exceeds one of the [limits](crate::Limits). The error decides on
    /// the status.
    Request(ParseError),
    /// A head or a content did not arrive in time: `408`.
    Late,
    /// The peer did not take its response in time: the connection is closed.
    Stalled,
    /// No thread or [permit](crate::Permits) would have been free [in
    /// time](crate::ServerConfig::queue_timeout): `503`, or a closed connection if the response had
    /// begun.
    Overloaded,
    /// The memory for the data of all peers is used up: `503`, or a closed connection if the
    /// response had begun. See [`memory_max`](crate::ServerConfig::memory_max).
    Memory,
    /// The disk space for contents that wait in files is used up, or a file could not be written:
    /// `503`. The log has the reason.
    Spool,
    /// Too many descriptors are held in addition to those of connections, by all peers together or
    /// by this client: `503`. Such descriptors are for bodies that come from readers such as files,
    /// and for contents that handlers read as they arrive. The [limit of the
    /// process](crate::ServerConfig::connections_max) decides how many there may be.
    Descriptors,
    /// The client already has its [maximum of
    /// connections](crate::ServerConfig::connections_per_client_max): the new one is closed.
    ClientConnections,
    /// The maximum of threads already [waits for the
    /// client](crate::ServerConfig::connections_per_client_max): `503` for an upgrade, for a body
    /// that is [written](crate::pushed::Pushed::written), and for a content that its handler reads
    /// as it arrives.
    ClientThreads,
    /// The connection does not begin with a valid [PROXY
    /// header](crate::ServerBuilder::proxy_protocol): it is closed.
    ProxyHeader,
    /// A TLS handshake failed: the connection is closed with an alert. The log has the cause.
    Handshake,
    /// A TLS handshake did not complete in time: the connection is closed.
    LateHandshake,
    /// Too many TLS handshakes already wait to be computed: the connection is closed.
    Handshakes,
    /// A request without TLS came to an address that expects TLS: `400`.
    NotTls,
}

/// The reasons other than parse errors, in the order of their rows.
const OTHERS: [Refusal; 13] = [
    Refusal::Late,
    Refusal::Stalled,
    Refusal::Overloaded,
    Refusal::Memory,
    Refusal::Spool,
    Refusal::Descriptors,
    Refusal::ClientConnections,
    Refusal::ClientThreads,
    Refusal::ProxyHeader,
    Refusal::Handshake,
    Refusal::LateHandshake,
    Refusal::Handshakes,
    Refusal::NotTls,
];

const ROWS: usize = ParseError::ALL.len() + OTHERS.len();

impl Refusal {
    /// Returns the status of the response, or `None` if the connection is closed without one.
    pub const fn status(self) -> Option<u16> {
        match self {
            Self::Request(error) => Some(error.status()),
            Self::Late => Some(408),
            Self::NotTls => Some(400),
            Self::Overloaded
            | Self::Memory
            | Self::Spool
            | Self::Descriptors
            | Self::ClientThreads => Some(503),
            Self::Stalled
            | Self::ClientConnections
            | Self::ProxyHeader
            | Self::Handshake
            | Self::LateHandshake
            | Self::Handshakes => None,
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        ParseError::ALL.into_iter().map(Self::Request).chain(OTHERS)
    }

    /// Returns whether the operator may have to act. The other refusals are normal traffic of the
    /// open internet.
    fn concerns_operator(self) -> bool {
        matches!(
            self,
            Self::Overloaded
                | Self::Memory
                | Self::Spool
                | Self::Descriptors
                | Self::ClientConnections
                | Self::ClientThreads
                | Self::ProxyHeader
                | Self::Handshakes
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Late => f.write_str("request did not arrive in time"),
            Self::Stalled => f.write_str("peer did not take its response in time"),
            Self::Overloaded => f.write_str("no thread or permit would be free in time"),
            Self::Memory => f.write_str("the memory for the data of all peers is used up"),
            Self::Spool => f.write_str("no disk space for the content"),
            Self::Descriptors => f.write_str("too many descriptors are held"),
            Self::ClientConnections => f.write_str("client has too many connections"),
            Self::ClientThreads => f.write_str("too many threads wait for the client"),
            Self::ProxyHeader => f.write_str("no valid PROXY header"),
            Self::Handshake => f.write_str("TLS handshake failed"),
            Self::LateHandshake => f.write_str("TLS handshake did not complete in time"),
            Self::Handshakes => f.write_str("too many TLS handshakes wait"),
            Self::NotTls => f.write_str("request without TLS"),
        }
    }
}

/// What the log says of a client with too many connections that may be a proxy.
const PERHAPS_A_PROXY: &str = "if it is a proxy, name it by `trust_proxies` or \
                               `Service::is_proxy`: all its clients count as one";

/// Returns what the log adds about a client that has too many connections.
fn about_full_client(peer: Peer) -> String {
    match peer {
        Peer::Tcp(address) if is_private(address.ip()) => PERHAPS_A_PROXY.to_owned(),
        _ => String::new(),
    }
}

/// The refusals of an engine, counted by reason.
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

    /// Counts a refusal. Logs it unless the same reason was logged within the last second.
    pub(crate) fn note(&self, refusal: Refusal, peer: Peer) {
        self.note_because(refusal, peer, String::new);
    }

    /// Counts a connection of a client that already has its maximum of them.
    #[cold]
    pub(crate) fn note_full_client(&self, peer: Peer) {
        self.note_because(Refusal::ClientConnections, peer, || about_full_client(peer));
    }

    /// As `note`, with a more detailed reason in the log.
    #[cold]
    pub(crate) fn note_because(
        &self,
        refusal: Refusal,
        peer: Peer,
        because: impl FnOnce() -> String,
    ) {
        self.note_answered(refusal, refusal.status(), peer, because);
    }

    /// As `note_because`, for a connection that is closed instead of getting the status: its
    /// response has begun, or it speaks another protocol.
    #[cold]
    pub(crate) fn note_closed(
        &self,
        refusal: Refusal,
        peer: Peer,
        because: impl FnOnce() -> String,
    ) {
        self.note_answered(refusal, None, peer, because);
    }

    /// Counts a refusal, and logs it with the status that the peer gets.
    fn note_answered(
        &self,
        refusal: Refusal,
        status: Option<u16>,
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
        let because = because();
        let because = (!because.is_empty()).then_some(because);
        if refusal.concerns_operator() {
            tracing::warn!(reason = %refusal, status, %peer, because, left_out, "refused");
        } else {
            tracing::info!(reason = %refusal, status, %peer, because, left_out, "refused");
        }
    }

    /// Returns the reasons that have occurred, with their counts.
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
        assert_eq!(refusals.read(), expected, "a reason that never occurred is not listed");
    }

    #[test]
    fn only_a_full_client_in_a_private_network_may_be_a_proxy() {
        let about = |address: &str| about_full_client(Peer::Tcp(address.parse().unwrap()));
        for private in ["127.0.0.1:1", "10.0.0.1:1", "[::1]:1", "[::ffff:10.0.0.1]:1"] {
            assert!(about(private).contains("`trust_proxies`"), "{private}");
        }
        assert_eq!(about("192.0.2.1:1"), "");
        assert_eq!(about_full_client(Peer::Unix), "");
    }
}
