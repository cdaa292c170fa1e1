//! IDs of requests and traces.
//!
//! They are practically unique. Their random keys are those of the standard library, which takes
//! them from the system. IDs of traces cannot be guessed; IDs of requests cost less instead.
//! Neither needs a system call per request.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many numbers a thread takes at a time. Threads that take each number from the same counter
/// would wait for each other's cache line.
const NUMBERS_PER_THREAD: u64 = 1024;

/// Returns a number that was not returned before, on any thread of this process.
#[inline]
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static OF_THREAD: Cell<u64> = const { Cell::new(0) };
    }
    let mut number = OF_THREAD.get();
    if number % NUMBERS_PER_THREAD == 0 {
        number = NEXT.fetch_add(NUMBERS_PER_THREAD, Ordering::Relaxed);
    }
    OF_THREAD.set(number + 1);
    number
}

/// Returns a new ID: a counter, hashed with random keys.
pub(super) fn random_id() -> u128 {
    static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
    let [first, second] = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    let count = next_number();
    u128::from(first.hash_one(count)) << 64 | u128::from(second.hash_one(count))
}

/// Returns a new ID whose second half is the same for all IDs of this process. It costs a tenth of
/// [`random_id`], and is enough where an ID need not be secret: whoever has seen some may compute
/// others.
#[inline]
pub(super) fn random_request_id() -> u128 {
    static KEYS: OnceLock<[u64; 3]> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let key = RandomState::new();
        // The last one is not 0, as `IdCell` requires.
        [key.hash_one(0), key.hash_one(1), key.hash_one("process") | 1]
    });
    u128::from(mixed(next_number(), keys[0], keys[1])) << 64 | u128::from(keys[2])
}

/// Mixes the bits of a number. Each step can be undone, so different numbers stay different. A
/// product moves bits up, and a shift moves them down.
#[inline]
fn mixed(number: u64, first: u64, second: u64) -> u64 {
    // 2^64 divided by the golden ratio.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed = (number ^ first).wrapping_mul(SPREAD);
    mixed = (mixed ^ mixed >> 32).wrapping_mul(second | 1);
    mixed = (mixed ^ mixed >> 29).wrapping_mul(SPREAD);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_do_not_begin_alike() {
        for new in [random_id, random_request_id] {
            let ids: HashSet<_> = (0..10_000).map(|_| new()).collect();
            assert_eq!(ids.len(), 10_000);
            let starts: HashSet<_> = ids.iter().map(|id| id >> 96).collect();
            assert!(starts.len() > 9_990);
        }
    }

    #[test]
    fn threads_have_different_numbers() {
        let of_a_thread = || (0..3 * NUMBERS_PER_THREAD).map(|_| next_number()).collect::<Vec<_>>();
        let numbers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(of_a_thread)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let different: HashSet<_> = numbers.iter().collect();
        assert_eq!(different.len(), numbers.len());
    }

    /// IDs that follow each other differ in about half of their bits, for any keys.
    #[test]
    fn mixed_numbers_do_not_look_like_their_neighbours() {
        for keys in [(0, 0), (1, 2), (u64::MAX, u64::MAX), (0x1234_5678, 0x9abc_def0 << 32)] {
            let differing: u32 = (0..1_000)
                .map(|number| {
                    let mix = |number| mixed(number, keys.0, keys.1);
                    (mix(number) ^ mix(number + 1)).count_ones()
                })
                .sum();
            assert!((29_000..35_000).contains(&differing), "{keys:?}: {differing} of 64,000");
        }
    }
}
