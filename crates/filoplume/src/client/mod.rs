//! The address of the client, and the proxies that are trusted to name it.

mod address;
mod proxies;
mod untrusted;

pub use address::ClientAddr;
#[cfg(feature = "sessions")]
pub(crate) use address::is_over_tls;
pub use proxies::Proxies;
