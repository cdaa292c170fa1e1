//! The stories of requests that were slow, failed or were refused.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::hint::black_box;
use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use filoplume::extract::{Observed, RouteReport};
use filoplume::prelude::*;
use filoplume::pushed::Pushed;
use filoplume::{Permits, RunningApp, ServerConfig};
use filoplume_tests::{Client, Gate, Load, eventually};

const MS: Duration = Duration::from_millis(1);

/// Returns the recent stories, one per line.
fn stories(observed: &Observed) -> String {
    observed.recent().iter().map(|story| format!("{story}\n")).collect()
}

/// Returns the milliseconds of the first wait in the stories.
fn first_wait(stories: &str) -> Option<f64> {
    let (_, rest) = stories.split_once("waiting ")?;
    let (milliseconds, _) = rest.split_once("ms")?;
    milliseconds.parse().ok()
}

#[test]
fn slow_failed_and_refused_requests_have_a_story() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let app = App::new()
        .route("/gate/{secret}", get(move || at_gate.pass()).on_pool())
        .get("/slow", || thread::sleep(MS * 60))
        .get("/quick", || "quick")
        .get("/broken", || Err::<(), _>(Error::internal("planted cause")))
        .get("/number", |Query(text): Query<Vec<(String, String)>>| -> Result<String> {
            thread::sleep(MS * 60);
            Ok(text[0].1.parse::<u32>()?.to_string())
        })
        .route("/recent", get(|observed: Observed| stories(&observed)).vital())
        .with(middleware::RequestIds::new())
        .slow_after(MS * 50)
        .config(ServerConfig::default().threads_max(1).queue_timeout(MS * 10))
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr());
    let recent = || recent(&app);
    for _ in 0..100 {
        client.get("/quick");
    }
    assert_eq!(recent(), "");
    let slow = client.get("/slow");
    let id = slow.header("x-request-id").unwrap();
    eventually("the slow request has a story", || {
        let stories = recent();
        stories.contains("GET /slow: 200 after") && stories.contains(&format!("request {id}\n"))
    });
    let waited = first_wait(&recent());
    // The CPU time of the handler is not waiting, so a little is missing at 60 ms.
    assert!(waited.is_some_and(|milliseconds| milliseconds > 55.), "{}", recent());
    let broken = client.get("/broken?key=planted");
    let id = broken.header("x-request-id").unwrap();
    eventually("the failure has a story", || {
        recent().contains(&format!("GET /broken: 500, request {id}\n"))
    });
    client.get("/number?key=planted");
    eventually("a failure that was slow has the type of its error", || {
        let stories = recent();
        let mut lines = stories.lines().filter(|line| line.starts_with("GET /number: 500 after"));
        lines.any(|line| line.contains(", failed with ParseIntError, request "))
    });
    let mut holder = Client::connect(app.local_addr());
    holder.send("GET /gate/planted HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.holds(1);
    let refused = Client::connect(app.local_addr()).get("/gate/planted");
    assert_eq!(refused.status, 503);
    let id = refused.header("x-request-id").unwrap();
    eventually("the refused request says who held the thread", || {
        recent().lines().any(|line| {
            line.starts_with("GET /gate/{secret}: 503 after")
                && line.contains("most threads are held by GET /gate/{secret} (1)")
                && line.contains(&format!("request {id}"))
        })
    });
    gate.open();
    holder.response();
    assert!(!recent().contains("planted"), "{}", recent());
    app.shutdown();
}

/// One client makes a route fail as fast as it can. The slow request of another route is still
/// noted, and its story stays.
#[test]
fn a_flood_of_failures_hides_no_slow_request() {
    let app = App::new()
        .get("/slow", || thread::sleep(MS * 60))
        .get("/broken", || StatusCode::INTERNAL_SERVER_ERROR)
        .get("/recent", |observed: Observed| {
            let stories = observed.recent();
            stories
                .iter()
                .map(|story| format!("{} {}\n", story.kind, story.pattern))
                .collect::<String>()
        })
        .slow_after(MS * 50)
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr());
    let flood = |client: &mut Client| {
        for _ in 0..300 {
            assert_eq!(client.get("/broken").status, 500);
        }
    };
    flood(&mut client);
    client.get("/slow");
    eventually("the slow request is noted", || client.get("/recent").text().contains("slow /slow"));
    flood(&mut client);
    let recent = client.get("/recent");
    assert!(recent.text().contains("slow /slow\n"), "{}", recent.text());
    let failed = recent.text().matches("failed /broken\n").count();
    assert!((50..100).contains(&failed), "{failed} failures are noted");
    app.shutdown();
}

#[test]
fn a_request_that_is_slow_and_fails_has_one_story() {
    let app = App::new()
        .get("/both", || -> Result<()> {
            thread::sleep(MS * 60);
            Err(Error::internal("no cause"))
        })
        .get("/recent", |observed: Observed| {
            let stories = observed.recent();
            stories.iter().map(|story| format!("{} {story}\n", story.kind)).collect::<String>()
        })
        .with(middleware::RequestIds::new())
        .slow_after(MS * 50)
        .start("127.0.0.1:0")
        .unwrap();
    assert_eq!(Client::connect(app.local_addr()).get("/both").status, 500);
    eventually("it has its times", || {
        recent(&app).starts_with("failed GET /both: 500 after ") && recent(&app).contains("waiting")
    });
    assert_eq!(recent(&app).lines().count(), 1, "{}", recent(&app));
    assert!(recent(&app).contains(", request "), "{}", recent(&app));
    app.shutdown();
}

/// The threads of other routes are not named as holders of the permits that a request lacks.
#[test]
fn a_request_that_lacks_a_permit_names_the_holders_of_threads_as_such() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let database = Permits::new("database", 1);
    let app = App::new()
        .route("/gate", get(move || at_gate.pass()).on_pool())
        .route("/query", get(|| "never called").uses(&database).on_pool())
        .route("/recent", get(|observed: Observed| stories(&observed)).vital())
        .config(ServerConfig::default().threads_max(8).queue_timeout(MS * 10))
        .start("127.0.0.1:0")
        .unwrap();
    let leaked = database.take(MS * 1000).unwrap();
    let mut holder = Client::connect(app.local_addr());
    holder.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.holds(1);
    assert_eq!(Client::connect(app.local_addr()).get("/query").status, 503);
    eventually("it has a story", || {
        let lacks = "0 of 1 permits \"database\" are free; most threads are held by GET /gate (1); \
                     most permits are held by others (1, the oldest for ";
        recent(&app).contains(lacks)
    });
    drop(leaked);
    gate.open();
    holder.response();
    app.shutdown();
}

/// A permit is held by a route, for which one request waits and one is refused.
#[test]
fn a_request_that_lacks_a_permit_names_the_routes_that_hold_it() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let mail = Permits::new("mail", 1);
    let app = |queue_timeout| {
        let at_gate = at_gate.clone();
        App::new()
            .route("/send", get(move || at_gate.pass()).uses(&mail).on_pool())
            .route("/outbox", get(|| "empty").uses(&mail).on_pool())
            .route("/recent", get(|observed: Observed| stories(&observed)).vital())
            .metrics("/metrics")
            .config(ServerConfig::default().queue_timeout(queue_timeout))
            .slow_after(Duration::ZERO)
            .start("127.0.0.1:0")
            .unwrap()
    };
    let (patient, hasty) = (app(MS * 60_000), app(MS));
    let mut holder = Client::connect(patient.local_addr());
    holder.send("GET /send HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.holds(1);
    assert_eq!(Client::connect(hasty.local_addr()).get("/outbox").status, 503);
    eventually("a route of another server is not named", || {
        recent(&hasty).contains("; most permits are held by others (1, the oldest for ")
    });
    let mut waiting = Client::connect(patient.local_addr());
    waiting.send("GET /outbox HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it waits", || {
        let metrics = Client::connect(patient.local_addr()).get("/metrics");
        metrics.text().contains("\nfiloplume_requests_waiting 1\n")
    });
    gate.open();
    holder.response();
    assert_eq!(waiting.response().status, 200);
    eventually("it has waited for the route", || {
        let waited = ", waited for a permit \"mail\" while GET /send had 1, the oldest for ";
        recent(&patient).lines().any(|it| it.starts_with("GET /outbox") && it.contains(waited))
    });
    patient.shutdown();
    hasty.shutdown();
}

/// Returns the statuses of each route, one route per line.
#[allow(clippy::needless_pass_by_value, reason = "a handler takes its parameters by value")]
fn counts(observed: Observed) -> String {
    let text = |route: RouteReport| format!("{} {:?}\n", route.pattern, route.statuses);
    observed.routes().into_iter().map(text).collect()
}

/// Returns the recent stories of an app, one per line.
fn recent(app: &RunningApp) -> String {
    Client::connect(app.local_addr()).get("/recent").text().to_owned()
}

/// Whatever the reason of a refusal, the request counts for its route and has a story with its ID.
#[test]
fn a_refused_content_has_a_story_and_counts_for_its_route() {
    let config = || ServerConfig::default().threads_max(8).connections_per_client_max(100);
    for (path, config, because) in [
        // One of eight threads may wait for a client.
        ("/read", config(), "an eighth of `ServerConfig::threads_max` waits for this client"),
        ("/text", config().memory_max(1_000_000), "`ServerConfig::memory_max`"),
        ("/file", config().spooled_bytes_max(1_000_000), "`ServerConfig::spooled_bytes_max`"),
    ] {
        let (app, gate) = app_with_contents(config);
        let send = |sent: usize| {
            let mut client = Client::connect(app.local_addr());
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n{}",
                "x".repeat(sent)
            ));
            client
        };
        let held = (path == "/read").then(|| {
            let client = send(100_000);
            gate.holds(1);
            client
        });
        let mut client = send(100_000);
        let _ = client.try_send("x".repeat(1_800_000));
        let response = client.response();
        assert_eq!(response.status, 503, "{path}");
        let id = response.header("x-request-id").unwrap();
        let start = format!("POST {path}: 503 after ");
        eventually(&format!("{path} has a story"), || {
            recent(&app).lines().any(|line| {
                line.starts_with(&start)
                    && line.contains(because)
                    && line.ends_with(&format!(", request {id}"))
                    && !line.contains("connection failed")
            })
        });
        let counts = Client::connect(app.local_addr()).get("/counts").text().to_owned();
        assert!(counts.contains(&format!("{path} [(503, 1)]\n")), "{counts}");
        drop((held, client));
        gate.open();
        app.shutdown();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_request_of_a_route_that_computes_waited_for_a_processor() {
    let app = App::new()
        .get("/", || {
            let end = Instant::now() + MS * 20;
            while black_box(Instant::now()) < end {}
        })
        .route("/recent", get(|observed: Observed| stories(&observed)).vital())
        .slow_after(MS * 50)
        .start("127.0.0.1:0")
        .unwrap();
    let load = Load::start(app.local_addr(), 100, "/");
    eventually("a story says so", || {
        recent(&app).contains("waited for a processor, as calls of its route compute")
    });
    load.stop();
    app.shutdown();
}

/// The handler has already returned when the server finds no thread for the body.
#[test]
fn a_body_that_gets_no_thread_has_a_story_and_keeps_what_does_not_describe_it() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let app = App::new()
        .get("/", move || {
            let gate = at_gate.clone();
            let body = Pushed::written(move |out| {
                gate.pass();
                out.write_all(b"complete")
            });
            ([("content-type", "text/csv"), ("etag", "\"1\""), ("x-kept", "yes")], body)
        })
        .get("/recent", |observed: Observed| stories(&observed))
        .get("/counts", counts)
        .with(middleware::RequestIds::new())
        .config(ServerConfig::default().threads_max(8).connections_per_client_max(100))
        .start("127.0.0.1:0")
        .unwrap();
    let mut first = Client::connect(app.local_addr());
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.holds(1);
    // One of eight threads may wait for a client.
    let refused = Client::connect(app.local_addr()).get("/");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let kept = ["content-type", "etag", "x-kept"].map(|name| refused.header(name));
    assert_eq!(kept, [None, None, Some("yes")], "what describes the body is not sent");
    let id = refused.header("x-request-id").unwrap();
    eventually("it has a story", || {
        recent(&app).lines().any(|line| {
            line.starts_with("GET /: 503 after ")
                && line.contains("too many threads wait for the client")
                && line.ends_with(&format!(", request {id}"))
        })
    });
    gate.open();
    assert_eq!(first.response().text(), "complete");
    let counts = Client::connect(app.local_addr()).get("/counts").text().to_owned();
    assert!(counts.contains("/ [(200, 2)]\n"), "each counts once: {counts}");
    app.shutdown();
}

/// An app whose routes take their contents as they arrive, whole, or in a file.
fn app_with_contents(config: ServerConfig) -> (RunningApp, Gate) {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let read = move |body: Body| {
        at_gate.pass();
        Ok::<_, Error>(body.into_bytes(10_000_000)?.len().to_string())
    };
    let app = App::new()
        .route("/read", post(read).on_pool())
        .post("/text", |text: String| text.len().to_string())
        .route("/file", post(|_: Body| "never called").spooled())
        .get("/recent", |observed: Observed| stories(&observed))
        .get("/counts", counts)
        .with(middleware::RequestIds::new())
        .config(config)
        .start("127.0.0.1:0")
        .unwrap();
    (app, gate)
}

/// An app whose requests are slow if they wait at its gate, or for a request that does.
fn gated(config: ServerConfig) -> (RunningApp, Gate) {
    let gate = Gate::new();
    let (at_gate, with_permit) = (gate.clone(), gate.clone());
    let database = Permits::new("database", 1);
    let app = App::new()
        .route("/gate", get(move || at_gate.pass()).on_pool())
        .route("/other", get(|| "hi").on_pool())
        .route("/query", get(move || with_permit.pass()).uses(&database).on_pool())
        .route("/recent", get(|observed: Observed| stories(&observed)).vital())
        .with(middleware::Tracing::new())
        .slow_after(MS * 50)
        .config(config)
        .start("127.0.0.1:0")
        .unwrap();
    (app, gate)
}

#[test]
fn the_story_of_a_request_that_waited_says_for_what() {
    let few = |threads| ServerConfig::default().threads_max(threads);
    for (config, holders, target, story) in [
        (few(1), &["/gate"][..], "/other", "waited for a thread while GET /gate had 1, trace "),
        (
            few(8),
            &["/query"],
            "/query",
            "waited for a permit \"database\" while GET /query had 1, the oldest for ",
        ),
        // One client has two of three threads for one route.
        (
            few(3).connections_per_client_max(100),
            &["/gate", "/gate"],
            "/gate",
            "waited for a thread while its client had its share of them, trace ",
        ),
    ] {
        let (app, gate) = gated(config);
        let send = |target: &str| {
            let mut client = Client::connect(app.local_addr());
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        };
        let mut clients: Vec<Client> = holders.iter().map(|target| send(target)).collect();
        gate.holds(holders.len());
        clients.push(send(target));
        let waiting = || app.server().metrics().unwrap().waiting;
        eventually("it waits", || waiting() == 1);
        thread::sleep(MS * 120);
        gate.open();
        for client in &mut clients {
            let status = client.response().status;
            assert!(matches!(status, 200 | 204), "{status}");
        }
        eventually("it has a story", || recent(&app).contains(story));
        // The requests that held the threads waited for nothing but the gate.
        assert_eq!(recent(&app).matches("waited for").count(), 1, "{}", recent(&app));
        app.shutdown();
    }
}
