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

/// The same applies to an app behind a raw protocol.
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

#[test]
fn an_app_whose_requests_would_never_be_in_time_does_not_start() {
    let config = ServerConfig::default;
    let rows = [
        ("head_timeout", config().head_timeout(Duration::ZERO)),
        ("content_timeout", config().content_timeout(Duration::ZERO)),
        ("write_timeout", config().write_timeout(Duration::ZERO)),
        ("handshake_timeout", config().handshake_timeout(Duration::ZERO)),
    ];
    for (name, config) in rows {
        let error = App::new().config(config).start("127.0.0.1:0").unwrap_err().to_string();
        assert!(error.contains(&format!("`ServerConfig::{name}` of zero")), "{error}");
    }
}

/// The app itself may be the one that listens there.
#[test]
fn an_address_of_the_metrics_that_is_in_use_is_said_to_be_theirs() {
    let other = App::new().start("127.0.0.1:0").unwrap();
    let address = other.local_addr().to_string();
    let probes = || Health::new().address(&address);
    let app = || App::new().get("/", || "hi").metrics_on(&address, "/metrics");
    let rows = [
        (app(), "the address of the metrics: cannot", "or use `App::metrics` in place of"),
        (app().health(probes()), "of the metrics and the probes: ", "`Health::address` out"),
    ];
    for (app, whose, instead) in rows {
        let error = format!("{:?}", app.start("127.0.0.1:0").unwrap_err());
        assert!(error.contains(whose) && error.contains(instead), "{error}");
        assert!(error.contains(&format!("on {address}, where another program or server")));
    }
}

/// This variable is set in the process that gets the signal.
#[cfg(unix)]
const IS_CHILD: &str = "FILOPLUME_TEST_CHILD";

/// The test below runs this in a separate process.
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
    // The first text that a test prints is in a line that libtest has begun.
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
