//! Files that handlers return.

#![allow(clippy::unwrap_used, reason = "these are tests, helpers included")]

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use filoplume::prelude::*;
use filoplume::response::Attachment;
use filoplume::testing::TestClient;

/// Returns a folder with a file of ten digits, and the path of the file.
fn digits() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("digits.txt");
    fs::write(&path, "0123456789").unwrap();
    (folder, path)
}

fn client() -> (tempfile::TempDir, TestClient) {
    let (folder, path) = digits();
    (folder, App::new().get("/", move || FileResponse::open(&path)).test())
}

/// Returns the tag of the file once it is strong, which is a moment after it was written.
fn strong_tag(client: &TestClient) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let tag = client.get("/").send().header("etag").unwrap().to_owned();
        if tag.starts_with('"') {
            return tag;
        }
        assert!(Instant::now() < deadline, "{tag} stays weak");
        std::thread::yield_now();
    }
}

#[test]
fn a_file_is_sent_with_all_its_headers() {
    let (_folder, client) = client();
    let response = client.get("/").send();
    response.assert_status(200).assert_text("0123456789").assert_no_header("content-disposition");
    response
        .assert_header("content-type", "text/plain; charset=utf-8")
        .assert_header("accept-ranges", "bytes");
    response
        .assert_header("x-content-type-options", "nosniff")
        .assert_header("content-length", "10");
    assert!(response.header("etag").is_some() && response.header("last-modified").is_some());
    let head = client.head("/").send();
    head.assert_status(200).assert_text("").assert_header("content-length", "10");
}

#[test]
fn ranges_are_parts_of_the_file() {
    let (_folder, client) = client();
    let get = |range: &str| client.get("/").header("range", range).send();
    get("bytes=2-4")
        .assert_status(206)
        .assert_text("234")
        .assert_header("content-range", "bytes 2-4/10");
    get("bytes=-3").assert_status(206).assert_text("789");
    get("bytes=10-").assert_status(416).assert_header("content-range", "bytes */10");
    get("lines=1-2").assert_status(200).assert_text("0123456789");
    let two = get("bytes=0-1,8-8");
    two.assert_status(206)
        .assert_contains("content-range: bytes 0-1/10")
        .assert_contains("bytes 8-8/10");
    assert!(two.header("content-type").unwrap().starts_with("multipart/byteranges; boundary="));
    client.head("/").header("range", "bytes=2-4").send().assert_status(200);

    let tag = strong_tag(&client);
    let if_range =
        |tag: &str| client.get("/").header("range", "bytes=2-4").header("if-range", tag).send();
    if_range(&tag).assert_status(206).assert_text("234");
    if_range("\"other\"").assert_status(200).assert_text("0123456789");
}

#[test]
fn conditions_are_evaluated() {
    let (_folder, client) = client();
    let first = client.get("/").send();
    let date = first.header("last-modified").unwrap().to_owned();
    let tag = strong_tag(&client);
    let rows = [
        ("if-none-match", tag.as_str(), 304),
        ("if-none-match", "\"other\"", 200),
        ("if-modified-since", &date, 304),
        ("if-match", &tag, 200),
        ("if-match", "\"other\"", 412),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 412),
    ];
    for (name, value, status) in rows {
        let response = client.get("/").header(name, value).send();
        response.assert_status(status);
        client.head("/").header(name, value).send().assert_status(status);
        if status == 304 {
            response.assert_header("etag", &tag).assert_no_header("content-type").assert_text("");
        }
    }
}

#[test]
fn all_browsers_read_the_same_name_of_a_download() {
    let (_folder, path) = digits();
    let download = move |Query(names): Query<Vec<(String, String)>>| -> Result<FileResponse> {
        Ok(FileResponse::open(&path)?.attachment(names[0].1.clone()))
    };
    let client = App::new().get("/", download).test();
    let rows = [
        (
            "Übersicht.csv",
            "_bersicht.csv\"; filename*=UTF-8''%C3%9Cbersicht.csv",
            "text/csv; charset=utf-8",
        ),
        ("a \"b\".pdf", "a _b_.pdf\"", "application/pdf"),
        ("../../a\r\nb: c", "ab_ c\"", "text/plain; charset=utf-8"),
    ];
    for (name, value, content_type) in rows {
        for range in [None, Some("bytes=0-1")] {
            let request = client.get("/").query(&[("name", name)]);
            let response = match range {
                Some(range) => request.header("range", range).send(),
                None => request.send(),
            };
            response
                .assert_header("content-disposition", &format!("attachment; filename=\"{value}"));
            response.assert_header("content-type", content_type);
        }
    }
}

#[test]
fn a_path_that_is_not_a_file_is_a_404_with_details_in_development_mode_only() {
    let (folder, _) = digits();
    let path = folder.path().to_owned();
    // With a handle for both directions nobody waits for the other side. That this is not needed is
    // tested in the crate.
    #[cfg(unix)]
    let _both_sides = {
        let fifo = path.join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        fs::OpenOptions::new().read(true).write(true).open(fifo).unwrap()
    };
    let app = move || {
        let path = path.clone();
        App::new()
            .get("/{name}", move |Path(name): Path<String>| FileResponse::open(path.join(name)))
    };
    let names = if cfg!(unix) { &["missing", "%2E", "fifo"][..] } else { &["missing", "%2E"] };
    for name in names {
        let response = app().test().get(&format!("/{name}")).send();
        response.assert_status(404).assert_contains("the file is not there");
        assert!(!response.text().contains("cannot be sent"), "{}", response.text());
        let shown = app().development(true).test().get(&format!("/{name}")).send();
        shown.assert_status(404).assert_contains("cannot be sent");
    }
}

#[cfg(unix)]
#[test]
fn links_are_followed_unless_the_name_comes_from_a_client() {
    let (folder, _) = digits();
    let within = folder.path().join("within");
    fs::create_dir_all(within.join("2026")).unwrap();
    fs::write(within.join("2026/may.txt"), "may").unwrap();
    fs::write(within.join(".hidden"), "hidden").unwrap();
    std::os::unix::fs::symlink("../digits.txt", within.join("out")).unwrap();
    std::os::unix::fs::symlink("2026/may.txt", within.join("in")).unwrap();
    let of_program = within.join("out");
    let client = App::new()
        .get("/of-program", move || FileResponse::open(&of_program))
        .get("/of-client/{name}", move |Path(name): Path<String>| {
            FileResponse::open_in(&within, &name)
        })
        .test();
    client.get("/of-program").send().assert_text("0123456789");
    for name in ["in", "2026%2Fmay.txt"] {
        client.get(&format!("/of-client/{name}")).send().assert_status(200).assert_text("may");
    }
    let hostile = [
        "out",
        "..",
        "..%2Fdigits.txt",
        "%2Fetc%2Fpasswd",
        "2026",
        "2026%2F",
        ".hidden",
        "a%00",
        "a%5Cb",
    ];
    for name in hostile {
        client.get(&format!("/of-client/{name}")).send().assert_status(404);
    }
}

#[test]
fn an_open_file_is_sent_from_its_beginning() {
    let (_folder, path) = digits();
    let opened = move || -> Result<FileResponse> {
        let mut file = File::open(&path)?;
        file.seek(SeekFrom::End(0))?;
        FileResponse::from_file(file, "a.html")
    };
    let client = App::new().get("/", opened).test();
    let response = client.get("/").header("range", "bytes=0-1").send();
    response.assert_text("01").assert_header("content-type", "text/html; charset=utf-8");
}

#[test]
fn headers_around_a_file_keep_its_ranges_and_a_status_does_not() {
    let (_folder, path) = digits();
    let file = move || FileResponse::open(&path);
    let files = || (file.clone(), file.clone(), file.clone());
    let (a, b, c) = files();
    let (d, e, f) = files();
    let client = App::new()
        .get("/option", move || a().ok())
        .get("/headers", move || ([("cache-control", "no-store")], b()))
        .get("/attachment", move || c().map(|file| Attachment::new("a.bin", file)))
        .get("/status", move || (StatusCode::CREATED, d()))
        .get("/made", move || e().and_then(IntoResponse::into_response))
        .post("/option", f)
        .get("/middleware", || "not reached")
        .with(move |request: Request, next: Next<'_>| match request.path() {
            "/middleware" => file().map(Ok),
            _ => Ok(Err(next.run(request))),
        })
        .test();
    for path in ["/option", "/headers", "/attachment", "/middleware"] {
        client.get(path).header("range", "bytes=2-4").send().assert_status(206).assert_text("234");
    }
    client.get("/headers").send().assert_header("cache-control", "no-store");
    client
        .get("/headers")
        .header("if-none-match", "*")
        .send()
        .assert_status(304)
        .assert_header("cache-control", "no-store");
    let two = client.get("/attachment").header("range", "bytes=0-0,2-2").send();
    assert!(
        two.assert_status(206).header("content-type").unwrap().starts_with("multipart/byteranges")
    );
    for (path, status) in [("/status", 201), ("/made", 200)] {
        let whole = client.get(path).header("range", "bytes=2-4").send();
        whole.assert_status(status).assert_text("0123456789").assert_no_header("accept-ranges");
    }
    let posted =
        client.post("/option").header("range", "bytes=2-4").header("if-none-match", "*").send();
    posted.assert_status(200).assert_text("0123456789");
}

/// Runs on an event loop and on a thread, with a file that is too long to be sent from memory.
#[test]
fn a_long_file_is_streamed_wherever_the_handler_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.bin");
    let content: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    fs::write(&path, &content).unwrap();
    let file = move || FileResponse::open(&path);
    let app = App::new()
        .route("/inline", get(file.clone()).on_loop())
        .route("/dispatched", get(file).on_pool());
    let app = app.start("127.0.0.1:0").unwrap();
    for path in ["/inline", "/dispatched"] {
        for (range, expected) in
            [("", &content[..]), ("Range: bytes=5-899999\r\n", &content[5..900_000])]
        {
            let mut stream = TcpStream::connect(app.local_addr()).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: t\r\n{range}Connection: close\r\n\r\n")
                .unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
            assert!(answer[head..] == *expected, "{path} {range}");
        }
    }
    app.shutdown();
}
