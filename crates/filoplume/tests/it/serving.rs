//! Apps that are served by the engine's server.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use filoplume::Server;
use filoplume::prelude::*;

/// Sends a request on a new connection, and returns the status.
fn status(address: SocketAddr, target: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Regression: a built app that was bound without `listen` had the default configuration.
#[test]
fn an_app_keeps_its_configuration_unless_the_builder_sets_another() {
    let with_max = |max| ServerConfig::default().connections_max(max).raise_descriptor_limit(false);
    let app = || App::new().get("/", || "hi");
    let rows = [
        (None, None, None),
        (Some(7), None, Some(7)),
        (None, Some(9), Some(9)),
        (Some(7), Some(9), Some(9)),
    ];
    for (of_app, of_builder, expected) in rows {
        let app = of_app.into_iter().fold(app(), |app, max| app.config(with_max(max)));
        let mut builder = Server::builder().bind("127.0.0.1:0").unwrap();
        if let Some(max) = of_builder {
            builder = builder.config(with_max(max));
        }
        let server = builder.build().unwrap();
        server.spawn(app.build().unwrap()).unwrap();
        let max = server.metrics().unwrap().connections_max;
        match expected {
            Some(expected) => assert_eq!(max, expected, "{of_app:?} {of_builder:?}"),
            None => assert!(max > 9, "{max}"),
        }
        server.shutdown_handle().shutdown();
        server.wait();
    }
}

/// The same for an app behind a raw protocol.
#[test]
fn an_app_keeps_its_configuration_behind_raw_tcp() {
    let config = ServerConfig::default().connections_max(7).raise_descriptor_limit(false);
    let app = App::new().get("/", || "hi").config(config).build().unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap();
    server.spawn_tcp(filoplume::tcp::http(app)).unwrap();
    assert_eq!(server.metrics().unwrap().connections_max, 7);
    server.shutdown_handle().shutdown();
    server.wait();
}

#[test]
fn a_panic_is_counted_once_whichever_layer_answers_it() {
    let app = App::new()
        .get("/quiet", || "all is well")
        .get("/handler", || -> &str { panic!("the handler's") })
        .get("/answered", || -> &str { panic!("answered by middleware") })
        .get("/middleware", || "never reached")
        .with(|request: Request, next: Next<'_>| match request.path() {
            "/middleware" => panic!("the middleware's"),
            "/answered" => next.run_catching(request).or_else(|_| Ok(Response::new(503))),
            _ => Ok::<_, Error>(next.run(request)),
        })
        .build()
        .unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap();
    server.spawn(app).unwrap();
    let address = server.local_addr().unwrap();
    let mut panics = 0;
    for (target, expected, more) in [
        ("/quiet", 200, 0),
        ("/handler", 500, 1),
        ("/answered", 503, 1),
        ("/middleware", 500, 1),
        ("/quiet", 200, 0),
    ] {
        assert_eq!(status(address, target), expected, "{target}");
        panics += more;
        assert_eq!(server.metrics().unwrap().panics, panics, "{target}");
    }
    server.shutdown_handle().shutdown();
    server.wait();
}

/// Set in the process that gets the signal.
#[cfg(unix)]
const IS_CHILD: &str = "FILOPLUME_TEST_CHILD";

/// Run in a separate process by the test below.
#[cfg(unix)]
#[allow(clippy::print_stdout, reason = "the parent reads it")]
fn serve_until_a_signal() {
    let app = App::new().get("/", || {
        println!("called");
        // Runs until the test writes a line.
        std::io::stdin().lines().next();
        "finished"
    });
    let app = app.start("127.0.0.1:0").unwrap();
    app.shutdown_on_signals().unwrap();
    println!("address {}", app.local_addr());
    app.wait();
    println!("drained");
}

#[cfg(unix)]
#[test]
fn a_started_app_finishes_its_requests_after_a_signal() {
    if std::env::var_os(IS_CHILD).is_some() {
        return serve_until_a_signal();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "serving::a_started_app_finishes_its_requests_after_a_signal",
            "--nocapture",
        ])
        .env(IS_CHILD, "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // libtest begins the line in which the test prints first.
    let mut line_with = |text: &str| {
        let line = lines.by_ref().map(Result::unwrap).find(|line| line.contains(text)).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let address: SocketAddr = line_with("address ").parse().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    line_with("called");
    assert!(
        Command::new("kill")
            .args(["-s", "TERM", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let deadline = Instant::now() + Duration::from_secs(60);
    // The signal has arrived when no connection is accepted any longer.
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "the signal had no effect");
        std::thread::yield_now();
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nfinished"), "{answer}");
    line_with("drained");
    assert!(child.wait().unwrap().success());
}

/// Sends a request with an `Accept`, and returns the whole response.
fn ask(address: SocketAddr, request: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: t\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends requests while another request holds the only permit.
fn ask_while_full(app: App, requests: &[(&str, &str)]) -> Vec<String> {
    let permits = filoplume::Permits::new("database", 1);
    let has_begun = std::sync::Arc::new(std::sync::Barrier::new(2));
    let may_end = std::sync::Arc::clone(&has_begun);
    let stuck = get(move || {
        has_begun.wait();
        has_begun.wait();
    });
    let config = ServerConfig::default().queue_timeout(Duration::from_millis(20));
    let app = app.route("/query", stuck.uses(&permits).on_pool()).config(config);
    let app = app.start("127.0.0.1:0").unwrap();
    let address = app.local_addr();
    let first = std::thread::spawn(move || status(address, "/query"));
    may_end.wait();
    let answers = requests.iter().map(|(request, accept)| ask(address, request, accept)).collect();
    may_end.wait();
    assert_eq!(first.join().unwrap(), 200);
    app.shutdown();
    answers
}

/// Regression: the client got an empty 503, and so did developers.
#[test]
fn refusals_of_the_engine_look_like_errors_of_the_app() {
    let requests = [
        ("GET /query", "*/*"),
        ("GET /query", "text/html"),
        ("GET /query", "text/plain"),
        ("HEAD /query", "*/*"),
    ];
    let answers = ask_while_full(App::new(), &requests);
    for answer in &answers {
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: "),
            "{answer}"
        );
        assert!(answer.contains("vary: accept\r\n") && !answer.contains("database"), "{answer}");
    }
    assert!(answers[0].contains("content-type: application/problem+json"), "{}", answers[0]);
    assert!(
        answers[0].ends_with(r#"{"title":"Service Unavailable","status":503}"#),
        "{}",
        answers[0]
    );
    assert!(answers[1].contains("<h1><span>503</span> Service Unavailable</h1>"), "{}", answers[1]);
    assert!(answers[2].ends_with("\r\n\r\n503 Service Unavailable\n"), "{}", answers[2]);
    assert!(answers[3].ends_with("\r\n\r\n"), "{}", answers[3]);

    let answers = ask_while_full(App::new().development(true), &requests[..2]);
    for answer in &answers {
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: "),
            "{answer}"
        );
        for text in [
            "no thread or permit would be free in time",
            "0 of 1 permits",
            "database",
            "queue_timeout",
        ] {
            assert!(answer.contains(text), "{text}: {answer}");
        }
    }
}

#[test]
fn a_refused_request_has_an_id_although_no_middleware_runs() {
    let ids = middleware::RequestIds::new;
    let id_in = |answer: &str, header: &str| {
        let fields =
            answer.lines().filter_map(|line| line.strip_prefix(header)?.strip_prefix(": "));
        fields.map(str::to_owned).collect::<Vec<_>>()
    };
    let is_new = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let sent = [("GET /query", "*/*\r\nX-Request-Id: mine\r\nTrace: its"), ("GET /query", "*/*")];
    for is_development in [false, true] {
        let app = || App::new().development(is_development);
        let answers = ask_while_full(app().with(ids()), &sent);
        let found: Vec<_> = answers.iter().map(|answer| id_in(answer, "x-request-id")).collect();
        let [[first], [second]] = [&found[0][..], &found[1][..]] else { panic!("{answers:?}") };
        assert!(is_new(first) && is_new(second) && first != second, "{found:?}");

        let answers = ask_while_full(app().with(ids().trust_incoming(true)), &sent);
        assert_eq!(id_in(&answers[0], "x-request-id"), ["mine"]);
        assert!(is_new(&id_in(&answers[1], "x-request-id")[0]), "{answers:?}");

        // The outermost one decides, as for other requests.
        let renamed = app().with(ids().header("trace").trust_incoming(true)).with(ids());
        let answers = ask_while_full(renamed, &sent[..1]);
        assert_eq!(id_in(&answers[0], "trace"), ["its"]);
        assert!(id_in(&answers[0], "x-request-id").is_empty(), "{answers:?}");

        let answers = ask_while_full(app(), &sent);
        assert!(answers.iter().all(|answer| id_in(answer, "x-request-id").is_empty()));
    }
}

#[test]
fn the_app_can_present_refusals_and_may_fail() {
    let requests = [("GET /query", "*/*"), ("GET /query", "*/*")];
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&calls);
    let app = App::new().present_errors(move |error, _| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Some(Response::from(format!("oops: {}", error.status().as_u16())))
    });
    for answer in ask_while_full(app, &requests) {
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("oops: 503"), "{answer}");
    }
    assert_eq!(
        calls.load(std::sync::atomic::Ordering::SeqCst),
        3,
        "a flood does not call it again"
    );

    for answer in
        ask_while_full(App::new().present_errors(|_, _| panic!("in the presenter")), &requests)
    {
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("problem+json"), "{answer}");
    }
}

#[test]
fn a_content_without_memory_is_refused_in_the_same_form() {
    for (is_development, shown) in [
        (false, r#"{"title":"Service Unavailable","status":503}"#),
        (true, "of the 200000 bytes of `ServerConfig::memory_max`"),
    ] {
        let mut app_of_mode = App::new().post("/", |text: String| text.len().to_string());
        app_of_mode = app_of_mode
            .config(ServerConfig::default().memory_max(200_000))
            .development(is_development);
        let app = app_of_mode.start("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(app.local_addr()).unwrap();
        write!(stream, "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n").unwrap();
        stream.write_all(&[b'x'; 600_000]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1\r\n"),
            "{answer}"
        );
        assert!(answer.contains("connection: close\r\n") && answer.contains(shown), "{answer}");
        app.shutdown();
    }
}
