//! Sessions in a file, by SQLite.

mod file;
mod schema;

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use self::schema::{
    DELETE_EXPIRED, DELETE_NEXT, INSERT, LOAD, NOTE_USE, REPLACE, RETURN_TO_PROBATION,
};
use super::segments::{EXPIRED_PER_INSERT, used_share};
use super::{SessionStore, now};
use crate::core::error::Result;

/// How long another process may hold the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Most sessions in the file by default: some 100 MB if they are small.
const SESSIONS_MAX: usize = 250_000;

/// Most sessions that one call deletes or moves besides its own, to make room: the others wait
/// meanwhile. Each call adds one session at most, so that any number above one keeps the bounds.
const MOVED_PER_CALL: usize = 8;

/// Most sessions that one call of [`SqliteStore::sweep`] deletes.
const SWEPT_MAX: usize = 1000;

/// How exactly the time of last use is known, in microseconds. A write for each request that only
/// reads would be a high price for the order in which sessions make room.
const USE_NOTED_EVERY: i64 = 60 * 1_000_000;

/// Sessions in an SQLite file: they outlive the process, and several processes of one machine can
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
/// The file may be that of the app: tables, indexes and triggers have names that begin with
/// `filoplume_session`. It is used in WAL mode with one connection, whose lock is held for the time
/// of one short transaction. The last changes may be lost when the machine, not the process, goes
/// down; the file stays consistent.
///
/// The store has a bound, [`sessions_max`](Self::sessions_max). When it is reached, sessions that
/// no client has presented since they began are deleted first, the oldest of them first; then the
/// least recently used of the others. A flood of new sessions therefore ends no session that is in
/// use, as long as those in use are at most 80 % of the bound. If they are more, the least recently
/// used of them lose that protection. The time of last use is noted once a minute. Each new session
/// deletes up to 8 expired ones, so that they cannot pile up at any rate of new sessions.
pub struct SqliteStore {
    connection: Mutex<Connection>,
    sessions_max: usize,
}

impl SqliteStore {
    /// Opens a file, or creates it, and its table. On Unix a new file can be read and written by
    /// its owner only, and so can the files that SQLite puts beside it. The rights of a file that
    /// exists are left alone; if others can read or write it, a warning in the log names it. (A
    /// path that begins with `file:` is a URI for SQLite, which then creates the file with its own
    /// rights.)
    ///
    /// # Errors
    ///
    /// If it cannot be opened or is no database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        file::create_private(path.as_ref())?;
        Self::with_connection(Connection::open(path)?)
    }

    /// Returns a store on a connection that was opened elsewhere. If others than the owner can read
    /// or write its file, a warning in the log names it.
    ///
    /// # Errors
    ///
    /// If the table cannot be made.
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

    /// Sets how many sessions the file may have. Default: 250,000. Processes that share a file have
    /// the same bound. A file that has more is brought below it by and by, as new sessions begin.
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

    /// Deletes expired sessions, and returns how many: up to 1000, so that others do not wait long.
    /// New sessions do so as well; this is for a file that is to become smaller although none
    /// begin.
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

    /// Notes that a client presented a session. If the share of those in use is exceeded, the least
    /// recently used of them go back on probation.
    fn note_use(&self, connection: &mut Connection, id: &str) -> Result<()> {
        let transaction = begin(connection)?;
        transaction.prepare_cached(NOTE_USE)?.execute(params![id, microseconds()])?;
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

/// Begins a transaction that writes. A deferred one would fail rather than wait when another
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

/// Microseconds since 1970, for the order of what happens within a second.
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
        if !is_used || !(0..USE_NOTED_EVERY).contains(&microseconds().saturating_sub(at)) {
            // A session that can be read is no worse if its use cannot be noted.
            if let Err(error) = self.note_use(&mut connection, id) {
                tracing::warn!(%error, "the use of a session could not be noted");
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
        // Before the new one is there, which must not make room for itself.
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
