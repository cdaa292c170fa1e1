//! Tests of the file under a flood of sessions, with other processes, and with other users.

mod busy_tests;

use std::sync::Arc;

use super::*;
use crate::session::store_tests::{self, HOUR, begin, log_in, present};

fn in_memory() -> SqliteStore {
    SqliteStore::open(":memory:").expect("it needs no disk")
}

/// Returns the IDs of the rows, without counting as use.
fn ids(store: &SqliteStore) -> Vec<String> {
    let connection = store.connection.lock();
    let mut statement =
        connection.prepare("SELECT id FROM filoplume_sessions ORDER BY id").unwrap();
    let ids = statement.query_map([], |row| row.get(0)).unwrap();
    ids.map(Result::unwrap).collect()
}

fn count(store: &SqliteStore) -> usize {
    schema::all(&store.connection.lock()).unwrap().sessions
}

/// As `docs/guide/sessions.md` says.
#[test]
fn a_store_has_the_documented_bounds_by_default() {
    let store = in_memory();
    assert_eq!((store.sessions_max, store.bytes_max), (250_000, 1 << 30));
}

#[track_caller]
fn counts_are_right(store: &SqliteStore) {
    let connection = store.connection.lock();
    let of = |condition: &str| {
        let sql = "SELECT count(*), coalesce(sum(length(record)), 0) FROM filoplume_sessions";
        let row = |row: &rusqlite::Row<'_>| {
            let number = |column: usize| row.get(column).map(|number: u32| number as usize);
            Ok(Extent { sessions: number(0)?, bytes: number(1)? })
        };
        connection.query_row(&format!("{sql} WHERE {condition}"), [], row).unwrap()
    };
    assert_eq!(schema::all(&connection).unwrap(), of("1"));
    assert_eq!(schema::used(&connection).unwrap(), of("is_used > 0"));
}

/// Runs a closure, and returns its result with its log output.
fn logged<T>(run: impl FnOnce() -> T) -> (T, String) {
    let log = Writer::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let result = tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    (result, text)
}

fn unrecorded_uses(log: &str) -> usize {
    log.lines().filter(|line| line.contains("could not be recorded")).count()
}

#[derive(Clone, Default)]
struct Writer(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_session_that_was_never_presented_again_is_evicted_first() {
    let store = in_memory().sessions_max(5);
    store_tests::evicts_sessions_that_were_never_presented_again_first(&store, ids);
    counts_are_right(&store);
}

#[test]
fn sessions_in_use_have_four_fifths_and_the_least_recently_used_are_evicted() {
    let store = in_memory().sessions_max(5);
    store_tests::reserves_four_fifths_for_sessions_in_use(&store, ids);
    counts_are_right(&store);
}

#[test]
fn sessions_with_a_login_are_evicted_last() {
    let store = in_memory().sessions_max(20);
    store_tests::keeps_logins_before_all_others(&store, 20);
    counts_are_right(&store);
}

#[test]
fn logins_beyond_the_share_lose_their_protection_until_they_are_used() {
    let store = in_memory().sessions_max(5);
    store_tests::keeps_the_latest_logins_within_the_share(&store, ids);
    counts_are_right(&store);
}

#[test]
fn the_bytes_of_all_records_have_a_bound() {
    let store = in_memory().bytes_max(10_000);
    let bytes = || schema::all(&store.connection.lock()).unwrap().bytes;
    log_in(&store, "user");
    (0..100).for_each(|number| begin(&store, &format!("short-{number}")));
    // A long record takes the place of many short ones, and they are deleted at once.
    store.insert("long", &[7; 9900], HOUR).unwrap();
    assert!(bytes() <= 10_000, "{}", bytes());
    assert!(present(&store, "long") && present(&store, "user"));
    for number in 0..50 {
        store.insert(&format!("more-{number}"), &[7; 3000], HOUR).unwrap();
        assert!(bytes() <= 10_000, "{}", bytes());
    }
    // The same holds if a session grows.
    begin(&store, "grows");
    assert!(store.replace("grows", b"1234", &[7; 9000], HOUR).unwrap());
    assert!(bytes() <= 10_000, "{}", bytes());
    assert!(present(&store, "grows") && present(&store, "user"));
    counts_are_right(&store);
    let _ = store.insert("larger", &[7; 10_001], HOUR).unwrap_err();
    let _ = store.replace("grows", &[7; 9000], &[7; 10_001], HOUR).unwrap_err();
}

#[test]
fn long_records_in_use_leave_a_fifth_of_the_bytes_to_new_sessions() {
    let store = in_memory().bytes_max(10_000);
    for number in 0..4 {
        let id = number.to_string();
        store.insert(&id, &[7; 2400], HOUR).unwrap();
        assert!(present(&store, &id));
    }
    assert!(schema::used(&store.connection.lock()).unwrap().bytes <= 8000);
    counts_are_right(&store);
}

#[test]
fn lowered_bytes_are_reached_a_few_sessions_at_a_time() {
    let store = in_memory();
    (0..100).for_each(|number| begin(&store, &format!("old-{number}")));
    let store = store.bytes_max(30 * 4);
    begin(&store, "a");
    assert_eq!(count(&store), 100 + 1 - MOVED_PER_CALL);
    (0..20).for_each(|number| begin(&store, &format!("new-{number}")));
    assert_eq!(count(&store), 30);
}

#[test]
fn use_is_recorded_again_after_a_minute() {
    let store = in_memory();
    let set = |id: &str, ago: i64| {
        let at = microseconds() - ago;
        let connection = store.connection.lock();
        let set = "UPDATE filoplume_sessions SET is_used = 1, at = ?2 WHERE id = ?1";
        connection.execute(set, params![id, at]).unwrap();
        at
    };
    let at = |id: &str| -> i64 {
        let connection = store.connection.lock();
        connection
            .query_row("SELECT at FROM filoplume_sessions WHERE id = ?1", [id], |row| row.get(0))
            .unwrap()
    };
    for (id, ago, is_noted) in [
        ("now", 0, false),
        ("seconds ago", 30_000_000, false),
        ("a minute ago", USE_PRECISION, true),
        ("before the clock was set back", -3_600_000_000, true),
    ] {
        begin(&store, id);
        let before = set(id, ago);
        assert!(present(&store, id));
        assert_eq!(at(id) != before, is_noted, "{id}");
    }
}

#[test]
fn a_flood_of_new_sessions_neither_evicts_used_ones_nor_grows_the_file() {
    let store = in_memory().sessions_max(1000);
    let users: Vec<String> = (0..500).map(|number| format!("user-{number}")).collect();
    for user in &users {
        begin(&store, user);
        assert!(present(&store, user));
    }
    for number in 0..20_000 {
        begin(&store, &format!("flood-{number}"));
        assert!(count(&store) <= 1000);
    }
    assert!(users.iter().all(|user| present(&store, user)));
    counts_are_right(&store);
}

#[test]
fn expired_sessions_do_not_accumulate_at_any_rate() {
    let store = in_memory();
    // All within far less than a minute.
    for number in 0..5000 {
        store.insert(&number.to_string(), b"1", Duration::ZERO).unwrap();
        assert!(count(&store) <= 2, "{number}");
    }
}

#[test]
fn many_expired_sessions_are_removed_a_few_at_a_time() {
    let store = in_memory();
    (0..200).for_each(|number| begin(&store, &format!("old-{number}")));
    store.connection.lock().execute("UPDATE filoplume_sessions SET ends = 0", []).unwrap();
    for begun in 1..=25 {
        begin(&store, &format!("new-{begun}"));
        assert_eq!(count(&store), 200 - begun * EXPIRED_PER_INSERT + begun);
    }
    counts_are_right(&store);
}

#[test]
fn a_lowered_bound_is_reached_a_few_at_a_time() {
    let store = in_memory();
    (0..100).for_each(|number| begin(&store, &format!("old-{number}")));
    let store = store.sessions_max(30);
    begin(&store, "a");
    assert_eq!(count(&store), 100 + 1 - MOVED_PER_CALL);
    (0..20).for_each(|number| begin(&store, &format!("new-{number}")));
    assert_eq!(count(&store), 30);
}

#[test]
fn every_statement_finds_its_rows_by_an_index() {
    let store = in_memory();
    let connection = store.connection.lock();
    for sql in [LOAD, INSERT, REPLACE, DELETE_EXPIRED, DELETE_NEXT, RECORD_USE, RETURN_TO_PROBATION]
    {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![rusqlite::types::Null; statement.parameter_count()];
        let parameters = rusqlite::params_from_iter(parameters);
        let steps = statement.query_map(parameters, |row| row.get(3)).unwrap();
        let plan: Vec<String> = steps.map(Result::unwrap).collect();
        let is_slow = |step: &String| step.contains("SCAN") || step.contains("TEMP B-TREE");
        assert!(!plan.iter().any(is_slow), "{sql}: {plan:?}");
    }
}

#[test]
fn a_file_of_an_older_version_is_updated() {
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch(
            "CREATE TABLE filoplume_sessions
                 (id TEXT NOT NULL PRIMARY KEY, record BLOB NOT NULL, ends INTEGER NOT NULL) WITHOUT ROWID;
             CREATE INDEX filoplume_sessions_ends ON filoplume_sessions (ends);
             INSERT INTO filoplume_sessions VALUES ('old', x'31', 99999999999), ('over', x'31', 0);",
        )
        .unwrap();
    let store = SqliteStore::with_connection(connection).unwrap().sessions_max(3);
    counts_are_right(&store);
    (0..10).for_each(|number| begin(&store, &number.to_string()));
    assert_eq!(ids(&store), ["8", "9", "old"]);
    assert!(present(&store, "old"));
    // A process of the older version, which does not know the eviction order.
    let insert =
        "INSERT OR REPLACE INTO filoplume_sessions (id, record, ends) VALUES ('a', x'31', 1)";
    store.connection.lock().execute(insert, []).unwrap();
    counts_are_right(&store);
    store.connection.lock().execute("DELETE FROM filoplume_sessions", []).unwrap();
    counts_are_right(&store);
}

#[test]
fn a_file_of_the_version_without_logins_is_updated_and_still_used_by_that_version() {
    let connection = Connection::open_in_memory().unwrap();
    // What that version executed.
    let count = |class: u8| {
        format!(
            "INSERT OR REPLACE INTO filoplume_session_counts
                 SELECT {class}, count(*) FROM filoplume_sessions WHERE is_used = {class};"
        )
    };
    let insert = "INSERT INTO filoplume_sessions (id, record, ends, is_used, at)
         VALUES (?1, x'3132', 99999999999, 0, 1)";
    connection
        .execute_batch(&format!(
            "CREATE TABLE filoplume_sessions (
                 id TEXT NOT NULL PRIMARY KEY, record BLOB NOT NULL, ends INTEGER NOT NULL,
                 is_used INTEGER NOT NULL DEFAULT 1, at INTEGER NOT NULL DEFAULT 0
             ) WITHOUT ROWID;
             CREATE TABLE filoplume_session_counts
                 (is_used INTEGER NOT NULL PRIMARY KEY, sessions INTEGER NOT NULL) WITHOUT ROWID;
             {} {}",
            count(0),
            count(1)
        ))
        .unwrap();
    connection.execute(insert, ["old"]).unwrap();
    let store = SqliteStore::with_connection(connection).unwrap();
    counts_are_right(&store);
    log_in(&store, "user");
    {
        let connection = store.connection.lock();
        connection.execute_batch(&format!("{} {}", count(0), count(1))).unwrap();
        connection.execute(insert, ["older process"]).unwrap();
        let record_use = "UPDATE filoplume_sessions SET is_used = 1, at = ?2 WHERE id = ?1";
        connection.execute(record_use, params!["user", 0]).unwrap();
    }
    counts_are_right(&store);
    assert!(present(&store, "old") && present(&store, "older process") && present(&store, "user"));
    counts_are_right(&store);
    let class = "SELECT is_used FROM filoplume_sessions WHERE id = 'user'";
    let class: u8 = store.connection.lock().query_row(class, [], |row| row.get(0)).unwrap();
    assert_eq!(class, 2, "it is a login again");
}

#[test]
fn a_session_that_is_inserted_again_is_on_probation_again() {
    let store = in_memory();
    begin(&store, "a");
    assert!(present(&store, "a"));
    begin(&store, "a");
    assert_eq!(schema::used(&store.connection.lock()).unwrap().sessions, 0);
    counts_are_right(&store);
}

#[test]
fn two_processes_share_a_file_and_its_bound() {
    let folder = tempfile::tempdir().unwrap();
    let open = || SqliteStore::open(folder.path().join("sessions.db")).unwrap().sessions_max(40);
    let stores = [open(), open()];
    std::thread::scope(|scope| {
        for (name, store) in ["a", "b"].into_iter().zip(&stores) {
            scope.spawn(move || {
                for number in 0..100 {
                    begin(store, &format!("{name}-{number}"));
                    assert!(count(store) <= 40);
                }
            });
        }
    });
    stores.iter().for_each(counts_are_right);
}

#[test]
fn sessions_of_a_database_that_cannot_be_written_are_served_and_do_not_fill_the_log() {
    let store = in_memory();
    begin(&store, "a");
    store.connection.lock().pragma_update(None, "query_only", true).unwrap();
    let (all, log) = logged(|| (0..500).all(|_| present(&store, "a")));
    assert!(all, "they are valid");
    // One line per pause that the test lasts.
    assert!((1..5).contains(&unrecorded_uses(&log)), "{log}");
    // After the pause it is recorded.
    store.connection.lock().pragma_update(None, "query_only", false).unwrap();
    *store.uses_paused_until.lock() = Some(Instant::now());
    assert!(present(&store, "a"));
    assert_eq!(schema::used(&store.connection.lock()).unwrap().sessions, 1);
}

#[cfg(unix)]
mod rights {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_file_and_its_companions_are_accessible_to_the_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let (store, log) = logged(|| SqliteStore::open(&path).unwrap());
        begin(&store, "a");
        for name in ["sessions.db", "sessions.db-wal", "sessions.db-shm"] {
            assert_eq!(mode(&folder.path().join(name)), 0o600, "{name}");
        }
        assert_eq!(log, "");
        drop(store);
        let (_, log) = logged(|| SqliteStore::open(&path).unwrap());
        assert_eq!(log, "");
    }

    #[test]
    fn a_file_that_others_can_read_is_not_changed_but_logged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        drop(SqliteStore::open(&path).unwrap());
        for wide in [0o644, 0o640, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(wide)).unwrap();
            let (_, log) = logged(|| SqliteStore::open(&path).unwrap());
            assert_eq!(mode(&path), wide);
            for part in ["WARN", "sessions.db\"", "chmod 600", &format!("{wide:o}")] {
                assert!(log.contains(part), "{part}: {log}");
            }
        }
    }

    #[test]
    fn only_file_paths_are_created() {
        let folder = tempfile::tempdir().unwrap();
        let uri = format!("file:{}?mode=memory", folder.path().join("none.db").display());
        for path in ["", ":memory:", &uri] {
            begin(&SqliteStore::open(path).unwrap(), "a");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let _ = SqliteStore::open(folder.path().join("no folder").join("sessions.db"))
            .expect_err("it has no folder");
    }
}

/// All others are in use, so no other one is on probation.
#[test]
fn a_new_session_is_not_evicted_for_itself() {
    for max in 1..=6 {
        let store = in_memory().sessions_max(max);
        let used = ["a", "b", "c", "d", "e", "f"].into_iter().take(max);
        for id in used {
            begin(&store, id);
            assert!(present(&store, id));
        }
        begin(&store, "new");
        let ids = ids(&store);
        assert!(ids.len() == max && ids.iter().any(|id| id == "new"), "{max}: {ids:?}");
    }
}
