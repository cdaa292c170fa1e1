//! Sessions in an SQLite file.

mod busy;
mod file;
mod schema;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use self::busy::{BUSY_TIMEOUT, is_busy};
use self::schema::{
    DELETE_EXPIRED, DELETE_NEXT, Extent, INSERT, LOAD, RECORD_USE, REPLACE, RETURN_TO_PROBATION,
};
use super::segments::{EXPIRED_PER_INSERT, used_share};
use super::{SessionOwner, SessionStore, now};
use crate::core::error::{Error, Result};
use crate::log::Throttle;

/// Default bound on the number of sessions: some 100 MB if they are small.
const SESSIONS_MAX: usize = 250_000;

/// Default bound on the bytes of all records. With small ones the number of sessions is reached
/// long before; without this bound, as many of the longest ones would fill 64 GB.
const BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Maximum number of other sessions that one call deletes or moves to make room, because other
/// calls wait for the lock. Each call adds at most one session, so any number above one keeps the
/// bounds. A call that adds a long record deletes more, if they are needed for as many bytes.
const MOVED_PER_CALL: usize = 8;

/// Maximum number of sessions that one call of [`SqliteStore::sweep`] deletes.
const SWEPT_MAX: usize = 1000;

/// Precision of the time of last use, in microseconds. The eviction order does not justify a write
/// for each request that only reads.
const USE_PRECISION: i64 = 60 * 1_000_000;

/// How long no use is recorded after the database could not be written, such as on a full disk.
const USE_PAUSE: Duration = Duration::from_secs(5);

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
/// While another program holds SQLite's write lock, for a migration or a `VACUUM`, sessions are
/// still read. A change waits for up to five seconds, then it fails with a `503`.
///
/// The store has two bounds: [`sessions_max`](Self::sessions_max) and
/// [`bytes_max`](Self::bytes_max). When one is reached, the store deletes in this order: sessions
/// that no client has presented again, oldest first; the least recently used of other visitors; the
/// least recently used of users who [logged in](super::Session::log_in). So a flood of new sessions
/// deletes no session that is in use, and a flood of sessions that are presented too deletes no
/// session with a login, as long as those fit into 80 % of the bounds. If there are more, the first
/// of them in this order lose this protection. The time of last use is recorded at most once per
/// minute. Each new session deletes up to 8 expired ones, so that they cannot accumulate at any
/// rate of new sessions.
pub struct SqliteStore {
    /// Never locked while a thread waits for SQLite's lock, because other threads read meanwhile.
    connection: Mutex<Connection>,
    /// Held by the one thread that tries to write. The others wait for it.
    writer: Mutex<()>,
    sessions_max: usize,
    bytes_max: usize,
    /// While another program holds SQLite's write lock, each request may fail to record a use.
    unrecorded_uses: Throttle,
    /// Until when no use is recorded.
    uses_paused_until: Mutex<Option<Instant>>,
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

    /// Returns a store that uses an open connection, and sets its busy timeout. If other users can
    /// read or write its file, a warning in the log names it.
    ///
    /// # Errors
    ///
    /// If the table cannot be created.
    pub fn with_connection(mut connection: Connection) -> Result<Self> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // With this setting, a commit in WAL mode does not wait for the disk; only a checkpoint
        // does.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        schema::create(&mut connection)?;
        // From now on the store waits itself, without the lock of the connection.
        connection.busy_timeout(Duration::ZERO)?;
        file::warn_if_shared(connection.path().unwrap_or_default());
        let connection = Mutex::new(connection);
        let store = Self {
            connection,
            writer: Mutex::new(()),
            sessions_max: SESSIONS_MAX,
            bytes_max: BYTES_MAX,
            unrecorded_uses: Throttle::new(),
            uses_paused_until: Mutex::new(None),
        };
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

    /// Sets the maximum number of bytes of all records together. Default: 1 GiB. Keys and indexes
    /// come on top, some 300 bytes for each session. A session that is larger than this is an
    /// error. As with [`sessions_max`](Self::sessions_max), processes that share a file should use
    /// the same bound, and a file that is larger is reduced step by step. SQLite uses the space
    /// that becomes free for new sessions, and does not return it to the system.
    ///
    /// ```
    /// use filoplume::session::SqliteStore;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("sessions.db");
    /// let store = SqliteStore::open(path)?.bytes_max(100 * 1024 * 1024);
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
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
        self.write(|connection| {
            connection
                .prepare_cached(DELETE_EXPIRED)?
                .execute(params![seconds(now()), rows(SWEPT_MAX)])
        })
    }

    /// Records that a client presented a session. If that fails, the session is valid
    /// nevertheless, so this does not wait for SQLite's lock.
    fn record_use(&self, id: &str) {
        if self.uses_paused_until.lock().is_some_and(|until| Instant::now() < until) {
            return;
        }
        let recorded = self.try_record_use(&mut self.connection.lock(), id);
        let Err(error) = recorded else { return };
        // To find out that the lock is held costs next to nothing, so the next request may try
        // again at once. With a pause, a few collisions with another process that writes all the
        // time would leave sessions in use on probation.
        if !is_busy(&error) {
            *self.uses_paused_until.lock() = Some(Instant::now() + USE_PAUSE);
        }
        if let Some(left_out) = self.unrecorded_uses.admit() {
            let left_out = left_out.field();
            tracing::warn!(%error, left_out, "the use of a session could not be recorded");
        }
    }

    fn try_record_use(&self, connection: &mut Connection, id: &str) -> rusqlite::Result<()> {
        let transaction = begin(connection)?;
        transaction.prepare_cached(RECORD_USE)?.execute(params![id, microseconds()])?;
        self.keep_share(&transaction)?;
        transaction.commit()
    }

    /// If sessions in use exceed their share, the first of them to be deleted return to probation.
    fn keep_share(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let share =
            Extent { sessions: used_share(self.sessions_max), bytes: used_share(self.bytes_max) };
        let surplus = schema::used(transaction)?.beyond(share);
        let mut moved = Extent::default();
        let mut move_next = transaction.prepare_cached(RETURN_TO_PROBATION)?;
        while !moved.covers(surplus) && moved.sessions < MOVED_PER_CALL {
            let row = move_next.query_row([microseconds()], |row| row.get(0)).optional()?;
            let Some(bytes) = row else { break };
            moved.add(bytes);
        }
        Ok(())
    }

    /// Makes room after a call has added something to the session `id`, which stays. A file that
    /// exceeds its bounds by more than what was added is reduced a little with each call.
    fn make_room(
        &self,
        transaction: &Transaction<'_>,
        id: &str,
        added: Extent,
    ) -> rusqlite::Result<()> {
        let max = Extent { sessions: self.sessions_max, bytes: self.bytes_max };
        let surplus = schema::all(transaction)?.beyond(max);
        let mut deleted = Extent::default();
        let mut delete_next = transaction.prepare_cached(DELETE_NEXT)?;
        while !deleted.covers(surplus) {
            if deleted.covers(added) && deleted.sessions >= MOVED_PER_CALL {
                break;
            }
            let row = delete_next.query_row([id], |row| row.get(0)).optional()?;
            let Some(bytes) = row else { break };
            deleted.add(bytes);
        }
        Ok(())
    }

    fn check_size(&self, record: &[u8]) -> Result<()> {
        let (bytes, bytes_max) = (record.len(), self.bytes_max);
        if bytes <= bytes_max {
            return Ok(());
        }
        Err(Error::internal(format!(
            "the session needs {bytes} bytes, but the store has only {bytes_max}"
        )))
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
        let found: Option<(Vec<u8>, bool, i64)> = self.read(|connection| {
            connection
                .prepare_cached(LOAD)?
                .query_row(params![id, seconds(now())], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
                .optional()
        })?;
        let Some((record, is_used, at)) = found else { return Ok(None) };
        // Use is also recorded if the clock was set back.
        if !is_used || !(0..USE_PRECISION).contains(&microseconds().saturating_sub(at)) {
            self.record_use(id);
        }
        Ok(Some(record))
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
        self.write(|connection| {
            let transaction = begin(connection)?;
            transaction
                .prepare_cached(DELETE_EXPIRED)?
                .execute(params![seconds(now()), rows(EXPIRED_PER_INSERT)])?;
            transaction.prepare_cached(INSERT)?.execute(params![
                id,
                record,
                end(keep_for),
                microseconds(),
                owner == SessionOwner::User
            ])?;
            self.make_room(&transaction, id, Extent { sessions: 1, bytes: record.len() })?;
            self.keep_share(&transaction)?;
            transaction.commit()
        })
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
        self.write(|connection| {
            let transaction = begin(connection)?;
            let changed = transaction.prepare_cached(REPLACE)?.execute(params![
                id,
                old,
                new,
                end(keep_for),
                seconds(now()),
                microseconds(),
                owner == SessionOwner::User
            ])?;
            if changed == 1 {
                let bytes = new.len().saturating_sub(old.len());
                self.make_room(&transaction, id, Extent { sessions: 0, bytes })?;
                self.keep_share(&transaction)?;
            }
            transaction.commit()?;
            Ok(changed == 1)
        })
    }

    fn remove(&self, id: &str) -> Result<()> {
        self.write(|connection| {
            connection
                .prepare_cached("DELETE FROM filoplume_sessions WHERE id = ?1")?
                .execute([id])?;
            Ok(())
        })
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("sessions_max", &self.sessions_max)
            .field("bytes_max", &self.bytes_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
