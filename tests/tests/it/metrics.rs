//! The metrics of an app under a real server, and `Server-Timing` in a real browser.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use filoplume::extract::Observed;
use filoplume::prelude::*;
use filoplume::sse::{Hub, LastEventId};
use filoplume::websocket::{Rooms, Socket, WebSocketUpgrade};
use filoplume::{Console, Permits, Phase, RunningApp, ServerConfig};
use filoplume_tests::{Browser, Client, DEADLINE, Gate, eventually};

const MS: Duration = Duration::from_millis(1);

/// Checks that a text has the OpenMetrics format. Returns its values, by name with labels.
fn values(text: &str) -> HashMap<String, f64> {
    let mut values = HashMap::new();
    let mut family = String::new();
    let mut families = Vec::new();
    let body = text.strip_suffix("# EOF\n").expect("it has an end");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(!families.contains(&family), "{family} is split");
            families.push(family.clone());
        }
        if line.starts_with('#') {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with(&family), "{name} is not of {family}");
        assert!(values.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{name} twice");
    }
    values
}

fn scrape(app: &RunningApp) -> HashMap<String, f64> {
    scrape_at(app.local_addr())
}

fn scrape_at(address: SocketAddr) -> HashMap<String, f64> {
    let response = Client::connect(address).get("/metrics");
    assert_eq!(response.status, 200);
    let media_type = response.header("content-type").unwrap();
    assert_eq!(media_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    values(response.text())
}

fn requests(route: &str, status: &str) -> String {
    format!("http_server_requests_total{{method=\"GET\",route=\"{route}\",status=\"{status}\"}}")
}

#[test]
fn every_request_is_counted_by_route_and_status() {
    let app = App::new()
        .get("/users/{id}", |Path(id): Path<u32>| id.to_string())
        .get("/panic", || -> String { panic!("as planned") })
        .metrics("/metrics")
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr());
    for id in 0..300 {
        client.get(&format!("/users/{id}"));
    }
    for target in ["/users/x", "/users/y", "/panic", "/nowhere", "/nothing", "/none"] {
        client.get(target);
    }
    let values = scrape(&app);
    for (route, status, count) in
        [("/users/{id}", "200", 300.0), ("/users/{id}", "400", 2.0), ("/panic", "500", 1.0)]
    {
        assert_eq!(values.get(&requests(route, status)), Some(&count), "{route} {status}");
    }
    let none = "http_server_requests_total{method=\"\",route=\"(no route)\",status=\"404\"}";
    assert_eq!(values.get(none), Some(&3.0));
    assert_eq!(values.get("filoplume_panics_total"), Some(&1.0));
    for time in ["computing", "waiting"] {
        let labels = format!("method=\"GET\",route=\"/users/{{id}}\",time=\"{time}\"");
        let name = format!("filoplume_handler_seconds_total{{{labels}}}");
        assert!(values.contains_key(&name), "{name}: {:?}", values.keys());
    }
    assert!(!values.keys().any(|name| name.contains("/users/1")), "labels are never paths");
    app.shutdown();
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_and_the_maximum_of_threads_are_among_the_metrics() {
    let app = App::new()
        .get("/", || "hi")
        .metrics("/metrics")
        .config(ServerConfig::default().threads_max(7))
        .start("127.0.0.1:0")
        .unwrap();
    let values = scrape(&app);
    assert_eq!(values["filoplume_threads_max"], 7.0);
    let open = values["process_open_fds"];
    assert!((4.0..=values["process_max_fds"]).contains(&open), "{open}");
    let (max, all) = (values["filoplume_descriptors_max"], values["process_max_fds"]);
    // At most half is reserved for the program.
    assert!(max >= all / 2.0 && max < all, "{max} of {all}");
    let text = Client::connect(app.local_addr()).get("/metrics");
    assert!(text.text().contains("an unread response or half an upload"));
    assert!(values["process_resident_memory_bytes"] > 1e6);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let age = now - values["process_start_time_seconds"];
    // The start time has a resolution of a second, and the clock may have been set since then.
    assert!((-5.0..3600.0).contains(&age), "{age}");
    app.shutdown();
}

/// Regression: the first call of each thread of the pool counted as sixteen calls, even if it
/// waited for long.
#[test]
fn the_time_of_handlers_that_wait_is_counted_once() {
    let app = App::new()
        .get("/wait", || thread::sleep(MS * 100))
        .route("/on_pool", get(|| thread::sleep(MS * 100)).on_pool())
        .metrics("/metrics")
        .start("127.0.0.1:0")
        .unwrap();
    for path in ["/wait", "/on_pool"] {
        let mut clients: Vec<_> = (0..6).map(|_| Client::connect(app.local_addr())).collect();
        for client in &mut clients {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
        for client in &mut clients {
            client.response();
        }
    }
    eventually("all are counted", || {
        let values = scrape(&app);
        ["/wait", "/on_pool"].iter().all(|route| {
            let of = |time: &str| {
                let labels = format!("method=\"GET\",route=\"{route}\",time=\"{time}\"");
                values.get(&format!("filoplume_handler_seconds_total{{{labels}}}"))
            };
            let all: f64 = ["computing", "waiting"].iter().filter_map(|time| of(time)).sum();
            assert!(all < 5.0, "{route}: {all}");
            all >= 0.6
        })
    });
    app.shutdown();
}

#[test]
fn requests_in_progress_and_waiting_ones_are_seen_while_all_threads_are_busy() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let app = App::new()
        .route("/gate", get(move || at_gate.pass()).on_pool())
        .metrics("/metrics")
        .config(ServerConfig::default().threads_max(2))
        .start("127.0.0.1:0")
        .unwrap();
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect(app.local_addr())).collect();
    for client in &mut clients {
        client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    gate.holds(2);
    eventually("three requests wait", || scrape(&app)["filoplume_requests_waiting"] == 3.0);
    let values = scrape(&app);
    let active = "http_server_active_requests{method=\"GET\",route=\"/gate\"}";
    assert_eq!(values.get(active), Some(&2.0));
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    eventually("their times are there", || {
        let count = "http_server_request_duration_seconds_count{method=\"GET\",route=\"/gate\"}";
        scrape(&app).get(count) == Some(&5.0)
    });
    let values = scrape(&app);
    assert_eq!(values.get(active), Some(&0.0));
    let queue = "method=\"GET\",route=\"/gate\",phase=\"queue\"";
    let waited = values[&format!("http_server_request_phase_seconds_count{{{queue}}}")];
    assert!(waited >= 3.0, "{waited} waited");
    app.shutdown();
}

#[test]
fn permits_are_shown_with_their_names_and_how_many_are_taken() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let database = Permits::new("database", 3);
    let app = App::new()
        .route("/gate", get(move || at_gate.pass()).on_pool().uses(&database))
        .route("/other", get(|| "other").uses(&database))
        .metrics("/metrics")
        .start("127.0.0.1:0")
        .unwrap();
    let states = || {
        let values = scrape(&app);
        ["taken", "free"].map(|state| {
            values[&format!("filoplume_permits{{name=\"database\",state=\"{state}\"}}")]
        })
    };
    assert_eq!(states(), [0.0, 3.0]);
    let mut holder = Client::connect(app.local_addr());
    holder.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.holds(1);
    eventually("one is taken", || states() == [1.0, 2.0]);
    gate.open();
    holder.response();
    app.shutdown();
}

#[test]
fn a_refused_request_counts_for_its_route() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let app = App::new()
        .route("/gate", get(move || at_gate.pass()).on_pool())
        .metrics("/metrics")
        .config(ServerConfig::default().threads_max(1).queue_timeout(MS * 10))
        .start("127.0.0.1:0")
        .unwrap();
    let mut holder = Client::connect(app.local_addr());
    holder.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.holds(1);
    assert_eq!(Client::connect(app.local_addr()).get("/gate").status, 503);
    eventually("it is counted", || scrape(&app).get(&requests("/gate", "503")) == Some(&1.0));
    gate.open();
    holder.response();
    app.shutdown();
}

#[test]
fn a_handler_reads_what_the_metrics_say() {
    let app = App::new()
        .get("/sleep", || thread::sleep(MS * 20))
        .get("/report", |observed: Observed| {
            let server = observed.server().unwrap();
            assert_eq!((server.phase, server.connections), (Phase::Serving, 1));
            let routes = observed.routes();
            let sleep = routes.iter().find(|route| route.pattern == "/sleep").unwrap();
            let waiting = sleep.phases.iter().find(|(name, _)| *name == "waiting").unwrap().1;
            assert!(sleep.median.unwrap() >= MS * 20 && waiting > MS * 15, "{sleep:?}");
            format!("{} {} {:?}", sleep.requests, sleep.active, sleep.statuses)
        })
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr());
    client.get("/sleep");
    let report = client.get("/report");
    assert_eq!((report.status, report.text()), (200, "1 0 [(200, 1)]"));
    app.shutdown();
}

#[test]
fn metrics_on_an_address_of_their_own_answer_while_the_app_is_full() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let app = App::new()
        .route("/gate", get(move || at_gate.pass()).on_pool())
        .metrics_on("127.0.0.1:0", "/metrics")
        .with(|_: Request, _: Next<'_>| Err::<Response, _>(Error::forbidden("for nobody")))
        .config(ServerConfig::default().threads_max(2).connections_max(2))
        .start("127.0.0.1:0")
        .unwrap();
    let metrics = app.metrics_addr().unwrap();
    assert_ne!(metrics, app.local_addr());
    assert_eq!(Client::connect(app.local_addr()).get("/metrics").status, 403);
    assert_eq!(Client::connect(metrics).get("/gate").status, 404);
    let _full = [(); 2].map(|()| TcpStream::connect(app.local_addr()).unwrap());
    eventually("all places are taken", || {
        scrape_at(metrics)["filoplume_connections{state=\"idle\"}"] == 2.0
    });
    let values = scrape_at(metrics);
    assert_eq!(values["filoplume_connections_max"], 2.0, "they are those of the app");
    assert!(!values.keys().any(|name| name.contains("route=\"/metrics\"")), "{values:?}");
    gate.open();
    app.shutdown();
    TcpStream::connect_timeout(&metrics, DEADLINE).unwrap_err();
}

#[test]
fn a_console_and_metrics_with_the_same_address_share_it() {
    let app = App::new()
        .get("/", || "hi")
        .console("/console", Console::local().address("127.0.0.1:0"))
        .metrics_on("127.0.0.1:0", "/metrics")
        .start("127.0.0.1:0")
        .unwrap();
    let address = app.metrics_addr().unwrap();
    assert_eq!(app.console_addr(), Some(address));
    let mut client = Client::connect(address);
    let host = format!("GET /console HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", address.port());
    client.send(&host);
    assert_eq!(client.response().status, 200);
    assert_eq!(client.get("/metrics").status, 200);
    app.shutdown();
}

#[test]
fn metrics_that_nobody_would_bind_are_a_mistake() {
    let own = || App::new().metrics_on("127.0.0.1:0", "/metrics");
    let error = format!("{:?}", own().build().unwrap_err());
    assert!(error.contains("the address of the metrics, 127.0.0.1:0, is one which"), "{error}");
    assert!(error.contains("use `App::metrics` in place of `App::metrics_on`"), "{error}");
    let error = own().metrics_on("127.0.0.1:1", "/m").start("127.0.0.1:0").unwrap_err();
    let error = format!("{error:?}");
    assert!(error.contains("two addresses of the metrics, 127.0.0.1:0 and 127.0.0.1:1"), "{error}");
}

#[test]
fn hubs_and_rooms_tell_their_clients_and_what_became_of_messages() {
    let (hub, rooms) = (Hub::new(), Rooms::new());
    let news = hub.clone();
    let app = App::new()
        .get("/feed", move |last: LastEventId| news.subscribe(&last))
        .state(rooms.clone())
        .websocket(
            "/{room}",
            |Path(room): Path<String>, State(rooms): State<Rooms>, upgrade: WebSocketUpgrade| {
                upgrade.on_open(move |socket: &Socket| rooms.join(&room, socket))
            },
        )
        .metrics("/metrics")
        .collector(hub.collector("news"))
        .collector(rooms.collector("chat"))
        .start("127.0.0.1:0")
        .unwrap();
    let address = app.local_addr();
    let mut feed = Client::connect(address);
    feed.send("GET /feed HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut sockets = ["one", "one", "two"].map(|room| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        tungstenite::client(format!("ws://{address}/{room}"), stream).unwrap().0
    });
    eventually("all have joined", || {
        let members: usize = ["one", "two"].map(|room| rooms.len_of(room)).iter().sum();
        hub.clients() == 1 && members == 3
    });
    hub.send("first");
    hub.send("second");
    rooms.broadcast("one", "hello");
    rooms.broadcast("nobody is here", "hello");
    assert_eq!(sockets[0].read().unwrap().to_text().unwrap(), "hello");
    let values = scrape(&app);
    for (name, expected) in [
        ("filoplume_hub_clients{hub=\"news\"}", 1.0),
        ("filoplume_hub_events_total{hub=\"news\"}", 2.0),
        ("filoplume_hub_deliveries_total{hub=\"news\",result=\"sent\"}", 2.0),
        ("filoplume_hub_deliveries_total{hub=\"news\",result=\"dropped\"}", 0.0),
        ("filoplume_hub_deliveries_total{hub=\"news\",result=\"disconnected\"}", 0.0),
        ("filoplume_rooms{rooms=\"chat\"}", 2.0),
        ("filoplume_room_members{rooms=\"chat\"}", 3.0),
        ("filoplume_room_messages_total{rooms=\"chat\"}", 1.0),
        ("filoplume_room_deliveries_total{rooms=\"chat\",result=\"sent\"}", 2.0),
        ("filoplume_room_deliveries_total{rooms=\"chat\",result=\"slow\"}", 0.0),
    ] {
        assert_eq!(values.get(name), Some(&expected), "{name}");
    }
    app.shutdown();
}

#[test]
fn a_browser_shows_where_the_time_went() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let app = App::new()
        .development(true)
        .get("/", || {
            thread::sleep(MS * 60);
            Html("<p>slept</p>")
        })
        .start("127.0.0.1:0")
        .unwrap();
    browser.open(&app.url());
    browser.wait_for_text("slept");
    let entry = |name: &str| {
        format!(
            "performance.getEntriesByType('navigation')[0].serverTiming\
             .find(entry => entry.name === '{name}').duration"
        )
    };
    let waiting = browser.evaluate(&entry("waiting")).as_f64().unwrap();
    let total = browser.evaluate(&entry("total")).as_f64().unwrap();
    assert!((60.0..=total).contains(&waiting), "{waiting} of {total} ms");
    let whole = "performance.getEntriesByType('navigation')[0].responseStart \
                 - performance.getEntriesByType('navigation')[0].requestStart";
    assert!(total <= browser.evaluate(whole).as_f64().unwrap() + 1.0);
    app.shutdown();
}

#[test]
fn only_development_shows_clients_where_the_time_went() {
    for is_development in [false, true] {
        let app = App::new()
            .development(is_development)
            .get("/", || "hi")
            .metrics("/metrics")
            .start("127.0.0.1:0")
            .unwrap();
        let mut client = Client::connect(app.local_addr());
        let shown = (0..100).filter(|_| client.get("/").header("server-timing").is_some()).count();
        assert_eq!(shown, if is_development { 100 } else { 0 });
        app.shutdown();
    }
}
