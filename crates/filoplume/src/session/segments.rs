//! The eviction order of sessions: a segmented LRU. This file uses no lock and no clock.
//!
//! A session of a visitor is on probation until a client presents it again. When memory is full,
//! sessions on probation are evicted first, oldest first, then the least recently used of other
//! visitors, and then the least recently used of users who have logged in. Presenting sessions
//! takes a visitor to the second class and no further: the third one needs credentials. Every
//! operation takes `O(log n)`, and removes a bounded number of sessions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use super::store::SessionOwner;

/// Memory of a session besides its record: the ID, and its entries in three maps.
pub(super) const OVERHEAD_BYTES: usize = 384;

/// Maximum number of expired sessions that one insertion removes. Because it is more than one,
/// expired sessions are removed faster than new ones are inserted. The bound keeps every call
/// short.
pub(super) const EXPIRED_PER_INSERT: usize = 8;

/// Returns the part of `max` that sessions in use may fill, visitors and users together: 80 %. The
/// remainder is reserved for new sessions, so that visitors can still begin one when the share is
/// full.
pub(super) fn used_share(max: usize) -> usize {
    max - max / 5
}

/// Sessions and their eviction order.
#[derive(Default)]
pub(super) struct Segments {
    by_id: HashMap<Arc<str>, Entry>,
    /// The number distinguishes sessions that end at the same time.
    by_end: BTreeMap<(Instant, u64), Arc<str>>,
    /// By [`Class`].
    segments: [Segment; 3],
    next_number: u64,
}

/// The classes of sessions, in the order in which they are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Sessions that were not presented again, and those that exceed [`used_share`].
    Probation,
    Visitors,
    Users,
}

struct Entry {
    record: Vec<u8>,
    end: (Instant, u64),
    /// The key in its segment.
    number: u64,
    owner: SessionOwner,
    class: Class,
}

/// A session to insert.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) owner: SessionOwner,
    pub(super) record: &'a [u8],
    pub(super) end: Instant,
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
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the record of a session that has not ended, without recording its use.
    pub(super) fn peek(&self, id: &str, now: Instant) -> Option<&[u8]> {
        let entry = self.by_id.get(id).filter(|entry| entry.end.0 > now)?;
        Some(&entry.record)
    }

    /// Records that a client presented a session.
    pub(super) fn record_use(&mut self, id: &str, bytes_max: usize) {
        let Some(owner) = self.by_id.get(id).map(|entry| entry.owner) else { return };
        self.move_to_newest(id, Class::of_used(owner));
        self.keep_share(bytes_max);
    }

    /// Inserts a session, and replaces one with the same ID. A new session of a visitor is on
    /// probation. The caller ensures that the record is not longer than `bytes_max`.
    pub(super) fn insert(&mut self, id: &str, new: New<'_>, now: Instant, bytes_max: usize) {
        let New { owner, record, end } = new;
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
        let class = Class::of_new(owner);
        self.by_end.insert((end, number), Arc::clone(&id));
        self.segment(class).insert(number, Arc::clone(&id), cost(record));
        let entry = Entry { record: record.to_owned(), end: (end, number), number, owner, class };
        self.by_id.insert(id, entry);
        self.keep_share(bytes_max);
    }

    /// If sessions in use exceed their share, the first of them to be evicted return to probation.
    fn keep_share(&mut self, bytes_max: usize) {
        let [_, visitors, users] = &self.segments;
        let mut surplus = (visitors.bytes + users.bytes).saturating_sub(used_share(bytes_max));
        while surplus > 0 {
            let [_, visitors, users] = &self.segments;
            let Some(id) = visitors.first().or_else(|| users.first()) else { break };
            let Some(entry) = self.by_id.get(&id) else { break };
            surplus = surplus.saturating_sub(cost(&entry.record));
            self.move_to_newest(&id, Class::Probation);
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        let Some(entry) = self.by_id.remove(id) else { return };
        self.by_end.remove(&entry.end);
        self.segment(entry.class).remove(entry.number, cost(&entry.record));
    }

    fn move_to_newest(&mut self, id: &str, class: Class) {
        let number = self.next_number();
        let Some((id, _)) = self.by_id.get_key_value(id) else { return };
        let id = Arc::clone(id);
        let Some(entry) = self.by_id.get_mut(&id) else { return };
        let bytes = cost(&entry.record);
        let old = (entry.class, entry.number);
        (entry.class, entry.number) = (class, number);
        self.segment(old.0).remove(old.1, bytes);
        self.segment(class).insert(number, id, bytes);
    }

    fn first_expired(&self, now: Instant) -> Option<Arc<str>> {
        let (end, id) = self.by_end.first_key_value()?;
        (end.0 <= now).then(|| Arc::clone(id))
    }

    fn first_to_evict(&self) -> Option<Arc<str>> {
        self.segments.iter().find_map(Segment::first)
    }

    fn segment(&mut self, class: Class) -> &mut Segment {
        let [probation, visitors, users] = &mut self.segments;
        match class {
            Class::Probation => probation,
            Class::Visitors => visitors,
            Class::Users => users,
        }
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

impl Class {
    fn of_new(owner: SessionOwner) -> Self {
        match owner {
            SessionOwner::Visitor => Self::Probation,
            SessionOwner::User => Self::Users,
        }
    }

    fn of_used(owner: SessionOwner) -> Self {
        match owner {
            SessionOwner::Visitor => Self::Visitors,
            SessionOwner::User => Self::Users,
        }
    }
}

impl Segment {
    fn first(&self) -> Option<Arc<str>> {
        self.ids.first_key_value().map(|(_, id)| Arc::clone(id))
    }

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_session_has_ended_at_its_end() {
        let now = Instant::now();
        let mut sessions = Segments::default();
        let new = New { owner: SessionOwner::Visitor, record: b"1234", end: now };
        let earlier = now.checked_sub(Duration::from_secs(1)).unwrap();
        sessions.insert("a", new, earlier, 10_000);
        assert_eq!(sessions.peek("a", earlier), Some(&b"1234"[..]));
        assert_eq!(sessions.first_expired(earlier), None);
        assert_eq!(sessions.peek("a", now), None);
        assert_eq!(sessions.first_expired(now).as_deref(), Some("a"));
    }
    #[test]
    fn as_many_sessions_return_to_probation_as_exceed_the_share() {
        let now = Instant::now();
        let end = now + Duration::from_secs(1);
        let mut sessions = Segments::default();
        for id in ["a", "b", "c"] {
            let new = New { owner: SessionOwner::Visitor, record: &[0; 100], end };
            sessions.insert(id, new, now, 10_000);
            sessions.record_use(id, 10_000);
        }
        // The share of sessions in use is 8000 bytes. This one exceeds it by two of the others.
        let new = New { owner: SessionOwner::User, record: &[0; 7000], end };
        sessions.insert("user", new, now, 10_000);
        let classes = ["a", "b", "c", "user"].map(|id| sessions.by_id[id].class);
        let expected = [Class::Probation, Class::Probation, Class::Visitors, Class::Users];
        assert_eq!(classes, expected);
    }
}
