//! IDs of requests and traces.
//!
//! They are as good as unique and cannot be guessed, because the standard library takes its random
//! keys from the system. They need no system call per request.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::request_id::{RequestId, digits};

/// Counts the IDs of this process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Returns a new ID: a counter, hashed with random keys.
pub(super) fn random_id() -> u128 {
    static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
    let [first, second] = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    u128::from(first.hash_one(count)) << 64 | u128::from(second.hash_one(count))
}

/// Returns a new ID whose second half is the same for all IDs of this process. It costs half as
/// much, and is enough where nobody has to trust an ID.
#[inline]
pub(super) fn random_request_id() -> RequestId {
    static KEY: OnceLock<(RandomState, [u8; 16])> = OnceLock::new();
    let (key, process) = KEY.get_or_init(|| {
        let key = RandomState::new();
        let process = digits(key.hash_one("process"));
        (key, process)
    });
    RequestId::of_digits(key.hash_one(COUNT.fetch_add(1, Ordering::Relaxed)), process)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_do_not_predict_the_next_one() {
        let ids: HashSet<_> = (0..10_000).map(|_| format!("{:032x}", random_id())).collect();
        let cheap: HashSet<_> = (0..10_000).map(|_| random_request_id().to_string()).collect();
        for ids in [ids, cheap] {
            assert_eq!(ids.len(), 10_000);
            let starts: HashSet<_> = ids.iter().map(|id| id[..8].to_owned()).collect();
            assert!(starts.len() > 9_990);
        }
    }
}
