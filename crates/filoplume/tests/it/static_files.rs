//! Static files: what is served, with which headers, and what is never served.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod conditions;

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
    assert!(mistake("static", site.files()).contains("must begin with `/`"));
    assert!(mistake("/static/", site.files()).contains("cannot end with `/`"));
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
