//! Who asks, and which proxies are believed about it.

mod address;
mod proxies;

pub use address::ClientAddr;
pub use proxies::Proxies;
