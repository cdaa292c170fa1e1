//! Unpredictable numbers, without a system call per number.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a number that is not zero: a counter, hashed with keys from the system.
pub(crate) fn random() -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    KEYS.get_or_init(RandomState::new).hash_one(count).max(1)
}

/// Returns the ID of a new trace.
pub(crate) fn random_trace_id() -> u128 {
    u128::from(random()) << 64 | u128::from(random())
}
