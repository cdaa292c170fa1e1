//! Sessions in an SQLite file.

mod file;
mod schema;

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use self::schema::{
    DELETE_EXPIRED, DELETE_NEXT, INSERT, LOAD, RECORD_USE, REPLACE, RETURN_TO_PROBATION,
};
use super::segments::{EXPIRED_PER_INSERT, used_share};
use super::{SessionStore, now};
use crate::core::error::Result;

/// How long to wait while another process holds the lock of the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Default bound on the number of sessions: some 100 MB if they are small.
const SESSIONS_MAX: usize = 250_000;

/// Maximum number of other sessions that one call deletes or moves to make room, because other
/// calls wait for the lock. Each call adds at most one session, so any number above one keeps the
/// bounds.
const MOVED_PER_CALL: usize = 8;

/// Maximum number of sessions that one call of [`SqliteStore::sweep`] deletes.
const SWEPT_MAX: usize = 1000;

/// Precision of the time of last use, in microseconds. The eviction order does not justify a write
/// for each request that only reads.
const USE_PRECISION: i64 = 60 * 1_000_000;

/// Sessions in an SQLite file. They survive a restart, and several processes of one machine can
/// share them.
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::session::SqliteStore;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("sessions.db");
/// let sessions = Sessions::new(SqliteStore::open(path)?, Key::generate());
/// # Ok::<(), filoplume::Error>(())
/// ```
///
/// The file may be the app's own database: tables, indexes and triggers have names that begin with
/// `filoplume_session`. The store uses WAL mode and one connection, whose lock is held for one
/// short transaction at a time. If the machine (not just the process) crashes, the last changes may
/// be lost, but the file stays consistent.
///
/// The store has a bound, [`sessions_max`](Self::sessions_max). When it is reached, the store first
/// deletes sessions that no client has presented again, oldest first, and then the least recently
/// used of the others. So a flood of new sessions deletes no session that is in use, as long as
/// those in use are at most 80 % of the bound. If there are more, the least recently used of them
/// lose this protection. The time of last use is recorded at most once per minute. Each new session
/// deletes up to 8 expired ones, so that they cannot accumulate at any rate of new sessions.
pub struct SqliteStore {
    connection: Mutex<Connection>,
    sessions_max: usize,
}

impl SqliteStore {
    /// Opens or creates a file with the table for sessions. On Unix, only the owner can read and
    /// write a new file and the files that SQLite creates next to it. The permissions of an
    /// existing file are not changed; if other users can read or write it, a warning in the log
    /// names it. (SQLite treats a path that begins with `file:` as a URI, and creates that file
    /// with its default permissions.)
    ///
    /// # Errors
    ///
    /// If it cannot be opened or is not a database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        file::create_private(path.as_ref())?;
        Self::with_connection(Connection::open(path)?)
    }

    /// Returns a store that uses an open connection. If other users can read or write its file, a
    /// warning in the log names it.
    ///
    /// # Errors
    ///
    /// If the table cannot be created.
    pub fn with_connection(mut connection: Connection) -> Result<Self> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // In WAL mode a commit then waits for no disk; a checkpoint does.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        schema::create(&mut connection)?;
        file::warn_if_shared(connection.path().unwrap_or_default());
        let store = Self { connection: Mutex::new(connection), sessions_max: SESSIONS_MAX };
        store.sweep()?;
        Ok(store)
    }

    /// Sets the maximum number of sessions in the file. Default: 250,000. Processes that share a
    /// file should use the same bound. A file with more sessions is reduced step by step, as new
    /// sessions begin.
    ///
    /// ```
    /// use filoplume::session::SqliteStore;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("sessions.db");
    /// let store = SqliteStore::open(path)?.sessions_max(1_000_000);
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    #[must_use]
    pub fn sessions_max(mut self, sessions: usize) -> Self {
        self.sessions_max = sessions.max(1);
        self
    }

    /// Deletes up to 1000 expired sessions, and returns how many. The bound keeps other calls from
    /// waiting long. New sessions delete expired ones as well; call this to shrink the file while
    /// no new ones begin.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn sweep(&self) -> Result<usize> {
        let connection = self.connection.lock();
        Ok(connection
            .prepare_cached(DELETE_EXPIRED)?
            .execute(params![seconds(now()), rows(SWEPT_MAX)])?)
    }

    /// Records that a client presented a session. If sessions in use exceed their share, the least
    /// recently used of them return to probation.
    fn record_use(&self, connection: &mut Connection, id: &str) -> Result<()> {
        let transaction = begin(connection)?;
        transaction.prepare_cached(RECORD_USE)?.execute(params![id, microseconds()])?;
        let surplus = schema::used(&transaction)?.saturating_sub(used_share(self.sessions_max));
        if surplus > 0 {
            let moved = rows(surplus.min(MOVED_PER_CALL));
            transaction
                .prepare_cached(RETURN_TO_PROBATION)?
                .execute(params![moved, microseconds()])?;
        }
        Ok(transaction.commit()?)
    }
}

/// Begins a transaction that writes. A deferred one would fail instead of waiting if another
/// process writes between its first read and its first write.
fn begin(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// SQLite's integers are signed.
fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn end(keep_for: Duration) -> i64 {
    seconds(now().saturating_add(keep_for.as_secs()))
}

/// Returns microseconds since 1970, to order events within a second.
fn microseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl SessionStore for SqliteStore {
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
        let mut connection = self.connection.lock();
        let found: Option<(Vec<u8>, bool, i64)> = connection
            .prepare_cached(LOAD)?
            .query_row(params![id, seconds(now())], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let Some((record, is_used, at)) = found else { return Ok(None) };
        // Also if the clock was set back.
        if !is_used || !(0..USE_PRECISION).contains(&microseconds().saturating_sub(at)) {
            // The session is valid even if its use cannot be recorded.
            if let Err(error) = self.record_use(&mut connection, id) {
                tracing::warn!(%error, "the use of a session could not be recorded");
            }
        }
        Ok(Some(record))
    }

    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()> {
        let mut connection = self.connection.lock();
        let transaction = begin(&mut connection)?;
        transaction
            .prepare_cached(DELETE_EXPIRED)?
            .execute(params![seconds(now()), rows(EXPIRED_PER_INSERT)])?;
        // Before the insertion, so that the new session is not deleted itself.
        let surplus = (schema::sessions(&transaction)? + 1).saturating_sub(self.sessions_max);
        if surplus > 0 {
            transaction
                .prepare_cached(DELETE_NEXT)?
                .execute([rows(surplus.min(MOVED_PER_CALL))])?;
        }
        transaction.prepare_cached(INSERT)?.execute(params![
            id,
            record,
            end(keep_for),
            microseconds()
        ])?;
        Ok(transaction.commit()?)
    }

    fn replace(&self, id: &str, old: &[u8], new: &[u8], keep_for: Duration) -> Result<bool> {
        let connection = self.connection.lock();
        let changed = connection.prepare_cached(REPLACE)?.execute(params![
            id,
            old,
            new,
            end(keep_for),
            seconds(now())
        ])?;
        Ok(changed == 1)
    }

    fn remove(&self, id: &str) -> Result<()> {
        let connection = self.connection.lock();
        connection.prepare_cached("DELETE FROM filoplume_sessions WHERE id = ?1")?.execute([id])?;
        Ok(())
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("sessions_max", &self.sessions_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
