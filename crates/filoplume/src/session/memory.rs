//! Sessions in the memory of the process.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::SessionStore;
use crate::core::error::Result;

/// How much memory the records may take, unless the program says otherwise: some 100,000 small sessions.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a session takes beside its record: the id twice, two map entries.
const OVERHEAD_BYTES: usize = 256;

/// Sessions in memory: for one process, and gone when it ends.
///
/// When it is full, the sessions that would end first make room.
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::session::MemoryStore;
///
/// let sessions = Sessions::new(MemoryStore::new(), Key::generate());
/// ```
pub struct MemoryStore {
    sessions: Mutex<Kept>,
    bytes_max: usize,
}

#[derive(Default)]
struct Kept {
    by_id: HashMap<String, Entry>,
    /// What ends first stands first. The number keeps those apart that end at once.
    by_end: BTreeMap<(Instant, u64), String>,
    bytes: usize,
    next_number: u64,
}

struct Entry {
    record: Vec<u8>,
    end: (Instant, u64),
}

impl MemoryStore {
    /// Returns an empty store of 64 MiB at most.
    pub fn new() -> Self {
        Self { sessions: Mutex::default(), bytes_max: BYTES_MAX }
    }

    /// Sets how much memory the sessions may take, in bytes.
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// Returns how many sessions are kept.
    pub fn len(&self) -> usize {
        self.sessions.lock().by_id.len()
    }

    /// Returns whether no session is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Kept {
    fn remove(&mut self, id: &str) {
        if let Some(entry) = self.by_id.remove(id) {
            self.by_end.remove(&entry.end);
            self.bytes -= cost(&entry.record);
        }
    }

    fn put(&mut self, id: &str, record: &[u8], keep_for: Duration, bytes_max: usize) {
        self.remove(id);
        let now = Instant::now();
        self.bytes += cost(record);
        while let Some(first) = self.by_end.first_entry() {
            if first.key().0 > now && self.bytes <= bytes_max {
                break;
            }
            let id = first.get().clone();
            self.remove(&id);
        }
        self.next_number += 1;
        let end = (end_of(now, keep_for), self.next_number);
        self.by_end.insert(end, id.to_owned());
        self.by_id.insert(id.to_owned(), Entry { record: record.to_owned(), end });
    }
}

/// A century stands for what no clock can say.
fn end_of(now: Instant, keep_for: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    now.checked_add(keep_for.min(CENTURY)).unwrap_or(now)
}

fn cost(record: &[u8]) -> usize {
    record.len() + OVERHEAD_BYTES
}

impl SessionStore for MemoryStore {
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
        let mut sessions = self.sessions.lock();
        match sessions.by_id.get(id) {
            Some(entry) if entry.end.0 > Instant::now() => Ok(Some(entry.record.clone())),
            Some(_) => {
                sessions.remove(id);
                Ok(None)
            }
            None => Ok(None),
        }
    }

    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()> {
        self.sessions.lock().put(id, record, keep_for, self.bytes_max);
        Ok(())
    }

    fn replace(&self, id: &str, old: &[u8], new: &[u8], keep_for: Duration) -> Result<bool> {
        let mut sessions = self.sessions.lock();
        let is_old =
            sessions.by_id.get(id).is_some_and(|entry| entry.record == old && entry.end.0 > Instant::now());
        if is_old {
            sessions.put(id, new, keep_for, self.bytes_max);
        }
        Ok(is_old)
    }

    fn remove(&self, id: &str) -> Result<()> {
        self.sessions.lock().remove(id);
        Ok(())
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("sessions", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn what_ends_first_makes_room() {
        let store = MemoryStore::new().bytes_max(3 * (OVERHEAD_BYTES + 4));
        for (id, hours) in [("a", 3), ("b", 1), ("c", 2)] {
            store.insert(id, b"1234", HOUR * hours).expect("memory does not fail");
        }
        assert_eq!(store.len(), 3);
        store.insert("d", b"1234", HOUR).expect("memory does not fail");
        let kept = |id: &str| store.load(id).expect("memory does not fail").is_some();
        assert_eq!([kept("a"), kept("b"), kept("c"), kept("d")], [true, false, true, true]);
        assert!(store.replace("a", b"1234", &[7; 300], HOUR * 3).expect("memory does not fail"));
        assert_eq!([kept("a"), kept("c"), kept("d")], [true, false, false]);
    }

    #[test]
    fn what_is_over_is_neither_given_out_nor_kept() {
        let store = MemoryStore::new();
        store.insert("a", b"1", Duration::ZERO).expect("memory does not fail");
        assert_eq!(store.load("a").expect("memory does not fail"), None);
        store.insert("b", b"1", Duration::ZERO).expect("memory does not fail");
        assert!(!store.replace("b", b"1", b"2", HOUR).expect("memory does not fail"));
        store.insert("c", b"1", Duration::MAX).expect("memory does not fail");
        assert_eq!(store.len(), 1);
        assert_eq!(store.sessions.lock().bytes, OVERHEAD_BYTES + 1);
    }
}
