//! Locks of SQLite databases. A connection that finds its database locked sleeps and tries again,
//! so the system sees a short sleep. The locks themselves are in `/proc/locks`: SQLite locks
//! certain bytes of the database, or of the `-shm` file beside it (`os.h` of its source, and
//! "WAL-mode File Format", section 2.3).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::execution::stuck::wait::Wait;

/// The delays of SQLite's busy handler, in milliseconds. A system without `usleep` uses only the
/// last one.
const DELAYS_MS: [u64; 10] = [1, 2, 5, 10, 15, 20, 25, 50, 100, 1000];

/// The bytes of a database that SQLite locks.
const LOCK_BYTES: std::ops::RangeInclusive<u64> = 0x4000_0000..=0x4000_01FF;

/// The bytes of a `-shm` file that only one process locks: to write, to checkpoint, to recover.
const SHM_LOCK_BYTES: std::ops::RangeInclusive<u64> = 120..=122;

/// How many descriptors are examined to find the name of a database.
const DESCRIPTORS_MAX: usize = 16_384;

/// A lock that keeps others from a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SqliteLock {
    inode: u64,
    start: u64,
    holder: Option<u32>,
}

/// Returns whether SQLite sleeps this long between two attempts.
pub(super) fn is_busy_delay(time: Duration) -> bool {
    DELAYS_MS.iter().any(|&delay| time == Duration::from_millis(delay))
}

/// Returns all locks that look like those of SQLite.
pub(super) fn sqlite_locks() -> Vec<SqliteLock> {
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// Returns what a thread that sleeps as long as SQLite does waits for, if a database that this
/// process has open is locked now and was locked when `before` was read. Most locks do not last
/// that long.
pub(super) fn sqlite_wait(before: &[SqliteLock]) -> Option<Wait> {
    let lasting = sqlite_locks().into_iter().filter(|lock| before.contains(lock));
    let lasting: Vec<SqliteLock> = lasting.collect();
    if lasting.is_empty() {
        return None;
    }
    for entry in fs::read_dir("/proc/self/fd").ok()?.flatten().take(DESCRIPTORS_MAX) {
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        let lock = lasting.iter().find(|lock| lock.inode == metadata.ino());
        let Some(lock) = lock.filter(|_| metadata.is_file()) else { continue };
        let path = fs::read_link(entry.path()).ok()?;
        return Some(Wait::Sqlite { file: database_name(&path), holder: lock.holder });
    }
    None
}

/// Returns the name of a database by one of its files, without the folder.
fn database_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy();
    Some(name.strip_suffix("-shm").unwrap_or(&name).to_owned())
}

/// Reads a line such as `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 1073741825 1073741825`.
fn parse(line: &str) -> Option<SqliteLock> {
    let mut words = line.split_ascii_whitespace().skip(1);
    // The line of a process that waits for a lock has an arrow here.
    let class = words.next()?;
    if !matches!(class, "POSIX" | "OFDLCK") || words.next()? != "ADVISORY" {
        return None;
    }
    let is_exclusive = words.next()? == "WRITE";
    let holder = words.next()?.parse().ok().filter(|&holder| holder > 0);
    let inode = words.next()?.rsplit(':').next()?.parse().ok()?;
    let start = words.next()?.parse().ok()?;
    let end: u64 = words.next()?.parse().ok()?;
    let is_of =
        |bytes: std::ops::RangeInclusive<u64>| bytes.contains(&start) && bytes.contains(&end);
    (is_exclusive && (is_of(LOCK_BYTES) || is_of(SHM_LOCK_BYTES))).then_some(SqliteLock {
        inode,
        start,
        holder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locks_of_sqlite_are_told_from_others() {
        let lock = |start, holder| Some(SqliteLock { inode: 56, start, holder });
        for (line, expected) in [
            (
                "1: POSIX  ADVISORY  WRITE 9 08:01:56 1073741825 1073741825",
                lock(0x4000_0001, Some(9)),
            ),
            (
                "1: POSIX  ADVISORY  WRITE 9 08:01:56 1073741826 1073742335",
                lock(0x4000_0002, Some(9)),
            ),
            ("2: POSIX  ADVISORY  WRITE 0 00:2f:56 120 120", lock(120, None)),
            ("2: OFDLCK ADVISORY  WRITE -1 00:2f:56 120 120", lock(120, None)),
            // Shared, of a whole file, waiting, another kind, cut short.
            ("1: POSIX  ADVISORY  READ 9 08:01:56 1073741826 1073742335", None),
            ("1: POSIX  ADVISORY  WRITE 9 08:01:56 0 EOF", None),
            ("1: POSIX  ADVISORY  WRITE 9 08:01:56 120 9000", None),
            ("1: -> POSIX  ADVISORY  WRITE 9 08:01:56 120 120", None),
            ("1: FLOCK  ADVISORY  WRITE 9 08:01:56 0 EOF", None),
            ("1: POSIX  ADVISORY  WRITE 9 08:01:56 120", None),
            ("", None),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
    }

    #[test]
    fn a_database_is_named_without_its_folder() {
        for (path, name) in [("/a/b/shop.db", "shop.db"), ("/a/shop.db-shm", "shop.db")] {
            assert_eq!(database_name(Path::new(path)).as_deref(), Some(name));
        }
    }
}
