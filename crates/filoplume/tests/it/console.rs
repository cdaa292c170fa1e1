//! The console: who may see it, what is in its feed, and what is not.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod running;
mod statuses;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use filoplume::middleware::{BearerAuth, RequestIds, secrets_match};
use filoplume::prelude::*;
use filoplume::{Console, Peer, Permits, RunningApp, ServerConfig};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// Generous, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// `ada:sesame`, for basic authentication.
const ADA: &str = "authorization: Basic YWRhOnNlc2FtZQ==\r\n";

fn console() -> Console {
    Console::with_password("ada", "sesame")
}

/// A viewer of the feed.
struct Viewer {
    lines: BufReader<TcpStream>,
    status: String,
    head: String,
}

impl Viewer {
    fn connect(address: SocketAddr) -> Self {
        Self::ask(address, "/console/events", ADA)
    }

    /// HTTP/1.0 has no chunks, so that the content is read as it is.
    fn ask(address: SocketAddr, target: &str, fields: &str) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET {target} HTTP/1.0\r\nHost: localhost\r\n{fields}\r\n").unwrap();
        let mut lines = BufReader::new(socket);
        let mut status = String::new();
        lines.read_line(&mut status).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head).unwrap() > 2 {}
        Self { lines, status, head }
    }

    fn is_accepted(&self) -> bool {
        self.status.starts_with("HTTP/1.1 200 ")
    }

    fn next(&mut self) -> Option<Value> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim_end().to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                assert_eq!(name, "snapshot");
                return Some(serde_json::from_str(data).expect("a snapshot is JSON"));
            }
        }
    }

    /// Returns the first snapshot that fulfils a condition.
    fn wait_for(&mut self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let snapshot = self.next().expect("the feed goes on");
            if condition(&snapshot) {
                return snapshot;
            }
            assert!(Instant::now() < end, "not {what}: {snapshot}");
        }
    }
}

fn get(address: SocketAddr, target: &str) -> String {
    let mut viewer = Viewer::ask(address, target, "");
    let mut text = viewer.status.clone();
    viewer.lines.read_to_string(&mut text).unwrap();
    text
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        thread::sleep(MS * 5);
    }
}

fn route<'s>(snapshot: &'s Value, pattern: &str) -> Option<&'s Value> {
    snapshot["routes"].as_array().unwrap().iter().find(|route| route["pattern"] == pattern)
}

#[test]
fn there_is_no_console_unless_an_app_asks_for_it() {
    let client = App::new().get("/", || "hi").test();
    for path in ["/console", "/console/events", "/console/console.js"] {
        client.get(path).send().assert_status(404);
    }
}

#[test]
fn the_page_its_parts_and_its_feed_have_one_guard() {
    let client = App::new().console("/console", console()).test();
    let paths =
        ["", "/events", "/console.css", "/console.js", "/numbers.js", "/icon.svg", "/nowhere"];
    for path in paths.map(|path| format!("/console{path}")) {
        client.get(&path).send().assert_status(401);
        client.get(&path).basic("ada", "open").send().assert_status(401);
        client.get(&path).basic("", "").send().assert_status(401);
        let status = if path.ends_with("nowhere") { 404 } else { 200 };
        client.get(&path).basic("ada", "sesame").send().assert_status(status);
    }
    let bearer = BearerAuth::new(|token| secrets_match(token, "t0ken"));
    let client = App::new().console("/console", Console::behind(bearer)).test();
    client.get("/console/events").send().assert_status(401);
    client.get("/console/events").bearer("t0ken").send().assert_status(200);
}

#[test]
fn a_browser_is_told_to_load_nothing_else_and_to_keep_nothing() {
    let client = App::new().console("/console", console()).test();
    for (path, media_type) in [
        ("/console", "text/html; charset=utf-8"),
        ("/console/console.css", "text/css; charset=utf-8"),
        ("/console/console.js", "text/javascript; charset=utf-8"),
        ("/console/numbers.js", "text/javascript; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
        ("/console/events", "text/event-stream"),
    ] {
        let response = client.get(path).basic("ada", "sesame").send();
        response.assert_header("content-type", media_type);
        for response in [response, client.get(path).send()] {
            let policy = response.header("content-security-policy").unwrap();
            assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
            assert!(!policy.contains("inline"), "{policy}");
            response
                .assert_header("cache-control", "no-store")
                .assert_header("x-content-type-options", "nosniff")
                .assert_header("cross-origin-resource-policy", "same-origin");
        }
    }
    let page = client.get("/console").basic("ada", "sesame").send().text().to_owned();
    // Both the figure and the column say what an idle connection may hold.
    assert_eq!(page.matches("an unread response or half an upload").count(), 2);
    assert!(!page.contains("<script>") && !page.contains("<style") && !page.contains(" style="));
}

#[test]
fn a_local_console_is_for_browsers_on_this_machine() {
    let app = || App::new().console("/console", Console::local());
    let client = app().test();
    for host in ["localhost", "localhost:5000", "127.0.0.1:1", "[::1]:5000"] {
        client.get("/console").header("host", host).send().assert_status(200);
    }
    client.get("/console").header("host", "evil.example").send().assert_status(421);
    for name in ["x-forwarded-for", "forwarded", "via", "x-real-ip"] {
        let request = client.get("/console/events").header("host", "localhost");
        request.header(name, "127.0.0.1").send().assert_status(403);
    }
    for peer in [Peer::Unix, Peer::Tcp("192.0.2.1:1".parse().unwrap())] {
        let client = app().test().peer(peer);
        client.get("/console").header("host", "localhost").send().assert_status(403);
    }
}

#[test]
fn mistakes_are_reported_at_the_start() {
    let address = "127.0.0.1:0";
    let rows = [
        (App::new().console("/c", Console::with_password("ada", "")), "password of the console"),
        (App::new().console("/{c}", console()), "has no captures"),
        (App::new().console("c", console()), "a prefix must begin with `/`"),
        (App::new().console("/c", console().address(address)), "which `App::build` cannot bind"),
    ];
    for (app, expected) in rows {
        let error = format!("{:?}", app.build().unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
    let two = App::new()
        .console("/c", console().address(address))
        .console("/d", console().address(address));
    let error = two.start("127.0.0.1:0").unwrap_err();
    assert!(format!("{error:?}").contains("two addresses of the console"), "{error:?}");
    let console = console().address("nowhere.invalid:1");
    let error = App::new().console("/c", console).start("127.0.0.1:0").unwrap_err();
    assert!(format!("{error:?}").contains("nowhere.invalid"), "{error:?}");
}

#[test]
fn an_app_in_a_test_has_no_server_to_tell_of() {
    let app = App::new().get("/", || "hi").console("/console", console());
    let client = app.test();
    client.get("/").send();
    let feed = client.get("/console/events").basic("ada", "sesame").send();
    let data = feed.text().strip_prefix("event: snapshot\ndata: ").unwrap();
    let snapshot: Value = serde_json::from_str(data).unwrap();
    assert_eq!(snapshot["phase"], Value::Null);
    assert_eq!(snapshot["connections"]["open"], Value::Null);
    assert_eq!(route(&snapshot, "/").unwrap()["requests"], 1);
}

fn start(app: App) -> RunningApp {
    app.console("/console", console()).start("127.0.0.1:0").unwrap()
}

#[test]
fn the_first_snapshot_comes_at_once_and_has_everything() {
    let app = start(
        App::new()
            .get("/users/{id}", |Path(id): Path<u32>| id.to_string())
            .get("/wait", || thread::sleep(MS * 30))
            .merge(Router::new().get("/notes", || "no notes").with(Permits::new("database", 16)))
            .get("/broken", || Err::<(), _>(Error::internal("the disk is full")))
            .slow_after(MS * 20)
            .with(RequestIds::new()),
    );
    for target in ["/users/1", "/users/2", "/wait", "/broken", "/nowhere"] {
        get(app.local_addr(), target);
    }
    get(app.local_addr(), "/users/\\"); // It is refused.
    let mut viewer = Viewer::connect(app.local_addr());
    assert!(viewer.is_accepted(), "{}", viewer.status);
    let first = viewer.next().unwrap();
    assert_eq!((&first["version"], &first["phase"]), (&1.into(), &"serving".into()), "{first}");
    for (object, members) in [
        ("requests", &["total", "active", "waiting"][..]),
        ("connections", &["open", "idle", "max", "accepted"]),
        ("threads", &["total", "busy", "max"]),
        ("memory", &["used", "max"]),
    ] {
        for member in members {
            assert!(first[object][member].is_u64(), "{object}.{member}: {}", first[object]);
        }
    }
    for list in ["limits", "idle", "loops", "calls", "routes", "ended", "refusals", "stories"] {
        assert!(first[list].is_array(), "{list}");
    }
    assert!(first["uptime_s"].as_f64().unwrap() > 0.0);
    assert_eq!(first["calls"].as_array().unwrap().len(), 0, "the feed does not tell of itself");
    let loops = first["loops"].as_array().unwrap();
    assert!(loops.iter().all(|each| each["handed_over"].is_u64()) && !loops.is_empty(), "{first}");
    for limit in first["limits"].as_array().unwrap() {
        assert!(limit["name"].is_string() && limit["used"].as_u64() <= limit["max"].as_u64());
    }
    let permits = json!({ "name": "permits \"database\"", "used": 0, "max": 16 });
    assert!(first["limits"].as_array().unwrap().contains(&permits), "{first}");
    let snapshot = viewer.wait_for("with the times of both", |snapshot| {
        let is_told = |kind| {
            let stories = snapshot["stories"].as_array().unwrap();
            stories.iter().any(|story| story["kind"] == kind && story["request_id"].is_string())
        };
        let wait = route(snapshot, "/wait").unwrap();
        is_told("slow") && is_told("failed") && wait["waiting_s"].as_f64() > Some(0.02)
    });
    assert!(snapshot["at_ms"].as_u64() > first["at_ms"].as_u64());
    let wait = route(&snapshot, "/wait").unwrap();
    assert_eq!((&wait["methods"], &wait["requests"]), (&"GET".into(), &1.into()), "{wait}");
    assert!(wait["median_ms"].as_f64() >= Some(30.0) && wait["p99_ms"].is_f64(), "{wait}");
    let user = route(&snapshot, "/users/{id}").unwrap();
    assert_eq!((&user["runs"], &user["why"]), (&"loop".into(), &"not seen to wait".into()));
    assert_eq!(user["since_s"], Value::Null);
    assert_eq!(route(&snapshot, "/broken").unwrap()["errors"], 1);
    assert_eq!(route(&snapshot, "(no route)").unwrap()["requests"], 1);
    app.shutdown();
}

#[test]
fn no_secret_is_in_the_feed() {
    let app = start(
        App::new()
            .get("/slow/{token}", || thread::sleep(MS * 30))
            .post("/broken/{token}", |_: String| Err::<(), _>(Error::internal("planted cause")))
            .slow_after(MS * 10),
    );
    let mut viewer = Viewer::connect(app.local_addr());
    for (method, path) in [("GET", "/slow"), ("POST", "/broken"), ("GET", "/nowhere")] {
        let mut socket = TcpStream::connect(app.local_addr()).unwrap();
        write!(
            socket,
            "{method} {path}/planted-path?q=planted-query HTTP/1.0\r\nHost: planted-host\r\n\
             Cookie: id=planted-cookie\r\nAuthorization: Bearer planted-token\r\n\
             X-Request-Id: planted-id\r\nContent-Length: 15\r\n\r\nplanted-content"
        )
        .unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
    }
    let snapshot = viewer.wait_for("with both stories", |snapshot| {
        snapshot["stories"].as_array().unwrap().len() >= 2
    });
    let text = snapshot.to_string();
    for secret in ["planted", "sesame", "YWRh", "ada"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    app.shutdown();
}

#[test]
fn the_feed_has_the_health_checks_and_how_many_descriptors_are_in_use() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let hangs = move || {
        let _ = released.lock().unwrap().recv();
        Ok::<(), Error>(())
    };
    let health = Health::new()
        .check("database", PATIENCE, || Ok::<(), Error>(()))
        .optional_check("mail", PATIENCE, || Err::<(), _>(Error::unavailable("no route")))
        .check("queue", MS * 50, hangs);
    let app = start(App::new().health(health));
    let mut viewer = Viewer::connect(app.local_addr());
    let first = viewer.next().unwrap();
    for check in first["checks"].as_array().unwrap() {
        assert_eq!((&check["state"], &check["since_s"]), (&json!("unknown"), &Value::Null));
    }
    get(app.local_addr(), "/ready");
    let snapshot = viewer.wait_for("with the results", |snapshot| {
        let checks = snapshot["checks"].as_array().unwrap();
        checks.iter().map(|check| &check["state"]).eq(["passed", "failed", "late"])
    });
    let [database, mail, queue] = &snapshot["checks"].as_array().unwrap()[..] else {
        panic!("three checks: {snapshot}")
    };
    assert_eq!((&database["name"], &database["required"]), (&json!("database"), &json!(true)));
    assert!(database["message"].is_null() && database["took_ms"].is_number(), "{database}");
    assert_eq!((&mail["required"], &mail["message"]), (&json!(false), &json!("no route")));
    assert!(mail["since_s"].is_number(), "{mail}");
    let wait = if cfg!(target_os = "linux") { "its thread waits for" } else { "the system" };
    assert!(queue["message"].as_str().unwrap().starts_with(wait), "{queue}");
    if cfg!(target_os = "linux") {
        for name in ["connections and held descriptors", "open files of the process"] {
            let limits = snapshot["limits"].as_array().unwrap();
            let limit = limits.iter().find(|limit| limit["name"] == name).unwrap();
            assert!(limit["used"].as_u64() > Some(0) && limit["max"].as_u64() > Some(0), "{limit}");
        }
    }
    drop(release);
    app.shutdown();
}

#[test]
fn viewers_are_bounded_and_make_room_when_they_leave() {
    let app = start(App::new().get("/", || "hi"));
    let mut viewers: Vec<_> = (0..16).map(|_| Viewer::connect(app.local_addr())).collect();
    assert!(viewers.iter_mut().all(|viewer| viewer.next().is_some()));
    let mut refused = Viewer::connect(app.local_addr());
    assert!(refused.status.starts_with("HTTP/1.1 503 "), "{}", refused.status);
    assert!(refused.head.contains("retry-after: 5\r\n"), "{}", refused.head);
    let mut reason = String::new();
    refused.lines.read_to_string(&mut reason).unwrap();
    assert!(reason.contains("16 viewers look at the console already"), "{reason}");
    let refused_at = UNIX_EPOCH.elapsed().unwrap().as_millis();
    let later = viewers[0].wait_for("that is newer", |snapshot| {
        u128::from(snapshot["at_ms"].as_u64().unwrap()) > refused_at
    });
    assert_eq!(later["stories"], json!([]), "a page that tries again hides no other stories");
    drop(viewers.pop());
    eventually("there is room", || Viewer::connect(app.local_addr()).is_accepted());
    assert!(viewers.iter_mut().all(|viewer| viewer.next().is_some()), "the others go on");
    app.shutdown();
}

#[test]
fn the_feed_ends_with_the_app() {
    let config = ServerConfig::default().drain_timeout(PATIENCE);
    let app = start(App::new().get("/", || "hi").config(config));
    let mut viewers: Vec<_> = (0..3).map(|_| Viewer::connect(app.local_addr())).collect();
    assert!(viewers.iter_mut().all(|viewer| viewer.next().is_some()));
    let begun = Instant::now();
    app.shutdown();
    assert!(begun.elapsed() < PATIENCE, "the drain waited for viewers");
    for viewer in &mut viewers {
        while viewer.next().is_some() {}
    }
}

#[test]
fn a_console_on_its_own_address_shows_how_the_app_stops() {
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Mutex::new(receiver);
    let app = App::new()
        .get("/", || "hi")
        .get("/gate", move || _ = receiver.lock().unwrap().recv())
        .config(ServerConfig::default().drain_timeout(PATIENCE))
        .console("/console", console().address("127.0.0.1:0"))
        .start("127.0.0.1:0")
        .unwrap();
    let (address, console) = (app.local_addr(), app.console_addr().unwrap());
    assert!(get(address, "/").ends_with("hi"));
    assert!(get(address, "/console").starts_with("HTTP/1.1 404 "), "it is not on the app's");
    assert!(get(console, "/").starts_with("HTTP/1.1 404 "), "the app is not on the console's");
    assert!(get(console, "/console").starts_with("HTTP/1.1 401 "));
    let mut viewer = Viewer::connect(console);
    let snapshot = viewer.next().unwrap();
    assert_eq!(route(&snapshot, "/").unwrap()["requests"], 1, "{snapshot}");
    assert!(route(&snapshot, "/console/events").is_none(), "it does not count itself");
    let waiting = thread::spawn(move || get(address, "/gate"));
    viewer.wait_for("with the call", |snapshot| {
        let call = &snapshot["calls"][0];
        let wait = call["waits_for"].as_str();
        let is_told =
            wait.is_some_and(|wait| wait.contains("waits")) || cfg!(not(target_os = "linux"));
        snapshot["requests"]["active"] == 1 && call["route"] == "GET /gate" && is_told
    });
    let stopping = thread::spawn(move || app.shutdown());
    viewer.wait_for("draining", |snapshot| snapshot["phase"] == "draining");
    sender.send(()).unwrap();
    assert!(waiting.join().unwrap().starts_with("HTTP/1.1 200 "));
    stopping.join().unwrap();
    while viewer.next().is_some() {}
}

#[cfg(unix)]
#[test]
fn a_new_process_takes_over_a_console_with_its_own_address() {
    let folder = tempfile::tempdir().unwrap();
    let start = |address: &str, of_console: &str| {
        App::new()
            .get("/", || "hi")
            .console("/console", console().address(of_console))
            .hot_restart(folder.path().join("app.sock"))
            .start(address)
            .unwrap()
    };
    let old = start("127.0.0.1:0", "127.0.0.1:0");
    let address = old.console_addr().unwrap();
    let mut viewer = Viewer::connect(address);
    assert!(viewer.next().is_some());
    let new = start(&old.local_addr().to_string(), &address.to_string());
    // The old console ends its feed, and the new one answers at the same address.
    while viewer.next().is_some() {}
    let uptime = |mut viewer: Viewer| viewer.next().unwrap()["uptime_s"].as_f64().unwrap();
    let before = uptime(Viewer::connect(address));
    assert!(uptime(Viewer::connect(address)) >= before);
    old.shutdown();
    assert!(Viewer::connect(address).is_accepted(), "the old one's end does not end it");
    new.shutdown();
}

/// As with `App::listen`, the old process ends as soon as its app is taken over.
#[cfg(unix)]
#[test]
fn an_old_process_that_ends_at_once_does_not_take_the_console_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let start = |address: &str, of_console: &str, of_metrics: &str| {
        App::new()
            .get("/", || "hi")
            .console("/console", console().address(of_console))
            .metrics_on(of_metrics, "/metrics")
            .hot_restart(folder.path().join("app.sock"))
            .start(address)
    };
    let any = "127.0.0.1:0";
    let mut old = start(any, any, any).unwrap();
    let addresses = [old.local_addr(), old.console_addr().unwrap(), old.metrics_addr().unwrap()];
    let [app, of_console, of_metrics] = addresses.map(|address| address.to_string());
    for round in 0..20 {
        let ends = thread::spawn(move || {
            old.wait();
            drop(old);
        });
        let new = start(&app, &of_console, &of_metrics);
        old = new.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        ends.join().unwrap();
        assert!(addresses.iter().all(|address| TcpStream::connect(address).is_ok()));
    }
    assert!(Viewer::connect(addresses[1]).next().is_some());
    old.shutdown();
}
