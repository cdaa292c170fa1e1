//! The other end of a connection.

use std::fmt;
use std::net::SocketAddr;

use crate::client_address::is_private;

/// The peer of a connection.
///
/// ```
/// use filoplume_runtime::Peer;
/// use std::net::SocketAddr;
///
/// let peer = Peer::Tcp(SocketAddr::from(([192, 0, 2, 7], 4711)));
/// assert_eq!(peer.to_string(), "192.0.2.7:4711");
/// assert_eq!(Peer::Unix.to_string(), "unix");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// A TCP peer.
    Tcp(SocketAddr),
    /// A process on this machine, over a Unix socket.
    Unix,
}

impl Peer {
    /// Returns whether the peer is on this machine or in a private network. No packet with such a
    /// source comes from the open internet, so such a peer is a proxy, or belongs to those who run
    /// the server.
    ///
    /// The private addresses are those of this machine, those of RFC 1918, the unique local ones of
    /// RFC 4193, link-local ones, and those between a carrier or cloud and its customers
    /// (RFC 6598). A Unix socket is private too.
    ///
    /// ```
    /// use filoplume_runtime::Peer;
    ///
    /// let peer = |ip: [u8; 4]| Peer::Tcp((ip, 4711).into());
    /// assert!(peer([10, 1, 2, 3]).is_private() && peer([127, 0, 0, 1]).is_private());
    /// assert!(!peer([192, 0, 2, 7]).is_private());
    /// assert!(Peer::Unix.is_private());
    /// ```
    #[must_use]
    pub fn is_private(&self) -> bool {
        match self {
            Self::Tcp(address) => is_private(address.ip()),
            Self::Unix => true,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}
