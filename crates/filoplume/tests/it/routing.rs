//! Which handler answers, and what happens if there is none.

mod mistakes;
mod routers;

use expect_test::{Expect, expect};
use filoplume::prelude::*;
use filoplume::routing::{any, head, on, options};
use filoplume::testing::TestClient;
use serde_json::Value;

fn method(name: &str) -> Method {
    Method::from_bytes(name.as_bytes()).expect("a valid method")
}

/// Sends a request, and returns a summary of the response in one line.
fn ask(client: &TestClient, request: &str) -> String {
    let (name, target) = request.split_once(' ').expect("a method and a target");
    let response = client.request(method(name), target).send();
    let mut line = format!("{request} -> {}", response.status().as_u16());
    for header in ["location", "allow"] {
        if let Some(value) = response.header(header) {
            line.push_str(&format!(" {header}: {value}"));
        }
    }
    let is_problem = response.header("content-type") == Some("application/problem+json");
    if !is_problem && !response.body().is_empty() {
        line.push_str(&format!(" {}", response.text().replace('\0', "\\0")));
    } else if is_problem && !response.body().is_empty() {
        let problem: Value = response.json();
        line.push_str(
            problem["detail"]
                .as_str()
                .map(|detail| format!(" ({detail})"))
                .unwrap_or_default()
                .as_str(),
        );
    }
    line + "\n"
}

#[track_caller]
fn check(app: App, requests: &[&str], expected: &Expect) {
    let client = app.test();
    let lines: Vec<_> = requests.iter().map(|request| ask(&client, request)).collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn a_trailing_slash_is_redirected_to_the_form_with_a_route() {
    let app = App::new()
        .get("/", || "root")
        .get("/without", || "without")
        .get("/with/", || "with")
        .get("/both", || "both")
        .get("/both/", || "both/")
        .get("/users/{id}", |Path(id): Path<String>| id)
        .get("/files/{*path}", |Path(path): Path<String>| path);
    check(
        app,
        &[
            "GET /",
            "GET /without",
            "GET /without/",
            "GET /without/?a=b%20c",
            "POST /without/",
            "GET /with",
            "GET /with/",
            "GET /both",
            "GET /both/",
            "GET /users/1/",
            "GET /users/",
            "GET /users",
            "GET /files/",
            "GET /files",
            "GET /files/a/",
            "GET /without//",
            "GET //without/",
            "GET //evil.example/",
            "GET /nowhere/",
        ],
        &expect![[r#"
            GET / -> 200 root
            GET /without -> 200 without
            GET /without/ -> 308 location: /without
            GET /without/?a=b%20c -> 308 location: /without?a=b%20c
            POST /without/ -> 308 location: /without
            GET /with -> 308 location: /with/
            GET /with/ -> 200 with
            GET /both -> 200 both
            GET /both/ -> 200 both/
            GET /users/1/ -> 308 location: /users/1
            GET /users/ -> 404
            GET /users -> 404
            GET /files/ -> 404
            GET /files -> 404
            GET /files/a/ -> 200 a/
            GET /without// -> 404
            GET //without/ -> 404
            GET //evil.example/ -> 404
            GET /nowhere/ -> 404
        "#]],
    );
}

#[test]
fn a_redirect_never_leads_to_another_host() {
    let app = App::new().get("/{a}/{b}", || "two").get("/x/{a}/", || "x").get("/{a}/y/z/", || "z");
    let client = app.test();
    for target in [
        "//evil.example/",
        "//evil.example",
        "//evil.example/x",
        "//x/y/",
        "//y/z",
        "/%5Cevil.example/",
        "/%2Fevil.example/",
    ] {
        let response = client.get(target).send();
        let location = response.header("location").unwrap_or("/");
        assert!(
            location.starts_with('/') && !location[1..].starts_with(['/', '\\']),
            "{target} leads to {location}"
        );
    }
}

/// A client resolves `.` and `..` before it follows a redirect, so it would reach another path, or
/// end in a loop.
#[test]
fn a_redirect_has_no_dot_segments() {
    let app =
        App::new().get("/a/{x}/{y}/b/", || "a").get("/{x}/", || "x").get("/{x}/{y}/", || "xy");
    let client = app.test();
    for target in [
        "/a/./x/b",
        "/a//./x/b/",
        "/a/../x/b",
        "/a/%2e/x/b",
        "/a/%2e/x/%62/",
        "/a//%2E%2e/x/b/",
        "/a/x/%2e%2e/b",
        "/%2e",
        "/%2e%2e",
        "//%2e%2e",
        "/x/%2e%2e",
        "/x//%2e%2e/",
    ] {
        let response = client.get(target).send();
        let location = response.header("location").unwrap_or("/");
        let has_dots = location.split('/').any(|part| {
            matches!(part.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
        });
        assert!(!has_dots, "{target} leads to {location}");
    }
    // Other paths are redirected as usual.
    client.get("/a/x.y/..z/b").send().assert_status(308).assert_header("location", "/a/x.y/..z/b/");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn implied_methods_are_answered() {
    let app = App::new()
        .get("/get", || "got")
        .route("/own", get(|| "got").head(|| ([("x-head", "own")], "")).options(|| "own options"))
        .route("/post", post(|| "posted").put(|| "put"))
        .route("/head", head(|| "only head"))
        .route("/options", options(|| "only options"))
        .route("/any", any(|method: Method| format!("any {method}")))
        .route("/mixed", get(|| "got").any(|method: Method| format!("any {method}")))
        .route(
            "/vote",
            on([method("PURGE"), Method::PUT, Method::PUT], |method: Method| {
                format!("on {method}")
            }),
        );
    check(
        app,
        &[
            "HEAD /get",
            "OPTIONS /get",
            "POST /get",
            "BREW /get",
            "HEAD /own",
            "OPTIONS /own",
            "GET /post",
            "OPTIONS /post",
            "GET /head",
            "HEAD /head",
            "GET /options",
            "OPTIONS /options",
            "GET /any",
            "HEAD /any",
            "BREW /any",
            "OPTIONS /any",
            "GET /mixed",
            "HEAD /mixed",
            "POST /mixed",
            "PURGE /vote",
            "PUT /vote",
            "GET /vote",
            "get /get",
            "OPTIONS *",
        ],
        &expect![[r#"
            HEAD /get -> 200
            OPTIONS /get -> 204 allow: GET, HEAD, OPTIONS
            POST /get -> 405 allow: GET, HEAD, OPTIONS
            BREW /get -> 405 allow: GET, HEAD, OPTIONS
            HEAD /own -> 200
            OPTIONS /own -> 200 own options
            GET /post -> 405 allow: POST, PUT, OPTIONS
            OPTIONS /post -> 204 allow: POST, PUT, OPTIONS
            GET /head -> 405 allow: HEAD, OPTIONS
            HEAD /head -> 200
            GET /options -> 405 allow: OPTIONS
            OPTIONS /options -> 200 only options
            GET /any -> 200 any GET
            HEAD /any -> 200
            BREW /any -> 200 any BREW
            OPTIONS /any -> 200 any OPTIONS
            GET /mixed -> 200 got
            HEAD /mixed -> 200
            POST /mixed -> 200 any POST
            PURGE /vote -> 200 on PURGE
            PUT /vote -> 200 on PUT
            GET /vote -> 405 allow: PURGE, PUT, OPTIONS
            get /get -> 405 allow: GET, HEAD, OPTIONS
            OPTIONS * -> 204 allow: GET, HEAD, OPTIONS, POST, PUT, PURGE
        "#]],
    );
}

#[test]
fn head_has_the_content_length_of_get() {
    let client = App::new().get("/", || "Hello!").test();
    client.head("/").send().assert_header("content-length", "6").assert_text("");
}

#[test]
fn literal_text_wins_over_captures() {
    let app = App::new()
        .get("/users/{id}", |Path(id): Path<String>| format!("user {id}"))
        .get("/users/me", || "me")
        .get("/users/{id}/posts/{post}", |Path((id, post)): Path<(String, String)>| {
            format!("{id} {post}")
        })
        .get("/files/{name}.txt", |Path(name): Path<String>| format!("text {name}"))
        .get("/files/{name}", |Path(name): Path<String>| format!("file {name}"))
        .get("/api/v{major}/info", |Path(major): Path<String>| format!("version {major}"))
        .get("/img/img-{id}.png", |Path(id): Path<String>| format!("image {id}"))
        .get("/static/{*path}", |Path(path): Path<String>| format!("static {path}"))
        .get("/static/known.css", || "known");
    check(
        app,
        &[
            "GET /users/17",
            "GET /users/me",
            "GET /users/meme",
            "GET /users/1/posts/2",
            "GET /users/me/posts/2",
            "GET /users//posts/2",
            "GET /files/a.txt",
            "GET /files/a.b.txt",
            "GET /files/a.png",
            "GET /files/.txt",
            "GET /api/v2/info",
            "GET /api/v/info",
            "GET /img/img-7.png",
            "GET /img/img-.png",
            "GET /static/a/b/c",
            "GET /static/known.css",
            "GET /static/known.css.map",
            "GET /static//a",
            "GET /static/../etc/passwd",
            "GET /Users/17",
        ],
        &expect![[r#"
            GET /users/17 -> 200 user 17
            GET /users/me -> 200 me
            GET /users/meme -> 200 user meme
            GET /users/1/posts/2 -> 200 1 2
            GET /users/me/posts/2 -> 200 me 2
            GET /users//posts/2 -> 404
            GET /files/a.txt -> 200 text a
            GET /files/a.b.txt -> 200 text a.b
            GET /files/a.png -> 200 file a.png
            GET /files/.txt -> 200 file .txt
            GET /api/v2/info -> 200 version 2
            GET /api/v/info -> 404
            GET /img/img-7.png -> 200 image 7
            GET /img/img-.png -> 404
            GET /static/a/b/c -> 200 static a/b/c
            GET /static/known.css -> 200 known
            GET /static/known.css.map -> 200 static known.css.map
            GET /static//a -> 200 static /a
            GET /static/../etc/passwd -> 200 static ../etc/passwd
            GET /Users/17 -> 404
        "#]],
    );
}

#[test]
fn paths_are_matched_encoded_and_captures_are_decoded() {
    let app = App::new()
        .get("/café", || "coffee")
        .get("/a b/{x}", |Path(x): Path<String>| format!("x={x}"))
        .get("/~user/@{name}", |Path(name): Path<String>| format!("name={name}"))
        .get("/{{braces}}", || "braces")
        .get("/one/{x}", |Path(x): Path<String>| format!("one={x}"))
        .get("/raw/{x}", || "not looked at");
    check(
        app,
        &[
            "GET /caf%C3%A9",
            "GET /caf%c3%a9?q",
            "GET /a%20b/c%20d",
            "GET /%7Euser/%40me",
            "GET /~user/@m%65",
            "GET /%7Bbraces%7D",
            "GET /{braces}",
            "GET /one/a%2Fb",
            "GET /one/a/b",
            "GET /one/%2e%2e",
            "GET /one/%ff",
            "GET /one/100%",
            "GET /one/%zz",
            "GET /one/%E2%82%AC+%C3%B6",
            "GET /raw/%ff",
            "GET /%ff",
            "GET /one/%00",
        ],
        &expect![[r#"
            GET /caf%C3%A9 -> 200 coffee
            GET /caf%c3%a9?q -> 308 location: /caf%C3%A9?q
            GET /a%20b/c%20d -> 200 x=c d
            GET /%7Euser/%40me -> 308 location: /~user/@me
            GET /~user/@m%65 -> 200 name=me
            GET /%7Bbraces%7D -> 200 braces
            GET /{braces} -> 308 location: /%7Bbraces%7D
            GET /one/a%2Fb -> 200 one=a/b
            GET /one/a/b -> 404
            GET /one/%2e%2e -> 200 one=..
            GET /one/%ff -> 400 (`x` in the path is not UTF-8)
            GET /one/100% -> 400 (`x` in the path has a `%` without two hexadecimal digits after it)
            GET /one/%zz -> 400 (`x` in the path has a `%` without two hexadecimal digits after it)
            GET /one/%E2%82%AC+%C3%B6 -> 200 one=€+ö
            GET /raw/%ff -> 200 not looked at
            GET /%ff -> 404
            GET /one/%00 -> 200 one=\0
        "#]],
    );
}

#[test]
fn other_target_forms_are_handled() {
    let app = || {
        App::new().get("/", || "root").get("/a/{x}", |Path(x): Path<String>| x).post("/p", || "p")
    };
    check(
        app(),
        &[
            "GET http://localhost/a/1?q",
            "GET http://localhost",
            "GET http://localhost?q",
            "GET HTTP://localhost/a/1/",
            "OPTIONS *",
            "CONNECT localhost:80",
            "OPTIONS /",
        ],
        &expect![[r#"
            GET http://localhost/a/1?q -> 200 1
            GET http://localhost -> 200 root
            GET http://localhost?q -> 200 root
            GET HTTP://localhost/a/1/ -> 308 location: /a/1
            OPTIONS * -> 204 allow: GET, HEAD, POST, OPTIONS
            CONNECT localhost:80 -> 501 (this server does not support `CONNECT`)
            OPTIONS / -> 204 allow: GET, HEAD, OPTIONS
        "#]],
    );
    // A fallback is only for paths.
    check(
        app().fallback(|| "fallback"),
        &["CONNECT localhost:80", "OPTIONS *", "GET /nowhere"],
        &expect![[r#"
            CONNECT localhost:80 -> 501 (this server does not support `CONNECT`)
            OPTIONS * -> 204 allow: GET, HEAD, POST, OPTIONS
            GET /nowhere -> 200 fallback
        "#]],
    );
}

#[test]
fn a_long_path_is_matched_or_refused() {
    let client = App::new()
        .get("/{a}/{b}/{c}", || "three")
        .get("/{a}/{b}/x", || "x")
        .get("/rest/{*rest}", |Path(rest): Path<String>| rest.len().to_string())
        .test();
    client.get(&format!("/rest/{}", "a/".repeat(3000))).send().assert_text("6000");
    client.get(&"/a".repeat(3000)).send().assert_status(404);
    client.get(&"/%".repeat(3000)).send().assert_status(404);
    client.get(&format!("/{}", "/".repeat(6000))).send().assert_status(404);
    client.get(&format!("/a/b/{}", "y".repeat(6000))).send().assert_text("three");
    client.get(&format!("/rest/{}", "a".repeat(100_000))).send().assert_status(414);
}

/// Returns what `main` prints, without line numbers.
#[track_caller]
pub(crate) fn check_mistakes(app: App, expected: &Expect) {
    let place = format!("{}:", std::panic::Location::caller().file());
    let place = place.trim_start_matches("crates/filoplume/tests/it/");
    let error = app.build().expect_err("the app has mistakes");
    let mut text = format!("{error:?}\n").replace("crates/filoplume/tests/it/", "");
    let mut shown = String::new();
    while let Some(at) = text.find(place) {
        let end = at + place.len();
        shown.push_str(&text[..end]);
        shown.push('_');
        text = text[end..]
            .trim_start_matches(|character: char| character.is_ascii_digit() || character == ':')
            .to_owned();
    }
    expected.assert_eq(&(shown + &text));
}

#[test]
fn an_address_in_use_is_reported_in_one_line() {
    let first = App::new().start("127.0.0.1:0").expect("a free port");
    let address = first.local_addr();
    let error = App::new().listen(address).expect_err("the port is taken");
    let text = format!("{error:?}").replace(&address.to_string(), "ADDRESS");
    let expected = "cannot listen on ADDRESS, where another program or server listens: Address \
                    already in use (os error 98)";
    assert_eq!(text, expected);
    let error = App::new().listen("no port").expect_err("that is no address");
    expect!["cannot listen on no port: write a host and a port, such as 127.0.0.1:5000"]
        .assert_eq(&format!("{error:?}"));
}

#[test]
fn a_started_app_answers_until_it_is_shut_down() {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    let app = App::new().get("/", || "hi").start("127.0.0.1:0").expect("a free port");
    assert_eq!(app.url(), format!("http://{}", app.local_addr()));
    let mut socket = TcpStream::connect(app.local_addr()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhi"),
        "{answer}"
    );
    let address = app.local_addr();
    app.shutdown();
    assert!(TcpStream::connect(address).is_err(), "the listener is closed");
}

#[cfg(unix)]
#[test]
fn an_app_can_listen_on_a_unix_socket() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let at = path.clone();
    // It listens until the process of the test ends.
    std::thread::spawn(move || {
        App::new().get("/", |peer: filoplume::Peer| peer.to_string()).listen_unix(at)
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut socket = loop {
        match UnixStream::connect(&path) {
            Ok(socket) => break socket,
            Err(error) => assert!(Instant::now() < deadline, "the app does not listen: {error}"),
        }
        std::thread::yield_now();
    };
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nunix"), "{answer}");
}
