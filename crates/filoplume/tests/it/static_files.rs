//! Static files: where an app serves them, with which headers, and with which options.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod conditions;
mod paths;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use filoplume::prelude::*;
use filoplume::testing::{TestClient, TestResponse};

use crate::presentation::logged;

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
    // Takes the date from a response that has it, because the test shares no code with the server.
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
    // A tag becomes strong when its file has not changed for a while. That must not happen between
    // two requests.
    for file in ["/digits.txt", "/long.txt", "/empty.txt", "/docs/"] {
        strong_tag(&client, file);
    }
    for target in ["/digits.txt", "/long.txt", "/empty.txt", "/docs/", "/docs", "/missing"] {
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
    let embedded = StaticFiles::embedded::<Assets>().fallback("none.html");
    // Debug builds read the folder at run time, so the file may still appear there.
    if !cfg!(debug_assertions) {
        let told = mistake("/", embedded);
        assert!(told.contains("the fallback \"none.html\" of static files does not"), "{told}");
    }
    let uploads = site.files().precompressed(true).untrusted();
    assert!(mistake("/", uploads).contains("cannot be both `untrusted` and `precompressed`"));
    assert!(mistake("/", site.files().header("x y", "z")).contains("x y"));
    assert!(mistake("/", site.files().cache_control("a\r\nb: c")).contains("cache-control"));
    let twice = App::new().files("/", site.files()).files("/", site.files()).build().unwrap_err();
    assert!(format!("{twice:?}").contains("tests/it/static_files.rs"));
}

#[test]
fn a_fallback_that_is_missing_is_a_warning_because_it_may_come_later() {
    let site = digits();
    for (page, expected) in [("index.html", 1), ("no", 1), ("digits.txt", 0)] {
        let lines = logged(|| {
            let client = App::new().files("/", site.files().fallback(page)).test();
            fs::write(site.path("index.html"), "app").unwrap();
            let status = if page == "no" { 404 } else { 200 };
            client.get("/users/17").send().assert_status(status);
        });
        let warning = format!("WARN the fallback \"{page}\" of static files does not exist");
        let warnings = lines.iter().filter(|line| line.starts_with(&warning)).count();
        assert_eq!(warnings, expected, "{lines:?}");
    }
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
    assert!(response.header("last-modified").is_some());
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
fn the_index_and_the_fallback_are_names_of_files_as_they_are() {
    let site = digits();
    for name in ["a%41.html", "docs/", "", "../secret.txt"] {
        for files in [site.files().index(name), site.files().fallback(name)] {
            assert!(App::new().files("/", files).build().is_err(), "{name:?}");
        }
    }
}

#[test]
fn a_tag_that_is_not_sent_is_not_compared() {
    let site = digits();
    let tag = strong_tag(&site.at_root(), "/digits.txt");
    let client = App::new().files("/", site.files().etag(false)).test();
    let answer = client.get("/digits.txt").header("if-none-match", &tag).send();
    answer.assert_status(200).assert_no_header("etag").assert_text("0123456789");
}

#[test]
fn an_image_that_is_shown_has_no_disposition_of_the_program() {
    let site = Site::new(&[("a.png", "x"), ("a.html", "x")]);
    let files = site.files().untrusted_images().header("content-disposition", "inline; a=b");
    let client = App::new().files("/", files).test();
    client.get("/a.png").send().assert_status(200).assert_no_header("content-disposition");
    let page = client.get("/a.html").send();
    page.assert_header("content-disposition", "attachment; filename=\"a.html\"");
}
