//! The buckets of all clients, in the memory of this process.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::bucket::{Bucket, Decision};

/// Maximum number of locks. With this many, threads rarely wait for each other.
const SHARDS_MAX: usize = 32;

/// Minimum number of clients per lock. With fewer, some shards would be full long before others.
const SHARD_LEN_MIN: usize = 64;

/// Buckets by client, with a bound on their number.
///
/// A key is stored as 128 bits of a keyed hash. So long keys need no more memory, and attackers
/// cannot choose keys that collide.
pub(super) struct Memory {
    hashers: [RandomState; 2],
    shards: Vec<Mutex<Shard>>,
    started: Instant,
}

type Key = (u64, u64);

/// Two generations: a client that sends a request moves into the young one. The old generation is
/// dropped when the young one is full, or when enough time has passed that every bucket in the old
/// one is full again. This needs no sweep and no list by time.
struct Shard {
    young: HashMap<Key, u64>,
    old: HashMap<Key, u64>,
    young_since: u64,
    generation_len_max: usize,
}

impl Memory {
    pub(super) fn new(keys_max: usize) -> Self {
        let shards = (keys_max / SHARD_LEN_MIN).clamp(1, SHARDS_MAX);
        let generation_len_max = (keys_max / shards / 2).max(1);
        let shard = || {
            let (young, old) = (HashMap::new(), HashMap::new());
            Mutex::new(Shard { young, old, young_since: 0, generation_len_max })
        };
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            shards: (0..shards).map(|_| shard()).collect(),
            started: Instant::now(),
        }
    }

    pub(super) fn take(&self, key: &[u8], bucket: &Bucket) -> Decision {
        let now = nanos(self.started.elapsed());
        self.take_at(key, bucket, now)
    }

    fn take_at(&self, key: &[u8], bucket: &Bucket, now: u64) -> Decision {
        let key = self.hash(key);
        let Some(shard) = self.shard_of(key) else { return bucket.decision(true, 0) };
        let (decision, dropped) = shard.lock().take(key, bucket, now);
        // Dropped without the lock, because it may take long.
        drop(dropped);
        decision
    }

    /// Returns the decision about a request if the bucket has no token for it. Takes nothing, and
    /// remembers no client that is not known.
    pub(super) fn refusal(&self, key: &[u8], bucket: &Bucket) -> Option<Decision> {
        let (key, now) = (self.hash(key), nanos(self.started.elapsed()));
        let full_at = self.shard_of(key)?.lock().known(key)?;
        let (_, decision) = bucket.take(full_at, now);
        decision.retry_after.is_some().then_some(decision)
    }

    fn hash(&self, key: &[u8]) -> Key {
        let [first, second] = &self.hashers;
        (first.hash_one(key), second.hash_one(key))
    }

    fn shard_of(&self, key: Key) -> Option<&Mutex<Shard>> {
        let number = usize::try_from(key.0 % self.shards.len() as u64).unwrap_or_default();
        self.shards.get(number)
    }
}

impl Shard {
    /// Looks a client up. Whoever is asked for is in use, so it stays when the old generation is
    /// dropped.
    fn known(&mut self, key: Key) -> Option<u64> {
        if let Some(full_at) = self.old.remove(&key) {
            self.young.insert(key, full_at);
        }
        self.young.get(&key).copied()
    }

    /// Takes a token. Also returns a generation for the caller to drop.
    fn take(
        &mut self,
        key: Key,
        bucket: &Bucket,
        now: u64,
    ) -> (Decision, Option<HashMap<Key, u64>>) {
        let is_old =
            now.saturating_sub(self.young_since) >= bucket.span_nanos() && !self.young.is_empty();
        let is_full = self.young.len() >= self.generation_len_max && !self.young.contains_key(&key);
        let mut dropped = None;
        if is_old || is_full {
            let old = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            dropped = Some(old);
            self.young_since = now;
        }
        let known = self.young.get(&key).copied().or_else(|| self.old.remove(&key));
        let (full_at, decision) = bucket.take(known.unwrap_or(0), now);
        self.young.insert(key, full_at);
        (decision, dropped)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn keys_of(memory: &Memory) -> usize {
        memory
            .shards
            .iter()
            .map(|shard| shard.lock())
            .map(|shard| shard.young.len() + shard.old.len())
            .sum()
    }

    #[test]
    fn each_client_has_its_own_bucket() {
        let (memory, bucket) = (Memory::new(1000), Bucket::new(1, Duration::from_secs(1)));
        assert_eq!(memory.take_at(b"a", &bucket, 0).retry_after, None);
        assert_eq!(memory.take_at(b"a", &bucket, 0).retry_after, Some(Duration::from_secs(1)));
        assert_eq!(memory.take_at(b"b", &bucket, 0).retry_after, None);
        assert_eq!(memory.take_at(b"a", &bucket, SECOND).retry_after, None);
    }

    #[test]
    fn a_client_that_is_known_makes_no_room() {
        let (memory, bucket) = (Memory::new(4), Bucket::new(1, Duration::from_secs(1)));
        let is_allowed = |key: &[u8]| memory.take_at(key, &bucket, 0).retry_after.is_none();
        // Each generation has room for two. The second request of `a` begins none.
        assert_eq!([b"a", b"b", b"a"].map(|key| is_allowed(key)), [true, true, false]);
        assert_eq!([b"c", b"c", b"b"].map(|key| is_allowed(key)), [true, false, false]);
    }

    #[test]
    fn whoever_is_asked_for_is_remembered_like_whoever_takes() {
        let (memory, bucket) = (Memory::new(4), Bucket::new(1, Duration::from_secs(3600)));
        memory.take(b"a", &bucket);
        // Each generation has room for two, so that the first one is dropped twice.
        for key in [b"b", b"c", b"d", b"e", b"f", b"g"] {
            assert!(memory.refusal(b"a", &bucket).is_some());
            memory.take(key, &bucket);
        }
        assert!(keys_of(&memory) <= 4 + 1, "{}", keys_of(&memory));
    }

    #[test]
    fn a_flood_of_keys_neither_grows_nor_resets_an_active_client() {
        let (memory, bucket) = (Memory::new(10_000), Bucket::new(10, Duration::from_secs(1)));
        let mut allowed = 0;
        for number in 0..200_000_u32 {
            memory.take_at(&number.to_le_bytes(), &bucket, 0);
            if number % 10 == 0 {
                allowed += u32::from(memory.take_at(b"greedy", &bucket, 0).retry_after.is_none());
            }
        }
        assert!(keys_of(&memory) <= 10_000, "{}", keys_of(&memory));
        assert_eq!(allowed, 10, "a flood does not refill another client's bucket");
    }

    #[test]
    fn an_idle_client_is_forgotten_when_its_bucket_is_full_again() {
        let (memory, bucket) = (Memory::new(10_000), Bucket::new(10, Duration::from_secs(1)));
        for number in 0..5_000_u32 {
            memory.take_at(&number.to_le_bytes(), &bucket, 0);
        }
        assert_eq!(keys_of(&memory), 5_000);
        for round in 1..=3 {
            for number in 0..2_000_u32 {
                memory.take_at(&number.to_le_bytes(), &bucket, round * SECOND);
            }
        }
        assert_eq!(keys_of(&memory), 2_000);
    }

    #[test]
    fn a_new_generation_keeps_every_count_that_matters() {
        let (memory, bucket) = (Memory::new(10_000), Bucket::new(2, Duration::from_secs(2)));
        // The clients empty their buckets just before the generation ends. A token returns in a
        // second.
        memory.take_at(b"first of its shard", &bucket, 0);
        let late = 2 * SECOND - 1;
        for key in 0..100_u32 {
            let key = key.to_le_bytes();
            memory.take_at(&key, &bucket, late);
            memory.take_at(&key, &bucket, late);
            assert!(memory.take_at(&key, &bucket, late + 2).retry_after.is_some());
        }
    }

    #[test]
    fn a_client_is_not_forgotten_before_its_bucket_is_full_again() {
        // A single shard, in which other clients begin each generation.
        let (memory, bucket) = (Memory::new(100), Bucket::new(2, Duration::from_secs(2)));
        let is_allowed = |key: &[u8], now| memory.take_at(key, &bucket, now).retry_after.is_none();
        assert!(is_allowed(b"first", 0));
        assert!(is_allowed(b"greedy", SECOND - 1) && is_allowed(b"greedy", SECOND - 1));
        assert!(is_allowed(b"second", SECOND) && is_allowed(b"third", 2 * SECOND));
        assert!(is_allowed(b"greedy", 2 * SECOND), "one of its two tokens is back");
        assert!(!is_allowed(b"greedy", 2 * SECOND));
    }

    #[test]
    fn threads_share_a_bucket_exactly() {
        let (memory, bucket) = (Memory::new(1000), Bucket::new(100, Duration::from_secs(60)));
        let allowed: usize = std::thread::scope(|scope| {
            let take = || {
                (0..100).filter(|_| memory.take_at(b"a", &bucket, 0).retry_after.is_none()).count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(allowed, 100);
    }

    #[test]
    fn the_bound_on_keys_is_one_for_clients_and_one_for_networks() {
        let limit = crate::middleware::RateLimit::per_second(1).keys_max(10);
        for memory in [&limit.memory, &limit.networks] {
            assert_eq!(memory.shards.len(), 1);
            assert_eq!(memory.shards[0].lock().generation_len_max, 5);
        }
    }
}
