//! Downloads, and files that users have uploaded.

#![allow(clippy::unwrap_used, reason = "these are tests, helpers included")]

use std::fs::{self, File};
use std::io::{Cursor, Read};

use filoplume::prelude::*;
use filoplume::response::{Attachment, Reader};
use filoplume::testing::TestClient;

/// Returns a client of an app that sends an attachment under the name in the query.
fn named() -> TestClient {
    App::new()
        .get("/", |Query(names): Query<Vec<(String, String)>>| {
            Attachment::new(names[0].1.clone(), "x")
        })
        .test()
}

#[test]
fn bytes_readers_and_files_are_saved_under_their_name() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"from a file").unwrap();
    let path = file.path().to_owned();
    let app = App::new()
        .get("/bytes", || Attachment::new("a.bin", vec![1_u8, 2]))
        .get("/text", || Attachment::new("a.html", "<p>"))
        .get("/reader", || Attachment::new("a.json", Reader::new(Cursor::new("{}").take(2))))
        .get("/file", move || Ok::<_, Error>(Attachment::new("a.pdf", File::open(&path)?)))
        .get("/json", || Attachment::new("data", Json(17)))
        .get("/unknown", || Attachment::new("data", Reader::sized(std::io::empty(), 0)))
        .get("/status", || (StatusCode::CREATED, [("x-a", "b")], Attachment::new("a.txt", "x")))
        .get("/error", || Attachment::new("a.txt", Err::<&str, _>(Error::not_found("gone"))))
        .get("/type", || Attachment::new("a.txt", "x").content_type("a/b\r\nc: d"));
    let client = app.test();
    let rows = [
        ("/bytes", "application/octet-stream", "a.bin"),
        ("/text", "text/html; charset=utf-8", "a.html"),
        ("/reader", "application/json", "a.json"),
        ("/file", "application/pdf", "a.pdf"),
        ("/json", "application/json", "data"),
        ("/unknown", "application/octet-stream", "data"),
        ("/status", "text/plain; charset=utf-8", "a.txt"),
    ];
    for (path, content_type, name) in rows {
        let response = client.get(path).send();
        response.assert_header("content-type", content_type);
        response.assert_header("content-disposition", &format!("attachment; filename=\"{name}\""));
        response.assert_header("x-content-type-options", "nosniff");
    }
    client.get("/file").send().assert_text("from a file").assert_header("content-length", "11");
    client.get("/status").send().assert_status(201).assert_header("x-a", "b");
    client.get("/error").send().assert_status(404).assert_no_header("content-disposition");
    client.get("/type").send().assert_status(500).assert_no_header("c");
}

#[test]
fn a_hostile_name_is_only_a_name() {
    let client = named();
    for name in [
        "a%0D%0Aset-cookie:%20a=b.txt",
        "a%22;%20filename=%22evil.exe",
        "..%2F..%2Fetc%2Fpasswd",
        "..%5Cboot.ini",
        "%00",
        "",
        "%E2%80%AEgpj.exe",
        &"%F0%9F%98%80".repeat(500),
    ] {
        let response = client.get(&format!("/?name={name}")).send();
        response.assert_status(200).assert_no_header("set-cookie").assert_text("x");
        let value = response.header("content-disposition").unwrap();
        assert!(
            value.starts_with("attachment; filename=\"") && value.matches('"').count() == 2,
            "{value}"
        );
        assert!(!value.contains(['/', '\\']) && value.len() < 1100, "{value}");
    }
}

/// Returns a folder with uploaded files.
fn uploads() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "index.html",
        "a.svg",
        "a.js",
        "a.css",
        "a.xhtml",
        "a.pdf",
        "cat.png",
        "cat.JPG",
        "song.mp3",
        "ü",
    ] {
        fs::write(folder.path().join(name), "<script>steal()</script>").unwrap();
    }
    folder
}

#[test]
fn uploads_are_saved_and_never_shown_as_pages_or_scripts() {
    let folder = uploads();
    let files = StaticFiles::folder(folder.path()).untrusted();
    let files = files
        .header("content-disposition", "inline")
        .header("content-security-policy", "script-src *");
    let client = App::new().files("/", files).test();
    let rows = [
        ("/index.html", "application/octet-stream", r#"attachment; filename="index.html""#),
        ("/a.svg", "application/octet-stream", r#"attachment; filename="a.svg""#),
        ("/a.js", "application/octet-stream", r#"attachment; filename="a.js""#),
        ("/a.css", "application/octet-stream", r#"attachment; filename="a.css""#),
        ("/a.xhtml", "application/octet-stream", r#"attachment; filename="a.xhtml""#),
        ("/a.pdf", "application/octet-stream", r#"attachment; filename="a.pdf""#),
        ("/cat.png", "image/png", r#"attachment; filename="cat.png""#),
        ("/song.mp3", "audio/mpeg", r#"attachment; filename="song.mp3""#),
        (
            "/%C3%BC",
            "application/octet-stream",
            r#"attachment; filename="_"; filename*=UTF-8''%C3%BC"#,
        ),
    ];
    for (path, content_type, disposition) in rows {
        for (range, status) in [("", 200), ("bytes=0-1", 206)] {
            let response = client.get(path).header("range", range).send();
            response.assert_status(status).assert_header("content-type", content_type);
            let all = |name| response.headers_all(name).collect::<Vec<_>>();
            assert_eq!(all("content-disposition"), [disposition]);
            assert_eq!(all("x-content-type-options"), ["nosniff"]);
            let [policy] = all("content-security-policy")[..] else { panic!("one policy") };
            assert!(
                policy.contains("sandbox") && policy.contains("default-src 'none'"),
                "{policy}"
            );
        }
    }
    client.get("/").send().assert_status(404);
    let several = client.get("/a.svg").header("range", "bytes=0-1,3-4").send();
    several
        .assert_status(206)
        .assert_header("content-disposition", r#"attachment; filename="a.svg""#);
    assert!(!several.text().contains("svg"));
}

#[test]
fn images_that_cannot_contain_scripts_may_be_shown() {
    let folder = uploads();
    let client = App::new()
        .files("/", StaticFiles::folder(folder.path()).untrusted_images().untrusted())
        .test();
    for (path, is_shown) in [
        ("/cat.png", true),
        ("/cat.JPG", true),
        ("/a.svg", false),
        ("/a.pdf", false),
        ("/index.html", false),
    ] {
        let response = client.get(path).send();
        assert_eq!(response.header("content-disposition").is_none(), is_shown, "{path}");
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.contains("sandbox"), "{path}: {policy}");
    }
}
