//! The address of the client, and the proxies that are trusted to name it.

mod address;
mod proxies;

pub use address::ClientAddr;
pub use proxies::Proxies;
