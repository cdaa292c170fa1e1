//! Tests of a file whose lock another program holds.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use filoplume_runtime::StatusCode;

use super::*;
use crate::middleware::Sessions;
use crate::session::Session;
use crate::{App, Key};

/// Another program that holds SQLite's write lock, until it is unlocked or dropped.
struct Holder(Connection);

impl Holder {
    fn lock(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self(connection)
    }

    fn unlock(self) {
        self.0.execute_batch("COMMIT").unwrap();
    }
}

#[test]
fn a_read_does_not_wait_for_the_lock_to_record_a_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let store = SqliteStore::open(&path).unwrap();
    begin(&store, "a");
    let holder = Holder::lock(&path);
    let start = Instant::now();
    let is_soon = || start.elapsed() < BUSY_TIMEOUT / 2;
    let (all, log) = logged(|| (0..100).all(|_| present(&store, "a") && is_soon()));
    assert!(all, "{:?}", start.elapsed());
    assert!((1..=20).contains(&unrecorded_uses(&log)), "{log}");
    holder.unlock();
    // The lock causes no pause.
    assert!(present(&store, "a"));
    assert_eq!(schema::used(&store.connection.lock()).unwrap().sessions, 1);
}

#[test]
fn reads_overtake_writes_that_wait_for_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let store = SqliteStore::open(&path).unwrap();
    begin(&store, "in use");
    assert!(present(&store, "in use"), "its use is recorded");
    let holder = Holder::lock(&path);
    let (started, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (store, started, ended) = (&store, &started, &ended);
            scope.spawn(move || {
                started.fetch_add(1, Ordering::SeqCst);
                begin(store, &format!("new-{number}"));
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        while started.load(Ordering::SeqCst) < 6 {
            std::thread::yield_now();
        }
        // Reads until the writers certainly wait, far less than their timeout.
        let start = Instant::now();
        while start.elapsed() < BUSY_TIMEOUT / 10 {
            assert!(present(&store, "in use"));
        }
        assert!(start.elapsed() < BUSY_TIMEOUT / 2, "{:?}", start.elapsed());
        assert_eq!(ended.load(Ordering::SeqCst), 0);
        holder.unlock();
    });
    assert_eq!(count(&store), 7, "all of them were written after all");
    counts_are_right(&store);
}

#[test]
fn a_queue_of_writes_waits_as_long_as_one_and_gets_503() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let store = SqliteStore::open(&path).unwrap();
    begin(&store, "a");
    let app = App::new()
        .get("/", |session: Session| session.insert("visits", 1))
        .with(Sessions::new(SqliteStore::open(&path).unwrap(), Key::generate()));
    let client = app.test();
    let holder = Holder::lock(&path);
    let start = Instant::now();
    let refused = |result: Result<()>| {
        let error = result.expect_err("the lock is held");
        assert_eq!(error.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(error.detail(), Some("the session store is busy"));
        assert!(error.source().is_some());
    };
    std::thread::scope(|scope| {
        for number in 0..3 {
            let id = format!("new-{number}");
            scope.spawn({
                let store = &store;
                move || refused(store.insert(&id, b"1234", HOUR))
            });
        }
        scope.spawn(|| refused(store.replace("a", b"1234", b"5678", HOUR).map(drop)));
        scope.spawn(|| refused(store.remove("a")));
        let response = client.get("/").send();
        response.assert_status(503).assert_header("retry-after", "5");
    });
    assert!(start.elapsed() < BUSY_TIMEOUT * 2, "{:?}", start.elapsed());
    holder.unlock();
    assert!(present(&store, "a"));
    client.get("/").send().assert_status(200);
    counts_are_right(&store);
}
