//! How errors are rendered for clients, and logged.

mod development;

use std::error::Error as StdError;
use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use filoplume::prelude::*;
use filoplume::testing::TestResponse;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// An error of the program, with a cause and internal details.
#[derive(Debug)]
struct Broken(std::io::Error);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot open <secret>.db")
    }
}

impl StdError for Broken {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

fn broken() -> Broken {
    Broken(std::io::Error::other("password 1234 was refused"))
}

/// Middleware that could add an extension, and does not.
fn nothing(request: Request, next: Next<'_>) -> Response {
    next.run(request)
}

fn app() -> App {
    App::new()
        .get("/gone", || Error::new(StatusCode::GONE, "it <left> & \"went\""))
        .get("/plain", || Error::from_status(StatusCode::IM_A_TEAPOT))
        .get("/broken", || -> Result<()> { Err(broken().into()) })
        .get("/panics", || -> &'static str { panic!("boom <b>") })
        .get("/fields", || {
            Error::unprocessable("two fields are wrong")
                .with_field("name", "is empty")
                .with_field("items[2].price", "is < 0")
        })
        .get("/users/{id}", |Path(id): Path<u64>| id.to_string())
        .post("/users", |Json(_): Json<Value>| "made")
        .route("/extension", get(|Extension(()): Extension<()>| "there").with(nothing))
}

#[track_caller]
fn check_text(response: &TestResponse, expected: &Expect) {
    expected.assert_eq(response.text());
}

#[test]
fn tools_get_problem_details() {
    let client = app().test();
    for accept in ["*/*", "application/json", "application/problem+json"] {
        let response = client.get("/gone").header("accept", accept).send();
        response
            .assert_status(410)
            .assert_header("content-type", "application/problem+json")
            .assert_header("vary", "accept")
            .assert_json(
                &json!({"title": "Gone", "status": 410, "detail": "it <left> & \"went\""}),
            );
    }
    client
        .get("/plain")
        .send()
        .assert_status(418)
        .assert_text(r#"{"title":"I'm a teapot","status":418}"#);
    client
        .get("/nowhere")
        .send()
        .assert_status(404)
        .assert_text(r#"{"title":"Not Found","status":404}"#);
}

#[test]
fn browsers_get_a_page_in_which_everything_is_escaped() {
    let response = app().test().get("/gone").header("accept", BROWSER).send();
    response
        .assert_status(410)
        .assert_header("content-type", "text/html; charset=utf-8")
        .assert_header("vary", "accept")
        .assert_contains("<title>410 Gone</title>")
        .assert_contains("<p lang=\"\">it &lt;left&gt; &amp; &quot;went&quot;</p>");
    for outside in ["src=", "href=", "url(", "<script"] {
        assert!(!response.text().contains(outside), "the page needs nothing from elsewhere");
    }
}

#[test]
fn plain_text_is_for_clients_that_accept_nothing_else() {
    let response = app().test().get("/fields").header("accept", "text/plain").send();
    response.assert_status(422).assert_header("content-type", "text/plain; charset=utf-8");
    response.assert_text(
        "422 Unprocessable Entity\ntwo fields are wrong\n- name: is empty\n- items[2].price: is < \
         0\n",
    );
}

#[test]
fn fields_are_a_member_in_json_and_a_list_in_html() {
    let client = app().test();
    client.get("/fields").send().assert_json(&json!({
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": "two fields are wrong",
        "errors": [
            {"field": "name", "message": "is empty"},
            {"field": "items[2].price", "message": "is < 0"},
        ],
    }));
    client
        .get("/fields")
        .header("accept", BROWSER)
        .send()
        .assert_contains("<li><code>items[2].price</code>: is &lt; 0</li>");
}

#[test]
fn a_problem_type_has_a_type_a_title_and_members() {
    let app = App::new().post("/buy", || -> Result<()> {
        let error = Error::new(StatusCode::FORBIDDEN, "30 are not enough for 50");
        let error =
            error.with_type("https://example.com/out-of-credit").with_title("Not enough credit");
        Err(error.with_member("balance", 30)?.with_member("accounts", ["/a/1", "/a/2"])?)
    });
    app.test().post("/buy").send().assert_status(403).assert_json(&json!({
        "type": "https://example.com/out-of-credit",
        "title": "Not enough credit",
        "status": 403,
        "detail": "30 are not enough for 50",
        "balance": 30,
        "accounts": ["/a/1", "/a/2"],
    }));
}

#[test]
fn production_shows_no_causes_panics_or_places() {
    let client = app().test();
    for path in ["/broken", "/panics", "/extension"] {
        for accept in [BROWSER, "*/*", "text/plain"] {
            let response = client.get(path).header("accept", accept).send();
            response.assert_status(500).assert_contains("Internal Server Error");
            for secret in
                ["secret", "1234", "boom", "panic", ".rs", "hint", "development", "Extension"]
            {
                assert!(!response.text().contains(secret), "{secret} is sent:\n{response:?}");
            }
        }
    }
}

#[test]
fn changes_of_middleware_to_an_error_are_kept() {
    let app = app().with(|request: Request, next: Next<'_>| {
        let mut response = next.run(request);
        let is_failure = Error::of(&response).is_some();
        response.set_header("x-failed", is_failure.to_string())?;
        response.set_header("vary", "origin")?;
        if response.status() == 410 {
            response.set_status(404);
        }
        Ok::<_, Error>(response)
    });
    let client = app.test();
    let response = client.get("/gone").send();
    response.assert_status(404).assert_header("x-failed", "true");
    response.assert_json(
        &json!({"title": "Not Found", "status": 404, "detail": "it <left> & \"went\""}),
    );
    assert_eq!(response.headers_all("vary").collect::<Vec<_>>(), ["origin", "accept"]);
    client.get("/panics").send().assert_status(500).assert_header("x-failed", "true");
    client.get("/nowhere").send().assert_status(404).assert_header("x-failed", "true");
    client.get("/users/1").send().assert_status(200).assert_header("x-failed", "false");
}

#[test]
fn middleware_can_replace_an_error() {
    let app = app().with(|request: Request, next: Next<'_>| {
        let mut response = next.run(request);
        match response.status().as_u16() {
            410 => response.set_status(303).set_header("location", "/login")?,
            418 => response.set_text("own content"),
            _ => &mut response,
        };
        Ok::<_, Error>(response)
    });
    let client = app.test();
    client
        .get("/gone")
        .send()
        .assert_status(303)
        .assert_header("location", "/login")
        .assert_text("");
    client
        .get("/plain")
        .send()
        .assert_status(418)
        .assert_text("own content")
        .assert_no_header("vary");
}

#[test]
fn head_has_the_headers_of_an_error_and_no_content() {
    let client = app().test();
    let length = client.get("/gone").send().body().len().to_string();
    client
        .head("/gone")
        .send()
        .assert_status(410)
        .assert_header("content-length", &length)
        .assert_text("");
}

#[test]
fn an_error_whose_status_has_no_content_has_none() {
    let app = App::new()
        .get("/304", || Error::new(StatusCode::NOT_MODIFIED, "as before"))
        .get("/303", || Error::new(StatusCode::SEE_OTHER, "elsewhere"));
    let client = app.test();
    client.get("/304").send().assert_status(304).assert_text("");
    client.get("/303").send().assert_status(303).assert_text("");
}

#[test]
fn the_program_can_render_some_errors_itself() {
    let app = app().present_errors(|error, asked| {
        if error.status() != 410 {
            return None;
        }
        let mut response = Response::default();
        let html = asked.wants_html();
        response.set_html(format!(
            "<p>{} html={html} {}",
            error.detail().unwrap_or_default().len(),
            asked.method()
        ));
        Some(response)
    });
    let client = app.test();
    let response = client.get("/gone").header("accept", BROWSER).send();
    response.assert_status(410).assert_text("<p>18 html=true GET");
    client.get("/plain").send().assert_text(r#"{"title":"I'm a teapot","status":418}"#);
}

/// A log that the test can read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

pub(crate) fn logged(run: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let bytes = log.0.lock().clone();
    String::from_utf8(bytes)
        .expect("a log is text")
        .lines()
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn a_panic_is_one_line_in_the_log_and_the_next_request_is_served() {
    let client = app().test();
    let lines = logged(|| {
        client.get("/panics").send().assert_status(500);
        client.get("/users/7").send().assert_status(200).assert_text("7");
    });
    assert_eq!(
        lines,
        [r#"ERROR a handler panicked method="GET" route="/panics" panic="boom <b>""#]
    );
}

#[test]
fn a_panic_in_middleware_is_answered_too() {
    let client = app()
        .with(|request: Request, next: Next<'_>| {
            assert!(request.path() != "/plain", "not this one");
            next.run(request)
        })
        .test();
    let lines = logged(|| {
        client
            .get("/plain")
            .send()
            .assert_status(500)
            .assert_json(&json!({"title": "Internal Server Error", "status": 500}));
        client.get("/users/7").send().assert_status(200);
    });
    assert_eq!(
        lines,
        [r#"ERROR a handler panicked method="GET" route="/plain" panic="not this one""#]
    );
}

#[test]
fn a_server_error_is_one_line_in_the_log_and_a_client_error_is_none() {
    let client = app().test();
    let lines = logged(|| {
        client.get("/broken").send();
        client.get("/gone").send();
        client.get("/nowhere").send();
    });
    let expected = "ERROR a request failed method=\"GET\" route=\"/broken\" status=500 \
                    error=\"cannot open <secret>.db: password 1234 was refused\"";
    assert_eq!(lines, [expected]);
}

#[test]
fn the_log_names_a_header_that_cannot_be_set_but_not_its_value() {
    let client = App::new().get("/", || ([("x-user", "a\nb")], "x")).test();
    let lines = logged(|| {
        client.get("/").send();
    });
    let expected = "ERROR a request failed method=\"GET\" route=\"/\" status=500 error=\"the \
                    header x-user cannot be set: field value has byte 0x0a at 1\"";
    assert_eq!(lines, [expected]);
}

#[test]
fn a_stranger_fills_no_log_with_failures_and_hides_none_of_another_route() {
    const ASKED: usize = 300;
    for (path, text) in [("/broken", "a request failed"), ("/panics", "a handler panicked")] {
        let client = app().get("/other", || -> Result<()> { Err(broken().into()) }).test();
        let begun = Instant::now();
        let lines = logged(|| {
            for _ in 0..ASKED {
                client.get(path).send().assert_status(500);
            }
            client.get("/other").send().assert_status(500);
        });
        let seconds = usize::try_from(begun.elapsed().as_secs()).expect("it is short");
        let (of_route, others): (Vec<_>, Vec<_>) =
            lines.iter().partition(|line| line.contains(&format!("route=\"{path}\"")));
        assert!(of_route.iter().all(|line| line.contains(text)), "{of_route:?}");
        assert!((10..=11 + seconds).contains(&of_route.len()), "{} of {ASKED}", of_route.len());
        assert_eq!(others.len(), 1, "{others:?}");
        // After a second an error is logged again, and its line says how many were left out.
        let later = loop {
            let lines = logged(|| {
                client.get(path).send().assert_status(500);
            });
            match lines.into_iter().next() {
                Some(line) => break line,
                None => assert!(begun.elapsed() < Duration::from_secs(30), "it has no line"),
            }
        };
        assert!(later.contains(" left_out="), "{later}");
    }
}

#[test]
fn the_page_of_production_looks_like_this() {
    let response = app().test().get("/fields").header("accept", BROWSER).send();
    let text = response.text();
    let (start, end) = (text.find("<style>").unwrap(), text.find("</style>").unwrap());
    let text = format!("{}{}", &text[..start], &text[end..]);
    expect![[r#"
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width">
        <title>422 Unprocessable Entity</title>
        </style>
        </head>
        <body>
        <main>
        <h1><span>422</span> Unprocessable Entity</h1>
        <p lang="">two fields are wrong</p>
        <ul lang="">
        <li><code>name</code>: is empty</li>
        <li><code>items[2].price</code>: is &lt; 0</li>
        </ul>
        </main>
        </body>
        </html>
    "#]]
    .assert_eq(&text);
    check_text(
        &app().test().get("/plain").header("accept", "text/plain").send(),
        &expect![["418 I'm a teapot\n"]],
    );
}

#[test]
fn the_function_that_presents_errors_may_panic() {
    let app = App::new()
        .present_errors(|error, _| panic!("no words for {error}"))
        .with(middleware::SecurityHeaders::new());
    let answer = app.test().get("/nowhere").send();
    answer.assert_status(404).assert_header("content-type", "application/problem+json");
    answer.assert_header("x-content-type-options", "nosniff").assert_contains("Not Found");
}

/// Regression: the text was sent as it was, as `text/plain`.
#[test]
fn a_status_with_a_text_is_rendered_like_an_error() {
    let app = App::new()
        .get("/text", || -> Result<String, _> { Err((StatusCode::CONFLICT, "lent out")) })
        .get("/owned", || -> Result<(), _> { Err((StatusCode::CONFLICT, "lent out".to_owned())) })
        .get("/headers", || -> Result<(), _> {
            Err((StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")], "who are you?"))
        })
        .get("/empty", || -> Result<(), _> { Err((StatusCode::GONE, ())) });
    let client = app.test();
    let problem = r#"{"title":"Conflict","status":409,"detail":"lent out"}"#;
    for path in ["/text", "/owned"] {
        let refused = client.get(path).send();
        refused.assert_status(409).assert_header("content-type", "application/problem+json");
        refused.assert_text(problem);
        let page = client.get(path).header("accept", "text/html").send();
        page.assert_status(409).assert_header("content-type", "text/html; charset=utf-8");
        page.assert_contains("lent out");
    }
    let refused = client.get("/headers").send();
    refused.assert_status(401).assert_header("www-authenticate", "Bearer");
    refused.assert_text(r#"{"title":"Unauthorized","status":401,"detail":"who are you?"}"#);
    client.get("/empty").send().assert_status(410).assert_text(r#"{"title":"Gone","status":410}"#);
}

#[test]
fn an_error_that_is_no_plain_text_is_sent_as_it_is() {
    type Typed = (StatusCode, [(&'static str, &'static str); 1], &'static str);
    let app = App::new()
        .get("/html", || -> Result<(), _> { Err((StatusCode::CONFLICT, Html("<p>lent out"))) })
        .get("/typed", || -> Result<(), Typed> {
            Err((StatusCode::CONFLICT, [("Content-Type", "text/csv")], "lent,out"))
        })
        .get("/moved", || -> Result<(), _> { Err((StatusCode::MULTIPLE_CHOICES, "a or b")) })
        .get("/value", || (StatusCode::CONFLICT, "lent out"));
    let client = app.test();
    client.get("/html").send().assert_status(409).assert_text("<p>lent out");
    let typed = client.get("/typed").send();
    typed.assert_status(409).assert_header("content-type", "text/csv").assert_text("lent,out");
    client.get("/moved").send().assert_status(300).assert_text("a or b");
    client.get("/value").send().assert_status(409).assert_text("lent out");
}

/// The rejection of an extractor is an error, too.
#[test]
fn a_rejection_with_a_text_is_rendered_like_an_error() {
    struct Tenant;
    impl filoplume::FromRequest for Tenant {
        type Rejection = (StatusCode, &'static str);

        fn from_request(
            _: &mut Request,
            _: &filoplume::Context<'_>,
        ) -> Result<Self, Self::Rejection> {
            Err((StatusCode::BAD_REQUEST, "say for whom"))
        }
    }
    let client = App::new().get("/", |_: Tenant| "hello").test();
    let problem = r#"{"title":"Bad Request","status":400,"detail":"say for whom"}"#;
    client.get("/").send().assert_status(400).assert_text(problem);
}
