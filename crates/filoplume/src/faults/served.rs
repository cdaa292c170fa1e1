//! Serves files from a failing disk. For every N, the Nth read fails, and the response must be
//! correct or visibly incomplete.

use std::fs;
use std::io::{self, Write};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::client::{Received, ask, wait_until_released};
use super::{Call, Fault, Plan};
use crate::middleware::{Coding, Compression};
use crate::{App, Router, RunningApp, StaticFiles};

/// Upper limit for the reads of one response.
const READS_MAX: u64 = 50;

/// Too long for a single read into memory.
const LONG: usize = 100_000;

/// A folder that is served both plain and compressed.
struct Site {
    folder: tempfile::TempDir,
    app: RunningApp,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..LONG / 10).map(|line| format!("{line:08}\r\n")).collect();
        fs::write(folder.path().join("long.txt"), &text).unwrap();
        fs::write(folder.path().join("short.txt"), &text[..10_000]).unwrap();
        let files = || StaticFiles::folder(folder.path());
        let coded =
            |coding| Router::new().files("/", files()).with(Compression::new().codings([coding]));
        let app = App::new()
            .nest("/gzip", coded(Coding::Gzip))
            .nest("/br", coded(Coding::Brotli))
            .nest("/zstd", coded(Coding::Zstd))
            .files("/plain", files());
        let app = app.start("127.0.0.1:0").unwrap();
        Self { folder, app }
    }

    fn ask(&self, request: &str) -> Received {
        ask(self.app.local_addr(), request.as_bytes())
    }
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{fields}\r\n")
}

/// Returns the requests, and whether the bytes of the content are the same each time.
fn requests() -> Vec<(String, bool)> {
    let mut requests = vec![
        (get("/plain/short.txt", ""), true),
        (get("/plain/long.txt", ""), true),
        (get("/plain/long.txt", "Range: bytes=80000-80099\r\n"), true),
        (get("/plain/long.txt", "Range: bytes=100-90000\r\n"), true),
        // With a boundary that is different each time.
        (get("/plain/long.txt", "Range: bytes=0-9,1000-1009,20000-99999\r\n"), false),
        (get("/plain/short.txt", "Range: bytes=0-9,1000-1009\r\n"), false),
        ("GET /plain/long.txt HTTP/1.0\r\n\r\n".to_owned(), true),
    ];
    for coding in ["gzip", "br", "zstd"] {
        let accepts = format!("Accept-Encoding: {coding}\r\n");
        requests.push((get(&format!("/{coding}/long.txt"), &accepts), true));
        requests.push((get(&format!("/{coding}/short.txt"), &accepts), true));
        // In HTTP/1.0 the end of the connection is the end of the content.
        requests.push((format!("GET /{coding}/long.txt HTTP/1.0\r\n{accepts}\r\n"), true));
    }
    requests
}

/// Sends each request with a fault at the Nth read, for every N until there are no more reads.
fn check_each(fault: Fault, is_invisible: bool) {
    let site = Site::new();
    for (request, is_constant) in requests() {
        let expected = site.ask(&request);
        assert!(expected.is_whole && expected.status < 300, "{request}: {expected:?}");
        let is_expected = |answer: &Received| {
            let is_same = if is_constant { answer.content == expected.content } else { true };
            answer.is_whole && answer.status == expected.status && is_same
        };
        let mut first = 1;
        loop {
            assert!(first < READS_MAX, "{request} has no end");
            let what = format!("{request}read number {first}: {fault:?}");
            let plan = Plan::new(Call::Read, first, 1, fault).activate(site.folder.path());
            let answer = site.ask(&request);
            let failures = plan.failures();
            drop(plan);
            let Received { status, is_whole, content, .. } = &answer;
            let seen = format!("status {status}, {} bytes, whole: {is_whole}", content.len());
            if failures == 0 || is_invisible {
                assert!(is_expected(&answer), "{what}, which fails {failures} times: {seen}");
            } else {
                let status = if fault == Fault::Nothing { 503 } else { 500 };
                let has_error_status = answer.is_whole && answer.status == status;
                // If nothing was sent yet, the client gets an error status.
                assert!(has_error_status || (first > 1 && !answer.is_whole), "{what}: {seen}");
                let is_right = has_error_status
                    || !is_constant
                    || expected.content.starts_with(&answer.content);
                assert!(is_right, "{what}: {} bytes are not the first ones", answer.content.len());
            }
            assert!(is_expected(&site.ask(&request)), "{what}: the next client");
            wait_until_released(&site.app, site.folder.path(), &what);
            if failures == 0 {
                break;
            }
            first += 1;
        }
        assert!(first > 1, "{request}is not read");
    }
}

#[test]
fn an_interrupted_read_is_not_visible() {
    check_each(Fault::Error(Errno::INTR), true);
}

#[test]
fn a_short_read_is_not_visible() {
    check_each(Fault::OneByte, true);
}

#[test]
fn a_failing_disk_is_a_500_or_a_visibly_incomplete_response() {
    check_each(Fault::Error(Errno::IO), false);
    check_each(Fault::Error(Errno::STALE), false);
}

#[test]
fn a_file_that_ends_early_is_a_503_or_a_visibly_incomplete_response() {
    check_each(Fault::Nothing, false);
}

#[test]
fn a_file_is_not_read_if_its_content_is_not_sent() {
    let site = Site::new();
    let plan =
        Plan::new(Call::Read, 1, u64::MAX, Fault::Error(Errno::IO)).activate(site.folder.path());
    for path in ["/plain/long.txt", "/plain/short.txt", "/gzip/long.txt"] {
        let answer = site.ask(&get(path, "").replacen("GET", "HEAD", 1));
        let unchanged = site.ask(&get(path, "If-None-Match: *\r\n"));
        assert_eq!((answer.status, unchanged.status), (200, 304), "{path}");
    }
    assert_eq!(plan.failures(), 0);
}

/// The log output of all threads of this program.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failing_disk_is_logged_once_per_response() {
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(|| Log);
    subscriber.try_init().unwrap();
    let site = Site::new();
    let path = site.folder.path();
    // An error number that no other test uses.
    let lines = || {
        let text = String::from_utf8(LOG.lock().clone()).unwrap();
        text.lines()
            .filter(|line| line.contains("os error 121"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let plan =
        |first| Plan::new(Call::Read, first, 1, Fault::Error(Errno::REMOTEIO)).activate(path);
    let active = plan(1);
    assert_eq!(site.ask(&get("/plain/long.txt", "")).status, 500);
    drop(active);
    assert!(matches!(&lines()[..], [line] if line.contains("/plain/")), "{:?}", lines());
    let cut = plan(2);
    assert!(!site.ask(&get("/plain/long.txt", "")).is_whole);
    drop(cut);
    let lines = lines();
    let [_, line] = &lines[..] else { panic!("{lines:?}") };
    for part in ["the reader of a response body failed", "\"GET /plain/{*file}\""] {
        assert!(line.contains(part), "{part}: {line}");
    }
}
