//! Who asks, for middleware that counts or writes down clients.

use std::net::IpAddr;

use filoplume_runtime::{Peer, Request};

use crate::context::Context;

/// The client's address; `None` on a Unix socket.
pub(crate) fn client_ip(request: &Request, _: Context<'_>) -> Option<IpAddr> {
    match request.peer() {
        Peer::Tcp(address) => Some(address.ip().to_canonical()),
        _ => None,
    }
}
