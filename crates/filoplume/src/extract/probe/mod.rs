//! Start-up checks: whether the types that handlers extract can match any request.

mod captures;
#[cfg(feature = "form")]
mod fields;
mod sample;
mod verdict;

pub(super) use self::captures::captures_mismatch;
#[cfg(feature = "form")]
pub(super) use self::fields::fields_mismatch;
