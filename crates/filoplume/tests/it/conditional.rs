//! `middleware::ETag`, and conditions that handlers evaluate.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use filoplume::conditional::{Conditions, EntityTag, Validators};
use filoplume::prelude::*;
use filoplume::response::Reader;

const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

fn app() -> App {
    App::new()
        .get("/text", || "text")
        .get("/same", || "text")
        .get("/other", || "other")
        .get("/empty", || ())
        .get("/tagged", || {
            (
                [("etag", "\"mine\""), ("cache-control", "no-cache"), ("content-language", "en")],
                "tagged",
            )
        })
        .get("/weak", || ([("etag", "W/\"mine\"")], "weak"))
        .get("/broken", || ([("etag", "mine")], "broken"))
        .get("/dated", || ([("last-modified", THEN)], "dated"))
        .get("/stream", || Reader::new("stream".as_bytes()))
        .get("/tagged-stream", || {
            ([("etag", "\"s\""), ("last-modified", THEN)], Reader::new("stream".as_bytes()))
        })
        .get("/secret", || ([("cache-control", "private, No-Store")], "secret"))
        .get("/missing", || Error::not_found("no such thing"))
        .get("/made", || (StatusCode::CREATED, "made"))
        .get("/cookie", || ([("set-cookie", "a=b"), ("vary", "cookie")], "cookie"))
        .post("/text", || "posted")
        .route("/head", get(|| "content").head(|| ()))
        .with(middleware::ETag::new())
}

#[test]
fn equal_content_has_equal_tags_and_other_content_has_another() {
    let client = app().test();
    let tag = |target: &str| client.get(target).send().header("etag").map(str::to_owned);
    let text = tag("/text").unwrap();
    assert!(text.starts_with('"') && text.len() == 34, "{text}");
    assert_eq!(tag("/same").unwrap(), text);
    assert_ne!(tag("/other").unwrap(), text);
    assert_ne!(tag("/empty").unwrap(), text);
    assert_eq!(client.head("/text").send().header("etag"), Some(&*text));
    // The tag is the same on another machine, and after a restart.
    assert_eq!(text, "\"982d9e3eb996f559e633f4d194def376\"");
}

#[test]
fn a_client_that_has_the_content_gets_a_304() {
    let client = app().test();
    let tag = client.get("/text").send().header("etag").unwrap().to_owned();
    for method in [Method::GET, Method::HEAD] {
        let response = client
            .request(method, "/text")
            .header("if-none-match", &format!("\"x\", {tag}"))
            .send();
        response
            .assert_status(304)
            .assert_text("")
            .assert_header("etag", &tag)
            .assert_no_header("content-type");
    }
    client
        .get("/text")
        .header("if-none-match", "\"x\"")
        .send()
        .assert_status(200)
        .assert_text("text");
    client.get("/text").header("if-match", &tag).send().assert_status(200);
    client.get("/text").header("if-match", "\"x\"").send().assert_status(412);
    client.get("/text").header("if-match", "x").send().assert_status(400);
    client.get("/text").header("if-none-match", "x").send().assert_status(200);
}

#[test]
fn validators_of_the_handler_take_precedence() {
    let client = app().test();
    let response = client.get("/tagged").header("if-none-match", "\"mine\"").send();
    response
        .assert_status(304)
        .assert_header("etag", "\"mine\"")
        .assert_header("cache-control", "no-cache");
    response.assert_no_header("content-language");
    client.get("/weak").header("if-none-match", "\"mine\"").send().assert_status(304);
    client.get("/weak").header("if-match", "\"mine\"").send().assert_status(412);
    client
        .get("/broken")
        .header("if-none-match", "\"mine\"")
        .send()
        .assert_status(200)
        .assert_header("etag", "mine");
    // `If-None-Match` takes precedence over `If-Modified-Since`, also for a tag of the middleware.
    client.get("/dated").header("if-modified-since", THEN).send().assert_status(304);
    client
        .get("/dated")
        .header("if-modified-since", LATER)
        .header("if-none-match", "\"x\"")
        .send()
        .assert_status(200);
    client
        .get("/dated")
        .header("if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT")
        .send()
        .assert_status(412);
}

#[test]
fn streams_are_not_read_for_a_tag() {
    let client = app().test();
    client.get("/stream").send().assert_text("stream").assert_no_header("etag");
    client.get("/stream").header("if-none-match", "\"x\"").send().assert_status(200);
    client
        .get("/tagged-stream")
        .header("if-none-match", "\"s\"")
        .send()
        .assert_status(304)
        .assert_text("");
    client.get("/tagged-stream").header("if-modified-since", LATER).send().assert_status(304);
    client.get("/tagged-stream").header("if-none-match", "\"x\"").send().assert_text("stream");
}

#[test]
fn only_a_cacheable_200_to_get_or_head_gets_a_tag() {
    let client = app().test();
    for target in ["/secret", "/missing", "/made", "/nowhere"] {
        client.get(target).header("if-none-match", "\"x\"").send().assert_no_header("etag");
    }
    client.get("/missing").header("if-none-match", "*").send().assert_status(404);
    client.get("/made").header("if-match", "\"x\"").send().assert_status(201);
    client
        .post("/text")
        .header("if-match", "\"x\"")
        .send()
        .assert_status(200)
        .assert_text("posted")
        .assert_no_header("etag");
    // A handler for `HEAD` alone has no content from which a tag could be made.
    client.head("/head").send().assert_status(200).assert_no_header("etag");
    let response = client.get("/cookie").header("if-none-match", "*").send();
    response.assert_status(304).assert_header("set-cookie", "a=b").assert_header("vary", "cookie");
}

#[test]
fn weak_tags_are_optional() {
    let client = App::new().get("/", || "text").with(middleware::ETag::new().weak(true)).test();
    let tag = client.get("/").send().header("etag").unwrap().to_owned();
    assert!(tag.starts_with("W/\""));
    client.get("/").header("if-none-match", tag.trim_start_matches("W/")).send().assert_status(304);
    client.get("/").header("if-match", &tag).send().assert_status(412);
}

#[test]
fn a_write_whose_condition_fails_changes_nothing() {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let write = move |request: Request| -> Result<&'static str> {
        let current = Validators::new().etag(EntityTag::strong("v7"));
        Conditions::of(request.headers()).evaluate(request.method(), Some(&current)).ok()?;
        counted.fetch_add(1, Ordering::SeqCst);
        Ok("written")
    };
    let client = App::new().put("/", write).with(middleware::ETag::new()).test();
    let rows = [
        ("if-match", "\"v6\"", 412),
        ("if-match", "W/\"v7\"", 412),
        ("if-match", "v7", 400),
        ("if-none-match", "*", 412),
        ("if-none-match", "v7", 400),
    ];
    for (name, value, status) in rows {
        client.put("/").header(name, value).send().assert_status(status);
    }
    assert_eq!(writes.load(Ordering::SeqCst), 0);
    client.put("/").header("if-match", "\"v7\"").send().assert_text("written");
    client.put("/").send().assert_text("written");
    assert_eq!(writes.load(Ordering::SeqCst), 2);
}

#[test]
fn a_compressed_response_matches_its_weakened_tag() {
    let text = "again and again ".repeat(1000);
    let client = App::new()
        .get("/", move || text.clone())
        .with(middleware::Compression::new())
        .with(middleware::ETag::new())
        .test();
    let response = client.get("/").header("accept-encoding", "gzip").send();
    let tag = response.assert_status(200).header("etag").unwrap();
    assert!(tag.starts_with("W/"), "{tag}");
    client
        .get("/")
        .header("accept-encoding", "gzip")
        .header("if-none-match", tag)
        .send()
        .assert_status(304);
}
