//! What an app writes to stderr if the program has set up no `tracing`: slow and refused requests,
//! and handlers that do not return.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use filoplume::middleware::{Csrf, CsrfToken, RateLimit, Sessions};
use filoplume::prelude::*;
use filoplume::response::Reader;
use filoplume::websocket::{Socket, WebSocketUpgrade};
use filoplume::{AppService, Console, Health, Key, Peer};

const MS: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// Connects and sends a request. Its response ends with the connection.
fn send(address: SocketAddr, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn status_of(mut stream: TcpStream) -> u16 {
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn one_slow_and_one_refused_request() {
    let (begin, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let channels = Mutex::new((begin, released));
    let hold = move || {
        let channels = channels.lock().unwrap();
        channels.0.send(()).unwrap();
        let _ = channels.1.recv();
    };
    let app = App::new()
        .get("/slow/{secret}", || thread::sleep(MS * 20))
        .route("/hold", get(hold).on_pool())
        .route("/refused", get(|| "never").on_pool())
        .slow_after(MS * 10)
        .config(ServerConfig::default().threads_max(1).queue_timeout(MS))
        .start("127.0.0.1:0")
        .unwrap();
    assert_eq!(status_of(send(app.local_addr(), "/slow/planted?and=planted")), 200);
    let holder = send(app.local_addr(), "/hold");
    begun.recv_timeout(DEADLINE).unwrap();
    assert_eq!(status_of(send(app.local_addr(), "/refused")), 503);
    release.send(()).unwrap();
    assert_eq!(status_of(holder), 200);
    // The story of a request is logged after its response was written, but before the server has
    // stopped.
    app.shutdown();
}

#[test]
fn slow_and_refused_requests_are_on_stderr() {
    let stderr = stderr_of("one_slow_and_one_refused_request");
    let lines = |start: &str| stderr.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(lines("GET /slow/{secret}: 200 after "), 1, "{stderr}");
    assert_eq!(lines("GET /refused: 503 after "), 1, "{stderr}");
    assert!(stderr.contains("most threads are held by GET /hold (1)"), "{stderr}");
    assert!(!stderr.contains("\\x"), "no unit of a time is escaped: {stderr}");
    assert!(!stderr.contains("planted"), "{stderr}");
}

#[test]
fn one_instance_that_becomes_unready() {
    let fails = || Err::<(), _>(Error::unavailable("planted"));
    let health =
        Health::new().check("queue", DEADLINE, fails).optional_check("mail", DEADLINE, fails);
    let client = App::new().health(health).test();
    for _ in 0..5 {
        client.get("/ready").send().assert_status(503);
    }
}

#[test]
fn an_instance_that_becomes_unready_says_once_which_check_is_why() {
    let stderr = stderr_of("one_instance_that_becomes_unready");
    assert_eq!(stderr.matches("not ready: check queue failed").count(), 1, "{stderr}");
    assert!(!stderr.contains("not ready: check mail"), "it is optional: {stderr}");
}

#[test]
fn one_check_that_hangs() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let hangs = move || {
        let _ = released.lock().unwrap().recv();
        Ok::<(), Error>(())
    };
    let client = App::new().health(Health::new().check("queue", MS * 50, hangs)).test();
    for _ in 0..3 {
        client.get("/ready").send().assert_status(503).assert_contains("late");
    }
    drop(release);
}

#[test]
fn a_check_that_hangs_is_on_stderr_once_with_what_it_waits_for() {
    let stderr = stderr_of("one_check_that_hangs");
    let lines: Vec<_> =
        stderr.lines().filter(|line| line.starts_with("the health check queue")).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(lines[0].contains("has been running for "), "{stderr}");
    let wait = if cfg!(target_os = "linux") { "its thread waits for" } else { "the system" };
    assert!(
        lines[0].contains(&format!("longer than its deadline of 50ms, and {wait}")),
        "{stderr}"
    );
}

#[test]
fn one_viewer_of_the_console_too_many() {
    let app = App::new().console("/console", Console::local()).start("127.0.0.1:0").unwrap();
    let viewers = (0..17).map(|_| {
        let mut stream = TcpStream::connect(app.local_addr()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"GET /console/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        (stream, status)
    });
    let viewers: Vec<_> = viewers.collect();
    assert_eq!(viewers.last().unwrap().1, *b"HTTP/1.1 503");
}

#[test]
fn a_viewer_of_the_console_too_many_is_no_failure_on_stderr() {
    let stderr = stderr_of("one_viewer_of_the_console_too_many");
    assert!(!stderr.contains("failed") && !stderr.contains("viewers"), "{stderr}");
}

#[test]
fn one_broken_template_and_one_panic() {
    let templates = Templates::from_strings([("a.html", "hello\n\"{{ user }}\"")]).unwrap();
    let client = App::new()
        .get("/template", |State(templates): State<Templates>| {
            templates.render("a.html", context! {})
        })
        .get("/panic/{id}", || -> String { panic!("ouch\nGET /fake failed") })
        .get("/session", |request: Request| Session::of(&request).map(|_| ()))
        .state(templates)
        .test();
    for path in ["/template", "/panic/secret", "/session"] {
        client.get(path).send().assert_status(500);
    }
}

#[test]
fn failed_requests_are_on_stderr_with_their_lines() {
    let stderr = stderr_of("one_broken_template_and_one_panic");
    let template = "GET /template failed: template a.html, line 2: undefined value: `user` is \
                    undefined\n          1 | hello\n     >    2 | \"{{ user }}\"\n";
    assert!(stderr.contains(template), "{stderr}");
    assert!(
        stderr.contains("\nGET /panic/{id} panicked: ouch\n    GET /fake failed\n"),
        "{stderr}"
    );
    assert!(stderr.contains("calls `Session::configure(options)` in its"), "{stderr}");
}

/// The disk fails in the middle of a file.
struct FailingDisk;

impl Read for FailingDisk {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is gone"))
    }
}

#[test]
fn one_response_that_is_cut_short() {
    let app = App::new()
        .get("/files/{secret}", || Reader::sized((&b"half"[..]).chain(FailingDisk), 8))
        .start("127.0.0.1:0")
        .unwrap();
    let mut response = String::new();
    send(app.local_addr(), "/files/planted").read_to_string(&mut response).unwrap();
    assert!(response.ends_with("\r\n\r\nhalf"), "{response}");
    app.shutdown();
}

#[test]
fn a_response_that_is_cut_short_is_on_stderr_with_its_method_and_route() {
    let stderr = stderr_of("one_response_that_is_cut_short");
    let line = "GET /files/{secret}: the response was cut short: the disk is gone\n";
    assert!(stderr.contains(line) && !stderr.contains("planted"), "{stderr}");
}

#[test]
fn three_forms_whose_cookies_were_lost() {
    let client = App::new()
        .get("/", |token: CsrfToken| token.to_string())
        .post("/", || "done")
        .with(Sessions::in_cookie(Key::generate()).secure(true))
        .with(Csrf::new())
        .development(true)
        .test()
        .without_cookies();
    for _ in 0..3 {
        let token = client.get("/").send().text().to_owned();
        client.post("/").header("x-csrf-token", &token).send().assert_status(403);
    }
}

/// There is one line, because robots send such forms as well.
#[test]
fn forms_whose_secure_cookies_were_lost_are_one_line_on_stderr() {
    let stderr = stderr_of("three_forms_whose_cookies_were_lost");
    assert_eq!(stderr.matches("no cookie of this site came with the form").count(), 1, "{stderr}");
}

#[test]
fn two_broken_collectors() {
    let client = App::new()
        .metrics("/metrics")
        .collector(|_| panic!("out of paper"))
        .collector(|samples| samples.gauge("a b", "It has no name.", &[], 1.0))
        .test();
    for _ in 0..3 {
        client.get("/metrics").send().assert_status(200);
    }
}

#[test]
fn broken_collectors_are_one_line_each_on_stderr() {
    let stderr = stderr_of("two_broken_collectors");
    for line in ["a collector of metrics has panicked", "a sample of a collector is left out"] {
        assert_eq!(stderr.matches(line).count(), 1, "{stderr}");
    }
}

fn head_from_a_proxy(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n")
}

/// Answers a request that comes from this address.
fn answer(service: &AppService, address: &str, request: &str) -> u16 {
    let peer = Peer::Tcp(SocketAddr::new(address.parse().unwrap(), 4711));
    let config = ServerConfig::default();
    let answer = filoplume_runtime::answer_in_process(service, peer, request.as_bytes(), &config);
    String::from_utf8(answer).unwrap()[9..12].parse().unwrap()
}

#[test]
fn one_limit_behind_a_proxy_that_is_not_trusted() {
    let limit = || RateLimit::per(1, Duration::from_secs(1000));
    let by_key = limit().key(|_| Some("all".to_owned()));
    let app = App::new()
        .route("/", get(|| "hi").with(limit()))
        .route("/by-key", get(|| "hi").with(by_key))
        .build()
        .unwrap();
    let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (address, request, status) in [
        // The first request is allowed, so there is nothing to report.
        ("127.0.0.1", &head_from_a_proxy("/"), 200),
        // No report is due without the header, from a public address, or with another key.
        ("127.0.0.1", &plain.to_owned(), 429),
        ("192.0.2.9", &head_from_a_proxy("/"), 200),
        ("192.0.2.9", &head_from_a_proxy("/"), 429),
        ("127.0.0.1", &head_from_a_proxy("/by-key"), 200),
        ("127.0.0.1", &head_from_a_proxy("/by-key"), 429),
    ] {
        assert_eq!(answer(&app, address, request), status, "{address} {request}");
    }
    eprintln!("now");
    for _ in 0..3 {
        assert_eq!(answer(&app, "127.0.0.1", &head_from_a_proxy("/")), 429);
    }
}

#[test]
fn a_proxy_that_is_not_trusted_is_one_line_on_stderr_when_a_limit_refuses() {
    let stderr = stderr_of("one_limit_behind_a_proxy_that_is_not_trusted");
    let (before, after) = stderr.split_once("now\n").unwrap();
    let line = "127.0.0.1 sends X-Forwarded-For but is not trusted as a proxy";
    assert!(!before.contains("not trusted"), "{stderr}");
    assert_eq!(after.matches(line).count(), 1, "{stderr}");
    assert!(after.contains("see `App::trust_proxies`"), "{stderr}");
}

#[test]
fn one_proxy_header_that_is_not_expected() {
    let app = App::new().get("/", |client: ClientAddr| client.to_string()).build().unwrap();
    for header in ["PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n", "\r\n\r\n\0\r\nQUIT\n\u{21}"] {
        assert_eq!(answer(&app, "10.0.0.1", header), 400);
    }
    // Only the first mistake is reported.
    assert_eq!(answer(&app, "10.0.0.1", &head_from_a_proxy("/")), 200);
}

#[test]
fn a_proxy_header_that_is_not_expected_is_one_line_on_stderr() {
    let stderr = stderr_of("one_proxy_header_that_is_not_expected");
    assert_eq!(stderr.matches("10.0.0.1 sends a PROXY header").count(), 1, "{stderr}");
    assert_eq!(stderr.matches("not trusted").count(), 1, "{stderr}");
    assert!(stderr.contains("see `ServerBuilder::proxy_protocol`"), "{stderr}");
}

#[test]
fn one_client_behind_a_proxy_that_is_not_trusted() {
    let app = App::new().get("/", |client: ClientAddr| client.to_string()).build().unwrap();
    for _ in 0..2 {
        assert_eq!(answer(&app, "192.168.0.1", &head_from_a_proxy("/")), 200);
    }
}

#[test]
fn a_proxy_that_is_not_trusted_is_one_line_on_stderr_when_a_handler_asks_for_the_client() {
    let stderr = stderr_of("one_client_behind_a_proxy_that_is_not_trusted");
    assert_eq!(stderr.matches("192.168.0.1 sends X-Forwarded-For").count(), 1, "{stderr}");
}

/// Ends when its standard input ends if the next test runs it, and otherwise at once.
#[test]
fn one_stuck_handler() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let app = App::new()
        .route("/{secret}", get(move || _ = released.lock().unwrap().recv()).on_pool())
        .config(ServerConfig::default().stuck_after(MS * 50))
        .start("127.0.0.1:0")
        .unwrap();
    let stuck = send(app.local_addr(), "/planted");
    if std::env::var_os(APART).is_some() {
        io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
    }
    release.send(()).unwrap();
    assert_eq!(status_of(stuck), 200);
    app.shutdown();
}

#[test]
fn a_stuck_handler_is_on_stderr() {
    let mut child = apart("one_stuck_handler").stdin(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let (found, finding) = mpsc::channel();
    let reader = thread::spawn(move || {
        let report = stderr.find(|line| line.as_ref().unwrap().contains("stuck (#1)"));
        let _ = found.send(report.map(Result::unwrap));
        stderr.map(Result::unwrap).collect::<String>()
    });
    let report = finding.recv_timeout(DEADLINE);
    // The end of the standard input makes the handler return.
    drop(stdin);
    assert!(child.wait().unwrap().success());
    let rest = reader.join().unwrap();
    let report = report.unwrap().expect("there is a report");
    assert!(report.starts_with("GET /{secret}: stuck (#1): it has been running for"), "{report}");
    assert!(![report, rest].concat().contains("planted"));
}

/// Has a subscriber, because the log of the engine is checked.
#[test]
fn one_app_that_gives_up_two_handlers() {
    let _ = tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).try_init();
    let (begin, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let channels = Mutex::new(begin);
    let released = Mutex::new(released);
    let hold = move || {
        channels.lock().unwrap().send(()).unwrap();
        let _ = released.lock().unwrap().recv();
    };
    let app = App::new()
        .route("/export/{secret}", get(hold).on_pool())
        .config(ServerConfig::default().drain_timeout(MS * 20))
        .start("127.0.0.1:0")
        .unwrap();
    let held = [(); 2].map(|()| send(app.local_addr(), "/export/planted"));
    (0..2).for_each(|_| begun.recv_timeout(DEADLINE).unwrap());
    app.shutdown_handle().shutdown();
    app.wait();
    drop((release, held));
}

#[test]
fn the_routes_of_handlers_that_a_shutdown_gives_up_are_in_the_log() {
    let stderr = stderr_of("one_app_that_gives_up_two_handlers");
    let line = "giving up the handlers that still run";
    assert_eq!(stderr.matches(line).count(), 1, "{stderr}");
    assert!(stderr.contains(r#"handlers=[("GET /export/{secret}", 2)]"#), "{stderr}");
    assert!(!stderr.contains("planted"), "{stderr}");
}

/// Sends a message of one byte through a WebSocket, and waits for the end of the connection.
fn send_message(address: SocketAddr, target: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = format!(
        "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A text whose mask is zero, and the answer to the close with 1011.
    stream.write_all(b"\x81\x81\0\0\0\0x\x88\x82\0\0\0\0\x03\xf3").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn one_websocket_that_fails_and_one_that_panics() {
    let app = App::new()
        .websocket("/fails", |upgrade: WebSocketUpgrade| {
            upgrade.on_message(|_: &Socket, text: String| -> Result<()> {
                text.parse::<u8>()?;
                Ok(())
            })
        })
        .websocket("/panics", |upgrade: WebSocketUpgrade| {
            upgrade.on_message(|_: &Socket, text: String| assert!(text.is_empty(), "ouch"))
        })
        .start("127.0.0.1:0")
        .unwrap();
    send_message(app.local_addr(), "/fails");
    send_message(app.local_addr(), "/panics");
    app.shutdown();
}

#[test]
fn websockets_that_fail_are_on_stderr_with_the_reason() {
    let stderr = stderr_of("one_websocket_that_fails_and_one_that_panics");
    for line in [
        "a closure of a WebSocket has failed: invalid digit found in string\n",
        "a closure of a WebSocket panicked: ouch\n",
    ] {
        assert_eq!(stderr.matches(line).count(), 1, "{line} in {stderr}");
    }
}

/// Set for tests that run in a process of their own.
const APART: &str = "FILOPLUME_TEST_APART";

/// Returns the command that runs a test of this file in a process of its own.
fn apart(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("without_subscriber::{test}"), "--nocapture"]);
    command.env(APART, "1").stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Returns what a test of this file writes to stderr in a process of its own.
fn stderr_of(test: &str) -> String {
    let output = apart(test).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    stderr
}
