//! The stored form of a session, and its lifetime. This file uses no store and no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{SUBJECT, SessionOwner};
use crate::core::error::{Error, Result};

/// Longest session in a store. It is read and written as a whole; more data belongs into a
/// database.
const RECORD_BYTES_MAX: usize = 256 * 1024;

/// The first number of a record. Another number means another version of this crate.
const VERSION: u8 = 1;

/// The stored form of a session. Times are seconds since 1970, because stores are shared and
/// outlive processes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// When it began, or when it was [remembered](super::Session::remember).
    pub(crate) created: u64,
    /// When it was last recorded that the session is in use.
    pub(crate) touched: u64,
    pub(crate) values: Map<String, Value>,
}

/// When sessions end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    /// The time without use after which a session ends.
    pub(crate) idle: Duration,
    /// The time after which a session ends in any case.
    pub(crate) absolute: Duration,
}

impl Lifetime {
    /// Returns the longest time for which a session is kept after a use.
    pub(crate) fn longest(self) -> Duration {
        self.idle.min(self.absolute)
    }
}

/// The changes of a request. `None` removes a name.
pub(crate) type Changes = BTreeMap<String, Option<Value>>;

impl Record {
    pub(crate) fn new(now: u64) -> Self {
        Self { created: now, touched: now, values: Map::new() }
    }

    /// A session has a subject only after a login. In an app that does not use subjects, a session
    /// that is remembered counts as that of a user, because apps remember sessions at login.
    pub(crate) fn owner(&self) -> SessionOwner {
        if self.values.contains_key(SUBJECT) || self.remembered_for().is_some() {
            SessionOwner::User
        } else {
            SessionOwner::Visitor
        }
    }

    /// Applies the changes of a request to a record that other requests may have changed.
    pub(crate) fn apply(&mut self, changes: &Changes) {
        for (name, change) in changes {
            match change {
                Some(value) => self.values.insert(name.clone(), value.clone()),
                None => self.values.remove(name),
            };
        }
    }

    /// Returns how long the session is still valid, or `None` if it has ended.
    pub(crate) fn keep_for(&self, lifetime: Lifetime, now: u64) -> Option<Duration> {
        let left = |since: u64, whole: Duration| {
            let passed = Duration::from_secs(now.saturating_sub(since));
            whole.checked_sub(passed).filter(|left| !left.is_zero())
        };
        if let Some(remembered) = self.remembered_for() {
            return left(self.created, remembered.min(lifetime.absolute));
        }
        Some(left(self.touched, lifetime.idle)?.min(left(self.created, lifetime.absolute)?))
    }

    /// Returns whether it is time to record that the session is in use. Doing that for each request
    /// would mean a write per read.
    pub(crate) fn needs_touch(&self, lifetime: Lifetime, now: u64) -> bool {
        Duration::from_secs(now.saturating_sub(self.touched)) >= lifetime.idle / 16
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let record = serde_json::to_vec(&(VERSION, self.created, self.touched, &self.values))?;
        let length = record.len();
        if length > RECORD_BYTES_MAX {
            return Err(Error::internal(format!(
                "the session has {length} bytes, but at most {RECORD_BYTES_MAX} are stored: \
                 keep the data in a database, and its key in the session"
            )));
        }
        Ok(record)
    }

    /// Reads a record; returns `None` for another version.
    pub(crate) fn decode(record: &[u8]) -> Option<Self> {
        let (version, created, touched, values) =
            serde_json::from_slice::<(u8, _, _, _)>(record).ok()?;
        (version == VERSION).then_some(Self { created, touched, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Lifetime =
        Lifetime { idle: Duration::from_secs(160), absolute: Duration::from_secs(1000) };

    fn record(created: u64, touched: u64) -> Record {
        Record { created, touched, values: Map::new() }
    }

    #[test]
    fn a_session_ends_when_it_is_idle_and_when_it_is_old() {
        for (created, touched, now, expected) in [
            (100, 100, 100, Some(160)),
            (100, 100, 259, Some(1)),
            (100, 100, 260, None),
            (100, 1000, 1000, Some(100)),
            (100, 1099, 1099, Some(1)),
            (100, 1099, 1100, None),
            // A clock that was set back.
            (100, 100, 50, Some(160)),
            (0, 0, u64::MAX, None),
        ] {
            let kept = record(created, touched).keep_for(LIFETIME, now);
            assert_eq!(kept, expected.map(Duration::from_secs), "{created} {touched} {now}");
        }
    }

    #[test]
    fn no_session_is_kept_for_longer_than_either_of_its_times() {
        assert_eq!(LIFETIME.longest(), LIFETIME.idle);
        let short = Lifetime { absolute: Duration::from_secs(10), ..LIFETIME };
        assert_eq!(short.longest(), short.absolute);
    }

    #[test]
    fn use_is_recorded_now_and_then() {
        assert!(!record(0, 100).needs_touch(LIFETIME, 109));
        assert!(record(0, 100).needs_touch(LIFETIME, 110));
    }

    #[test]
    fn records_round_trip_and_foreign_ones_are_none() {
        let mut record = record(1, 2);
        record.apply(&Changes::from([("a".to_owned(), Some(17.into())), ("b".to_owned(), None)]));
        let encoded = record.encode().expect("it is short");
        assert_eq!(Record::decode(&encoded), Some(record));
        for foreign in ["", "{}", "[2,1,2,{}]", "[1,1,2,[]]", "[1,1,2,{}", "[1,-1,2,{}]"] {
            assert_eq!(Record::decode(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn a_session_that_is_too_large_is_an_error_with_advice() {
        let mut record = Record::new(0);
        record.values.insert("a".to_owned(), "x".repeat(RECORD_BYTES_MAX).into());
        assert!(record.encode().is_err_and(|error| error.to_string().contains("database")));
        // The longest one that fits, and one with a byte more.
        let mut with = |length: usize| {
            record.values.insert("a".to_owned(), "x".repeat(length).into());
            record.encode().map(|record| record.len()).ok()
        };
        let around = with(0).unwrap();
        assert_eq!(with(RECORD_BYTES_MAX - around), Some(RECORD_BYTES_MAX));
        assert_eq!(with(RECORD_BYTES_MAX - around + 1), None);
    }

    #[test]
    fn a_session_that_is_remembered_belongs_to_a_user() {
        let mut session = Record::new(0);
        assert_eq!(session.owner(), SessionOwner::Visitor);
        session.values.insert("filoplume.remembered".to_owned(), 900.into());
        assert_eq!(session.owner(), SessionOwner::User);
        let mut session = Record::new(0);
        session.values.insert(SUBJECT.to_owned(), serde_json::json!(["ada", 0]));
        assert_eq!(session.owner(), SessionOwner::User);
    }
}
