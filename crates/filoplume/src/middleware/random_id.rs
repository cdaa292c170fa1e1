//! IDs of requests and traces.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a new ID: a counter, hashed with random keys. It is as good as unique. It cannot be
/// guessed, because the standard library takes the keys from the system. And it needs no system
/// call per request.
pub(super) fn random_id() -> u128 {
    static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let [first, second] = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    u128::from(first.hash_one(count)) << 64 | u128::from(second.hash_one(count))
}
