//! The test client: what it sends, what it keeps, and the messages of its assertions.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use expect_test::{Expect, expect};
use filoplume::prelude::*;
use filoplume::response::Reader;
use filoplume::testing::MultipartForm;
use filoplume::{Body, Peer, ServerConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The members are in alphabetical order, so that it does not matter whether JSON keeps the order.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Note {
    stars: u8,
    title: String,
}

/// Returns an app that answers with the request.
fn echo() -> App {
    App::new().fallback(|request: Request| {
        let mut text = format!("{} {} {}\n", request.method(), request.target(), request.version());
        for (name, value) in request.headers().iter() {
            text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value)));
        }
        text.push_str(&String::from_utf8_lossy(
            &request.into_body().into_bytes(1 << 20).expect("a short content"),
        ));
        text
    })
}

#[track_caller]
fn check_failure(run: impl FnOnce(), expected: &Expect) {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the assertion fails");
    let message = panic.downcast_ref::<String>().expect("the message is text");
    let lines: Vec<_> = message
        .lines()
        .map(|line| if line.starts_with("< date:") { "< date: .." } else { line })
        .collect();
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn the_request_is_sent_as_it_was_built() {
    let client = echo().test();
    let get = client
        .get("/a?b=c")
        .query(&[("d e", "f&g"), ("ö", "")])
        .header("X-One", "1")
        .bearer("abc")
        .send();
    get.assert_text(
        "GET /a?b=c&d+e=f%26g&%C3%B6= HTTP/1.1\nhost: localhost\nX-One: 1\nauthorization: Bearer \
         abc\n",
    );
    let post = client.post("/").json(&json!({"a": 1})).basic("ada", "s3cret").send();
    post.assert_text(
        "POST / HTTP/1.1\nhost: localhost\ncontent-type: application/json\nauthorization: Basic \
         YWRhOnMzY3JldA==\ncontent-length: 7\n{\"a\":1}",
    );
    let form =
        client.put("/").header("host", "example.com").form(&[("a", "1 2"), ("b", "ü=")]).send();
    form.assert_text(
        "PUT / HTTP/1.1\nhost: example.com\ncontent-type: \
         application/x-www-form-urlencoded\ncontent-length: 17\na=1+2&b=%C3%BC%3D",
    );
    client.get("/old").http_10().send().assert_contains("GET /old HTTP/1.0\n");
}

#[test]
fn a_multipart_form_is_framed_by_its_boundary() {
    let form = MultipartForm::new().text("a", "1").file("f", "x\".txt", "text/plain", b"content");
    let response = echo().test().post("/").multipart(form).send();
    let text = response.text().replace('\r', "");
    let (head, body) = text.split_at(text.find("--").unwrap());
    assert!(head.contains("content-type: multipart/form-data; boundary=filoplume-test-boundary-"));
    assert!(body.contains("content-disposition: form-data; name=\"a\"\n\n1\n--"));
    assert!(body.contains("filename=\"x%22.txt\"\ncontent-type: text/plain\n\ncontent\n--"));
    assert!(body.ends_with("--\n"));
}

#[test]
fn a_content_can_be_sent_in_chunks() {
    let app = App::new().post("/", |request: Request| {
        let announced = request.content_length();
        format!("{announced:?} {}", request.into_body().into_bytes(10_000).unwrap().len())
    });
    let client = app.test();
    client.post("/").body("x".repeat(2500)).chunked().send().assert_text("None 2500");
    client.post("/").body("x".repeat(2500)).send().assert_text("Some(2500) 2500");
    client.post("/").body("").chunked().send().assert_text("None 0");
}

/// The longest content of [`reads_to_its_end`].
const CONTENT_BYTES_MAX: usize = 2_000_000;

/// Returns an app whose handler reads the content as it arrives, and answers a failed read itself.
fn reads_to_its_end() -> App {
    let config = ServerConfig::default()
        .content_bytes_max(CONTENT_BYTES_MAX as u64)
        .buffered_content_bytes_max(1000);
    let app = App::new().get("/", || "next").post("/unread", |_: Body| "not read");
    app.config(config).post("/", |mut body: Body| {
        let (length, mut content) = (body.len(), Vec::new());
        let result = body.read_to_end(&mut content);
        let status = if result.is_ok() { StatusCode::OK } else { StatusCode::IM_A_TEAPOT };
        (status, format!("{length:?}, read {}: {result:?}", content.len()))
    })
}

/// Returns what a server answers to a peer that sends this and ends.
fn answer_of_server(request: &str) -> Result<String> {
    let server = reads_to_its_end().start("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(server.local_addr())?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    server.shutdown();
    Ok(answer)
}

/// Regression: a truncated content ended like a complete one, and a malformed or too long one was
/// refused without a call of the handler.
#[test]
fn a_streamed_content_fails_as_it_does_on_a_server() {
    let begun = "x".repeat(3000);
    let chunk = format!("Transfer-Encoding: chunked\r\n\r\nbb8\r\n{begun}\r\n");
    let next = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (target, what, status, rest) in [
        ("/", "a truncated content", "418", format!("Content-Length: 2000000\r\n\r\n{begun}")),
        ("/", "a truncated chunk", "418", format!("{chunk}5\r\nab")),
        ("/", "no last chunk", "418", chunk.clone()),
        ("/", "too long a content", "418", format!("{chunk}1e8480\r\nab")),
        ("/", "a broken chunk", "418", format!("{chunk}xyz\r\nab")),
        ("/", "a complete content", "200", format!("Content-Length: 3000\r\n\r\n{begun}{next}")),
        ("/", "complete chunks", "200", format!("{chunk}0\r\n\r\n{next}")),
        (
            "/",
            "a content that ends too early to be streamed",
            "",
            "Content-Length: 9\r\n\r\na".into(),
        ),
        ("/unread", "too long a content", "200", format!("{chunk}1e8480\r\nab")),
        ("/unread", "a truncated chunk", "200", format!("{chunk}5\r\nab")),
        ("/unread", "complete chunks", "200", format!("{chunk}0\r\n\r\n{next}")),
    ] {
        let request = format!("POST {target} HTTP/1.1\r\nHost: a\r\n{rest}");
        let of_client = String::from_utf8(reads_to_its_end().test().raw(&request)).unwrap();
        let of_server = answer_of_server(&request).unwrap();
        let lines = |answer: &str| -> Vec<String> {
            answer.lines().filter(|line| !line.starts_with("date:")).map(str::to_owned).collect()
        };
        assert_eq!(lines(&of_client), lines(&of_server), "{target} {what}");
        assert_eq!(
            of_server.get(9..12).unwrap_or_default(),
            status,
            "{target} {what}: {of_server}"
        );
        assert_eq!(
            of_server.ends_with("next"),
            rest.ends_with(next),
            "{target} {what}: {of_server}"
        );
    }
    let answer = reads_to_its_end()
        .test()
        .post("/")
        .body(vec![b'x'; CONTENT_BYTES_MAX + 1])
        .chunked()
        .send();
    answer.assert_status(418).assert_contains("InvalidData");
}

#[test]
fn responses_are_read_with_every_framing() {
    let app = App::new()
        .get("/chunks", || Reader::new("in chunks".as_bytes()))
        .get("/none", || StatusCode::NO_CONTENT);
    let client = app.test();
    client
        .get("/chunks")
        .send()
        .assert_header("transfer-encoding", "chunked")
        .assert_text("in chunks");
    client.get("/chunks").http_10().send().assert_text("in chunks");
    client.head("/chunks").send().assert_text("");
    client.get("/none").send().assert_status(204).assert_text("");
}

#[test]
fn the_test_sets_the_peer() {
    let app = || App::new().get("/", |peer: Peer| peer.to_string());
    app().test().get("/").send().assert_text("127.0.0.1:49152");
    let client = app().test().peer(Peer::Unix);
    client.get("/").send().assert_text("unix");
    client
        .get("/")
        .peer("[2001:db8::1]:80".parse().unwrap())
        .send()
        .assert_text("[2001:db8::1]:80");
}

fn visits() -> App {
    App::new()
        .get("/set", || {
            let mut response = Response::from("set");
            response.add_header("set-cookie", "a=1; Path=/; Secure; HttpOnly")?;
            response.add_header("set-cookie", "b=2; Path=/admin")?;
            Ok::<_, Error>(response)
        })
        .get("/unset", || ([("set-cookie", "a=; Path=/; Max-Age=0")], "unset"))
        .fallback(|request: Request| request.header("cookie").unwrap_or("none").to_owned())
}

#[test]
fn cookies_are_kept_sent_and_removed() {
    let client = visits().test();
    client.get("/").send().assert_text("none");
    let response = client.get("/set").send();
    assert_eq!((response.cookie("a"), response.cookie("c")), (Some("1"), None));
    assert_eq!(client.cookie("b").as_deref(), Some("2"));
    client.get("/").send().assert_text("a=1");
    client.get("/admin/x?y=/").send().assert_text("b=2; a=1");
    client.get("/").cookie("c", "3").cookie("a", "0").send().assert_text("c=3; a=0");
    client.get("/").header("cookie", "own=1").send().assert_text("own=1");
    client.get("/unset").send();
    client.get("/").send().assert_text("none");
    client.set_cookie("__Host-s", "x");
    client.get("/deep/er").send().assert_text("__Host-s=x");
    client.clear_cookies();
    client.get("/admin").send().assert_text("none");
}

#[test]
fn a_client_can_keep_no_cookies() {
    let client = visits().test().without_cookies();
    client.get("/set").send();
    client.get("/").send().assert_text("none");
    client.get("/").cookie("c", "3").send().assert_text("c=3");
}

#[test]
fn redirects_are_followed_as_a_browser_does() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let app = App::new()
        .post("/303", || Redirect::to("/end?x=1"))
        .put("/307", || Redirect::temporary("http://localhost/end"))
        .post("/302", || (StatusCode::FOUND, [("location", "end")], "moved"))
        .get("/loop", move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Redirect::to("/loop")
        })
        .get("/away", || Redirect::to("//evil.example/"))
        .route(
            "/end",
            any(|request: Request| {
                let what = format!(
                    "{} {} {:?}",
                    request.method(),
                    request.target(),
                    request.header("content-type")
                );
                format!(
                    "{what} {}",
                    String::from_utf8_lossy(&request.into_body().into_bytes(100).unwrap())
                )
            }),
        );
    let client = app.test();
    client.post("/303").send().assert_status(303);
    client.post("/303").json(&1).follow_redirects(1).send().assert_text("GET /end?x=1 None ");
    client
        .put("/307")
        .json(&1)
        .follow_redirects(5)
        .send()
        .assert_text("PUT /end Some(\"application/json\") 1");
    client.post("/302").json(&1).follow_redirects(5).send().assert_text("GET /end None ");
    client.get("/away").follow_redirects(5).send().assert_status(303);
    let run = || {
        client.get("/loop").follow_redirects(2).send();
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it goes round and round");
    assert!(
        panic.downcast_ref::<String>().unwrap().starts_with("redirected more often than 2 times")
    );
    assert_eq!(asked.load(Ordering::Relaxed), 3, "the first request and two redirects");
}

#[test]
fn json_is_parsed_and_compared() {
    let app = App::new().get("/", || Json(Note { title: "milk".into(), stars: 3 }));
    let response = app.test().get("/").send();
    assert_eq!(response.json::<Note>(), Note { title: "milk".into(), stars: 3 });
    response
        .assert_json(&json!({"stars": 3, "title": "milk"}))
        .assert_json(&response.json::<Value>());
}

#[test]
fn a_failed_comparison_names_each_place_and_prints_the_exchange() {
    let app = App::new().post("/notes", |Json(mut note): Json<Note>| {
        note.stars += 1;
        (StatusCode::CREATED, Json(note))
    });
    let client = app.test();
    let response = client.post("/notes").json(&json!({"stars": 3, "title": "milk"})).send();
    check_failure(
        || {
            response.assert_json(&json!({"id": 1, "stars": 3, "title": "milk"}));
        },
        &expect![[r#"
            unexpected JSON:
            - id: expected 1, and it is missing
            - stars: expected 3, got 4
            > POST /notes HTTP/1.1
            > host: localhost
            > content-type: application/json
            > content-length: 26
            >
            > {
            >   "stars": 3,
            >   "title": "milk"
            > }

            < 201 Created
            < content-type: application/json
            < date: ..
            < content-length: 26
            <
            < {
            <   "stars": 4,
            <   "title": "milk"
            < }
        "#]],
    );
}

/// Discards the value of a call that is expected to panic.
fn discard<T: ?Sized>(_: &T) {}

#[test]
fn failures_show_what_was_expected() {
    let app = App::new()
        .get("/", || "Hello, World!")
        .get("/long", || "x".repeat(3000))
        .get("/bytes", || vec![0xff; 10]);
    let client = app.test();
    let response = client.get("/").send();
    check_failure(
        || {
            response.assert_status(404);
        },
        &expect![[r#"
            expected the status 404, got 200
            > GET / HTTP/1.1
            > host: localhost

            < 200 OK
            < content-type: text/plain; charset=utf-8
            < date: ..
            < content-length: 13
            <
            < Hello, World!
        "#]],
    );
    check_failure(
        || {
            response.assert_text("Hello, Wörld!");
        },
        &expect![[r#"
            unexpected content: expected "Hello, Wörld!"
                 got "Hello, World!"
            (the first 8 characters are equal)
            > GET / HTTP/1.1
            > host: localhost

            < 200 OK
            < content-type: text/plain; charset=utf-8
            < date: ..
            < content-length: 13
            <
            < Hello, World!
        "#]],
    );
    let first_line = |run: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the assertion fails");
        let message = panic.downcast_ref::<String>().expect("the message is text").clone();
        (message.lines().next().unwrap_or_default().to_owned(), message)
    };
    let (line, _) = first_line(&|| discard(response.assert_header("x-a", "1")));
    assert_eq!(line, "expected `x-a: 1`, and there is no such header");
    let (line, _) = first_line(&|| discard(response.assert_header("content-length", "1")));
    assert_eq!(line, "expected `content-length: 1`, got `content-length: 13`");
    let (line, _) = first_line(&|| discard(response.assert_contains("moon")));
    assert_eq!(line, "expected \"moon\" in the content");
    let (line, _) = first_line(&|| discard(&response.json::<Note>()));
    assert!(
        line.starts_with("the content is not the expected it::test_client::Note: expected value"),
        "{line}"
    );
    let (_, message) = first_line(&|| discard(client.get("/long").send().assert_status(1)));
    assert!(message.ends_with("... and 1000 characters more\n"), "{message}");
    let (_, message) = first_line(&|| discard(client.get("/bytes").send().text()));
    assert!(message.ends_with("< (10 bytes that are not text)\n"), "{message}");
}

#[test]
fn an_invalid_response_fails_the_test() {
    // A reader that ends early: the engine closes the connection, and the client detects that the
    // content is incomplete.
    let app = App::new().get("/short", || Reader::sized("short".as_bytes(), 10));
    let client = app.test();
    let panic = catch_unwind(AssertUnwindSafe(|| client.get("/short").send()))
        .expect_err("it is not all there");
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("the content ends after 5 bytes, before it is complete"), "{message}");
}

#[test]
fn raw_bytes_are_for_tests_of_the_protocol() {
    let client = App::new().get("/", || "hi").test();
    let answer = client.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = String::from_utf8(answer).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 2);
    assert!(client.raw("nonsense\r\n\r\n").starts_with(b"HTTP/1.1 400 "));
}

#[test]
fn an_app_with_mistakes_fails_the_test_with_their_list() {
    let run = || App::new().get("users", || "no slash").test();
    let panic = catch_unwind(run).expect_err("the app has a mistake");
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("a pattern begins with `/`"), "{message}");
}

#[test]
#[should_panic(expected = "the target `notes` has no slash at its start: write `/notes`")]
fn a_target_without_a_slash_is_a_mistake_of_the_test() {
    App::new().get("/notes", || "notes").test().get("notes").send();
}
