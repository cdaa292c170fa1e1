//! Sessions in the memory of the process.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::SessionStore;
use super::segments::{New, Segments, cost};
use super::store::SessionOwner;
use crate::core::error::{Error, Result};

/// Default bound for the memory of all sessions: some 100,000 small sessions.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Sessions in memory, for one process. They are lost when it ends.
///
/// When the store is full, it evicts in this order: sessions that no client has presented again,
/// oldest first; the least recently used of other visitors; the least recently used of users who
/// [logged in](super::Session::log_in). So a flood of new sessions evicts no session that is in
/// use, and a flood of sessions that are presented too evicts no session with a login, as long as
/// those fit into 80 % of [`bytes_max`](Self::bytes_max). If they do not, the first of them in this
/// order lose this protection. Each new session removes up to 8 expired ones.
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::session::MemoryStore;
///
/// let sessions = Sessions::new(MemoryStore::new(), Key::generate());
/// ```
pub struct MemoryStore {
    sessions: Mutex<Segments>,
    bytes_max: usize,
}

impl MemoryStore {
    /// Returns an empty store with a bound of 64 MiB.
    pub fn new() -> Self {
        Self { sessions: Mutex::default(), bytes_max: BYTES_MAX }
    }

    /// Sets how much memory the sessions may use, in bytes. A session uses the length of its record
    /// and some 400 bytes. A session that is larger than the store is an error.
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Returns whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn check_size(&self, record: &[u8]) -> Result<()> {
        if cost(record) <= self.bytes_max {
            return Ok(());
        }
        let (bytes, bytes_max) = (cost(record), self.bytes_max);
        Err(Error::internal(format!(
            "the session needs {bytes} bytes, but the store has only {bytes_max}"
        )))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns when a session ends: at most in a century, which the clock can express.
fn end_of(now: Instant, keep_for: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    now.checked_add(keep_for.min(CENTURY)).unwrap_or(now)
}

impl SessionStore for MemoryStore {
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
        let mut sessions = self.sessions.lock();
        let record = sessions.peek(id, Instant::now()).map(<[u8]>::to_owned);
        match record {
            Some(_) => sessions.record_use(id, self.bytes_max),
            None => sessions.remove(id),
        }
        Ok(record)
    }

    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()> {
        self.insert_for(SessionOwner::Visitor, id, record, keep_for)
    }

    fn insert_for(
        &self,
        owner: SessionOwner,
        id: &str,
        record: &[u8],
        keep_for: Duration,
    ) -> Result<()> {
        self.check_size(record)?;
        let now = Instant::now();
        let new = New { owner, record, end: end_of(now, keep_for) };
        self.sessions.lock().insert(id, new, now, self.bytes_max);
        Ok(())
    }

    fn replace(&self, id: &str, old: &[u8], new: &[u8], keep_for: Duration) -> Result<bool> {
        self.replace_for(SessionOwner::Visitor, id, old, new, keep_for)
    }

    fn replace_for(
        &self,
        owner: SessionOwner,
        id: &str,
        old: &[u8],
        new: &[u8],
        keep_for: Duration,
    ) -> Result<bool> {
        self.check_size(new)?;
        let now = Instant::now();
        let mut sessions = self.sessions.lock();
        let is_old = sessions.peek(id, now) == Some(old);
        if is_old {
            let new = New { owner, record: new, end: end_of(now, keep_for) };
            sessions.insert(id, new, now, self.bytes_max);
            sessions.record_use(id, self.bytes_max);
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
    use crate::session::segments::{EXPIRED_PER_INSERT, OVERHEAD_BYTES};
    use crate::session::store_tests::{self, HOUR, begin, present};

    /// Returns a store with room for this many sessions of four bytes.
    fn store_for(sessions: usize) -> MemoryStore {
        MemoryStore::new().bytes_max(sessions * (OVERHEAD_BYTES + 4))
    }

    fn ids(store: &MemoryStore) -> Vec<String> {
        let sessions = store.sessions.lock();
        let is_kept = |id: &&str| sessions.peek(id, Instant::now()).is_some();
        let kept = ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().filter(is_kept);
        kept.map(str::to_owned).collect()
    }

    #[test]
    fn a_session_that_was_never_presented_again_is_evicted_first() {
        store_tests::evicts_sessions_that_were_never_presented_again_first(&store_for(5), ids);
    }

    #[test]
    fn sessions_in_use_have_four_fifths_and_the_least_recently_used_are_evicted() {
        let store = store_for(5);
        store_tests::reserves_four_fifths_for_sessions_in_use(&store, ids);
        assert!(present(&store, "b") && present(&store, "f"));
        begin(&store, "g");
        assert_eq!(ids(&store), ["b", "d", "e", "f", "g"], "`c` was used before `b`");
    }

    #[test]
    fn sessions_with_a_login_are_evicted_last() {
        store_tests::keeps_logins_before_all_others(&store_for(20), 20);
    }

    #[test]
    fn logins_beyond_the_share_lose_their_protection_until_they_are_used() {
        store_tests::keeps_the_latest_logins_within_the_share(&store_for(5), ids);
    }

    #[test]
    fn changing_a_session_counts_as_use() {
        let store = store_for(3);
        for id in ["a", "b", "c"] {
            begin(&store, id);
        }
        assert!(store.replace("a", b"1234", b"5678", HOUR).expect("memory does not fail"));
        begin(&store, "d");
        assert_eq!(ids(&store), ["a", "c", "d"]);
        let room_of_two = vec![7; OVERHEAD_BYTES + 4];
        assert!(store.replace("a", b"5678", &room_of_two, HOUR).expect("memory does not fail"));
        assert_eq!(ids(&store), ["a", "d"]);
    }

    #[test]
    fn a_flood_of_new_sessions_evicts_none_that_is_in_use() {
        let store = store_for(15_000);
        let users: Vec<String> = (0..1000).map(|number| format!("user-{number}")).collect();
        for user in &users {
            begin(&store, user);
            assert!(present(&store, user));
        }
        for number in 0..300_000 {
            store
                .insert(&format!("flood-{number}"), b"1234", HOUR * 9)
                .expect("memory does not fail");
        }
        assert_eq!(store.len(), 15_000);
        assert!(users.iter().all(|user| present(&store, user)));
        // A user who logs in during the flood has the time of 3,000 new sessions to come back.
        begin(&store, "late");
        for number in 0..2999 {
            begin(&store, &format!("more-{number}"));
        }
        assert!(present(&store, "late"));
    }

    #[test]
    fn the_time_of_an_insertion_does_not_grow_with_the_store() {
        // The fastest of several runs counts: other work on the machine only makes runs slower.
        let fastest = |sessions: usize| {
            let store = store_for(sessions);
            (0..sessions).for_each(|number| begin(&store, &format!("old-{number}")));
            let run = |run: usize| {
                let begun = Instant::now();
                (0..500).for_each(|number| begin(&store, &format!("{run}-{number}")));
                begun.elapsed()
            };
            (0..10).map(run).min().expect("there were runs")
        };
        let (small, large) = (fastest(500), fastest(100_000));
        assert!(large < small * 40, "200 times the sessions: {small:?}, {large:?}");
    }

    #[test]
    fn an_insertion_removes_expired_sessions_a_few_at_a_time() {
        let store = MemoryStore::new();
        for number in 0..10 * EXPIRED_PER_INSERT {
            let (end, now) = (Instant::now(), Instant::now());
            // As if the clock had advanced only after all of them began.
            let before = now.checked_sub(HOUR).unwrap_or(now);
            let new = New { owner: SessionOwner::Visitor, record: b"1", end };
            store.sessions.lock().insert(&number.to_string(), new, before, usize::MAX);
        }
        for batch in 1..=10 {
            begin(&store, &format!("new-{batch}"));
            assert_eq!(store.len(), (10 - batch) * EXPIRED_PER_INSERT + batch);
        }
    }

    #[test]
    fn a_long_session_takes_the_place_of_expired_ones_before_others() {
        let store = store_for(21);
        begin(&store, "alive");
        let (end, now) = (Instant::now(), Instant::now());
        // As if the clock had advanced only after all of them began.
        let before = now.checked_sub(HOUR).unwrap_or(now);
        for number in 0..20 {
            let new = New { owner: SessionOwner::Visitor, record: b"1234", end };
            let id = number.to_string();
            store.sessions.lock().insert(&id, new, before, usize::MAX);
        }
        let room_of_fifteen = vec![7; 14 * OVERHEAD_BYTES + 15 * 4];
        store.insert("long", &room_of_fifteen, HOUR).expect("memory does not fail");
        assert!(present(&store, "alive") && present(&store, "long"));
    }

    #[test]
    fn an_expired_session_is_neither_returned_nor_kept() {
        let store = MemoryStore::new();
        store.insert("a", b"1", Duration::ZERO).expect("memory does not fail");
        assert_eq!(store.load("a").expect("memory does not fail"), None);
        store.insert("b", b"1", Duration::ZERO).expect("memory does not fail");
        assert!(!store.replace("b", b"1", b"2", HOUR).expect("memory does not fail"));
        store.insert("c", b"1", Duration::MAX).expect("memory does not fail");
        assert_eq!(store.len(), 1);
        assert_eq!(store.sessions.lock().bytes(), OVERHEAD_BYTES + 1);
        store.remove("c").expect("memory does not fail");
        assert_eq!(store.sessions.lock().bytes(), 0);
    }

    #[test]
    fn a_session_that_is_larger_than_the_store_evicts_no_other() {
        let store = store_for(2);
        begin(&store, "a");
        let _ = store.insert("b", &[7; 1000], HOUR).expect_err("it does not fit");
        let _ = store.replace("a", b"1234", &[7; 1000], HOUR).expect_err("it does not fit");
        assert_eq!(ids(&store), ["a"]);
        let store = store_for(1);
        begin(&store, "a");
        assert_eq!(ids(&store), ["a"], "it is just as large");
        let _ = store.insert("b", b"12345", HOUR).expect_err("it has a byte more");
        assert_eq!(ids(&store), ["a"]);
    }

    #[test]
    fn a_session_that_has_ended_is_freed_when_it_is_asked_for() {
        let store = MemoryStore::new();
        store.insert("a", b"1234", Duration::ZERO).expect("memory does not fail");
        assert_eq!(store.len(), 1);
        assert_eq!(store.load("a").expect("memory does not fail"), None);
        assert_eq!(store.len(), 0);
    }

    #[test]
    fn a_changed_session_is_protected_like_one_that_was_loaded() {
        let store = store_for(5);
        begin(&store, "a");
        assert!(store.replace("a", b"1234", b"5678", HOUR).expect("memory does not fail"));
        ["b", "c", "d", "e", "f", "g"].iter().for_each(|id| begin(&store, id));
        assert_eq!(ids(&store), ["a", "d", "e", "f", "g"]);
    }
}
