//! Access log lines and events, and attempts to forge them.

use std::io::{self, Write};
use std::sync::Arc;

use filoplume::middleware::{Logger, RequestIds};
use filoplume::prelude::*;
use filoplume::{RunningApp, ServerConfig};
use parking_lot::Mutex;

use super::ask;

/// What was written, one text per write.
#[derive(Clone, Default)]
pub(super) struct Sink(Arc<Mutex<Vec<String>>>);

impl Sink {
    pub(super) fn text(&self) -> String {
        self.0.lock().concat()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().push(String::from_utf8(bytes.to_vec()).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn app(logger: Logger) -> App {
    App::new()
        .get("/notes/{id}", |Path(id): Path<u32>| format!("note {id}"))
        .get("/broken", || -> Result<()> { Err(io::Error::other("disk\non fire"))? })
        .get("/panic", || -> &str { panic!("out of paper") })
        .get("/stream", || filoplume::response::Reader::new(io::Cursor::new("abc")))
        .with(RequestIds::new().trust_incoming(true))
        .with(logger)
}

#[test]
fn a_redirect_to_the_login_is_no_error() {
    let sink = Sink::default();
    let login = || Error::from_status(StatusCode::SEE_OTHER);
    let old = || Error::new(StatusCode::SEE_OTHER, "too old");
    let broken = move || login().with_source("the disk is gone");
    let app = App::new().get("/a", login).get("/b", old).get("/c", broken);
    let service = app.with(Logger::new().json().to(sink.clone())).build().unwrap();
    ask(&service, "192.0.2.7:4711", "GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = sink.text();
    assert!(text.contains("303") && !text.contains("error"), "{text}");
    for (path, told) in [("/b", "too old"), ("/c", "the disk is gone")] {
        ask(&service, "192.0.2.7:4711", &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(sink.text().contains(told), "{}", sink.text());
    }
}

#[test]
fn a_json_line_has_all_fields() {
    let sink = Sink::default();
    let service = app(Logger::new().json().to(sink.clone())).build().unwrap();
    let head =
        "Host: a\r\nX-Request-Id: id-1\r\nReferer: https://b.example/\r\nUser-Agent: \"c\"\r\n\r\n";
    ask(&service, "192.0.2.7:4711", &format!("GET /notes/3?a=b HTTP/1.1\r\n{head}"));
    let line: serde_json::Value = serde_json::from_str(&sink.text()).unwrap();
    for (name, value) in [
        ("method", "GET"),
        ("path", "/notes/3?a=b"),
        ("route", "/notes/{id}"),
        ("peer", "192.0.2.7:4711"),
        ("client", "192.0.2.7"),
        ("request_id", "id-1"),
        ("referer", "https://b.example/"),
        ("user_agent", "\"c\""),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &6.into()));
    assert!(line["duration_us"].is_u64() && line["time"].as_str().unwrap().ends_with('Z'));
    assert!(line.get("error").is_none());
}

#[test]
fn a_request_that_is_refused_before_it_is_complete_has_the_id_of_the_proxy_or_a_new_one() {
    let sink = Sink::default();
    let app = app(Logger::new().json().to(sink.clone()));
    let service = app.post("/notes", |body: String| body).build().unwrap();
    let head = "POST /notes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-Request-Id: ";
    for (id, is_kept) in [("id-1", true), ("not one", false)] {
        let input = format!("{head}{id}\r\n\r\nnonsense\r\n");
        let answer = ask(&service, "192.0.2.7:4711", &input);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let text = sink.text();
        let line: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((&line["status"], &line["bytes"]), (&400.into(), &0.into()), "{line}");
        let logged = line["request_id"].as_str().expect("it has an ID");
        assert!(!logged.is_empty() && (logged == id) == is_kept, "{line}");
        assert!(answer.contains(&format!("\r\nx-request-id: {logged}\r\n")), "{answer}");
    }
}

#[test]
fn errors_and_panics_are_logged() {
    let sink = Sink::default();
    let client = app(Logger::new().json().to(sink.clone())).test();
    for path in ["/broken", "/panic", "/nowhere", "/stream"] {
        client.get(path).send();
    }
    let text = sink.text();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["error"], "disk\non fire");
    assert_eq!(lines[0]["route"], "/broken");
    // The place is also logged if another app of this process has been in development mode.
    let error = lines[1]["error"].as_str().unwrap();
    assert!(error.starts_with("panicked") && error.ends_with(": out of paper"), "{error}");
    assert_eq!(lines[1]["status"], 500);
    assert_eq!(lines[2]["status"], 404);
    assert!(lines[2].get("route").is_none() && lines[2].get("bytes").is_none());
    assert_eq!(lines[3]["status"], 200);
    assert_eq!(lines[3]["bytes"], 3, "a stream is logged when it was sent");
    assert!(lines[3].get("error").is_none());
}

/// A reader that fails at once.
pub(super) struct Failing;

impl io::Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is gone"))
    }
}

/// The method, path, status, bytes and error of each line.
pub(super) fn briefly(sink: &Sink) -> Vec<String> {
    let brief = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        format!(
            "{} {} {} {} {}",
            line["method"], line["path"], line["status"], line["bytes"], line["error"]
        )
    };
    sink.text().lines().map(brief).collect()
}

/// An error whose text leaves its cause out.
#[derive(Debug)]
struct Outer(io::Error);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the report cannot be made")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Regression: the line came before the first byte, without bytes and without the failure.
#[test]
fn a_pushed_body_is_logged_when_it_has_ended() {
    use filoplume::pushed::{self, Pushed};

    let sink = Sink::default();
    let so_far = sink.clone();
    let client = App::new()
        .get("/channel", move || {
            let (sender, body) = pushed::channel();
            let so_far = so_far.clone();
            std::thread::spawn(move || {
                sender.send("abc").unwrap();
                assert_eq!(so_far.text(), "", "it is not sent yet");
                sender.send("de").unwrap();
            });
            body
        })
        .get("/written", || Pushed::written(|out| write!(out, "abc")))
        .get("/failing", || {
            Pushed::written(|out| {
                write!(out, "abc")?;
                out.flush()?;
                Err(io::Error::other(Outer(io::Error::other("the disk is gone"))))
            })
        })
        .with(Logger::new().json().to(sink.clone()))
        .test();
    for path in ["/channel", "/written", "/failing"] {
        client.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    client.raw("HEAD /written HTTP/1.1\r\nHost: a\r\n\r\n");
    let cause = "the report cannot be made: the disk is gone";
    assert_eq!(
        briefly(&sink),
        [
            r#""GET" "/channel" 200 5 null"#.to_owned(),
            r#""GET" "/written" 200 3 null"#.to_owned(),
            format!(r#""GET" "/failing" 200 3 "broken off: {cause}""#),
            r#""HEAD" "/written" 200 null null"#.to_owned(),
        ]
    );
}

/// Sends a request, and closes the connection after the head of the response and `content`.
fn leave_after(app: &RunningApp, path: &str, content: &str) {
    let mut socket = std::net::TcpStream::connect(app.local_addr()).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    while !(answer.contains("\r\n\r\n") && answer.contains(content)) {
        let mut byte = [0];
        io::Read::read_exact(&mut socket, &mut byte).unwrap();
        answer.push(char::from(byte[0]));
    }
}

pub(super) fn wait_for_a_line(sink: &Sink) {
    let start = std::time::Instant::now();
    while !sink.text().ends_with('\n') {
        assert!(start.elapsed().as_secs() < 30, "there is no line");
        std::thread::yield_now();
    }
}

/// A stream of events ends when its client leaves. Other bodies are broken off then.
#[test]
fn the_line_of_a_stream_of_events_comes_when_its_client_has_left() {
    use filoplume::sse::{Hub, LastEventId};

    let broken_off = r#""broken off: the connection ended before the response""#;
    for (path, error) in [("/feed", "null"), ("/channel", broken_off)] {
        let sink = Sink::default();
        let hub = Hub::new().replay(1);
        hub.send("news");
        let senders = Arc::new(Mutex::new(Vec::new()));
        let app = App::new()
            .get("/feed", move |last: LastEventId| hub.subscribe_with_history(&last))
            .get("/channel", move || {
                let (sender, body) = filoplume::pushed::channel();
                sender.try_send("data: news\n\n\n").unwrap();
                senders.lock().push(sender);
                body
            })
            .with(Logger::new().json().timing().to(sink.clone()))
            .start("127.0.0.1:0")
            .unwrap();
        leave_after(&app, path, "data: news\n\n");
        wait_for_a_line(&sink);
        let lines = briefly(&sink);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(sink.text().contains("write_us"), "{}", sink.text());
        assert!(line.ends_with(error) && !line.contains(" 200 0 "), "{line}");
        app.shutdown();
        assert_eq!(briefly(&sink).len(), 1, "it is written once");
    }
}

/// There is one thread, so one of the requests waits for the other one.
#[test]
fn the_duration_of_a_measured_request_is_that_of_all_its_phases() {
    let sink = Sink::default();
    let app = App::new()
        .route("/", get(|| std::thread::sleep(std::time::Duration::from_millis(50))).on_pool())
        .with(Logger::new().json().timing().to(sink.clone()))
        .config(ServerConfig::default().threads_max(1))
        .start("127.0.0.1:0")
        .unwrap();
    let clients = [(); 2].map(|()| {
        let mut client = std::net::TcpStream::connect(app.local_addr()).unwrap();
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        client.write_all(head).unwrap();
        client
    });
    for client in clients {
        let answer = io::read_to_string(client).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    app.shutdown();
    let text = sink.text();
    let mut queued = 0;
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let of = |name: &str| line[format!("{name}_us")].as_u64().unwrap_or(0);
        let phases = ["head", "content", "turn", "queue", "computing", "waiting", "write"];
        let sum: u64 = phases.iter().map(|phase| of(phase)).sum();
        assert!((sum..sum + 7).contains(&of("duration")), "{line}");
        queued = queued.max(of("queue"));
    }
    assert_eq!(text.lines().count(), 2);
    assert!(queued >= 20_000, "{text}");
}

#[test]
fn a_body_without_a_thread_is_logged_as_the_503_that_its_client_gets() {
    use filoplume::pushed::Pushed;

    let sink = Sink::default();
    let (open, gate) = std::sync::mpsc::sync_channel::<()>(0);
    let gate = Arc::new(Mutex::new(gate));
    let app = App::new()
        .get("/held", move || {
            let gate = Arc::clone(&gate);
            Pushed::written(move |out| {
                out.write_all(b"held")?;
                out.flush()?;
                let _ = gate.lock().recv();
                Ok(())
            })
        })
        .get("/more", || Pushed::written(|_| Ok(())))
        .config(ServerConfig::default().threads_max(2))
        .with(Logger::new().json().to(sink.clone()))
        .start("127.0.0.1:0")
        .unwrap();
    let mut held = std::net::TcpStream::connect(app.local_addr()).unwrap();
    held.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut first = [0; 12];
    io::Read::read_exact(&mut held, &mut first).unwrap();
    let mut socket = std::net::TcpStream::connect(app.local_addr()).unwrap();
    socket.write_all(b"GET /more HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let answer = io::read_to_string(&mut socket).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    wait_for_a_line(&sink);
    let lines = briefly(&sink);
    assert!(lines[0].starts_with(r#""GET" "/more" 503 0 "refused: "#), "{lines:?}");
    open.send(()).unwrap();
    app.shutdown();
    assert_eq!(briefly(&sink)[1], r#""GET" "/held" 200 4 null"#);
}

/// Run in a separate process by the tests below.
#[test]
fn logs_to_stderr_and_stdout() {
    App::new()
        .get("/captured", || "hi")
        .with(Logger::new())
        .test()
        .get("/captured")
        .send()
        .assert_status(200);
    let logger = Logger::new().combined();
    App::new()
        .get("/captured", || "hi")
        .with(logger)
        .test()
        .get("/captured")
        .send()
        .assert_status(200);
    let app =
        App::new().get("/captured", || "hi").with(Logger::new()).start("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(app.local_addr()).unwrap();
    stream.write_all(b"GET /captured HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    io::copy(&mut stream, &mut io::sink()).unwrap();
}

fn run_apart(option: &str, stderr: std::process::Stdio) -> std::process::Output {
    let program = std::env::current_exe().unwrap();
    let name = "middleware::logger::logs_to_stderr_and_stdout";
    let mut command = std::process::Command::new(program);
    command.args(["--exact", name, option]).stderr(stderr).output().unwrap()
}

#[test]
fn test_output_capture_includes_the_log() {
    let output = run_apart("--quiet", std::process::Stdio::piped());
    assert!(output.status.success(), "{output:?}");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).unwrap();
    assert!(!printed.contains("/captured"), "{printed}");

    let output = run_apart("--nocapture", std::process::Stdio::piped());
    let (stdout, stderr) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert_eq!(stderr.unwrap().matches("200 GET /captured").count(), 2);
    assert!(stdout.unwrap().contains("\"GET /captured HTTP/1.1\" 200 2"));
}

/// With `eprint!`, a write that fails would panic.
#[cfg(target_os = "linux")]
#[test]
fn a_failing_stderr_is_not_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert!(run_apart("--nocapture", full.into()).status.success());
}

#[test]
fn lines_of_several_threads_do_not_mix() {
    let sink = Sink::default();
    let service = app(Logger::new().combined().to(sink.clone())).build().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    ask(
                        &service,
                        "[2001:db8::1]:1",
                        "GET /notes/1 HTTP/1.1\r\nHost: a\r\nUser-Agent: x\"\\\r\n\r\n",
                    );
                }
            });
        }
    });
    let lines = sink.0.lock();
    assert_eq!(lines.len(), 200);
    for line in lines.iter() {
        assert!(
            line.starts_with("2001:db8::1 - - [")
                && line.ends_with("\"GET /notes/1 HTTP/1.1\" 200 6 \"-\" \"x\\\"\\\\\"\n"),
            "{line}"
        );
    }
}

#[test]
fn the_message_of_an_error_is_logged_once() {
    let sink = Sink::default();
    app(Logger::new().json().to(sink.clone())).test().get("/notes/x").send().assert_status(400);
    let line: serde_json::Value = serde_json::from_str(&sink.text()).unwrap();
    assert_eq!(
        line["error"].as_str().unwrap().matches("in the path is wrong").count(),
        1,
        "{line}"
    );
}

#[test]
fn a_short_line_is_readable_and_can_omit_the_query() {
    let sink = Sink::default();
    let client = app(Logger::new().without_query().to(sink.clone())).test();
    client.get("/notes/1?token=secret").send();
    client.get("/broken").send();
    let text = sink.text();
    assert!(text.starts_with("200 GET /notes/1 ") && !text.contains("secret"), "{text}");
    assert!(text.lines().nth(1).unwrap().ends_with(": disk\\x0aon fire"), "{text}");
}

#[test]
fn a_failing_sink_loses_the_line_but_not_the_response() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    app(Logger::new().to(Full)).test().get("/notes/1").send().assert_text("note 1");
}

#[test]
fn an_event_has_the_target_and_the_fields() {
    let sink = Sink::default();
    let writer = sink.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let client = app(Logger::new()).test();
        client.get("/notes/1").header("x-request-id", "id-2").send();
    });
    let event: serde_json::Value =
        serde_json::from_str(sink.text().lines().last().unwrap()).unwrap();
    assert_eq!(event["target"], "filoplume::access");
    let fields = &event["fields"];
    assert_eq!((&fields["method"], &fields["path"]), (&"GET".into(), &"/notes/1".into()));
    assert_eq!((&fields["route"], &fields["status"]), (&"/notes/{id}".into(), &200.into()));
    assert_eq!((&fields["bytes"], &fields["request_id"]), (&6.into(), &"id-2".into()));
    assert_eq!(
        (&fields["peer"], &fields["client"]),
        (&"127.0.0.1:49152".into(), &"127.0.0.1".into())
    );
    assert!(fields.get("error").is_none() && fields["duration_us"].is_u64());
}
