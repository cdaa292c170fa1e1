//! Authentication and authorization: basic and bearer auth, JSON Web Tokens, CSRF.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use filoplume::Key;
use filoplume::extract::{Basic, Bearer, Claims, Proxies};
use filoplume::middleware::{BasicAuth, BearerAuth, Csrf, CsrfToken, Jwt, Sessions};
use filoplume::prelude::*;
use filoplume::testing::{MultipartForm, TestClient};
use serde::{Deserialize, Serialize};

use crate::presentation::logged;

#[derive(Clone)]
struct User(String);

fn user_name(Extension(User(name)): Extension<User>) -> String {
    format!("hello {name}")
}

#[test]
fn basic_auth_accepts_known_users() {
    let check = |basic: &Basic| {
        (basic.user == "ada" && basic.password == "p:w ä").then(|| User(basic.user.clone()))
    };
    let client = App::new().get("/", user_name).with(BasicAuth::new(check)).test();
    client.get("/").basic("ada", "p:w ä").send().assert_text("hello ada");
    let challenge = r#"Basic realm="protected", charset="UTF-8""#;
    for authorization in [
        "",
        "Basic",
        "Basic !",
        "Basic YWRh",
        "Basic YWRhOng=",
        "Bearer YWRh",
        "basic",
        "Basic YWRhOvw=",
    ] {
        let answer = client.get("/").header("authorization", authorization).send();
        answer.assert_status(401).assert_header("www-authenticate", challenge);
    }
    client.get("/").send().assert_status(401).assert_header("www-authenticate", challenge);
    let two =
        client.get("/").basic("ada", "p:w ä").header("authorization", "Basic YWRhOng=").send();
    two.assert_status(401);
    // This includes paths without a route, so that unknown users do not learn which paths exist.
    client.get("/nowhere").send().assert_status(401);
}

#[test]
fn a_realm_cannot_leave_its_quotes() {
    let client =
        App::new().with(BasicAuth::user("a", "b").realm("x\", evil=\"\r\nset-cookie: a=b")).test();
    let answer = client.get("/").send();
    answer.assert_header(
        "www-authenticate",
        r#"Basic realm="x\", evil=\"  set-cookie: a=b", charset="UTF-8""#,
    );
    answer.assert_no_header("set-cookie");
}

#[test]
fn verdicts_may_be_booleans_or_results() {
    let yes = App::new().get("/", || "in").with(BasicAuth::user("a", "b")).test();
    yes.get("/").basic("a", "b").send().assert_text("in");
    yes.get("/").basic("a", "c").send().assert_status(401);
    yes.get("/").basic("c", "b").send().assert_status(401);
    let fails = BearerAuth::new(|_: &str| -> Result<Option<User>> {
        Err(std::io::Error::other("the database is asleep").into())
    });
    let client = App::new().get("/", || "in").with(fails).test();
    let answer = client.get("/").bearer("x").send();
    answer.assert_status(500);
    assert!(!answer.text().contains("asleep"), "{answer:?}");
}

#[test]
fn bearer_refusals_follow_rfc_6750() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let check = move |token: &str| {
        count.fetch_add(1, Ordering::Relaxed);
        (token == "t0k.en").then(|| User("ada".to_owned()))
    };
    let client = App::new()
        .get("/", user_name)
        .post("/", |_: Extension<User>| -> Result<&str> {
            Err(BearerAuth::insufficient_scope("write"))
        })
        .with(BearerAuth::new(check).realm("api"))
        .test();
    client.get("/").bearer("t0k.en").send().assert_text("hello ada");
    let scope = client.post("/").bearer("t0k.en").send();
    scope.assert_status(403);
    scope.assert_header("www-authenticate", r#"Bearer error="insufficient_scope", scope="write""#);
    let wrong = client.get("/").bearer("guess").send();
    wrong
        .assert_status(401)
        .assert_header("www-authenticate", r#"Bearer realm="api", error="invalid_token""#);
    assert_eq!(asked.swap(0, Ordering::Relaxed), 3);
    // Without credentials there is no error code.
    let none = client.get("/").send();
    none.assert_status(401).assert_header("www-authenticate", r#"Bearer realm="api""#);
    client.get("/").basic("ada", "x").send().assert_status(401);
    for malformed in ["Bearer", "Bearer a b", "Bearer a\tb", "Bearer {}", "Bearer \u{e4}"] {
        let answer = client.get("/").header("authorization", malformed).send();
        answer.assert_status(400);
        answer.assert_header("www-authenticate", r#"Bearer realm="api", error="invalid_request""#);
    }
    client.get("/").bearer("a").bearer("t0k.en").send().assert_status(400);
    assert_eq!(asked.load(Ordering::Relaxed), 0, "the closure is asked for tokens only");
}

#[test]
fn credentials_are_parameters_too() {
    let client = App::new()
        .get("/basic", |basic: Basic| basic.user)
        .get("/bearer", |Bearer(token): Bearer| token)
        .get("/maybe", |basic: Option<Basic>| basic.map_or("nobody".to_owned(), |basic| basic.user))
        .test();
    client.get("/basic").basic("ada", "x").send().assert_text("ada");
    client.get("/basic").bearer("x").send().assert_status(401);
    client.get("/bearer").bearer("x").send().assert_text("x");
    client
        .get("/bearer")
        .send()
        .assert_status(401)
        .assert_header("www-authenticate", "Bearer realm=\"protected\"");
    client.get("/maybe").send().assert_text("nobody");
    client.get("/maybe").basic("ada", "x").send().assert_text("ada");
    client.get("/maybe").header("authorization", "Basic !").send().assert_status(401);
}

#[derive(Deserialize, Serialize)]
struct Who {
    sub: String,
}

fn jwt() -> Jwt {
    Jwt::hs256("thirty-two bytes that are secret").expect("it is long enough")
}

#[test]
fn claims_that_do_not_fit_are_logged_without_their_values() {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its type matters")]
    struct Admin {
        sub: String,
        admin: bool,
    }
    let client = App::new().get("/", |_: Claims<Admin>| "").with(jwt()).test();
    for (claims, expected) in [
        (
            serde_json::json!({"sub": "ada", "admin": "s3cret"}),
            r#"claim="admin" reason="expected a boolean""#,
        ),
        (serde_json::json!({"sub": "s3cret"}), r#"claim="." reason="missing field `admin`""#),
    ] {
        let token = jwt().issue(&claims, Duration::from_secs(60)).expect("it is signed");
        let lines = logged(|| {
            client.get("/").bearer(&token).send().assert_status(401);
        });
        let [line] = &*lines else { panic!("one line: {lines:?}") };
        assert!(line.starts_with("WARN a valid token is refused: ") && line.ends_with(expected));
        assert!(!line.contains("s3cret") && !line.contains(&token), "{line}");
    }
}

#[test]
fn a_token_is_issued_and_accepted() {
    let client = App::new().get("/me", |Claims(who): Claims<Who>| who.sub).with(jwt()).test();
    let token = |claims: &serde_json::Value| {
        jwt().issue(claims, Duration::from_secs(60)).expect("it is signed")
    };
    let ada = token(&serde_json::json!({"sub": "ada"}));
    client.get("/me").bearer(&ada).send().assert_text("ada");
    client
        .get("/me")
        .send()
        .assert_status(401)
        .assert_header("www-authenticate", r#"Bearer realm="protected""#);
    let invalid = |description: &str| {
        format!(
            r#"Bearer realm="protected", error="invalid_token", error_description="{description}""#
        )
    };
    let old = token(&serde_json::json!({"sub": "ada", "exp": 1_000_000}));
    let refused = client.get("/me").bearer(&old).send();
    refused.assert_status(401).assert_header("www-authenticate", &invalid("the token has expired"));
    let refused = client.get("/me").bearer("a.b.c").send();
    refused
        .assert_status(401)
        .assert_header("www-authenticate", &invalid("the token is not valid"));
    for claims in [serde_json::json!({}), serde_json::json!({"sub": 17})] {
        let refused = client.get("/me").bearer(&token(&claims)).send();
        refused.assert_status(401).assert_header(
            "www-authenticate",
            &invalid("the token's claims are not the expected ones"),
        );
    }
}

#[test]
fn an_optional_token_may_be_missing_but_not_wrong() {
    let client = App::new()
        .get("/", |claims: Option<Claims<Who>>| {
            claims.map_or("nobody".to_owned(), |Claims(who)| who.sub)
        })
        .get("/must", |Claims(who): Claims<Who>| who.sub)
        .with(jwt().optional())
        .test();
    client.get("/").send().assert_text("nobody");
    client.get("/must").send().assert_status(401);
    let ada =
        jwt().issue(&Who { sub: "ada".to_owned() }, Duration::from_secs(60)).expect("it is signed");
    client.get("/").bearer(&ada).send().assert_text("ada");
    client.get("/").bearer("a.b.c").send().assert_status(401);
    client.get("/").basic("a", "b").send().assert_status(401);
}

#[test]
fn an_app_that_takes_a_value_without_its_middleware_does_not_start() {
    let mistake = |app: App| app.build().map(drop).expect_err("it cannot start").to_string();
    let claims = mistake(App::new().get("/", |_: Claims<Who>| "x"));
    assert!(claims.contains("GET /") && claims.contains(".with(Jwt::"), "{claims}");
    let session = mistake(App::new().get("/", |_: Session| "x"));
    assert!(session.contains(".with(Sessions::new(store, key))"), "{session}");
    // The wrong order is a mistake as well.
    let sessions = || Sessions::in_cookie(Key::generate());
    let csrf = mistake(App::new().post("/", || "x").with(Csrf::new()).with(sessions()));
    assert!(csrf.contains("before `.with(Csrf::new())`"), "{csrf}");
    let inner = App::new().nest("/a", Router::new().get("/", |_: Session| "x").with(sessions()));
    assert!(inner.build().is_ok(), "a router provides it for its own routes");
    let beside = App::new()
        .get("/b", |_: Session| "x")
        .nest("/a", Router::new().get("/", |_: Session| "x").with(sessions()));
    assert!(mistake(beside).contains("GET /b"));
}

fn shop() -> TestClient {
    shop_app().test()
}

fn shop_app() -> App {
    App::new()
        .get("/", |token: CsrfToken| token.to_string())
        .post("/buy", |content: String| content)
        .post("/upload", |content: Vec<u8>| content.len().to_string())
        .post("/stream", |mut body: Body| -> Result<String> {
            Ok(std::io::read_to_string(&mut body)?)
        })
        .post("/login", |session: Session| session.renew())
        .post("/hooks/paid", || "thanks")
        .delete("/all", || "gone")
        .with(Sessions::in_cookie(Key::from_secret([1; 32]).expect("it is long enough")))
        .with(
            Csrf::new()
                .trust("https://admin.example")
                .trust("https://CDN.example/")
                .unless(|request| request.path().starts_with("/hooks/")),
        )
}

#[test]
fn a_form_with_the_token_of_its_session_is_accepted() {
    let client = shop();
    let token = client.get("/").send().text().to_owned();
    let form = client.post("/buy").form(&[("item", "tea & cake"), ("_csrf", &token)]).send();
    form.assert_status(200).assert_contains("item=tea");
    client.post("/buy").header("x-csrf-token", &token).body("plain").send().assert_text("plain");
    client.delete("/all").header("x-csrf-token", &token).send().assert_text("gone");
    let chunked =
        client.post("/stream").form(&[("_csrf", token.as_str()), ("a", "b")]).chunked().send();
    chunked.assert_status(200).assert_contains("&a=b");
    let again = client.get("/").send().text().to_owned();
    assert_ne!(again, token, "each page has another mask");
    client.post("/buy").header("x-csrf-token", &again).send().assert_status(200);
    client.post("/hooks/paid").send().assert_text("thanks");
}

#[test]
fn the_way_to_trust_another_page_is_told_in_development_only() {
    for development in [true, false] {
        let client = shop_app().development(development).test();
        let refused = client.post("/buy").header("origin", "https://spa.example").send();
        refused.assert_status(403).assert_contains("a page of another site");
        let text = refused.text();
        assert_eq!(text.contains("Csrf::trust"), development, "{text}");
        assert_eq!(text.contains("https://spa.example"), development, "{text}");
    }
}

#[test]
fn a_multipart_form_is_accepted_without_reading_its_files() {
    let client = shop();
    let token = client.get("/").send().text().to_owned();
    let form = |first: &str, value: &str| {
        let file = "x".repeat(100_000);
        MultipartForm::new().text(first, value).file("file", "a.txt", "text/plain", file)
    };
    for path in ["/upload", "/stream"] {
        client.post(path).multipart(form("_csrf", &token)).send().assert_status(200);
        client.post(path).multipart(form("_csrf", &token)).chunked().send().assert_status(200);
        client.post(path).multipart(form("_csrf", "guess")).send().assert_status(403);
        client.post(path).multipart(form("csrf", &token)).send().assert_status(403);
    }
    let stream = client.post("/stream").multipart(form("_csrf", &token)).send();
    assert!(
        stream.text().starts_with("--") && stream.text().matches('x').count() >= 100_000,
        "nothing is lost"
    );
    let late = MultipartForm::new().text("a", &"x".repeat(4000)).text("_csrf", &token);
    client.post("/stream").multipart(late).send().assert_status(403);
}

#[test]
fn the_start_of_an_arriving_upload_is_read() {
    let in_process = shop();
    let token = in_process.get("/").send().text().to_owned();
    let secret = in_process.cookie("__Host-session-csrf").expect("it is set");
    let app = shop_app().start("127.0.0.1:0").expect("there is a port");
    let head = format!(
        "--b\r\ncontent-disposition: form-data; name=\"_csrf\"\r\n\r\n{token}\r\n--b\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"
    );
    // Longer than what is collected before the call of a handler that reads the content as it
    // arrives.
    let (file, end) = ("x".repeat(1_500_000), "\r\n--b--\r\n");
    let length = head.len() + file.len() + end.len();
    for (path, expected) in
        [("/stream", format!("{head}{file}{end}")), ("/upload", length.to_string())]
    {
        let mut socket = TcpStream::connect(app.local_addr()).expect("it listens");
        write!(
            socket,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncookie: \
             __Host-session-csrf={secret}\r\ncontent-type: multipart/form-data; \
             boundary=b\r\ncontent-length: {length}\r\n\r\n"
        )
        .expect("it listens");
        // The content is sent in pieces. The first of them end within the token.
        let (first, second) = head.split_at(80);
        for piece in [&first[..40], &first[40..], second, &file[..1000], &file[1000..], end] {
            socket.write_all(piece.as_bytes()).expect("it listens");
        }
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("it answers");
        let (status, content) = answer.split_once("\r\n\r\n").expect("it has a head");
        assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
        assert!(
            content.contains(&expected) || content == expected,
            "{path}: {} bytes",
            content.len()
        );
    }
    app.shutdown();
}

#[test]
fn a_request_without_the_token_of_its_session_is_refused() {
    let (client, other) = (shop(), shop());
    let token = client.get("/").send().text().to_owned();
    let foreign = other.get("/").send().text().to_owned();
    client.post("/buy").send().assert_status(403).assert_contains("_csrf");
    for wrong in ["", "x", &token[1..], &foreign] {
        let answer = client.post("/buy").header("x-csrf-token", wrong).send();
        answer.assert_status(403).assert_contains("load the page again");
    }
    // The token is not valid without the session.
    let fresh = shop();
    fresh.post("/buy").header("x-csrf-token", &token).send().assert_status(403);
    client
        .post("/buy")
        .header("content-type", "text/plain")
        .body(format!("_csrf={token}"))
        .send()
        .assert_status(403);
    client.get(&format!("/?_csrf={token}")).send().assert_status(200);
    client.post(&format!("/buy?_csrf={token}")).send().assert_status(403);
}

#[test]
fn a_request_from_another_site_is_refused_even_with_the_token() {
    let client = shop();
    let token = client.get("/").send().text().to_owned();
    let post = |headers: &[(&str, &str)]| {
        let request = client.post("/buy").header("x-csrf-token", &token);
        headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
    };
    for headers in [
        &[("sec-fetch-site", "same-origin")][..],
        &[("sec-fetch-site", "none")],
        &[("origin", "http://localhost")],
        &[("origin", "https://LOCALHOST:443")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://admin.example")],
        &[("sec-fetch-site", "cross-site"), ("origin", "HTTPS://Admin.Example")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://cdn.example")],
    ] {
        assert_eq!(post(headers).status(), 200, "{headers:?}");
    }
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "")],
        &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", "http://localhost")],
        &[("origin", "https://evil.example")],
        &[("origin", "http://localhost:8080")],
        &[("origin", "http://localhost.evil.example")],
        &[("origin", "https://admin.example.evil")],
        &[("origin", "null")],
        &[("origin", "")],
    ] {
        assert_eq!(post(headers).status(), 403, "{headers:?}");
    }
}

/// Anyone on the network path can write a page of `http`.
#[test]
fn a_page_without_https_cannot_send_a_form_over_https() {
    let app = shop_app().trust_proxies(Proxies::loopback().x_forwarded_proto());
    let client = app.test();
    let token = client.get("/").send().text().to_owned();
    for (scheme, origin, status) in [
        ("https", "https://localhost", 200),
        ("https", "http://localhost", 403),
        ("http", "http://localhost", 200),
        // A proxy in front of this one may have ended TLS.
        ("http", "https://localhost", 200),
    ] {
        client
            .post("/buy")
            .header("x-csrf-token", &token)
            .header("x-forwarded-for", "192.0.2.7")
            .header("x-forwarded-proto", scheme)
            .header("origin", origin)
            .send()
            .assert_status(status);
    }
}

#[test]
fn a_login_ends_the_old_token() {
    let client = shop();
    let before = client.get("/").send().text().to_owned();
    client.post("/login").header("x-csrf-token", &before).send().assert_status(200);
    client.post("/buy").header("x-csrf-token", &before).send().assert_status(403);
    let after = client.get("/").send().text().to_owned();
    client.post("/buy").header("x-csrf-token", &after).send().assert_status(200);
}

#[test]
fn a_form_that_is_too_long_is_refused_without_collecting_it() {
    let app = App::new()
        .route(
            "/",
            post(|mut body: Body| -> Result<String> { Ok(std::io::read_to_string(&mut body)?) })
                .content_bytes_max(1000),
        )
        .with(Sessions::in_cookie(Key::generate()))
        .with(Csrf::new());
    let client = app.test();
    let long = "x".repeat(2000);
    client.post("/").form(&[("a", long.as_str())]).chunked().send().assert_status(413);
    client.post("/").form(&[("a", long.as_str())]).send().assert_status(413);
    // A form of just the longest length is read, and lacks only the token.
    for (length, status) in [(998, 403), (999, 413)] {
        let form = [("a", &long[..length])];
        client.post("/").form(&form).send().assert_status(status);
        client.post("/").form(&form).chunked().send().assert_status(status);
    }
}

#[test]
fn the_handler_gets_the_bytes_unchanged() {
    let client = App::new()
        .get("/", |token: CsrfToken| token.to_string())
        .post("/", |bytes: Vec<u8>| bytes)
        .with(Sessions::in_cookie(Key::generate()))
        .with(Csrf::new())
        .test();
    let token = client.get("/").send().text().to_owned();
    let body = format!("a=%ff&_csrf={token}&&b");
    let answer = client
        .post("/")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body.clone());
    answer.send().assert_text(&body);
}
