//! Handlers of an app that do not return.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use filoplume::prelude::*;
use filoplume::{AppService, Server};
use filoplume_runtime::{Plan, Service, Stuck, Wait};
use rusqlite::Connection;

const DEADLINE: Duration = Duration::from_secs(60);

/// An app that also sends its reports to a test.
struct Told {
    app: AppService,
    reports: mpsc::Sender<Stuck>,
}

impl Service for Told {
    fn plan(&self, request: &mut Request) -> Plan {
        self.app.plan(request)
    }

    fn call(&self, request: Request) -> Response {
        self.app.call(request)
    }

    fn route_name(&self, route: u32) -> Option<String> {
        self.app.route_name(route)
    }

    fn stuck(&self, stuck: &Stuck) {
        self.app.stuck(stuck);
        let _ = self.reports.send(stuck.clone());
    }
}

/// Requests `GET /7` of an app, and calls `release` when a report has come. Returns that report,
/// and the one that says that the handler has returned.
fn reports(app: App, release: impl FnOnce()) -> (Stuck, Stuck) {
    let (sender, reports) = mpsc::channel();
    let config = ServerConfig::default().stuck_after(Duration::from_millis(50));
    let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
    let app = app
        .with(middleware::RequestIds::new().trust_incoming(true))
        .with(middleware::Tracing::new().incoming(middleware::Incoming::Continue))
        .build()
        .unwrap();
    server.spawn(Told { app, reports: sender }).unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client
        .write_all(
            b"GET /7 HTTP/1.1\r\nHost: a\r\nX-Request-Id: id-17\r\nConnection: close\r\n\
              Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n",
        )
        .unwrap();
    let stuck = reports.recv_timeout(DEADLINE).unwrap();
    release();
    let end = reports.recv_timeout(DEADLINE).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(reports.try_recv().is_err());
    server.shutdown_handle().shutdown();
    (stuck, end)
}

#[test]
fn a_stuck_handler_is_reported_with_its_route_and_the_ids_of_its_request() {
    for is_on_pool in [true, false] {
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        let route = get(move || _ = released.lock().unwrap().recv());
        let route = if is_on_pool { route.on_pool() } else { route.on_loop() };
        let (stuck, end) = reports(App::new().route("/{id}", route), || drop(release));
        for stuck in [&stuck, &end] {
            assert_eq!(stuck.route.as_deref(), Some("GET /{id}"));
            assert_eq!(stuck.request_id.as_deref(), Some("id-17"));
            assert_eq!(stuck.trace_id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        }
        assert!((stuck.has_ended, end.has_ended) == (false, true));
        assert!(stuck.to_string().starts_with("GET /{id}: stuck (#1): it has been"), "{stuck}");
        assert!(end.to_string().starts_with("GET /{id}: no longer stuck (#1): it took"), "{end}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_lock_of_an_sqlite_database_is_named_with_its_file_and_its_holder() {
    for journal in ["delete", "wal"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let ours = Connection::open(&path).unwrap();
        let set = |connection: &Connection| {
            let mode: String = connection
                .pragma_update_and_check(None, "journal_mode", journal, |row| row.get(0))
                .unwrap();
            assert_eq!(mode, journal);
        };
        set(&ours);
        ours.execute_batch("create table orders (id integer); begin immediate").unwrap();
        let insert = move || {
            let theirs = Connection::open(&path).unwrap();
            theirs.busy_timeout(DEADLINE).unwrap();
            theirs.execute("insert into orders values (1)", []).unwrap();
        };
        let app = App::new().route("/{id}", get(insert));
        let (stuck, _) = reports(app, || ours.execute_batch("commit").unwrap());
        let file = Some("shop.db".to_owned());
        let holder = Some(std::process::id());
        assert_eq!(stuck.wait, Some(Wait::Sqlite { file, holder }), "{journal}: {stuck}");
    }
}

/// The database is locked, but the handler waits for something else.
#[test]
#[cfg(target_os = "linux")]
fn another_wait_is_not_taken_for_a_lock_of_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Connection::open(folder.path().join("shop.db")).unwrap();
    ours.execute_batch("create table orders (id integer); begin immediate").unwrap();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let wait = move || {
        let released = released.lock().unwrap();
        while let Err(mpsc::TryRecvError::Empty) = released.try_recv() {
            std::thread::sleep(Duration::from_millis(99));
        }
    };
    let (stuck, _) = reports(App::new().route("/{id}", get(wait)), || drop(release));
    let time = Some(Duration::from_millis(99));
    assert_eq!(stuck.wait, Some(Wait::Sleep { time }), "{stuck}");
    drop(ours);
}
