//! Static files over sockets: raw requests, long files, and special files.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use filoplume::prelude::*;
use filoplume_tests::{Client, DEADLINE, Ended, Process, TestServer};

const MIB: u64 = 1024 * 1024;

/// A temporary folder and a server for it. Files that must not be reachable are beside the folder.
struct Site {
    folder: tempfile::TempDir,
    server: TestServer,
}

impl Site {
    /// Calls `fill` with the folder before it is served.
    fn with(fill: impl FnOnce(PathBuf)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let public = folder.path().join("public");
        fs::create_dir_all(public.join("docs")).unwrap();
        fs::write(folder.path().join("secret.txt"), "secret").unwrap();
        fs::write(public.join("a.txt"), "0123456789").unwrap();
        fs::write(public.join("docs/index.html"), "docs").unwrap();
        fill(public.clone());
        let app = App::new()
            .get("/still-there", || "GET /still-there")
            .files("/static", StaticFiles::folder(&public))
            .files("/", StaticFiles::folder(&public));
        Self { folder, server: TestServer::start(app.build().unwrap()) }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("public").join(path)
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    /// Returns the number of file descriptors of this process for files of the site, without the
    /// folder itself.
    fn open_files(&self) -> usize {
        let links = fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let public = fs::canonicalize(self.path("")).unwrap();
        links.filter(|path| path.starts_with(&public) && *path != public).count()
    }
}

fn sparse(length: u64) -> impl FnOnce(PathBuf) {
    move |folder| File::create(folder.join("long.bin")).unwrap().set_len(length).unwrap()
}

fn ask(client: &mut Client, target: &str, headers: &str) {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n{headers}\r\n"));
}

#[test]
fn hostile_targets_lead_nowhere() {
    let site = Site::with(|_| {});
    let targets = [
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/%2e%2e%2fsecret.txt",
        "//etc/passwd",
        "///etc/passwd",
        "/%2fetc/passwd",
        "/%5c..%5csecret.txt",
        "/docs/../../secret.txt",
        "/static/../../secret.txt",
        "/static/..%2f..%2fsecret.txt",
        "/static//etc/passwd",
        "/static/%2e%2e/%2e%2e/secret.txt",
        "http://t/../secret.txt",
        "http://t//etc/passwd",
        "/a.txt%00",
    ];
    let mut client = site.client();
    for target in targets {
        let response = client.get(target);
        assert_eq!(response.status, 404, "{target}: {response:?}");
    }
    // The parser refuses these before a file is looked up.
    for target in ["/\\..\\secret.txt", "/a b", "../secret.txt", "/a.txt#x"] {
        let response = site.client().get(target);
        assert_eq!(response.status, 400, "{target}: {response:?}");
    }
    for name_length in [255, 256, 4000] {
        assert_eq!(client.get(&format!("/{}", "x".repeat(name_length))).status, 404);
    }
    assert_eq!(client.get("/a.txt").text(), "0123456789");
}

#[test]
fn redirects_stay_on_this_host() {
    let site = Site::with(|_| {});
    let mut client = site.client();
    let rows = [
        ("/docs?next=//evil.example", Some("/docs/?next=//evil.example")),
        ("/static", Some("/static/")),
        ("/static/docs", Some("/static/docs/")),
        ("http://evil.example/docs", Some("/docs/")),
        ("//evil.example/docs", None),
        ("//evil.example/%2e%2e/docs", None),
        ("//docs", None),
        ("/%2f%2fevil.example", None),
    ];
    for (target, expected) in rows {
        let response = client.get(target);
        assert_eq!(response.header("location"), expected, "{target}: {response:?}");
        assert_eq!(response.status, if expected.is_some() { 308 } else { 404 });
    }
}

#[test]
fn special_files_do_not_block_the_server() {
    let site = Site::with(|folder| {
        assert!(
            std::process::Command::new("mkfifo")
                .arg(folder.join("fifo"))
                .status()
                .unwrap()
                .success()
        );
        symlink("fifo", folder.join("to-fifo")).unwrap();
    });
    let _socket = std::os::unix::net::UnixListener::bind(site.path("socket")).unwrap();
    let mut client = site.client();
    for target in ["/fifo", "/to-fifo", "/fifo/", "/socket", "/static/fifo"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    client.is_alive();
    assert_eq!(site.open_files(), 0);
}

#[test]
fn a_long_file_is_sent_in_constant_memory() {
    const LENGTH: u64 = 300 * MIB;
    let site = Site::with(sparse(LENGTH));
    let mut socket = TcpStream::connect(site.server.address()).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    // Warm-up: memory that is allocated once does not count.
    site.client().is_alive();
    let mut buffer = vec![0; 256 * 1024];
    let before = Process::this().resident_bytes();
    socket.write_all(b"GET /long.bin HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
    let mut received = socket.read(&mut buffer).unwrap();
    let head = String::from_utf8_lossy(&buffer[..received]).into_owned();
    let head_length = head.find("\r\n\r\n").unwrap() + 4;
    assert!(head.contains(&format!("content-length: {LENGTH}\r\n")), "{}", &head[..head_length]);
    // Other clients are answered meanwhile.
    site.client().is_alive();
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => received += read,
            // A read with a timeout ends when the machine or the process is stopped for a moment.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error} after {received} bytes"),
        }
    }
    assert_eq!((received - head_length) as u64, LENGTH);
    let grown = Process::this().resident_bytes().saturating_sub(before);
    // Half of the length, because other tests of this process run too.
    assert!(grown < LENGTH / 2, "{grown} bytes");
    assert_eq!(site.open_files(), 0);
}

#[test]
fn ranges_of_a_long_file_are_read_at_their_offset() {
    const LENGTH: u64 = 5 * 1024 * MIB;
    let site = Site::with(|folder| {
        use std::os::unix::fs::FileExt;

        let file = File::create(folder.join("long.bin")).unwrap();
        file.set_len(LENGTH).unwrap();
        file.write_all_at(b"middle", 4 * 1024 * MIB).unwrap();
        file.write_all_at(b"end", LENGTH - 3).unwrap();
    });
    let mut client = site.client();
    let middle = 4 * 1024 * MIB;
    ask(&mut client, "/long.bin", &format!("Range: bytes={middle}-{}\r\n", middle + 5));
    let response = client.response();
    assert_eq!((response.status, response.text()), (206, "middle"));
    assert_eq!(
        response.header("content-range"),
        Some(&*format!("bytes {middle}-{}/{LENGTH}", middle + 5))
    );
    ask(&mut client, "/long.bin", "Range: bytes=-3\r\n");
    assert_eq!(client.response().text(), "end");
    ask(&mut client, "/long.bin", &format!("Range: bytes={LENGTH}-\r\n"));
    let response = client.response();
    assert_eq!(
        (response.status, response.header("content-range")),
        (416, Some(&*format!("bytes */{LENGTH}")))
    );
    // Several parts, one of them longer than any buffer. If the announced length were wrong, the
    // next response could not be parsed.
    ask(
        &mut client,
        "/long.bin",
        &format!("Range: bytes=0-{}, {middle}-{}, -3\r\n", 3 * MIB, middle + 5),
    );
    let response = client.response();
    assert_eq!(response.status, 206);
    let text = String::from_utf8(response.body).unwrap();
    assert!(
        text.len() as u64 > 3 * MIB
            && text.contains("\r\n\r\nmiddle\r\n--")
            && text.ends_with("--\r\n")
    );
    client.is_alive();
    assert_eq!(site.open_files(), 0);
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_aborted() {
    let site = Site::with(sparse(64 * MIB));
    let mut client = site.client();
    ask(&mut client, "/long.bin", "");
    assert_eq!(client.read_head_only().unwrap().status, 200);
    client.read_exactly(1000);
    // The rest is far more than the sockets hold, so it is not read yet.
    fs::write(site.path("long.bin"), "another version").unwrap();
    let mut received = 1000;
    let ended = client.read_until_end();
    if let Ended::Closed(bytes) | Ended::Reset(bytes) = &ended {
        received += bytes.len();
        assert!(bytes.iter().all(|byte| *byte == 0), "nothing of the other version is mixed in");
    }
    assert!((received as u64) < 64 * MIB, "received {received} bytes");
    assert!(!matches!(ended, Ended::Silent(_)), "the connection ends");
    assert_eq!(site.client().get("/long.bin").text(), "another version");
}

#[test]
fn a_file_that_is_replaced_while_it_is_sent_is_sent_completely() {
    let site = Site::with(sparse(16 * MIB));
    let mut client = site.client();
    ask(&mut client, "/long.bin", "");
    assert_eq!(client.read_head_only().unwrap().status, 200);
    fs::write(site.path("new"), "another version").unwrap();
    fs::rename(site.path("new"), site.path("long.bin")).unwrap();
    let body = client.read_exactly(usize::try_from(16 * MIB).unwrap());
    assert!(body.iter().all(|byte| *byte == 0));
    assert_eq!(client.get("/long.bin").text(), "another version");
}

#[test]
fn a_connection_is_kept_after_every_kind_of_response() {
    let site = Site::with(sparse(MIB));
    let mut client = site.client();
    for _ in 0..20 {
        let tag = client.get("/a.txt").header("etag").unwrap().to_owned();
        ask(&mut client, "/a.txt", &format!("If-None-Match: {tag}\r\n"));
        let response = client.response();
        assert_eq!((response.status, response.header("etag").map(str::to_owned)), (304, Some(tag)));
        assert_eq!(response.header("content-type"), None);
        ask(&mut client, "/a.txt", "If-Match: \"x\"\r\n");
        assert_eq!(client.response().status, 412);
        ask(&mut client, "/a.txt", "Range: bytes=2-4\r\n");
        assert_eq!(client.response().text(), "234");
        ask(&mut client, "/a.txt", "Range: bytes=2-4\r\nIf-Range: \"stale\"\r\n");
        assert_eq!(client.response().text(), "0123456789");
        ask(&mut client, "/a.txt", "Range: bytes=99-\r\n");
        assert_eq!(client.response().status, 416);
        for target in ["/a.txt", "/long.bin", "/docs", "/docs/", "/missing"] {
            client.send(format!("HEAD {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
            let head = client.head_response();
            let get = client.get(target);
            let lines = |lines: &[String]| -> Vec<String> {
                lines
                    .iter()
                    .filter(|line| !line.starts_with("date:") && !line.contains("etag"))
                    .cloned()
                    .collect()
            };
            assert_eq!(lines(&head.lines), lines(&get.lines), "{target}");
        }
        client.send("POST /a.txt HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc");
        let response = client.response();
        assert_eq!((response.status, response.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
    client.is_alive();
    assert_eq!(site.open_files(), 0, "no file stays open");
}
