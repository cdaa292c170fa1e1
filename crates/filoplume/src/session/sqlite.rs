//! Sessions in a file, by SQLite.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use super::{SessionStore, now};
use crate::core::error::Result;

/// How long another process may hold the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How often what is over is deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Most sessions that are deleted at once: the others wait meanwhile.
const SWEPT_MAX: u32 = 1000;

/// Sessions in an SQLite file: they outlive the process, and several processes of one machine can share them.
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
/// The file may be that of the app: there is one table, `filoplume_sessions`. It is used in WAL mode with one connection,
/// whose lock is held for the time of one statement. The last changes may be lost when the machine, not the process,
/// goes down; the file stays consistent. What is over is deleted once a minute, when a session begins.
pub struct SqliteStore {
    connection: Mutex<Connection>,
    swept: Mutex<Instant>,
}

impl SqliteStore {
    /// Opens a file, or creates it, and its table.
    ///
    /// # Errors
    ///
    /// If it cannot be opened or is no database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_connection(Connection::open(path)?)
    }

    /// Returns a store on a connection that was opened elsewhere.
    ///
    /// # Errors
    ///
    /// If the table cannot be made.
    pub fn with_connection(connection: Connection) -> Result<Self> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // In WAL mode a commit then waits for no disk; a checkpoint does.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS filoplume_sessions (
                 id TEXT NOT NULL PRIMARY KEY,
                 record BLOB NOT NULL,
                 ends INTEGER NOT NULL
             ) WITHOUT ROWID;
             CREATE INDEX IF NOT EXISTS filoplume_sessions_ends ON filoplume_sessions (ends);",
        )?;
        let store = Self { connection: Mutex::new(connection), swept: Mutex::new(Instant::now()) };
        store.sweep()?;
        Ok(store)
    }

    /// Deletes sessions that are over, and returns how many: up to 1000, so that others do not wait long.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn sweep(&self) -> Result<usize> {
        let connection = self.connection.lock();
        let swept = connection
            .prepare_cached(
                "DELETE FROM filoplume_sessions WHERE id IN
                     (SELECT id FROM filoplume_sessions WHERE ends <= ?1 LIMIT ?2)",
            )?
            .execute(params![seconds(now()), SWEPT_MAX])?;
        Ok(swept)
    }

    fn is_sweep_due(&self) -> bool {
        let mut swept = self.swept.lock();
        let is_due = swept.elapsed() >= SWEEP_INTERVAL;
        if is_due {
            *swept = Instant::now();
        }
        is_due
    }
}

/// SQLite's integers are signed.
fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn end(keep_for: Duration) -> i64 {
    seconds(now().saturating_add(keep_for.as_secs()))
}

impl SessionStore for SqliteStore {
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
        let connection = self.connection.lock();
        let record = connection
            .prepare_cached("SELECT record FROM filoplume_sessions WHERE id = ?1 AND ends > ?2")?
            .query_row(params![id, seconds(now())], |row| row.get(0))
            .optional()?;
        Ok(record)
    }

    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()> {
        if self.is_sweep_due() {
            // No reason to refuse a session: what is over is not given out, swept or not.
            if let Err(error) = self.sweep() {
                tracing::warn!(%error, "sessions that are over could not be deleted");
            }
        }
        let connection = self.connection.lock();
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO filoplume_sessions (id, record, ends) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![id, record, end(keep_for)])?;
        Ok(())
    }

    fn replace(&self, id: &str, old: &[u8], new: &[u8], keep_for: Duration) -> Result<bool> {
        let connection = self.connection.lock();
        let changed = connection
            .prepare_cached("UPDATE filoplume_sessions SET record = ?3, ends = ?4 WHERE id = ?1 AND record = ?2 AND ends > ?5")?
            .execute(params![id, old, new, end(keep_for), seconds(now())])?;
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
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}
