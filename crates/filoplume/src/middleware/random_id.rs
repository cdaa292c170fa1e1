//! IDs of requests and traces.
//!
//! They are as good as unique and cannot be guessed, because the standard library takes its random
//! keys from the system. They need no system call per request.

use std::hash::BuildHasher;
use std::hash::RandomState;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the IDs of this process.
static COUNT: AtomicU64 = AtomicU64::new(0);

static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();

/// Returns a new ID: a counter, hashed with random keys.
pub(super) fn random_id() -> u128 {
    let [first, second] = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    u128::from(first.hash_one(count)) << 64 | u128::from(second.hash_one(count))
}

/// Returns a new ID whose second half is the same for all IDs of this process. It costs half as
/// much, and is enough where nobody has to trust an ID.
#[inline]
pub(super) fn cheap_random_id() -> [u8; 16] {
    static PROCESS: OnceLock<[u8; 8]> = OnceLock::new();
    let [first, second] = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    let process = PROCESS.get_or_init(|| second.hash_one("process").to_be_bytes());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&first.hash_one(count).to_be_bytes());
    id[8..].copy_from_slice(process);
    id
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_do_not_predict_the_next_one() {
        let ids: HashSet<_> = (0..10_000).map(|_| random_id().to_be_bytes()).collect();
        let cheap: HashSet<_> = (0..10_000).map(|_| cheap_random_id()).collect();
        for ids in [ids, cheap] {
            assert_eq!(ids.len(), 10_000);
            let starts: HashSet<_> = ids.iter().map(|id| id[..4].to_owned()).collect();
            assert!(starts.len() > 9_990);
        }
    }
}
