//! How the store waits while another program holds a lock of the database.
//!
//! SQLite's own busy timeout is not used: it waits within a call, and so with the lock of the
//! connection, which readers need as well. In WAL mode they read while another program writes.

use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::SqliteStore;
use crate::core::error::{Error, Result};

/// How long to wait while another program holds the lock of the file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The first pause between two attempts. Most transactions are shorter.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(25);

impl SqliteStore {
    /// Runs a closure that reads. It may run several times. In WAL mode it has to wait only while
    /// another program opens or closes the file, which is rare.
    pub(super) fn read<T>(
        &self,
        run: impl FnMut(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.run_until(Instant::now() + BUSY_TIMEOUT, run)
    }

    /// Runs a closure that writes. It may run several times: an attempt that fails must change
    /// nothing. One thread tries at a time. Each has its own deadline, so that the last one of a
    /// queue does not wait for the timeouts of all others.
    pub(super) fn write<T>(
        &self,
        run: impl FnMut(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + BUSY_TIMEOUT;
        let Some(_writer) = self.writer.try_lock_until(deadline) else {
            return Err(busy("other changes of sessions are waiting for the lock of the database"));
        };
        self.run_until(deadline, run)
    }

    fn run_until<T>(
        &self,
        deadline: Instant,
        mut run: impl FnMut(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut pause = PAUSE_MIN;
        loop {
            let result = run(&mut self.connection.lock());
            match result {
                Err(error) if is_busy(&error) => {
                    if Instant::now() >= deadline {
                        return Err(busy(error));
                    }
                }
                result => return Ok(result?),
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Returns whether another program holds a lock that this attempt needed.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// Returns the error for a request that another program kept waiting.
fn busy(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::unavailable("the session store is busy")
        .with_source(source)
        .with_known_header("retry-after", BUSY_TIMEOUT.as_secs().to_string())
}
