//! Which end of a connection this is.

/// Which end of a connection this is. Clients mask their frames, servers do not (RFC 6455 section
/// 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that accepted the handshake.
    Server,
    /// The end that began the handshake.
    Client,
}
