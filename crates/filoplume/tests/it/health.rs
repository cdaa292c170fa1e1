//! The probes of an app: what strangers see, and that probes are always answered.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use expect_test::expect;
use filoplume::prelude::*;
use filoplume::{AppService, Server};
use filoplume_runtime::{Monitor, Plan, Service};
use serde_json::{Value, json};

use crate::routing::check_mistakes;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);

fn failing() -> Result<()> {
    Err(Error::unavailable("the password is swordfish"))
}

/// Returns the content of a probe without the durations.
fn content(text: &str) -> Value {
    let mut value: Value = serde_json::from_str(text).unwrap();
    for check in value["checks"].as_array_mut().into_iter().flatten() {
        let took = check.as_object_mut().unwrap().remove("milliseconds").unwrap();
        assert!(took.as_f64().unwrap() >= 0.0);
    }
    value
}

#[test]
fn probes_say_which_check_fails_and_not_why() {
    let health = Health::new()
        .check("data\"base\n", LONG, || Ok::<(), Error>(()))
        .check("queue", LONG, failing)
        .optional_check("mail", LONG, failing)
        .live_check("worker", LONG, || Ok::<(), std::io::Error>(()));
    let client = App::new().health(health).test();
    let ready = client.get("/ready").send();
    ready
        .assert_status(503)
        .assert_header("content-type", "application/json")
        .assert_header("cache-control", "no-store");
    // The instance is starting, because one of the checks has not passed yet.
    let worker = json!({"name": "worker", "status": "passed"});
    let expected = json!({"status": "starting", "checks": [
        {"name": "data\"base\n", "status": "passed"},
        {"name": "queue", "status": "failed"},
        {"name": "mail", "status": "failed", "optional": true},
        worker,
    ]});
    assert_eq!(content(ready.text()), expected);
    let live = client.get("/live").send();
    live.assert_status(200).assert_header("content-type", "application/json");
    assert_eq!(content(live.text()), json!({"status": "alive", "checks": [worker]}));
}

#[test]
fn a_process_that_is_not_alive_is_not_ready() {
    let client = App::new().health(Health::new().live_check("worker", LONG, failing)).test();
    for path in ["/live", "/ready"] {
        client.get(path).send().assert_status(503);
    }
}

#[test]
fn probes_have_the_paths_that_the_program_chose() {
    let health = Health::new().live_path("/healthz").ready_path("/internal/readyz");
    let client = App::new().health(health).test();
    for (path, status) in [("/healthz", 200), ("/internal/readyz", 200), ("/live", 404)] {
        client.get(path).send().assert_status(status);
        client.head(path).send().assert_status(status).assert_text("");
    }
}

#[test]
fn health_that_is_set_up_wrongly_is_reported_at_the_start() {
    let health = Health::new().check("a", LONG, failing).live_check("a", LONG, failing).check(
        "b",
        Duration::ZERO,
        || Ok::<_, Error>(()),
    );
    check_mistakes(
        App::new().get("/ready", || "mine").health(health),
        &expect![[r#"
        the app cannot start:
          - two health checks have the name "a"
          - the health check "b" has a deadline of zero, so it would always be late
          - GET /ready has several handlers; keep one of them: health.rs:_, health.rs:_
    "#]],
    );
}

#[test]
fn a_path_that_is_registered_three_times_is_one_mistake() {
    let app = App::new().get("/ready", || "mine").get("/ready", || "too");
    check_mistakes(
        app.health(Health::new()),
        &expect![[r#"
        the app cannot start:
          - GET /ready has several handlers; keep one of them: health.rs:_, health.rs:_, health.rs:_
    "#]],
    );
}

/// Sends a request on a new connection.
fn send(address: SocketAddr, target: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
    BufReader::new(stream)
}

fn status_of(mut response: BufReader<TcpStream>) -> u16 {
    let mut line = String::new();
    response.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    response.read_to_string(&mut line).unwrap();
    status
}

fn status(address: SocketAddr, target: &str) -> u16 {
    status_of(send(address, target))
}

/// A function that sends the name of its thread when it is called, and waits for a message. It
/// fails if the test has ended.
struct Hanging {
    called: mpsc::Receiver<String>,
    release: mpsc::Sender<()>,
}

fn hanging() -> (Hanging, impl Fn() -> Result<()> + Send + Sync + 'static) {
    let (call, called) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let released = Arc::new(Mutex::new(released));
    let hang = move || {
        call.send(thread::current().name().unwrap_or_default().to_owned())?;
        Ok(released.lock().unwrap().recv_timeout(LONG)?)
    };
    (Hanging { called, release }, hang)
}

#[test]
fn a_check_that_hangs_holds_up_no_loop_and_no_request() {
    let (hanging, hang) = hanging();
    let app = App::new()
        .get("/", || "hi")
        .health(Health::new().check("hanging", LONG, hang))
        .config(ServerConfig::default().event_loops(1))
        .start("127.0.0.1:0")
        .unwrap();
    let address = app.local_addr();
    let probe = send(address, "/ready");
    let thread = hanging.called.recv_timeout(LONG).unwrap();
    assert!(thread.starts_with("health-"), "{thread}");
    for _ in 0..20 {
        assert_eq!(status(address, "/"), 200);
        assert_eq!(status(address, "/live"), 200);
    }
    hanging.release.send(()).unwrap();
    assert_eq!(status_of(probe), 200);
    app.shutdown();
}

#[test]
fn probes_are_answered_while_other_requests_hold_all_threads() {
    let (hanging, hang) = hanging();
    let app = App::new()
        .route("/slow", get(move || hang().map(|()| "done")).on_pool())
        .health(Health::new().check("quick", LONG, || Ok::<(), Error>(())))
        .config(ServerConfig::default().threads_max(1))
        .start("127.0.0.1:0")
        .unwrap();
    let address = app.local_addr();
    let slow = send(address, "/slow");
    hanging.called.recv_timeout(LONG).unwrap();
    for _ in 0..5 {
        assert_eq!(status(address, "/ready"), 200);
        assert_eq!(status(address, "/live"), 200);
    }
    hanging.release.send(()).unwrap();
    assert_eq!(status_of(slow), 200);
    app.shutdown();
}

#[test]
fn an_instance_whose_requests_wait_is_not_ready_if_that_is_wanted() {
    let (hanging, hang) = hanging();
    let app = App::new()
        .route("/slow", get(move || hang().map(|()| "done")).on_pool())
        .health(Health::new().overloaded_at(2))
        .config(ServerConfig::default().threads_max(1))
        .start("127.0.0.1:0")
        .unwrap();
    let address = app.local_addr();
    let waiting = |count| {
        let end = Instant::now() + LONG;
        while app.server().metrics().unwrap().waiting != count {
            assert!(Instant::now() < end, "{count} requests do not wait");
            thread::sleep(Duration::from_millis(1));
        }
    };
    let mut slow = vec![send(address, "/slow")];
    hanging.called.recv_timeout(LONG).unwrap();
    for (count, expected) in [(1, 200), (2, 503), (3, 503)] {
        slow.push(send(address, "/slow"));
        waiting(count);
        assert_eq!(status(address, "/ready"), expected, "{count}");
        assert_eq!(status(address, "/live"), 200);
    }
    slow.iter().for_each(|_| hanging.release.send(()).unwrap());
    slow.into_iter().for_each(|response| assert_eq!(status_of(response), 200));
    waiting(0);
    assert_eq!(status(address, "/ready"), 200);
    app.shutdown();
}

/// Regression: a probe on an event loop read the metrics of all routes, each under a lock.
#[test]
fn a_probe_reads_no_metrics_of_routes_to_know_how_many_requests_wait() {
    struct Watched(AppService, Arc<AtomicUsize>);

    impl Service for Watched {
        fn plan(&self, request: &mut Request) -> Plan {
            self.0.plan(request)
        }

        fn call(&self, request: Request) -> Response {
            self.0.call(request)
        }

        fn started(&self, monitor: &Monitor) {
            self.0.started(monitor);
        }

        fn route_name(&self, route: u32) -> Option<String> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.route_name(route)
        }
    }

    let app = App::new().get("/", || "hi").health(Health::new().overloaded_at(1)).build().unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap();
    let asked = Arc::default();
    server.spawn(Watched(app, Arc::clone(&asked))).unwrap();
    let address = server.local_addr().unwrap();
    for path in ["/", "/ready", "/ready"] {
        assert_eq!(status(address, path), 200, "{path}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "the names are read with the metrics of routes");
    server.metrics();
    assert_ne!(asked.load(Ordering::Relaxed), 0);
    server.shutdown_handle().shutdown();
}

#[test]
fn the_latest_results_are_among_the_metrics_and_a_scrape_runs_no_check() {
    let runs = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&runs);
    let health = Health::new()
        .check("data\"base", LONG, move || {
            *counted.lock().unwrap() += 1;
            Ok::<(), Error>(())
        })
        .optional_check("mail", LONG, failing);
    // The order of `health` and `metrics` does not matter.
    let client = App::new().health(health).metrics("/metrics").test();
    let unknown = client.get("/metrics").send().text().to_owned();
    assert!(!unknown.contains("filoplume_check_up"), "{unknown}");
    assert!(!unknown.contains("filoplume_ready"), "nobody has probed: {unknown}");
    assert_eq!(*runs.lock().unwrap(), 0);
    client.get("/ready").send().assert_status(200);
    // The text of the metrics may be up to half a second old.
    let end = Instant::now() + LONG;
    let text = loop {
        let text = client.get("/metrics").send().text().to_owned();
        if text.contains("filoplume_ready") {
            break text;
        }
        assert!(Instant::now() < end, "{text}");
        thread::sleep(Duration::from_millis(10));
    };
    for line in [
        "filoplume_check_up{check=\"data\\\"base\",required=\"true\"} 1",
        "filoplume_check_up{check=\"mail\",required=\"false\"} 0",
        "filoplume_ready 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    assert_eq!(*runs.lock().unwrap(), 1);
}

#[test]
fn probes_on_an_address_of_their_own_are_answered_until_the_app_has_stopped() {
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let slow = move || {
        enter.send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
        "done"
    };
    let app = App::new()
        .route("/slow", get(slow).on_pool())
        .health(Health::new().address("127.0.0.1:0"))
        .metrics_on("127.0.0.1:0", "/metrics")
        .config(ServerConfig::default().drain_timeout(LONG))
        .start("127.0.0.1:0")
        .unwrap();
    let (address, probes) = (app.local_addr(), app.health_addr().unwrap());
    assert_eq!(app.metrics_addr(), Some(probes), "parts with the same address share it");
    assert_eq!([status(address, "/ready"), status(address, "/live")], [404, 404]);
    assert_eq!([status(probes, "/ready"), status(probes, "/live")], [200, 200]);
    let slow = send(address, "/slow");
    entered.recv_timeout(LONG).unwrap();
    app.shutdown_handle().shutdown();
    assert_eq!([status(probes, "/ready"), status(probes, "/live")], [503, 200]);
    release.send(()).unwrap();
    assert_eq!(status_of(slow), 200);
    app.shutdown();
    TcpStream::connect(probes).unwrap_err();
}

#[test]
fn probes_that_nobody_would_bind_are_a_mistake() {
    let app = App::new().health(Health::new().address("127.0.0.1:0"));
    let error = format!("{:?}", app.build().unwrap_err());
    assert!(error.contains("the address of the probes, 127.0.0.1:0, is one which"), "{error}");
    assert!(error.contains("leave `Health::address` out"), "{error}");
}
