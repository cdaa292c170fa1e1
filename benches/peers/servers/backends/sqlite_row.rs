//! A row in SQLite, by its primary key: read, and written with a commit that is on the disk.

use std::sync::LazyLock;
use std::time::Duration;

use r2d2::Pool;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::Connection;

use crate::pool::{self, CONNECTIONS, LazyPool};
use crate::{Error, ROWS, place, value_of, written};

/// A commit is on the disk when it returns, as by SQLite's own default. Readers do not wait for
/// writers.
const DURABLE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;";

/// Long enough for the checkpoint of another connection. There is nothing else to wait for.
const BUSY_MAX: Duration = Duration::from_secs(10);

static READERS: LazyPool<SqliteConnectionManager> = LazyLock::new(|| pool::kept(open(CONNECTIONS)));

/// SQLite has one writer at a time, so all writers share one connection: a handler that waits for
/// it is woken as soon as it is free. With a connection each, SQLite would let them sleep between
/// attempts to get its lock, for up to 100 ms.
static WRITER: LazyPool<SqliteConnectionManager> = LazyLock::new(|| pool::kept(open(1)));

pub fn read(key: u32) -> Result<String, Error> {
    let connection = pool::take(&READERS)?;
    let mut by_key = connection.prepare_cached("SELECT value FROM items WHERE id = ?")?;
    Ok(by_key.query_one([key], |row| row.get(0))?)
}

pub fn write(key: u32) -> Result<String, Error> {
    let connection = pool::take(&WRITER)?;
    let mut by_key = connection
        .prepare_cached("UPDATE items SET value = ?, writes = writes + 1 WHERE id = ?")?;
    match by_key.execute((value_of(key), key))? {
        1 => Ok(written(key)),
        rows => Err(format!("{rows} rows have the key {key}").into()),
    }
}

fn open(connections: u32) -> Result<Pool<SqliteConnectionManager>, Error> {
    let file = place("SQLITE_FILE")?;
    fill(&mut Connection::open(&file)?)?;
    pool::open(
        SqliteConnectionManager::file(file).with_init(|connection| set_up(connection)),
        connections,
    )
}

fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_MAX)?;
    connection.execute_batch(DURABLE)
}

/// Adds the rows that are missing. Every server but the first one finds all of them.
fn fill(connection: &mut Connection) -> rusqlite::Result<()> {
    set_up(connection)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY, value TEXT NOT NULL, writes \
         INTEGER NOT NULL);",
    )?;
    for key in 0..ROWS {
        transaction
            .prepare_cached("INSERT OR IGNORE INTO items VALUES (?, ?, 0)")?
            .execute((key, value_of(key)))?;
    }
    transaction.commit()
}
