//! `gust top`: the console of an app in a terminal, with servers that are right, wrong and hostile.

use std::io::{BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use expect_test::expect;

use crate::program::{gust, gust_with};
use crate::servers::{Counter, always, each_connection, each_request, read_request};

const FEED: [&str; 2] = [include_str!("feed-1.json"), include_str!("feed-2.json")];

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";

/// How long a test waits for an event. Generous, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns an event as a chunk of the content.
fn event(name: &str, data: &str) -> String {
    let event = format!("event: {name}\ndata: {}\n\n", data.trim_end());
    format!("{:x}\r\n{event}\r\n", event.len())
}

/// Returns a feed with both snapshots, among other things that are ignored.
fn feed() -> String {
    let other = event("later", "{}") + "9\r\n: alive\n\n\r\n";
    format!("{HEAD}{other}{}{other}{}", event("snapshot", FEED[0]), event("snapshot", FEED[1]))
}

/// Starts a server that answers the first request of each connection with these bytes, and waits
/// until the client closes.
fn serves(bytes: impl Into<Vec<u8>>) -> u16 {
    let bytes = bytes.into();
    each_connection(move |stream| {
        let mut reader = BufReader::new(stream);
        if read_request(&mut reader).is_some() && reader.get_mut().write_all(&bytes).is_ok() {
            let _ = reader.read(&mut [0; 16]);
        }
    })
}

/// Expects that the program ends with an error that has these words.
#[track_caller]
fn fails(port: u16, options: &str, words: &[&str]) {
    let outcome = gust(&format!("top http://127.0.0.1:{port}/console {options}"));
    outcome.assert_code(2);
    words.iter().for_each(|word| _ = outcome.assert_says(word));
    assert!(!outcome.stderr.trim_end().chars().any(char::is_control), "{:?}", outcome.stderr);
}

#[test]
fn a_pair_of_snapshots_is_printed_as_text() {
    let port = serves(feed());
    // Standard output is no terminal here.
    let print = |options| {
        let outcome = gust(&format!("top http://127.0.0.1:{port}/console{options}"));
        outcome.assert_code(0);
        assert_eq!(outcome.stderr, "");
        outcome.stdout
    };
    assert_eq!(print(""), print(" --once"));
    expect![[r#"
        serving  up 1 h 2 min  2,500 requests/s  4 active  2 waiting  connections 10 of 65,536, 7 idle  threads 3 busy of 9, 512 for handlers  memory 1.00 MiB of 1.00 GiB, process 42.0 MiB
        limits  threads 82 %  memory 0 %  connections 0 %  streams -
        checks  queue late for 5 s  (its thread sleeps)  mail failed (optional) for 2 min 10 s  (connection\u{1b} refused)  database passed
        loops  filoplume-1: 6 open, 4 idle  filoplume-7: 4 open, 3 idle, handed over 2x  -: 0 open, 0 idle
        ended  deadline: first byte 7
        refused  overloaded 4

        running calls
           TIME RUNS ROUTE            ITS THREAD                             REQUEST  THREAD
         4.12 s pool GET /orders/{id} reads from a socket with 10.0.0.5:5432 4f1c0d6e filoplume-4
         712 ms loop GET /report      computes                               -        filoplume-2
        1.50 ms pool -                                                       -        -

        routes
        ROUTE                                                          REQ/S      P99   MEDIAN    WAIT    COMP  ERR/S ACTIVE RUNS WHY
        GET /users/{id}                                                2,000  2.50 ms   100 µs    0.50    0.25   0.00      0 loop not seen to wait
        GET /orders/{id}                                                 300   480 ms  12.5 ms    3.75    0.01   3.00      1 pool waited for 12ms
        GET /report                                                      200   1.25 s  1.50 ms    0.00    0.75   0.00      1 loop -
        POST /a/rather/long/pattern/with/{several}/{captures}/in/it     0.00        -        -       -       -      -      0 -    -

        slow, failed and refused requests
            AGO KIND    STORY                                                         REQUEST
            3 s slow    GET /report: 200 after 1.2s (computing 1.2s)                  91aa
          2 min failed  GET /orders/{id}: 500 after 4.81s (waiting 4.79s)             -
            3 h refused GET /x: 503 \u{1b}[31m(queue 1.2s)\u{202e}, refused\u{d}\u{a} -
    "#]].assert_eq(&print(""));
}

#[test]
fn snapshots_from_which_no_rate_follows_are_printed_without() {
    let events = event("snapshot", r#"{"version":1}"#).repeat(4);
    let port = serves(format!("{HEAD}{events}"));
    let outcome = gust(&format!("top http://127.0.0.1:{port}/console --once"));
    outcome.assert_code(0);
    assert!(outcome.stdout.contains(" - requests/s"), "{}", outcome.stdout);
}

/// Starts a console. Returns its port, and the heads of the requests that it gets.
fn console_that_notes_heads() -> (u16, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&heads);
    let port = each_connection(move |stream| {
        let mut reader = BufReader::new(stream);
        let Some(request) = read_request(&mut reader) else { return };
        noted.lock().unwrap().push(request.head);
        let _ = reader.get_mut().write_all(feed().as_bytes());
        let _ = reader.read(&mut [0; 16]);
    });
    (port, heads)
}

#[test]
fn the_feed_is_asked_for_with_the_given_headers() {
    let (port, heads) = console_that_notes_heads();
    let url = format!("http://127.0.0.1:{port}/admin/console/");
    gust_with(&["top", &url, "--once", "-H", "Authorization: Bearer x"]).assert_code(0);
    let heads = heads.lock().unwrap();
    let head = heads[0].to_lowercase();
    assert!(head.starts_with("get /admin/console/events http/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: bearer x\r\n"), "{head}");
    assert!(head.contains("accept: text/event-stream\r\n"), "{head}");
}

#[test]
fn the_environment_may_have_the_authorization() {
    let (port, heads) = console_that_notes_heads();
    let output = Command::new(env!("CARGO_BIN_EXE_gust"))
        .args(["top", &format!("http://127.0.0.1:{port}/console"), "--once"])
        .env("GUST_AUTHORIZATION", "Bearer x")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let heads = heads.lock().unwrap();
    assert!(heads[0].to_lowercase().contains("authorization: bearer x\r\n"), "{}", heads[0]);
}

#[test]
fn the_network_may_cut_the_feed_anywhere() {
    let port = each_connection(|stream| {
        let mut reader = BufReader::new(stream);
        if read_request(&mut reader).is_none() {
            return;
        }
        let stream = reader.get_mut();
        stream.set_nodelay(true).unwrap();
        for piece in feed().as_bytes().chunks(97) {
            if stream.write_all(piece).is_err() {
                return;
            }
            thread::yield_now();
        }
        let _ = reader.read(&mut [0; 16]);
    });
    let outcome = gust(&format!("top http://127.0.0.1:{port}/console --once"));
    outcome.assert_code(0);
    assert!(outcome.stdout.contains("2,500 requests/s"), "{}", outcome.stdout);
}

#[test]
fn a_status_that_is_no_feed_is_an_error_with_a_way_out() {
    let answer = |status: &str, fields: &str| {
        let response = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\n\r\n");
        each_request(move |_| response.clone().into_bytes())
    };
    let port = answer("401 Unauthorized", "");
    fails(port, "", &["401", "add -H 'Authorization: ...'"]);
    fails(port, "-H Authorization:x", &["refuses this authorisation (401"]);
    fails(answer("403 Forbidden", ""), "", &["403", "add -H"]);
    fails(answer("404 Not Found", ""), "", &["no console at /console", "the app adds it"]);
    let location = "Location: http://elsewhere/\u{9b}31m\r\n";
    fails(answer("302 Found", location), "", &["302", r"http://elsewhere/\u{9b}31m instead"]);
    fails(answer("503 Service Unavailable", ""), "", &["503"]);
    fails(answer("204 No Content", ""), "", &["204", "instead of the console's feed"]);
    let page = always(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi");
    fails(page, "", &["is not the feed of a console", "as a browser opens it"]);
}

#[test]
fn a_feed_that_is_broken_is_an_error_with_its_reason() {
    let feed = |events: &str| serves(format!("{HEAD}{events}"));
    fails(feed(&event("snapshot", "nonsense")), "", &["not that of a console"]);
    fails(feed(&event("snapshot", r#"{"version":2}"#)), "", &["version 2", "the app's version"]);
    let hostile = event("snapshot", "{\"\u{1b}[2J\":1}");
    fails(feed(&hostile), "", &["not that of a console"]);
    fails(serves(&b"nonsense\r\n\r\n"[..]), "", &["does not speak HTTP"]);
    let ended = format!("{HEAD}{}0\r\n\r\n", event("snapshot", FEED[0]));
    fails(serves(ended), "", &["has ended the feed"]);
    let closed = each_connection(|stream| {
        let mut reader = BufReader::new(stream);
        let _ = read_request(&mut reader);
        let _ = reader.get_mut().write_all((HEAD.to_owned() + &event("x", FEED[0])).as_bytes());
    });
    fails(closed, "", &["has closed the connection"]);
}

/// The event has no end. The program gives up when it is longer than any event of a console, and
/// does not keep all of it.
#[test]
fn a_huge_event_is_refused() {
    let port = each_connection(|stream| {
        let mut reader = BufReader::new(stream);
        let _ = read_request(&mut reader);
        let stream = reader.get_mut();
        let (length, junk) = (64 * 1024 * 1024, vec![b'x'; 1024 * 1024]);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(b"event: snapshot\ndata: ");
        for _ in 0..length / junk.len() {
            if stream.write_all(&junk).is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"\n\n");
        let _ = reader.read(&mut [0; 16]);
    });
    fails(port, "", &["an event is longer than 4 MiB"]);
}

#[test]
fn a_server_that_is_silent_or_absent_is_an_error() {
    // The port was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    fails(port, "", &["cannot connect to 127.0.0.1:"]);
    fails(serves(HEAD), "", &["no snapshot has come for 10 s"]);
}

#[cfg(feature = "tls")]
#[test]
fn a_console_may_be_behind_tls() {
    let authority = crate::tls::Authority::new();
    let config = Arc::clone(&authority.server);
    let port = each_connection(move |stream| {
        let mut reader = BufReader::new(crate::tls::session(&config, stream));
        if read_request(&mut reader).is_some() {
            let _ = reader.get_mut().write_all(feed().as_bytes());
            let _ = reader.get_mut().flush();
            let _ = reader.read(&mut [0; 16]);
        }
    });
    let url = format!("https://localhost:{port}/console");
    let outcome = gust(&format!("top {url} --once --insecure"));
    outcome.assert_code(0);
    assert!(outcome.stdout.contains("GET /orders/{id}"), "{}", outcome.stdout);
    gust(&format!("top {url} --once")).assert_code(2).assert_says("--insecure");
}

/// The program in a terminal that `script` makes.
struct Terminal {
    child: Child,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    /// `None` if there is no `script`.
    fn start(line: &str) -> Option<Self> {
        let command = format!("stty rows 24 cols 100; {} {line}", env!("CARGO_BIN_EXE_gust"));
        let child = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            skip::without("script");
            return None;
        };
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut pipe, written) = (child.stdout.take().unwrap(), Arc::clone(&shown));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut buffer) {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Some(Self { child, shown })
    }

    /// Waits until this part is shown, after the part of the last call.
    #[track_caller]
    fn shows(&self, part: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut shown = self.shown.lock().unwrap();
            if let Some(at) = shown.find(part) {
                shown.drain(..at + part.len());
                return;
            }
            assert!(Instant::now() < end, "{part:?} is not in {shown:?}");
            drop(shown);
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn press(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    #[track_caller]
    fn ends_with(&mut self, code: i32) {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return assert_eq!(status.code(), Some(code), "{:?}", self.shown.lock().unwrap());
            }
            assert!(Instant::now() < end, "{:?}", self.shown.lock().unwrap());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_ends_when_its_terminal_has_gone() {
    let (end, ended) = mpsc::channel();
    let end = Mutex::new(end);
    let port = each_connection(move |stream| {
        let mut reader = BufReader::new(stream);
        if read_request(&mut reader).is_some() {
            let _ = reader.get_mut().write_all(feed().as_bytes());
            // The program holds its connection for as long as it runs.
            let _ = reader.read(&mut [0; 16]);
            let _ = end.lock().unwrap().send(());
        }
    });
    let Some(mut terminal) = Terminal::start(&format!("top http://127.0.0.1:{port}/console"))
    else {
        return;
    };
    terminal.shows("GET /orders/{id}");
    assert!(ended.try_recv().is_err(), "it runs");
    terminal.child.kill().unwrap();
    ended.recv_timeout(PATIENCE).unwrap();
}

/// The first connection ends when the test says so, and the second one is refused.
#[test]
fn a_terminal_shows_the_console_and_survives_a_restart_of_the_server() {
    let connections = Counter::default();
    let (close, closed) = mpsc::channel();
    let closed = Mutex::new(closed);
    let port = each_connection(move |stream| {
        let mut reader = BufReader::new(stream);
        if read_request(&mut reader).is_none() {
            return;
        }
        let number = connections.add();
        let refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        let response = if number == 1 { refusal.to_owned() } else { feed() };
        let _ = reader.get_mut().write_all(response.as_bytes());
        if number == 0 {
            closed.lock().unwrap().recv().unwrap();
        } else {
            let _ = reader.read(&mut [0; 16]);
        }
    });
    let Some(mut terminal) = Terminal::start(&format!("top http://127.0.0.1:{port}/console"))
    else {
        return;
    };
    terminal.shows("2,500 requests/s");
    terminal.shows("GET /orders/{id}");
    close.send(()).unwrap();
    terminal.shows("the server has closed the connection; trying again");
    terminal.shows("the server answers 503 Service Unavailable: it is overloaded");
    terminal.shows("GET /orders/{id}");
    terminal.press("?");
    terminal.shows("sort routes by");
    terminal.press("?p");
    // The slowest route comes first now.
    terminal.shows("ROUTE");
    terminal.shows("GET /report");
    terminal.press("q");
    terminal.ends_with(0);
    // The terminal shows its former screen again.
    terminal.shows("\u{1b}[?1049l");
}

#[test]
fn a_terminal_is_restored_if_there_is_no_console() {
    let port = always(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let Some(mut terminal) = Terminal::start(&format!("top http://127.0.0.1:{port}/console"))
    else {
        return;
    };
    terminal.ends_with(2);
    terminal.shows("\u{1b}[?1049l");
    terminal.shows("gust: there is no console at /console");
}
