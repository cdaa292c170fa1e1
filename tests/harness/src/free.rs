//! Addresses for servers that are told where to listen.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The ports to choose from. They lie below those that the system gives to whoever asks for any
/// port (Linux: from 32768 on), so no client and no other server gets one before the server that
/// is told to listen there does.
const PORTS: Range<u32> = 20_000..32_000;

/// Returns an address that is free, each time another one.
#[track_caller]
pub fn free_address() -> SocketAddr {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    // Programs that run at the same time begin far from each other.
    let begin = process::id().wrapping_mul(97) % count;
    for _ in PORTS {
        let call = CALLS.fetch_add(1, Ordering::Relaxed) % count;
        let port = PORTS.start + (begin + call) % count;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap()));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port of {PORTS:?} is free");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_is_not_free_and_none_comes_twice() {
        let first = free_address();
        let next = SocketAddr::from((Ipv4Addr::LOCALHOST, first.port() + 1));
        // Where something else listens already, the address cannot be taken, which is as good.
        let _taken = TcpListener::bind(next);
        let addresses: Vec<_> = (0..100).map(|_| free_address()).collect();
        assert!(!addresses.contains(&first) && !addresses.contains(&next), "{addresses:?}");
        for (index, address) in addresses.iter().enumerate() {
            assert!(address.port() < 32_768 && !addresses[..index].contains(address));
        }
    }
}
