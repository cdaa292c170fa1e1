//! The tables of the sessions, and the statements that use them. Each statement finds its rows by
//! an index.
//!
//! `is_used` and `at` are the eviction order. `is_used` is 0 on probation, and `at` is when the
//! session began. `is_used` is 1 for sessions in use of visitors and 2 for those of users, and `at`
//! is the time of the last use. `has_user` is 1 if a user has logged in, also while the session is
//! on probation because users exceed their share.

use rusqlite::{Connection, TransactionBehavior};

use crate::core::error::Result;

/// ?1 id, ?2 now in seconds.
pub(super) const LOAD: &str =
    "SELECT record, is_used, at FROM filoplume_sessions WHERE id = ?1 AND ends > ?2";

/// ?1 id, ?2 record, ?3 end in seconds, ?4 now in microseconds, ?5 whether it has a user.
/// `INSERT OR REPLACE` would not run the triggers that count.
pub(super) const INSERT: &str =
    "INSERT INTO filoplume_sessions (id, record, ends, is_used, at, has_user)
     VALUES (?1, ?2, ?3, ?5 * 2, ?4, ?5)
     ON CONFLICT (id) DO UPDATE
     SET record = ?2, ends = ?3, is_used = ?5 * 2, at = ?4, has_user = ?5";

/// ?1 id, ?2 the old record, ?3 the new one, ?4 end and ?5 now in seconds, ?6 now in microseconds,
/// ?7 whether it has a user.
pub(super) const REPLACE: &str = "UPDATE filoplume_sessions
     SET record = ?3, ends = ?4, is_used = 1 + ?7, at = ?6, has_user = ?7
     WHERE id = ?1 AND record = ?2 AND ends > ?5";

/// ?1 now in seconds, ?2 how many.
pub(super) const DELETE_EXPIRED: &str = "DELETE FROM filoplume_sessions WHERE id IN
     (SELECT id FROM filoplume_sessions WHERE ends <= ?1 ORDER BY ends LIMIT ?2)";

/// ?1 an ID that stays. `is_used >= 0` is true for each row: with it, SQLite searches the index of
/// the eviction order, and does not scan it.
pub(super) const DELETE_NEXT: &str = "DELETE FROM filoplume_sessions WHERE id IN
     (SELECT id FROM filoplume_sessions WHERE is_used >= 0 AND id <> ?1
      ORDER BY is_used, at LIMIT 1)
     RETURNING length(record)";

/// ?1 id, ?2 now in microseconds.
pub(super) const RECORD_USE: &str =
    "UPDATE filoplume_sessions SET is_used = 1 + has_user, at = ?2 WHERE id = ?1";

/// ?1 now in microseconds.
pub(super) const RETURN_TO_PROBATION: &str =
    "UPDATE filoplume_sessions SET is_used = 0, at = ?1 WHERE id IN
     (SELECT id FROM filoplume_sessions WHERE is_used >= 1 ORDER BY is_used, at LIMIT 1)
     RETURNING length(record)";

/// Rows of older versions count as used: their browsers may well come back.
const COLUMNS: &str = "
    ALTER TABLE filoplume_sessions ADD COLUMN is_used INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE filoplume_sessions ADD COLUMN at INTEGER NOT NULL DEFAULT 0;";

/// Rows of older versions have a user from the next change on.
const OWNER: &str =
    "ALTER TABLE filoplume_sessions ADD COLUMN has_user INTEGER NOT NULL DEFAULT 0;";

const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS filoplume_sessions (
        id TEXT NOT NULL PRIMARY KEY,
        record BLOB NOT NULL,
        ends INTEGER NOT NULL
    ) WITHOUT ROWID;";

/// Triggers keep the counts, because several processes may share the file, and the app may delete
/// rows itself. `SELECT count(*)` would read a whole index for every new session. The bytes have a
/// table of their own, because processes of older versions know only the one of the sessions.
const INDEXES_AND_COUNTS: &str = "
    CREATE INDEX IF NOT EXISTS filoplume_sessions_ends ON filoplume_sessions (ends);
    CREATE INDEX IF NOT EXISTS filoplume_sessions_order ON filoplume_sessions (is_used, at);
    CREATE TABLE IF NOT EXISTS filoplume_session_counts (
        is_used INTEGER NOT NULL PRIMARY KEY,
        sessions INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TRIGGER IF NOT EXISTS filoplume_sessions_inserted AFTER INSERT ON filoplume_sessions \
                                  BEGIN
        UPDATE filoplume_session_counts SET sessions = sessions + 1 WHERE is_used = new.is_used;
    END;
    CREATE TRIGGER IF NOT EXISTS filoplume_sessions_deleted AFTER DELETE ON filoplume_sessions BEGIN
        UPDATE filoplume_session_counts SET sessions = sessions - 1 WHERE is_used = old.is_used;
    END;
    CREATE TRIGGER IF NOT EXISTS filoplume_sessions_moved AFTER UPDATE OF is_used ON \
                                  filoplume_sessions
    WHEN old.is_used <> new.is_used BEGIN
        UPDATE filoplume_session_counts SET sessions = sessions - 1 WHERE is_used = old.is_used;
        UPDATE filoplume_session_counts SET sessions = sessions + 1 WHERE is_used = new.is_used;
    END;
    INSERT OR REPLACE INTO filoplume_session_counts
        SELECT 0, count(*) FROM filoplume_sessions WHERE is_used = 0;
    INSERT OR REPLACE INTO filoplume_session_counts
        SELECT 1, count(*) FROM filoplume_sessions WHERE is_used = 1;
    INSERT OR REPLACE INTO filoplume_session_counts
        SELECT 2, count(*) FROM filoplume_sessions WHERE is_used = 2;";

const BYTES: &str = "
    CREATE TABLE IF NOT EXISTS filoplume_session_bytes (
        is_used INTEGER NOT NULL PRIMARY KEY,
        bytes INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TRIGGER IF NOT EXISTS filoplume_session_bytes_inserted AFTER INSERT ON \
                     filoplume_sessions BEGIN
        UPDATE filoplume_session_bytes SET bytes = bytes + length(new.record)
            WHERE is_used = new.is_used;
    END;
    CREATE TRIGGER IF NOT EXISTS filoplume_session_bytes_deleted AFTER DELETE ON \
                     filoplume_sessions BEGIN
        UPDATE filoplume_session_bytes SET bytes = bytes - length(old.record)
            WHERE is_used = old.is_used;
    END;
    CREATE TRIGGER IF NOT EXISTS filoplume_session_bytes_changed AFTER UPDATE OF is_used, record \
                     ON filoplume_sessions
    WHEN old.is_used <> new.is_used OR length(old.record) <> length(new.record) BEGIN
        UPDATE filoplume_session_bytes SET bytes = bytes - length(old.record)
            WHERE is_used = old.is_used;
        UPDATE filoplume_session_bytes SET bytes = bytes + length(new.record)
            WHERE is_used = new.is_used;
    END;
    INSERT OR REPLACE INTO filoplume_session_bytes
        SELECT class, (SELECT coalesce(sum(length(record)), 0) FROM filoplume_sessions
                       WHERE is_used = class)
        FROM (SELECT 0 AS class UNION SELECT 1 UNION SELECT 2);";

/// Creates missing tables, counts the sessions once, and updates tables of older versions.
pub(super) fn create(connection: &mut Connection) -> Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(TABLE)?;
    let has_column = |name: &str| {
        transaction
            .prepare("SELECT 1 FROM pragma_table_info('filoplume_sessions') WHERE name = ?1")?
            .exists([name])
    };
    if !has_column("is_used")? {
        transaction.execute_batch(COLUMNS)?;
    }
    if !has_column("has_user")? {
        transaction.execute_batch(OWNER)?;
    }
    transaction.execute_batch(INDEXES_AND_COUNTS)?;
    transaction.execute_batch(BYTES)?;
    Ok(transaction.commit()?)
}

/// A number of sessions, and the bytes of their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) sessions: usize,
    pub(super) bytes: usize,
}

impl Extent {
    /// Returns by how much this exceeds another one.
    pub(super) fn beyond(self, max: Self) -> Self {
        Self {
            sessions: self.sessions.saturating_sub(max.sessions),
            bytes: self.bytes.saturating_sub(max.bytes),
        }
    }

    /// Returns whether this has at least as many sessions and bytes as another one.
    pub(super) fn covers(self, other: Self) -> bool {
        self.sessions >= other.sessions && self.bytes >= other.bytes
    }

    /// Counts one more session.
    pub(super) fn add(&mut self, bytes: i64) {
        self.sessions += 1;
        self.bytes += positive(bytes);
    }
}

/// Returns the extent of all sessions.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Extent> {
    extent(connection, 0)
}

/// Returns the extent of the sessions in use.
pub(super) fn used(connection: &Connection) -> rusqlite::Result<Extent> {
    extent(connection, 1)
}

fn extent(connection: &Connection, is_used_min: i64) -> rusqlite::Result<Extent> {
    const EXTENT: &str = "SELECT
        (SELECT coalesce(sum(sessions), 0) FROM filoplume_session_counts WHERE is_used >= ?1),
        (SELECT coalesce(sum(bytes), 0) FROM filoplume_session_bytes WHERE is_used >= ?1)";
    connection.prepare_cached(EXTENT)?.query_row([is_used_min], |row| {
        Ok(Extent { sessions: positive(row.get(0)?), bytes: positive(row.get(1)?) })
    })
}

/// Negative only if another program changed the counts.
fn positive(count: i64) -> usize {
    usize::try_from(count).unwrap_or(0)
}
