//! Static files: what is served, with which headers, and what is never served.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use filoplume::prelude::*;
use filoplume::testing::{TestClient, TestResponse};

/// A temporary folder. Files that must not be served are next to its `public`.
struct Site(tempfile::TempDir);

impl Site {
    fn new(files: &[(&str, &str)]) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        fs::create_dir(site.path("")).unwrap();
        fs::write(site.0.path().join("secret.txt"), "secret").unwrap();
        for (path, text) in files {
            site.write(path, text);
        }
        site
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join("public").join(path)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn files(&self) -> StaticFiles {
        StaticFiles::folder(self.path(""))
    }

    fn at_root(&self) -> TestClient {
        App::new().files("/", self.files()).test()
    }
}

fn digits() -> Site {
    Site::new(&[("digits.txt", "0123456789")])
}

/// Returns the tag of a file once it is strong, which is a moment after it was written.
fn strong_tag(client: &TestClient, target: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let tag = client.get(target).send().header("etag").unwrap().to_owned();
        if tag.starts_with('"') {
            return tag;
        }
        assert!(Instant::now() < deadline, "{tag} stays weak");
        std::thread::yield_now();
    }
}

fn set_modified(path: &Path, time: SystemTime) {
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_file_is_sent_with_all_its_headers() {
    let site = Site::new(&[("page.html", "<p>hi"), ("data.bin", "\0")]);
    let client = site.at_root();
    let response = client.get("/page.html").send();
    response
        .assert_status(200)
        .assert_text("<p>hi")
        .assert_header("content-type", "text/html; charset=utf-8")
        .assert_header("content-length", "5")
        .assert_header("accept-ranges", "bytes")
        .assert_header("x-content-type-options", "nosniff")
        .assert_no_header("cache-control")
        .assert_no_header("vary");
    let modified = fs::metadata(site.path("page.html")).unwrap().modified().unwrap();
    response.assert_header("last-modified", &httpdate(modified));
    client.get("/data.bin").send().assert_header("content-type", "application/octet-stream");
}

fn httpdate(time: SystemTime) -> String {
    // Takes the date from a response that has it: the test shares no code with the server.
    let site = digits();
    set_modified(&site.path("digits.txt"), time);
    site.at_root().get("/digits.txt").send().header("last-modified").unwrap().to_owned()
}

#[test]
fn dates_are_those_of_the_file() {
    let site = digits();
    let client = site.at_root();
    let dates = [
        (784_111_777, Some("Sun, 06 Nov 1994 08:49:37 GMT")),
        (0, Some("Thu, 01 Jan 1970 00:00:00 GMT")),
        (-1, None),
    ];
    for (seconds, expected) in dates {
        let epoch = SystemTime::UNIX_EPOCH;
        let time = match u64::try_from(seconds) {
            Ok(seconds) => epoch + Duration::from_secs(seconds),
            Err(_) => epoch - Duration::from_secs(1),
        };
        set_modified(&site.path("digits.txt"), time);
        let response = client.get("/digits.txt").send();
        assert_eq!(response.assert_status(200).header("last-modified"), expected);
    }
    set_modified(&site.path("digits.txt"), SystemTime::now() + Duration::from_secs(1_000_000));
    let response = client.get("/digits.txt").send();
    assert_eq!(
        response.header("last-modified"),
        response.header("date"),
        "a date in the future is now"
    );
}

#[test]
fn head_has_the_headers_of_get() {
    let site = digits();
    site.write("long.txt", "x".repeat(200_000));
    site.write("empty.txt", "");
    site.write("docs/index.html", "docs");
    let client = App::new().files("/", site.files().precompressed(true)).test();
    for target in ["/digits.txt", "/long.txt", "/empty.txt", "/docs/", "/docs", "/missing"] {
        strong_tag(&client, "/digits.txt");
        let headers = |response: &TestResponse| -> Vec<(String, Vec<u8>)> {
            let headers = response.headers().iter().filter(|(name, _)| *name != "date");
            headers.map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
        };
        let (get, head) = (client.get(target).send(), client.head(target).send());
        assert_eq!(get.status(), head.status());
        assert_eq!(headers(&get), headers(&head), "{target}");
        assert!(head.body().is_empty());
    }
}

#[test]
fn folders_are_answered_with_their_index() {
    let site =
        Site::new(&[("index.html", "root"), ("docs/index.html", "docs"), ("empty/a.txt", "a")]);
    let client = site.at_root();
    client.get("/").send().assert_text("root");
    client
        .get("/docs/")
        .send()
        .assert_text("docs")
        .assert_header("content-type", "text/html; charset=utf-8");
    client.get("/docs/index.html").send().assert_text("docs");
    client.get("/docs").send().assert_status(308).assert_header("location", "/docs/");
    client.get("/docs?a=1&b=//x").send().assert_header("location", "/docs/?a=1&b=//x");
    for target in ["/empty", "/empty/", "/docs/index.html/", "/docs//", "/index.html/x"] {
        client.get(target).send().assert_status(404);
    }
}

#[test]
fn the_index_can_have_another_name_or_be_turned_off() {
    let site =
        Site::new(&[("index.html", "html"), ("start.txt", "start"), ("docs/start.txt", "docs")]);
    let client = App::new().files("/", site.files().index("start.txt")).test();
    client.get("/").send().assert_text("start");
    client.get("/docs").send().assert_status(308);
    let client = App::new().files("/", site.files().without_index()).test();
    client.get("/").send().assert_status(404);
    client.get("/docs").send().assert_status(404);
    client.get("/index.html").send().assert_text("html");
}

#[test]
fn files_can_be_at_a_prefix_in_a_nested_router_and_at_the_root() {
    let site = Site::new(&[("index.html", "index"), ("a/b.txt", "b"), ("a/index.html", "a")]);
    let apps = [
        ("", App::new().files("/", site.files())),
        ("/static", App::new().files("/static", site.files())),
        ("/static", App::new().nest("/static", Router::new().files("/", site.files()))),
        ("/v1/static", App::new().nest("/v1", Router::new().files("/static", site.files()))),
        ("/t/static", App::new().nest("/{tenant}", Router::new().files("/static", site.files()))),
        ("/t/static", App::new().nest("/{tenant}/static", Router::new().files("/", site.files()))),
    ];
    for (prefix, app) in apps {
        let client = app.test();
        client.get(&format!("{prefix}/")).send().assert_text("index");
        client.get(&format!("{prefix}/a/b.txt")).send().assert_text("b");
        client.get(&format!("{prefix}/a/")).send().assert_text("a");
        client
            .get(&format!("{prefix}/a?q"))
            .send()
            .assert_status(308)
            .assert_header("location", &format!("{prefix}/a/?q"));
        client.get(&format!("{prefix}/missing")).send().assert_status(404);
        client.get(&format!("{prefix}//a/b.txt")).send().assert_status(404);
        if !prefix.is_empty() {
            let response = client.get(&format!("{prefix}?q")).send();
            response.assert_status(308).assert_header("location", &format!("{prefix}/?q"));
            client.get("/a/b.txt").send().assert_status(404);
        }
    }
}

#[test]
fn routes_take_precedence_over_files_at_the_root() {
    let site =
        Site::new(&[("about", "a file"), ("other.txt", "other"), ("assets/a.txt", "not this")]);
    let assets = Site::new(&[("a.txt", "this")]);
    let client = App::new()
        .get("/about", || "a route")
        .get("/users/{id}", |Path(id): filoplume::Path<u32>| id.to_string())
        .files("/assets", assets.files())
        .files("/", site.files())
        .test();
    client.get("/about").send().assert_text("a route");
    client.get("/other.txt").send().assert_text("other");
    client.get("/users/7").send().assert_text("7");
    client.get("/users/7/").send().assert_status(308).assert_header("location", "/users/7");
    client.get("/assets/a.txt").send().assert_text("this");
    client.post("/about").send().assert_status(405);
}

#[test]
fn other_methods_are_not_allowed() {
    let site = digits();
    let apps =
        [("", App::new().files("/", site.files())), ("/s", App::new().files("/s", site.files()))];
    for (prefix, app) in apps {
        let client = app.test();
        let target = format!("{prefix}/digits.txt");
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let response = client.request(method, &target).send();
            response.assert_status(405).assert_header("allow", "GET, HEAD, OPTIONS");
        }
        let response = client.options(&target).send();
        response.assert_status(204).assert_header("allow", "GET, HEAD, OPTIONS");
    }
    site.at_root().post("/missing").send().assert_status(404);
}

#[test]
fn mistakes_are_reported_when_the_app_starts() {
    let site = digits();
    let mistake = |prefix: &str, files: StaticFiles| {
        let error = App::new().files(prefix, files).build().unwrap_err();
        format!("{error:?}")
    };
    assert!(mistake("/", StaticFiles::folder("no/such/folder")).contains("no/such/folder"));
    assert!(mistake("/", StaticFiles::folder(site.path("digits.txt"))).contains("not a directory"));
    assert!(mistake("static", site.files()).contains("begins with `/`"));
    assert!(mistake("/static/", site.files()).contains("ends without `/`"));
    assert!(mistake("/", site.files().index("../secret.txt")).contains("../secret.txt"));
    assert!(mistake("/", site.files().fallback("/etc/passwd")).contains("/etc/passwd"));
    assert!(mistake("/", site.files().header("x y", "z")).contains("x y"));
    assert!(mistake("/", site.files().cache_control("a\r\nb: c")).contains("cache-control"));
    let twice = App::new().files("/", site.files()).files("/", site.files()).build().unwrap_err();
    assert!(format!("{twice:?}").contains("tests/it/static_files.rs"));
}

#[test]
fn hostile_paths_are_not_found() {
    let site = Site::new(&[
        ("a/b.txt", "b"),
        (".env", "key"),
        (".git/config", "x"),
        ("a/.hidden/c.txt", "c"),
    ]);
    for (prefix, app) in
        [("", App::new().files("/", site.files())), ("/s", App::new().files("/s", site.files()))]
    {
        let client = app.test();
        client.get(&format!("{prefix}/a/b.txt")).send().assert_text("b");
        for path in [
            "/../secret.txt",
            "/..%2fsecret.txt",
            "/..%2Fsecret.txt",
            "/%2e%2e/secret.txt",
            "/%2E%2E%2Fsecret.txt",
            "/.%2e/secret.txt",
            "/a/../../secret.txt",
            "/a/%2e%2e/%2e%2e/secret.txt",
            "/%252e%252e/secret.txt",
            "/%5c..%5c..%5csecret.txt",
            "/..%5csecret.txt",
            "/a%5cb.txt",
            "/a%2fb.txt",
            "/a/./b.txt",
            "/a//b.txt",
            "//a/b.txt",
            "//etc/passwd",
            "/%2fetc%2fpasswd",
            "/a/b.txt%00",
            "/a/b.txt%00.html",
            "/%00",
            "/a/b.txt%0a",
            "/%",
            "/%zz",
            "/%ff%fe",
            "/%c0%ae%c0%ae/secret.txt",
            "/.env",
            "/%2eenv",
            "/.git/config",
            "/.git/",
            "/.git",
            "/a/.hidden/c.txt",
            "/c:/windows",
            "/a/b.txt/",
            "/a/b.txt/c",
        ] {
            let response = client.get(&format!("{prefix}{path}")).send();
            assert_eq!(response.status(), 404, "{path}: {response:?}");
        }
    }
}

#[test]
fn names_that_are_too_long_are_not_found() {
    let client = digits().at_root();
    let segment = "x".repeat(256);
    client.get(&format!("/{segment}")).send().assert_status(404);
    client.get(&format!("/{segment}/")).send().assert_status(404);
    // Longer than any path of the system.
    client.get(&format!("/{}", vec!["x".repeat(200); 25].join("/"))).send().assert_status(404);
    client.get(&format!("/{}", "x/".repeat(3000))).send().assert_status(404);
}

#[test]
fn hidden_files_are_served_if_allowed() {
    let site = Site::new(&[(".well-known/a.txt", "a"), (".env", "key")]);
    let client = App::new().files("/", site.files().hidden_files(true)).test();
    client.get("/.well-known/a.txt").send().assert_text("a");
    client.get("/.env").send().assert_text("key");
    client.get("/%2e%2e/secret.txt").send().assert_status(404);
}

#[test]
fn names_are_decoded() {
    let site = Site::new(&[
        ("a b.txt", "space"),
        ("100%.txt", "percent"),
        ("café.txt", "é"),
        ("q?x#y.txt", "marks"),
    ]);
    let client = site.at_root();
    client.get("/a%20b.txt").send().assert_text("space");
    client.get("/100%25.txt").send().assert_text("percent");
    client.get("/caf%C3%A9.txt").send().assert_text("é");
    client.get("/q%3fx%23y.txt").send().assert_text("marks");
    client.get("/a+b.txt").send().assert_status(404);
}

#[cfg(unix)]
#[test]
fn links_are_followed_inside_the_folder_only() {
    use std::os::unix::fs::symlink;

    let site = Site::new(&[("real/a.txt", "a")]);
    let secret = site.0.path().join("secret.txt");
    symlink("real/a.txt", site.path("relative.txt")).unwrap();
    symlink(site.path("real"), site.path("absolute")).unwrap();
    symlink("../secret.txt", site.path("out.txt")).unwrap();
    symlink(&secret, site.path("absolutely-out.txt")).unwrap();
    symlink(site.0.path(), site.path("up")).unwrap();
    symlink("loop", site.path("loop")).unwrap();
    let outside = ["/out.txt", "/absolutely-out.txt", "/up/secret.txt", "/up/public/real/a.txt"];
    let client = site.at_root();
    client.get("/relative.txt").send().assert_text("a");
    client.get("/absolute/a.txt").send().assert_text("a");
    for target in &outside[..3] {
        client.get(target).send().assert_status(404);
    }
    // It leads out and in again: the target is inside.
    client.get(outside[3]).send().assert_text("a");
    client.get("/loop").send().assert_status(404);
    let client = App::new().files("/", site.files().symlinks_outside(true)).test();
    for target in &outside[..3] {
        client.get(target).send().assert_text("secret");
    }
    client.get("/../secret.txt").send().assert_status(404);
}

#[cfg(unix)]
#[test]
fn a_path_that_is_not_a_file_is_not_found_without_blocking() {
    let site = digits();
    let status = std::process::Command::new("mkfifo").arg(site.path("fifo.txt")).status().unwrap();
    assert!(status.success());
    std::os::unix::fs::symlink("/dev/zero", site.path("zero")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.path("socket")).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let files = site.files().symlinks_outside(true);
    std::thread::spawn(move || {
        let client = App::new().files("/", files).test();
        let statuses = ["/fifo.txt", "/fifo.txt/", "/socket", "/zero"]
            .map(|target| client.get(target).send().status().as_u16());
        sender.send(statuses).unwrap();
    });
    let statuses =
        receiver.recv_timeout(Duration::from_secs(10)).expect("nothing waits for the other end");
    assert_eq!(statuses, [404; 4]);
}

#[test]
fn redirects_never_lead_to_another_host() {
    let site = Site::new(&[("docs/index.html", "docs"), ("index.html", "index")]);
    let client = App::new()
        .nest("/{tenant}", Router::new().files("/", site.files()))
        .files("/", site.files())
        .test();
    for target in [
        "//evil.example/..",
        "//evil.example/%2e%2e",
        "//evil.example/docs",
        "//evil.example",
        "//docs",
        "/%2f%2fevil.example/docs/..",
        "/.//docs",
        "/%5cevil.example/..",
    ] {
        let response = client.get(target).send();
        assert!(!response.status().is_redirection(), "{target}: {response:?}");
    }
    // An encoded separator in a captured prefix stays encoded, so it is part of a name.
    let response = client.get("/%2fevil.example/docs").send();
    response.assert_status(308).assert_header("location", "/%2fevil.example/docs/");
    // The host of an absolute target is not used.
    let response = client.get("http://evil.example/docs/docs").send();
    response.assert_status(308).assert_header("location", "/docs/docs/");
}

#[test]
fn headers_and_caching_can_be_set() {
    let site = digits();
    let cache_control = |files: StaticFiles| {
        let response = App::new().files("/", files).test().get("/digits.txt").send();
        response.header("cache-control").map(str::to_owned)
    };
    assert_eq!(cache_control(site.files().max_age(Duration::from_secs(90))).unwrap(), "max-age=90");
    assert_eq!(cache_control(site.files().immutable()).unwrap(), "max-age=31536000, immutable");
    assert_eq!(cache_control(site.files().cache_control("no-cache")).unwrap(), "no-cache");
    let client = App::new()
        .files("/", site.files().header("x-a", "1").header("x-a", "2").etag(false))
        .test();
    let response = client.get("/digits.txt").send();
    assert_eq!(response.headers_all("x-a").collect::<Vec<_>>(), ["1", "2"]);
    response.assert_no_header("etag");
    client
        .get("/digits.txt")
        .header("if-none-match", "*")
        .send()
        .assert_status(304)
        .assert_header("x-a", "1");
    client.get("/missing").send().assert_no_header("x-a");
}

#[test]
fn unknown_paths_of_a_single_page_app_get_its_page() {
    let site = Site::new(&[("index.html", "app"), ("app.js", "js"), ("docs/a.txt", "a")]);
    let client = App::new()
        .get("/api/time", || "now")
        .files("/", site.files().fallback("index.html").immutable())
        .test();
    for target in ["/users/17", "/users/john.doe", "/docs", "/docs/", "/docs/x"] {
        client
            .get(target)
            .send()
            .assert_status(200)
            .assert_text("app")
            .assert_header("content-type", "text/html; charset=utf-8")
            .assert_header("cache-control", "no-cache")
            .assert_header("vary", "accept");
    }
    client
        .get("/app.js")
        .send()
        .assert_text("js")
        .assert_header("cache-control", "max-age=31536000, immutable");
    client
        .get("/gone.js")
        .header("accept", "*/*")
        .send()
        .assert_status(404)
        .assert_header("vary", "accept");
    client.get("/gone.js").header("accept", "text/html, */*;q=0.8").send().assert_text("app");
    client.get("/users").header("accept", "application/json").send().assert_status(404);
    client.post("/users").send().assert_status(404);
    client.get("/../secret.txt").send().assert_status(404);
    client.get("/.env").send().assert_status(404);
}

#[test]
fn precompressed_variants_are_sent_to_clients_that_accept_them() {
    let site = Site::new(&[
        ("app.js", "plain"),
        ("app.js.br", "brotli"),
        ("app.js.gz", "gzip!"),
        ("only.js.gz", "gzip!"),
        ("index.html", "page"),
        ("index.html.zst", "zstd!"),
    ]);
    let client = App::new().files("/", site.files().precompressed(true)).test();
    let rows = [
        (None, "plain", None),
        (Some("identity"), "plain", None),
        (Some("gzip, br"), "brotli", Some("br")),
        (Some("gzip"), "gzip!", Some("gzip")),
        (Some("br;q=0.1, gzip;q=0.2"), "gzip!", Some("gzip")),
        (Some("br;q=0, gzip;q=0"), "plain", None),
        (Some("zstd"), "plain", None),
        (Some("*"), "brotli", Some("br")),
    ];
    let mut tags = std::collections::HashMap::new();
    for (accept, text, coding) in rows {
        let request = client.get("/app.js");
        let response = match accept {
            Some(accept) => request.header("accept-encoding", accept).send(),
            None => request.send(),
        };
        response
            .assert_text(text)
            .assert_header("vary", "accept-encoding")
            .assert_header("content-type", "text/javascript; charset=utf-8");
        assert_eq!(response.header("content-encoding"), coding, "{accept:?}");
        let tag = response.header("etag").unwrap().trim_start_matches("W/").to_owned();
        assert_eq!(
            *tags.entry(text).or_insert_with(|| tag.clone()),
            tag,
            "the same bytes have the same tag"
        );
    }
    let different: std::collections::HashSet<_> = tags.values().collect();
    assert_eq!((tags.len(), different.len()), (3, 3), "other bytes have another tag: {tags:?}");

    let response = client.get("/").header("accept-encoding", "zstd").send();
    response.assert_text("zstd!").assert_header("content-encoding", "zstd");
    client.get("/only.js").header("accept-encoding", "gzip").send().assert_status(404);
    let response = client.get("/app.js.gz").header("accept-encoding", "gzip").send();
    response.assert_no_header("content-encoding").assert_header("content-type", "application/gzip");
    // The tag of one coding does not match another.
    let response = client
        .get("/app.js")
        .header("accept-encoding", "gzip")
        .header("if-none-match", &tags["gzip!"])
        .send();
    response.assert_status(304).assert_header("vary", "accept-encoding");
    client.get("/app.js").header("if-none-match", &tags["gzip!"]).send().assert_status(200);
    // Turned off, so it is not searched.
    let client = site.at_root();
    client
        .get("/app.js")
        .header("accept-encoding", "br")
        .send()
        .assert_text("plain")
        .assert_no_header("vary");
}

#[test]
fn conditions_are_evaluated_before_anything_is_sent() {
    let site = digits();
    let client = App::new()
        .files("/", site.files().max_age(Duration::from_secs(9)).header("x-a", "b"))
        .test();
    let tag = strong_tag(&client, "/digits.txt");
    let date = client.get("/digits.txt").send().header("last-modified").unwrap().to_owned();
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    let rows: &[(&[(&str, &str)], u16)] = &[
        (&[("if-none-match", &tag)], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", &format!("W/{tag}"))], 304),
        (&[("if-none-match", "\"other\"")], 200),
        (&[("if-none-match", "\"other\""), ("if-modified-since", &date)], 200),
        (&[("if-none-match", &tag), ("if-modified-since", past)], 304),
        (&[("if-modified-since", &date)], 304),
        (&[("if-modified-since", past)], 200),
        (&[("if-modified-since", "nonsense")], 200),
        (&[("if-match", &tag)], 200),
        (&[("if-match", "\"other\"")], 412),
        (&[("if-match", "other")], 400),
        (&[("if-unmodified-since", past)], 412),
        (&[("if-unmodified-since", &date)], 200),
        (&[("if-match", "\"other\""), ("if-none-match", &tag)], 412),
        (&[("if-none-match", &tag), ("range", "bytes=0-1")], 304),
        (&[("if-match", "\"other\""), ("range", "bytes=0-1")], 412),
        (&[("if-none-match", "\"other\""), ("range", "bytes=0-1")], 206),
    ];
    for (headers, status) in rows {
        for method in [Method::GET, Method::HEAD] {
            let mut request = client.request(method.clone(), "/digits.txt");
            for (name, value) in *headers {
                request = request.header(name, value);
            }
            let expected = if method == Method::HEAD && *status == 206 { 200 } else { *status };
            let response = request.send();
            assert_eq!(response.status(), expected, "{method} {headers:?}");
            if expected == 304 {
                let kept =
                    response.assert_text("").assert_header("etag", &tag).assert_header("x-a", "b");
                kept.assert_header("cache-control", "max-age=9");
                kept.assert_no_header("content-type").assert_no_header("last-modified");
            }
        }
    }
    client.get("/missing").header("if-none-match", "*").send().assert_status(404);
}

#[test]
fn a_changed_file_has_another_tag() {
    let site = digits();
    let client = site.at_root();
    let tag = strong_tag(&client, "/digits.txt");
    let modified = fs::metadata(site.path("digits.txt")).unwrap().modified().unwrap();
    // With the same length, and with its date set to the same value.
    site.write("digits.txt", "9876543210");
    set_modified(&site.path("digits.txt"), modified);
    let response = client.get("/digits.txt").header("if-none-match", &tag).send();
    response.assert_status(200).assert_text("9876543210");
    let response =
        client.get("/digits.txt").header("range", "bytes=5-").header("if-range", &tag).send();
    response.assert_status(200).assert_text("9876543210");
}

#[test]
fn a_range_is_a_part() {
    let site = digits();
    let client = site.at_root();
    let rows = [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=5-500", "56789", "bytes 5-9/10"),
        ("bytes=-500", "0123456789", "bytes 0-9/10"),
        ("bytes=0-1,2-3", "0123", "bytes 0-3/10"),
        ("bytes=9-,100-", "9", "bytes 9-9/10"),
    ];
    for (range, text, content_range) in rows {
        client
            .get("/digits.txt")
            .header("range", range)
            .send()
            .assert_status(206)
            .assert_text(text)
            .assert_header("content-range", content_range)
            .assert_header("content-type", "text/plain; charset=utf-8");
    }
    for ignored in ["bytes=5-4", "bytes=a", "lines=0-1", "bytes=", "0-1"] {
        let response = client.get("/digits.txt").header("range", ignored).send();
        response.assert_status(200).assert_text("0123456789").assert_no_header("content-range");
    }
    for unsatisfiable in ["bytes=10-", "bytes=-0", "bytes=99999999999999999999-"] {
        let response = client.get("/digits.txt").header("range", unsatisfiable).send();
        response.assert_status(416).assert_header("content-range", "bytes */10");
    }
    client
        .head("/digits.txt")
        .header("range", "bytes=0-3")
        .send()
        .assert_status(200)
        .assert_header("content-length", "10");
    let twice =
        client.get("/digits.txt").header("range", "bytes=0-3").header("range", "bytes=0-3").send();
    twice.assert_status(200);
}

#[test]
fn an_empty_file_is_sent_and_has_no_ranges() {
    let site = Site::new(&[("empty.txt", "")]);
    let client = site.at_root();
    client
        .get("/empty.txt")
        .send()
        .assert_status(200)
        .assert_text("")
        .assert_header("content-length", "0");
    let response = client.get("/empty.txt").header("range", "bytes=0-").send();
    response.assert_status(416).assert_header("content-range", "bytes */0");
    client.get("/empty.txt").header("range", "bytes=-1").send().assert_status(200);
}

#[test]
fn several_ranges_are_several_parts() {
    let site = Site::new(&[]);
    let content: Vec<u8> = (0..300_000_u32).map(|number| b'a' + (number % 26) as u8).collect();
    site.write("long.txt", &content);
    let client = site.at_root();
    let response = client.get("/long.txt").header("range", "bytes=0-1, 1000-100999, -3").send();
    response.assert_status(206).assert_no_header("content-range");
    let content_type = response.header("content-type").unwrap();
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut expected = Vec::new();
    for (start, end) in [(0, 2), (1000, 101_000), (299_997, 300_000)] {
        let last = end - 1;
        let head = format!(
            "\r\n--{boundary}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-range: bytes \
             {start}-{last}/300000\r\n\r\n"
        );
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(&content[start..end]);
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(response.body() == expected);
    response.assert_header("content-length", &expected.len().to_string());

    let many = vec!["0-0"; 1000].join(",");
    let response = client.get("/long.txt").header("range", &format!("bytes={many}")).send();
    response.assert_status(200).assert_header("content-length", "300000");
    let overlapping = vec!["0-"; 30].join(",");
    let response = client.get("/long.txt").header("range", &format!("bytes={overlapping}")).send();
    response.assert_status(206).assert_header("content-length", "300000");
}

#[test]
fn a_range_of_another_version_gets_the_whole_file() {
    let site = digits();
    let client = site.at_root();
    let tag = strong_tag(&client, "/digits.txt");
    let part = |if_range: &str| {
        client
            .get("/digits.txt")
            .header("range", "bytes=2-3")
            .header("if-range", if_range)
            .send()
            .status()
            .as_u16()
    };
    assert_eq!(part(&tag), 206);
    assert_eq!(part(&format!("W/{tag}")), 200);
    assert_eq!(part("\"stale\""), 200);
    assert_eq!(part("nonsense"), 200);
    assert_eq!(part("Sun, 06 Nov 1994 08:49:37 GMT"), 200);
    // A date that was set by hand does not distinguish versions, even if it matches.
    set_modified(
        &site.path("digits.txt"),
        SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777),
    );
    assert_eq!(part("Sun, 06 Nov 1994 08:49:37 GMT"), 200);
    // A range that cannot be satisfied is ignored as well.
    let response = client
        .get("/digits.txt")
        .header("range", "bytes=99-")
        .header("if-range", "\"stale\"")
        .send();
    response.assert_status(200);
}

#[derive(rust_embed::Embed)]
#[folder = "tests/it/assets"]
struct Assets;

#[test]
fn embedded_files_behave_like_files_of_a_folder() {
    let client =
        App::new().files("/e", StaticFiles::embedded::<Assets>().precompressed(true)).test();
    let response = client.get("/e/").send();
    response.assert_text("<p>embedded\n").assert_header("content-type", "text/html; charset=utf-8");
    let tag = response.header("etag").unwrap();
    assert!(tag.starts_with('"') && tag.len() == 34, "{tag}");
    client.get("/e/").header("if-none-match", tag).send().assert_status(304).assert_text("");
    client
        .get("/e/")
        .header("range", "bytes=3-10")
        .header("if-range", tag)
        .send()
        .assert_status(206)
        .assert_text("embedded");
    client.get("/e").send().assert_status(308).assert_header("location", "/e/");
    client.get("/e/docs").send().assert_status(308).assert_header("location", "/e/docs/");
    client.get("/e/docs/").send().assert_text("docs\n");
    let response = client.get("/e/").header("accept-encoding", "gzip").send();
    response.assert_text("not really gzip\n").assert_header("content-encoding", "gzip");
    assert_ne!(response.header("etag"), Some(tag));
    for target in [
        "/e/missing",
        "/e/..%2fmain.rs",
        "/e/%2e%2e/main.rs",
        "/e/docs%2findex.html",
        "/e//index.html",
        "/e/nothing/",
    ] {
        client.get(target).send().assert_status(404);
    }
    let response = client.get("/e/").header("range", "bytes=0-0,-1").send();
    response.assert_status(206);
    assert!(response.header("content-type").unwrap().starts_with("multipart/byteranges"));
    assert_eq!(client.head("/e/").send().header("content-length"), Some("12"));
    client.post("/e/").send().assert_status(405);
}

#[test]
fn an_escaped_prefix_does_not_bypass_its_router() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("private")).unwrap();
    fs::write(folder.path().join("private/plan.txt"), "secret").unwrap();
    let public = || StaticFiles::folder(folder.path());
    let private = || StaticFiles::folder(folder.path().join("private"));
    let auth = || middleware::BasicAuth::user("ada", "sesame");
    let apps = [
        (
            "",
            App::new()
                .files("/", public())
                .nest("/private", Router::new().files("/", private()).with(auth())),
        ),
        (
            "",
            App::new()
                .files("/", public())
                .merge(Router::new().files("/private", private()).with(auth())),
        ),
        (
            "/a",
            App::new()
                .files("/a", public())
                .merge(Router::new().files("/a/private", private()).with(auth())),
        ),
        (
            "/a",
            App::new()
                .nest("/a", Router::new().files("/", public()))
                .nest("/a/private", Router::new().files("/", private()).with(auth())),
        ),
    ];
    for (prefix, app) in apps {
        let client = app.test();
        let plan = format!("{prefix}/private/plan.txt");
        client.get(&plan).send().assert_status(401);
        client.get(&plan).basic("ada", "sesame").send().assert_text("secret");
        for escaped in ["/%70rivate/plan.txt", "/private/%70lan.txt", "/priv%61te/plan.txt?a"] {
            let answer = client.get(&format!("{prefix}{escaped}")).send();
            assert!(
                [308, 401].contains(&answer.status().as_u16()),
                "{prefix}{escaped}: {answer:?}"
            );
        }
        for escaped in [
            "/private%2Fplan.txt",
            "/.%2Fprivate/plan.txt",
            "/x/../private/plan.txt",
            "/./%70rivate/plan.txt",
        ] {
            let answer = client.get(&format!("{prefix}{escaped}")).send();
            assert!(
                [401, 404].contains(&answer.status().as_u16()),
                "{prefix}{escaped}: {answer:?}"
            );
        }
    }
}
