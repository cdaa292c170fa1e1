//! The buckets of all clients, in this process.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::bucket::{Bucket, Verdict};

/// Most locks that the clients are spread over: so many that threads seldom wait for one another.
const SHARDS_MAX: usize = 32;

/// Fewest clients behind one lock. With fewer, some shards would be full long before others.
const SHARD_LEN_MIN: usize = 64;

/// Buckets by client, with a bound.
///
/// Keys are kept as 128 bits of a hash with keys of this process: so a long key costs no memory,
/// and nobody can choose keys that collide.
pub(super) struct Memory {
    hashers: [RandomState; 2],
    shards: Vec<Mutex<Shard>>,
    started: Instant,
}

type Key = (u64, u64);

/// Two generations: who asks moves into the young one. When that is full, or old enough for every
/// bucket in the old one to be full again, the old one is dropped: no sweep, no list of who came
/// when.
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

    pub(super) fn take(&self, key: &[u8], bucket: &Bucket) -> Verdict {
        let now = nanos(self.started.elapsed());
        self.take_at(key, bucket, now)
    }

    fn take_at(&self, key: &[u8], bucket: &Bucket, now: u64) -> Verdict {
        let [first, second] = &self.hashers;
        let key = (first.hash_one(key), second.hash_one(key));
        let number = usize::try_from(key.0 % self.shards.len() as u64).unwrap_or_default();
        let Some(shard) = self.shards.get(number) else { return bucket.verdict(true, 0) };
        let (verdict, dropped) = shard.lock().take(key, bucket, now);
        // Not under the lock: it may be long.
        drop(dropped);
        verdict
    }
}

impl Shard {
    /// Takes a token; also returns a generation that is to be dropped.
    fn take(
        &mut self,
        key: Key,
        bucket: &Bucket,
        now: u64,
    ) -> (Verdict, Option<HashMap<Key, u64>>) {
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
        let (full_at, verdict) = bucket.take(known.unwrap_or(0), now);
        self.young.insert(key, full_at);
        (verdict, dropped)
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
    fn clients_have_buckets_of_their_own() {
        let (memory, bucket) = (Memory::new(1000), Bucket::new(1, Duration::from_secs(1)));
        assert_eq!(memory.take_at(b"a", &bucket, 0).retry_after, None);
        assert_eq!(memory.take_at(b"a", &bucket, 0).retry_after, Some(Duration::from_secs(1)));
        assert_eq!(memory.take_at(b"b", &bucket, 0).retry_after, None);
        assert_eq!(memory.take_at(b"a", &bucket, SECOND).retry_after, None);
    }

    #[test]
    fn a_flood_of_keys_does_not_grow_and_does_not_free_who_keeps_asking() {
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
    fn who_is_gone_is_forgotten_when_the_bucket_is_full_again() {
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
    fn a_generation_that_ends_loses_no_count_that_still_matters() {
        let (memory, bucket) = (Memory::new(10_000), Bucket::new(2, Duration::from_secs(2)));
        // Begun just before the generation ends, empty for a second from then on.
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
}
