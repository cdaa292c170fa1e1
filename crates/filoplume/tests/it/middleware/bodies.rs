//! Method override, and how the content reaches the handler.

use std::io::{Read, Write};
use std::net::TcpStream;

use filoplume::middleware::{BearerAuth, BodyLimit, Cors, MethodOverride, RequestIds};
use filoplume::prelude::*;
use filoplume::testing::{TestClient, TestResponse};

use super::ask;

const FORM: &str = "application/x-www-form-urlencoded";

fn app() -> App {
    App::new()
        .route(
            "/notes/{id}",
            get(|| "got")
                .put(|text: String| format!("put {text}"))
                .delete(|| "deleted")
                .post(|text: String| format!("posted {text}")),
        )
        .route("/only", delete(|text: String| format!("deleted {text}")))
}

fn client() -> TestClient {
    app().with(MethodOverride::new()).test()
}

fn post_form(client: &TestClient, target: &str, form: &str) -> TestResponse {
    client.post(target).header("content-type", FORM).body(form).send()
}

#[test]
fn the_route_is_chosen_by_the_overriding_method() {
    let client = client();
    let header =
        |value: &str| client.post("/notes/1").header("X-HTTP-Method-Override", value).send();
    header("DELETE").assert_text("deleted");
    header("put").assert_text("put ");
    header("POST").assert_text("posted ");
    header("PATCH").assert_status(405);
    client.post("/notes/1?a=b&_method=delete").send().assert_text("deleted");
    post_form(&client, "/notes/1", "a=b&_method=DELETE").assert_text("deleted");
}

#[test]
fn the_handler_can_still_read_the_form() {
    let client = client();
    post_form(&client, "/notes/1", "_method=PUT&title=a%20b")
        .assert_text("put _method=PUT&title=a%20b");
    post_form(&client, "/notes/1", "title=a").assert_text("posted title=a");
    // The app has no route for POST at this path, so the content was not collected.
    post_form(&client, "/only", "_method=DELETE").assert_text("deleted _method=DELETE");
    post_form(&client, "/only", "").assert_status(405);
}

#[test]
fn a_chunked_form_is_read_too() {
    let service = app().with(MethodOverride::new()).build().unwrap();
    let head = format!(
        "POST /only HTTP/1.1\r\nHost: a\r\nContent-Type: {FORM}\r\nTransfer-Encoding: \
         chunked\r\n\r\n"
    );
    let answer =
        ask(&service, "192.0.2.1:1", &format!("{head}7\r\n_method\r\n7\r\n=DELETE\r\n0\r\n\r\n"));
    assert!(answer.ends_with("deleted _method=DELETE"), "{answer}");
}

#[test]
fn only_a_post_can_be_changed_and_only_to_three_methods() {
    let client = client();
    client.get("/notes/1?_method=DELETE").send().assert_text("got");
    client.get("/notes/1").header("x-http-method-override", "DELETE").send().assert_text("got");
    client.put("/notes/1?_method=DELETE").body("x").send().assert_text("put x");
    for hostile in [
        "GET",
        "HEAD",
        "OPTIONS",
        "CONNECT",
        "TRACE",
        "DELETE, GET",
        "",
        "<script>",
        &"x".repeat(3000),
    ] {
        let refused = client.post("/notes/1").header("x-http-method-override", hostile).send();
        refused.assert_status(400);
        assert!(refused.body().len() < 500, "{refused:?}");
    }
    client.post("/notes/1?_method=%0d%0a%ff").send().assert_status(400);
}

#[test]
fn content_that_is_no_form_or_too_long_is_not_searched() {
    let client = app().with(MethodOverride::new().form_bytes_max(20)).test();
    let text =
        client.post("/notes/1").header("content-type", "text/plain").body("_method=DELETE").send();
    text.assert_text("posted _method=DELETE");
    let long = format!("_method=DELETE&a={}", "x".repeat(20));
    post_form(&client, "/notes/1", &long).assert_text(&format!("posted {long}"));
    post_form(&client, "/notes/1", "_method=DELETE").assert_text("deleted");
}

#[test]
fn each_source_can_be_turned_off() {
    let client = app()
        .with(MethodOverride::new().header(None).field(Some("verb")).methods([Method::PUT]))
        .test();
    client.post("/notes/1").header("x-http-method-override", "PUT").send().assert_text("posted ");
    client.post("/notes/1?_method=PUT").send().assert_text("posted ");
    client.post("/notes/1?verb=PUT").send().assert_text("put ");
    client.post("/notes/1?verb=DELETE").send().assert_status(400);
}

fn length_of(mut body: Body) -> Result<String> {
    let mut content = Vec::new();
    body.read_to_end(&mut content)?;
    Ok(format!("{} bytes", content.len()))
}

/// Returns the response of a handler for `PUT`, behind a limit of 10 bytes, to a chunked `POST` of
/// this length over a socket.
fn put_in_chunks(app: App, length: usize) -> String {
    let app = app.put("/", length_of).with(BodyLimit::new(10)).with(MethodOverride::new());
    let app = app.start("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(app.local_addr()).unwrap();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-HTTP-Method-Override: PUT";
    let content = "x".repeat(length);
    write!(
        socket,
        "{head}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{content}\r\n0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_limit_of_the_new_route_applies() {
    let apps: [fn() -> App; 2] =
        [App::new, || App::new().route("/", post(|| "posted").content_bytes_max(1_000_000))];
    for app in apps {
        let client =
            app().put("/", length_of).with(BodyLimit::new(10)).with(MethodOverride::new()).test();
        let put = |length| {
            let request = client.post("/").header("x-http-method-override", "PUT");
            request.chunked().body("x".repeat(length)).send()
        };
        put(10).assert_text("10 bytes");
        put(11).assert_status(413);
        assert!(put_in_chunks(app(), 10).ends_with("10 bytes"));
        let refused = put_in_chunks(app(), 11);
        assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    }
}

/// A router's middleware also wraps a `413`, as it wraps a `404`: unknown users learn nothing, a
/// script in a browser sees the status, and the attempt counts in limits for guesses.
#[test]
fn content_that_is_too_long_is_refused_behind_the_middleware_of_its_route() {
    let nested = |router: Router| App::new().nest("/api", router);
    let merged = |router: Router| App::new().merge(Router::new().nest("/api", router));
    let apps: [&dyn Fn(Router) -> App; 2] = [&nested, &merged];
    for app in apps {
        let router = Router::new()
            .post("/notes", |text: String| text)
            .with(Cors::new().allow_origin("https://a.example"))
            .with(RequestIds::new())
            .with(BearerAuth::tokens(["t0ken"]))
            .with(BodyLimit::new(10));
        let client = app(router).test();
        let post = |token: &str, length| {
            client
                .post("/api/notes")
                .header("origin", "https://a.example")
                .bearer(token)
                .body("x".repeat(length))
                .send()
        };
        for (response, status) in
            [(post("wrong", 11), 401), (post("t0ken", 11), 413), (post("t0ken", 10), 200)]
        {
            response.assert_status(status);
            assert_eq!(response.header("access-control-allow-origin"), Some("https://a.example"));
            assert!(response.header("x-request-id").is_some(), "{status}");
        }
    }
}

#[test]
fn middleware_reads_no_more_than_the_limit_of_what_is_refused() {
    let read = |mut request: Request, next: Next<'_>| {
        let mut content = Vec::new();
        let result = request.body_mut().read_to_end(&mut content);
        // Bytes that arrived with the head are in memory already.
        assert!(content.len() < 500_000, "{} bytes", content.len());
        match result {
            Ok(_) => {
                request.body_mut().unread(&content);
                Ok(next.run(request))
            }
            Err(error) => Err(Error::bad_request(error.to_string())),
        }
    };
    let router = Router::new().post("/notes", |_: Body| "kept").with(BodyLimit::new(10)).with(read);
    let app = App::new().merge(router).start("127.0.0.1:0").unwrap();
    for (length, status) in [(10, 200), (1_000_000, 400)] {
        let mut socket = TcpStream::connect(app.local_addr()).unwrap();
        let head = "POST /notes HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
        write!(socket, "{head}Content-Length: {length}\r\n\r\n").unwrap();
        // The server refuses the rest, so the write may fail.
        let _ = socket.write_all("x".repeat(length).as_bytes());
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"), "{length}");
    }
}

#[test]
fn a_form_of_just_the_longest_length_and_with_space_behind_its_type_is_searched() {
    let form = "_method=DELETE";
    let of = |bytes_max| {
        let limited = MethodOverride::new().form_bytes_max(bytes_max);
        let app = App::new().post("/", || "posted").delete("/", || "deleted").with(limited);
        let client = app.test();
        let request = client.post("/").header("content-type", &format!("{FORM} ;charset=a"));
        request.body(form).send().text().to_owned()
    };
    let length = form.len() as u64;
    assert_eq!((of(length), of(length - 1)), ("deleted".to_owned(), "posted".to_owned()));
}

#[test]
fn a_post_cannot_be_made_a_get_by_any_setting() {
    let all = MethodOverride::new().methods([Method::GET, Method::PUT]);
    let app = App::new().get("/", || "got").put("/", || "put").with(all);
    let client = app.test();
    client.post("/?_method=PUT").send().assert_text("put");
    client.post("/?_method=GET").send().assert_status(400);
}
