//! Calls that run, in the values of their routes.

use std::io;

use filoplume::Body;

use super::*;

/// Returns the first snapshot of a new viewer that fulfils a condition. A viewer that stays gets
/// one per second.
fn snapshot_that(address: SocketAddr, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let snapshot = Viewer::connect(address).next();
        let Some(snapshot) = snapshot else { continue };
        if condition(&snapshot) {
            return snapshot;
        }
        assert!(Instant::now() < end, "not {what}: {snapshot}");
        thread::sleep(MS * 5);
    }
}

/// Regression: a call that hung had no times, and a streamed upload was shown on a loop.
#[test]
fn a_call_that_has_not_ended_counts_where_it_is() {
    let (release, hangs) = mpsc::channel::<()>();
    let hangs = Mutex::new(hangs);
    let app = start(
        App::new().get("/hang", move || hangs.lock().unwrap().recv().unwrap_or_default()).post(
            "/upload",
            |mut body: Body| -> Result<String> {
                Ok(io::copy(&mut body, &mut io::sink())?.to_string())
            },
        ),
    );
    let address = app.local_addr();
    let hanging = thread::spawn(move || get(address, "/hang"));
    let mut upload = TcpStream::connect(address).unwrap();
    // So much must have arrived before the handler is called.
    let part = "x".repeat(100_000);
    write!(upload, "POST /upload HTTP/1.0\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n{part}")
        .unwrap();
    let snapshot = snapshot_that(address, "on the pool", |snapshot| {
        let runs_on_pool =
            |pattern| route(snapshot, pattern).is_some_and(|route| route["runs"] == "pool");
        runs_on_pool("/upload") && runs_on_pool("/hang")
    });
    let upload_route = route(&snapshot, "/upload").unwrap();
    assert!(upload_route["why"].as_str().unwrap().starts_with("a call holds a thread"));
    if cfg!(target_os = "linux") {
        let waits = |snapshot: &Value| {
            route(snapshot, "/hang").is_some_and(|route| route["waiting_s"].as_f64() > Some(0.0))
        };
        snapshot_that(address, "waiting", waits);
    }
    drop((release, upload));
    hanging.join().unwrap();
    app.shutdown();
}

#[test]
fn a_route_that_begins_to_block_is_shown_on_the_pool() {
    let app = start(App::new().get("/wait", || thread::sleep(MS * 100)));
    let mut viewer = Viewer::connect(app.local_addr());
    let first = viewer.next().unwrap();
    assert!(route(&first, "/wait").is_none(), "{first}");
    let address = app.local_addr();
    let asking = thread::spawn(move || (0..5).for_each(|_| drop(get(address, "/wait"))));
    let snapshot = viewer.wait_for("on the pool", |snapshot| {
        route(snapshot, "/wait").is_some_and(|route| route["runs"] == "pool")
    });
    let wait = route(&snapshot, "/wait").unwrap();
    assert!(wait["since_s"].is_f64() && wait["why"].is_string(), "{wait}");
    asking.join().unwrap();
    app.shutdown();
}
