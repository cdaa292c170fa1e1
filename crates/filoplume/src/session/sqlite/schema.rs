//! The tables of the sessions, and the statements that use them. Each statement finds its rows by
//! an index.
//!
//! `is_used` and `at` are the eviction order. `is_used` is 0 on probation, and `at` is when the
//! session began. `is_used` is 1 for sessions in use, and `at` is the time of the last use.

use rusqlite::{Connection, TransactionBehavior};

use crate::core::error::Result;

/// ?1 id, ?2 now in seconds.
pub(super) const LOAD: &str =
    "SELECT record, is_used, at FROM filoplume_sessions WHERE id = ?1 AND ends > ?2";

/// ?1 id, ?2 record, ?3 end in seconds, ?4 now in microseconds. `INSERT OR REPLACE` would not run
/// the triggers that count.
pub(super) const INSERT: &str = "INSERT INTO filoplume_sessions (id, record, ends, is_used, at)
     VALUES (?1, ?2, ?3, 0, ?4)
     ON CONFLICT (id) DO UPDATE SET record = ?2, ends = ?3, is_used = 0, at = ?4";

/// ?1 id, ?2 the old record, ?3 the new one, ?4 end and ?5 now in seconds.
pub(super) const REPLACE: &str = "UPDATE filoplume_sessions SET record = ?3, ends = ?4
     WHERE id = ?1 AND record = ?2 AND ends > ?5";

/// ?1 now in seconds, ?2 how many.
pub(super) const DELETE_EXPIRED: &str = "DELETE FROM filoplume_sessions WHERE id IN
     (SELECT id FROM filoplume_sessions WHERE ends <= ?1 ORDER BY ends LIMIT ?2)";

/// ?1 how many.
pub(super) const DELETE_NEXT: &str = "DELETE FROM filoplume_sessions WHERE id IN
     (SELECT id FROM filoplume_sessions WHERE is_used >= 0 ORDER BY is_used, at LIMIT ?1)";

/// ?1 id, ?2 now in microseconds.
pub(super) const RECORD_USE: &str =
    "UPDATE filoplume_sessions SET is_used = 1, at = ?2 WHERE id = ?1";

/// ?1 how many, ?2 now in microseconds.
pub(super) const RETURN_TO_PROBATION: &str =
    "UPDATE filoplume_sessions SET is_used = 0, at = ?2 WHERE id IN
     (SELECT id FROM filoplume_sessions WHERE is_used = 1 ORDER BY at LIMIT ?1)";

/// Rows of older versions count as used: their browsers may well come back.
const COLUMNS: &str = "
    ALTER TABLE filoplume_sessions ADD COLUMN is_used INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE filoplume_sessions ADD COLUMN at INTEGER NOT NULL DEFAULT 0;";

const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS filoplume_sessions (
        id TEXT NOT NULL PRIMARY KEY,
        record BLOB NOT NULL,
        ends INTEGER NOT NULL
    ) WITHOUT ROWID;";

/// Triggers keep the counts, because several processes may share the file, and the app may delete
/// rows itself. `SELECT count(*)` would read a whole index for every new session.
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
        SELECT 1, count(*) FROM filoplume_sessions WHERE is_used = 1;";

/// Creates missing tables, counts the sessions once, and updates tables of older versions.
pub(super) fn create(connection: &mut Connection) -> Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(TABLE)?;
    let has_order = transaction
        .prepare("SELECT 1 FROM pragma_table_info('filoplume_sessions') WHERE name = 'is_used'")?
        .exists([])?;
    if !has_order {
        transaction.execute_batch(COLUMNS)?;
    }
    transaction.execute_batch(INDEXES_AND_COUNTS)?;
    Ok(transaction.commit()?)
}

/// Returns the number of sessions.
pub(super) fn sessions(connection: &Connection) -> rusqlite::Result<usize> {
    count(connection, "SELECT coalesce(sum(sessions), 0) FROM filoplume_session_counts")
}

/// Returns the number of sessions in use.
pub(super) fn used(connection: &Connection) -> rusqlite::Result<usize> {
    count(
        connection,
        "SELECT coalesce(sum(sessions), 0) FROM filoplume_session_counts WHERE is_used = 1",
    )
}

fn count(connection: &Connection, sql: &str) -> rusqlite::Result<usize> {
    let count: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    // Negative only if another program changed the counts.
    Ok(usize::try_from(count).unwrap_or(0))
}
