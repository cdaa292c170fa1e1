//! The eviction order of sessions: a segmented LRU. This file uses no lock and no clock.
//!
//! A session is on probation until a client presents it again. When memory is full, sessions on
//! probation are evicted first, oldest first, and then the least recently used of the others. Every
//! operation takes `O(log n)`, and removes a bounded number of sessions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// Memory of a session besides its record: the ID, and its entries in three maps.
pub(super) const OVERHEAD_BYTES: usize = 384;

/// Maximum number of expired sessions that one insertion removes. Because it is more than one,
/// expired sessions are removed faster than new ones are inserted. The bound keeps every call
/// short.
pub(super) const EXPIRED_PER_INSERT: usize = 8;

/// Returns the part of `max` that sessions in use may fill: 80 %. The remainder is reserved for new
/// sessions, so that users can still log in when the share is full.
pub(super) fn used_share(max: usize) -> usize {
    max - max / 5
}

/// Sessions and their eviction order.
#[derive(Default)]
pub(super) struct Segments {
    by_id: HashMap<Arc<str>, Entry>,
    /// The number distinguishes sessions that end at the same time.
    by_end: BTreeMap<(Instant, u64), Arc<str>>,
    /// Sessions that were not presented again, and those that exceed [`used_share`].
    probation: Segment,
    used: Segment,
    next_number: u64,
}

struct Entry {
    record: Vec<u8>,
    end: (Instant, u64),
    /// The key in its segment.
    number: u64,
    is_used: bool,
}

/// Sessions by number: the first one is evicted next.
#[derive(Default)]
struct Segment {
    ids: BTreeMap<u64, Arc<str>>,
    bytes: usize,
}

impl Segments {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.probation.bytes + self.used.bytes
    }

    /// Returns the record of a session that has not ended, without recording its use.
    pub(super) fn peek(&self, id: &str, now: Instant) -> Option<&[u8]> {
        let entry = self.by_id.get(id).filter(|entry| entry.end.0 > now)?;
        Some(&entry.record)
    }

    /// Records that a client presented a session. If sessions in use exceed their share, the least
    /// recently used of them return to probation.
    pub(super) fn record_use(&mut self, id: &str, bytes_max: usize) {
        self.move_to_newest(id, true);
        while self.used.bytes > used_share(bytes_max) {
            let Some((_, id)) = self.used.ids.first_key_value() else { break };
            let id = Arc::clone(id);
            self.move_to_newest(&id, false);
        }
    }

    /// Inserts a session on probation, and replaces one with the same ID. The caller ensures that
    /// the record is not longer than `bytes_max`.
    pub(super) fn insert(
        &mut self,
        id: &str,
        record: &[u8],
        end: Instant,
        now: Instant,
        bytes_max: usize,
    ) {
        self.remove(id);
        for _ in 0..EXPIRED_PER_INSERT {
            let Some(id) = self.first_expired(now) else { break };
            self.remove(&id);
        }
        while self.bytes() + cost(record) > bytes_max {
            let Some(id) = self.first_expired(now).or_else(|| self.first_to_evict()) else { break };
            self.remove(&id);
        }
        let number = self.next_number();
        let id: Arc<str> = id.into();
        self.by_end.insert((end, number), Arc::clone(&id));
        self.probation.insert(number, Arc::clone(&id), cost(record));
        let entry = Entry { record: record.to_owned(), end: (end, number), number, is_used: false };
        self.by_id.insert(id, entry);
    }

    pub(super) fn remove(&mut self, id: &str) {
        let Some(entry) = self.by_id.remove(id) else { return };
        self.by_end.remove(&entry.end);
        self.segment(entry.is_used).remove(entry.number, cost(&entry.record));
    }

    fn move_to_newest(&mut self, id: &str, is_used: bool) {
        let number = self.next_number();
        let Some((id, _)) = self.by_id.get_key_value(id) else { return };
        let id = Arc::clone(id);
        let Some(entry) = self.by_id.get_mut(&id) else { return };
        let bytes = cost(&entry.record);
        let old = (entry.is_used, entry.number);
        (entry.is_used, entry.number) = (is_used, number);
        self.segment(old.0).remove(old.1, bytes);
        self.segment(is_used).insert(number, id, bytes);
    }

    fn first_expired(&self, now: Instant) -> Option<Arc<str>> {
        let (end, id) = self.by_end.first_key_value()?;
        (end.0 <= now).then(|| Arc::clone(id))
    }

    fn first_to_evict(&self) -> Option<Arc<str>> {
        let first =
            self.probation.ids.first_key_value().or_else(|| self.used.ids.first_key_value());
        first.map(|(_, id)| Arc::clone(id))
    }

    fn segment(&mut self, is_used: bool) -> &mut Segment {
        if is_used { &mut self.used } else { &mut self.probation }
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

impl Segment {
    fn insert(&mut self, number: u64, id: Arc<str>, bytes: usize) {
        self.ids.insert(number, id);
        self.bytes += bytes;
    }

    fn remove(&mut self, number: u64, bytes: usize) {
        self.ids.remove(&number);
        self.bytes -= bytes;
    }
}

/// Returns how much memory a session uses.
pub(super) fn cost(record: &[u8]) -> usize {
    record.len() + OVERHEAD_BYTES
}
