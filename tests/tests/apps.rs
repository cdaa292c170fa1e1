//! Every example of the framework, started as a process and sent requests.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use filoplume_tests::{Child, Client, Example, Response};

/// A running example and a client for it.
struct Asking {
    child: Child,
    client: Client,
}

impl Asking {
    fn start(example: Example) -> Self {
        let child = example.start();
        let client = child.client();
        Self { child, client }
    }

    fn get(&mut self, target: &str) -> Response {
        self.client.get(target)
    }

    /// Sends a request with these header lines.
    fn send(&mut self, line: &str, headers: &[&str], content: &str) -> Response {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = content.len();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        self.client.send(format!("{head}{content}")).response()
    }
}

#[track_caller]
fn is(response: &Response, status: u16, text: &str) {
    assert_eq!((response.status, response.text()), (status, text));
}

#[test]
fn routing_finds_what_is_asked_for() {
    let mut routing = Asking::start(Example("routing"));
    is(&routing.get("/users/17"), 200, "user 17");
    is(&routing.get("/users/me"), 200, "you");
    assert_eq!(routing.get("/users/ada").status, 400);
    is(&routing.get("/users/ada/posts/3"), 200, "post 3 of ada");
    is(&routing.get("/files/photos/cat.jpg"), 200, "the file photos/cat.jpg");
    is(&routing.send("POST /api/v1/notes", &[], "milk"), 201, "milk");
    is(&routing.send("PUT /api/v1/notes/3", &[], "bread"), 200, "note 3 says bread");
    assert_eq!(routing.send("DELETE /api/v1/notes/3", &[], "").status, 204);
    assert_eq!(
        routing.send("PATCH /api/v1/notes/3", &[], "").header("allow"),
        Some("GET, HEAD, PUT, DELETE, OPTIONS")
    );
    is(&routing.get("/api/v1/nothing"), 404, "no such thing in this API");
    is(&routing.get("/nothing"), 404, "nothing answers GET /nothing");
    assert_eq!(routing.get("/api/v1/notes/?a=b").header("location"), Some("/api/v1/notes?a=b"));
}

#[test]
fn state_is_shared_by_all_connections() {
    let mut state = Asking::start(Example("state"));
    is(&state.get("/"), 200, "Welcome to the state example");
    for count in 1..4 {
        let response = state.child.client().post("/visits", "");
        is(&response, 200, &count.to_string());
    }
    is(&state.get("/visits"), 200, "3");
    assert_eq!(state.get("/scores/ada").status, 404);
    assert_eq!(state.send("PUT /scores/ada", &[], "17").status, 204);
    is(&state.get("/scores/ada"), 200, "17");
    assert_eq!(state.send("PUT /scores/ada", &[], "many").status, 422);
}

#[test]
fn errors_are_what_the_client_may_know() {
    let mut errors = Asking::start(Example("errors"));
    is(&errors.get("/orders/7"), 200, "order 7");
    let missing = errors.get("/orders/99");
    assert_eq!(missing.status, 404);
    assert_eq!(missing.header("content-type"), Some("application/problem+json"));
    assert!(missing.text().contains("there is no order 99"), "{}", missing.text());
    let zero = errors.get("/divide/1/0");
    assert_eq!(zero.status, 400);
    assert!(zero.text().contains(r#""field":"b""#), "{}", zero.text());
    is(&errors.get("/divide/6/3"), 200, "2");
    assert_eq!(errors.get("/double/x").status, 422);
    let page = errors.send("GET /broken", &["Accept: text/html"], "");
    assert_eq!(page.status, 500);
    assert!(page.header("content-type").is_some_and(|of| of.starts_with("text/html")));
    assert!(
        !page.text().contains("/no/such/file") && !page.text().contains("os error"),
        "{}",
        page.text()
    );
    let panic = errors.get("/panic");
    assert_eq!(panic.status, 500);
    assert!(!panic.text().contains("mistake"), "{}", panic.text());
    is(&errors.get("/orders/1"), 200, "order 1");
}

#[test]
fn json_api_keeps_books() {
    const JSON: &[&str] = &["Content-Type: application/json"];
    let mut api = Asking::start(Example("json_api"));
    is(&api.get("/books"), 200, "[]");
    let added = api.send("POST /books", JSON, r#"{"title":"Dune","year":1965,"tags":["sand"]}"#);
    is(&added, 201, r#"{"id":1,"title":"Dune","year":1965,"tags":["sand"]}"#);
    assert_eq!(added.header("location"), Some("/books/1"));
    api.send("POST /books", JSON, r#"{"title":"Emma","year":1815}"#);
    is(
        &api.get("/books?after=1900"),
        200,
        r#"[{"id":1,"title":"Dune","year":1965,"tags":["sand"]}]"#,
    );
    is(&api.get("/books?tag=sand&tag=worm"), 200, "[]");
    is(&api.get("/books/2"), 200, r#"{"id":2,"title":"Emma","year":1815,"tags":[]}"#);
    assert_eq!(api.get("/books/3").status, 404);
    let wrong = api.send("PUT /books/2", JSON, r#"{"title":"Emma","year":"old"}"#);
    assert_eq!(wrong.status, 422);
    assert!(wrong.text().contains("year"), "{}", wrong.text());
    assert_eq!(api.send("PUT /books/2", JSON, "{").status, 400);
    assert_eq!(api.send("PUT /books/2", &[], "{}").status, 415);
    assert_eq!(api.get("/books?after=late").status, 400);
    assert_eq!(api.send("DELETE /books/2", &[], "").status, 204);
    assert_eq!(api.send("DELETE /books/2", &[], "").status, 404);
}

#[test]
fn middleware_surrounds_its_routes() {
    let mut app = Asking::start(Example("middleware"));
    let hello = app.get("/");
    is(&hello, 200, "Hello!");
    assert!(hello.header("server-timing").is_some_and(|timing| timing.starts_with("app;dur=")));
    assert_eq!(hello.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(app.get("/admin").header("location"), Some("/"));
    assert_eq!(app.send("GET /admin", &["x-key: wrong"], "").status, 403);
    is(&app.send("GET /admin", &["x-key: sesame"], ""), 200, "Hello, friend!");
    let missing = app.get("/nothing");
    assert_eq!((missing.status, missing.header("x-content-type-options")), (404, Some("nosniff")));
    is(&app.get("/slow"), 200, "that took a while");
    let count: u64 = app.get("/count").text().parse().unwrap();
    is(&app.get("/count"), 200, &(count + 1).to_string());
}

#[test]
fn rate_limit_refuses_clients_that_send_too_many_requests() {
    let mut app = Asking::start(Example("rate_limit"));
    let answers: Vec<Response> = (0..8).map(|_| app.get("/")).collect();
    assert_eq!(answers[0].status, 200);
    let refused =
        answers.iter().find(|answer| answer.status == 429).expect("eight at once are too many");
    assert!(
        refused
            .header("retry-after")
            .is_some_and(|after| after.parse::<u32>().is_ok_and(|after| after >= 1))
    );
    assert_eq!(app.get("/api/report").status, 401);
    for name in ["ada", "grace"] {
        let key = format!("Authorization: Bearer key-of-{name}");
        for _ in 0..10 {
            let answer = app.send("GET /api/report", &[&key], "");
            is(&answer, 200, &format!("the report for {name}"));
        }
        assert_eq!(app.send("GET /api/report", &[&key], "").status, 429);
    }
    // Keys that nobody has do not get around the limit.
    assert_eq!(app.send("GET /api/report", &["Authorization: Bearer guess"], "").status, 401);
}

#[test]
fn cors_spa_allows_requests_of_its_own_page_only() {
    const JSON: &str = "Content-Type: application/json";
    let page = filoplume_tests::free_address();
    let child = Example("cors_spa").start_with(&[page.to_string().as_str()]);
    let client = child.client();
    let mut api = Asking { child, client };
    let origin = format!("Origin: http://{page}");
    let preflight =
        ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type"];
    let asked = api.send("OPTIONS /messages", &[&origin, preflight[0], preflight[1]], "");
    assert_eq!(
        (asked.status, asked.header("access-control-allow-origin")),
        (204, origin.strip_prefix("Origin: "))
    );
    assert_eq!(api.send("POST /messages", &[&origin, JSON], r#"{"text":"hi"}"#).status, 201);
    let other = api.send("GET /messages", &["Origin: http://evil.example"], "");
    assert_eq!(
        (other.text(), other.header("access-control-allow-origin")),
        (r#"[{"text":"hi"}]"#, None)
    );
    let page = Client::connect(page).get("/");
    assert!(page.text().contains(&format!("http://{}", api.child.address())), "{}", page.text());
}

#[test]
fn static_site_serves_its_folder() {
    let mut site = Asking::start(Example("static_site"));
    let index = site.get("/");
    assert!(index.status == 200 && index.text().contains("<h1>A static site</h1>"));
    assert_eq!(site.get("/docs").header("location"), Some("/docs/"));
    let tag = index.header("etag").unwrap();
    assert_eq!(site.send("GET /", &[&format!("If-None-Match: {tag}")], "").status, 304);
    let part = site.send("GET /docs/", &["Range: bytes=0-14"], "");
    is(&part, 206, "<!doctype html>");
    let asset = site.get("/assets/site.v1.css");
    assert!(asset.header("cache-control").is_some_and(|value| value.contains("immutable")));
    assert_eq!(site.get("/../Cargo.toml").status, 404);
    assert!(site.get("/api/time").text().contains("tv_sec"));
}

#[test]
fn forms_and_uploads_are_checked_and_saved() {
    const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
    let folder = tempfile::tempdir().unwrap();
    let child = Example("forms_and_uploads").start_with(&[folder.path().to_str().unwrap()]);
    let client = child.client();
    let mut forms = Asking { child, client };
    assert!(forms.get("/").text().contains("<form"));
    let good = forms.send(
        "POST /sign-up",
        &[FORM],
        "name=Ada&email=ada%40example.org&topics=cats&topics=tea",
    );
    is(&good, 200, "Welcome, Ada <ada@example.org>, who likes cats and tea.");
    let bad = forms.send("POST /sign-up", &[FORM], "name=A&email=nobody");
    assert_eq!(bad.status, 422);
    assert!(bad.text().contains("\"name\"") && bad.text().contains("\"email\""), "{}", bad.text());
    assert_eq!(forms.send("POST /sign-up", &[FORM], "name=%zz").status, 400);
    assert_eq!(forms.send("POST /sign-up", &[], "name=Ada").status, 415);
    let file = "x".repeat(3_000_000);
    let content = format!(
        "--b\r\nContent-Disposition: form-data; \
         name=\"title\"\r\n\r\ncats\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; \
         filename=\"../../etc/cat.png\"\r\n\r\n{file}\r\n--b--\r\n"
    );
    let saved =
        forms.send("POST /upload", &["Content-Type: multipart/form-data; boundary=b"], &content);
    let expected = r#"[{"field":"title","file_name":null,"bytes":4},{"field":"file","file_name":"cat.png","bytes":3000000}]"#;
    is(&saved, 201, expected);
    is(&forms.send("PUT /raw", &[], &file), 201, "3000000 bytes");
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 2);
}

#[test]
fn sessions_login_remembers_who_signed_in() {
    let mut app = Asking::start(Example("sessions_login"));
    let first = app.get("/visits");
    is(&first, 200, "visit 1");
    let cookie = |response: &Response| {
        let set = response.header("set-cookie").unwrap();
        format!("Cookie: {}", set.split(';').next().unwrap())
    };
    let session = cookie(&first);
    is(&app.send("GET /visits", &[&session], ""), 200, "visit 2");
    is(&app.get("/visits"), 200, "visit 1");
    assert_eq!(app.send("GET /secret", &[&session], "").status, 401);
    let page = app.send("GET /", &[&session], "");
    let token = page.text().split_once("value=\"").unwrap().1.split('"').next().unwrap().to_owned();
    let form = format!("_csrf={token}&name=ada&password=lovelace");
    let headers = [&*session, "Content-Type: application/x-www-form-urlencoded"];
    assert_eq!(app.send("POST /login", &headers, "name=ada&password=lovelace").status, 403);
    let signed_in = app.send("POST /login", &headers, &form);
    assert_eq!(signed_in.header("location"), Some("/"));
    let renewed = cookie(&signed_in);
    assert_ne!(renewed, session, "a planted id is worth nothing");
    is(&app.send("GET /secret", &[&renewed], ""), 200, "ada, the word is sesame");
    assert_eq!(app.send("GET /secret", &[&session], "").status, 401);
    assert!(app.send("GET /", &[&renewed], "").text().contains("You are signed in."));
    assert!(!app.send("GET /", &[&renewed], "").text().contains("You are signed in."));
}

#[test]
fn sqlite_todo_has_pages_and_an_api() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("todos.db");
    let child = Example("sqlite_todo").start_with(&[database.to_str().unwrap()]);
    let client = child.client();
    let mut app = Asking { child, client };
    assert_eq!(app.get("/").header("location"), Some("/login"));
    assert!(app.get("/login").text().contains("Sign in"));
    assert_eq!(app.get("/api/todos").status, 401);
}

#[test]
fn testing_answers_as_its_tests_say() {
    let mut app = Asking::start(Example("testing"));
    is(&app.get("/square/12"), 200, "144");
    is(&app.send("POST /shout", &[], "hey"), 200, "HEY");
}
