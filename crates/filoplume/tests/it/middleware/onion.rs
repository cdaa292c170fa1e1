//! Nested middleware: order, early responses, errors and panics.

use std::sync::Arc;

use filoplume::extract::Observed;
use filoplume::middleware::{
    BodyLimit, CatchPanic, ConcurrencyLimit, Cors, CspNonce, Frames, Logger, RequestId, RequestIds,
    SecurityHeaders,
};
use filoplume::prelude::*;
use parking_lot::Mutex;

type Trace = Arc<Mutex<Vec<String>>>;

/// Records when a request passes, and when its response does.
fn recording(trace: &Trace, name: &'static str) -> impl Middleware {
    let trace = Arc::clone(trace);
    move |request: Request, next: Next<'_>| {
        trace.lock().push(format!("{name} in"));
        let response = next.run(request);
        trace.lock().push(format!("{name} out {}", response.status().as_u16()));
        response
    }
}

fn taken(trace: &Trace) -> String {
    std::mem::take(&mut *trace.lock()).join(", ")
}

#[test]
fn middleware_runs_from_the_outside_in_and_back() {
    let trace = Trace::default();
    let inner = Router::new().with(recording(&trace, "router")).route(
        "/",
        get(|| "hi").with(recording(&trace, "route 1")).with(recording(&trace, "route 2")),
    );
    let app = App::new()
        .nest("/a", inner)
        .with(recording(&trace, "app 1"))
        .with(recording(&trace, "app 2"));
    let client = app.test();
    client.get("/a").send().assert_text("hi");
    assert_eq!(
        taken(&trace),
        "app 1 in, app 2 in, router in, route 1 in, route 2 in, \
         route 2 out 200, route 1 out 200, router out 200, app 2 out 200, app 1 out 200"
    );
    client.get("/nowhere").send().assert_status(404);
    assert_eq!(taken(&trace), "app 1 in, app 2 in, app 2 out 404, app 1 out 404");
}

#[test]
fn an_early_response_and_an_error_end_the_chain_and_pass_outer_middleware() {
    let trace = Trace::default();
    let app = App::new()
        .get("/", || "hi")
        .with(recording(&trace, "outer"))
        .with(|request: Request, next: Next<'_>| match request.query() {
            Some("early") => Ok("early".into_response()?),
            Some("error") => Err(Error::forbidden("not you")),
            _ => Ok(next.run(request)),
        })
        .with(recording(&trace, "inner"));
    let client = app.test();
    client.get("/?early").send().assert_text("early");
    assert_eq!(taken(&trace), "outer in, outer out 200");
    client.get("/?error").send().assert_status(403);
    assert_eq!(taken(&trace), "outer in, outer out 403");
    client.get("/").send().assert_status(200);
    assert_eq!(taken(&trace), "outer in, inner in, inner out 200, outer out 200");
}

#[test]
fn middleware_sees_errors_and_its_headers_reach_the_client() {
    let app = App::new()
        .get("/", || -> Result<()> { Err(std::io::Error::other("disk on fire"))? })
        .with(|request: Request, next: Next<'_>| -> Result<Response> {
            let mut response = next.run(request);
            let error = Error::of(&response).map(ToString::to_string);
            response.set_header("x-seen", error.unwrap_or_default())?;
            Ok(response)
        });
    app.test().get("/").send().assert_status(500).assert_header("x-seen", "disk on fire");
}

#[test]
fn a_page_of_the_program_replaces_a_panic_wherever_it_was_caught() {
    let page = || {
        CatchPanic::new()
            .respond(|message: &str| (StatusCode::IM_A_TEAPOT, format!("caught: {message}")))
    };
    let app = || App::new().get("/", || -> &str { panic!("out of {}", "paper") });
    app().test().get("/").send().assert_status(500);
    app()
        .with(page())
        .test()
        .get("/")
        .send()
        .assert_status(418)
        .assert_text("caught: out of paper");
    let contained =
        app().with(page()).with(Logger::new().to(std::io::sink())).with(SecurityHeaders::new());
    contained.test().get("/").send().assert_status(418).assert_header("x-frame-options", "DENY");
    // Without a page, outer middleware still sees a response.
    let trace = Trace::default();
    app()
        .with(recording(&trace, "outer"))
        .with(CatchPanic::new())
        .test()
        .get("/")
        .send()
        .assert_status(500);
    assert_eq!(taken(&trace), "outer in, outer out 500");
}

#[test]
fn the_message_of_a_panic_is_not_sent() {
    let app = App::new()
        .get("/", || -> &str { panic!("the password is hunter2") })
        .with(CatchPanic::new());
    let response = app.test().get("/").header("accept", "text/html").send();
    response.assert_status(500);
    assert!(!format!("{response:?}").contains("hunter2"));
}

#[test]
fn responses_to_errors_and_panics_have_the_headers_of_middleware() {
    let app = App::new()
        .get("/error", || -> Result<()> { Err(Error::conflict("no")) })
        .get("/panic", || -> &str { panic!("oh") })
        .with(RequestIds::new())
        .with(Cors::new().allow_any_origin())
        .with(SecurityHeaders::new());
    let client = app.test();
    for (path, status) in [("/error", 409), ("/panic", 500), ("/nowhere", 404)] {
        let response = client.get(path).header("origin", "https://a.example").send();
        response.assert_status(status).assert_header("access-control-allow-origin", "*");
        response.assert_header("x-content-type-options", "nosniff");
        assert_eq!(response.header("x-request-id").map(str::len), Some(32), "{path}");
    }
}

#[test]
fn a_request_id_is_accepted_only_if_trusted_and_safe() {
    let app =
        |ids: RequestIds| App::new().get("/", |id: RequestId| id.to_string()).with(ids).test();
    let (own, trusting) = (app(RequestIds::new()), app(RequestIds::new().trust_incoming(true)));
    let of = |client: &filoplume::testing::TestClient, incoming: &str| {
        let response = client.get("/").header("x-request-id", incoming).send();
        assert_eq!(response.header("x-request-id"), Some(response.text()));
        response.text().to_owned()
    };
    assert_ne!(of(&own, "abc-1"), "abc-1");
    assert_eq!(of(&trusting, "abc-1"), "abc-1");
    for hostile in ["", "a b", "a\"b", "<script>", &"x".repeat(65)] {
        assert_eq!(of(&trusting, hostile).len(), 32, "{hostile}");
    }
    let named = app(RequestIds::new().header("trace")).get("/").send();
    assert!(named.header("trace").is_some() && named.header("x-request-id").is_none());
}

#[test]
fn a_story_has_the_request_id_whatever_its_header_is_called() {
    for ids in [RequestIds::new(), RequestIds::new().header("trace")] {
        let app = App::new()
            .get("/broken", |_: RequestId| Err::<(), _>(Error::internal("the disk is full")))
            .get("/recent", |observed: Observed| {
                let ids = observed.recent().into_iter().map(|story| story.request_id);
                ids.map(Option::unwrap_or_default).collect::<Vec<_>>().join(" ")
            })
            .with(ids);
        let client = app.test();
        let broken = client.get("/broken").send();
        let id = broken.header("x-request-id").or(broken.header("trace")).unwrap();
        client.get("/recent").send().assert_text(id);
    }
}

#[test]
fn security_headers_keep_what_a_handler_set() {
    let app = App::new()
        .get("/", || "hi")
        .get("/own", || {
            ([("x-frame-options", "SAMEORIGIN"), ("Content-Security-Policy", "sandbox")], "hi")
        })
        .with(SecurityHeaders::new());
    let client = app.test();
    let own = client.get("/own").send();
    own.assert_header("x-frame-options", "SAMEORIGIN")
        .assert_header("content-security-policy", "sandbox");
    own.assert_header("x-content-type-options", "nosniff");
    let plain = client.get("/").send();
    plain.assert_header("content-security-policy", "frame-ancestors 'none'");
    for name in ["referrer-policy", "cross-origin-opener-policy", "cross-origin-resource-policy"] {
        assert!(plain.header(name).is_some(), "{name}");
    }
    for name in ["strict-transport-security", "permissions-policy"] {
        assert!(plain.header(name).is_none(), "{name}");
    }
}

#[test]
fn each_response_has_its_own_nonce_in_page_and_policy() {
    let app = App::new().get("/", |nonce: CspNonce| nonce).with(
        SecurityHeaders::new()
            .content_security_policy("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'")
            .frames(Frames::Anywhere)
            .without("referrer-policy")
            .set("cross-origin-resource-policy", "cross-origin"),
    );
    let client = app.test();
    let (first, second) = (client.get("/").send(), client.get("/").send());
    assert_ne!(first.text(), second.text());
    let nonce = first.text();
    assert!(nonce.len() >= 22, "128 bits: {nonce}");
    first.assert_header(
        "content-security-policy",
        &format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'"),
    );
    first.assert_header("cross-origin-resource-policy", "cross-origin");
    assert!(first.header("referrer-policy").is_none() && first.header("x-frame-options").is_none());
}

/// A header that is sent twice can be worse than none.
#[test]
fn security_headers_are_set_and_left_out_by_names_in_any_case() {
    let app = App::new().get("/", || "page").with(
        SecurityHeaders::new()
            .set("X-Frame-Options", "SAMEORIGIN")
            .set("Cross-Origin-Opener-Policy", "same-origin-allow-popups")
            .without("Referrer-Policy"),
    );
    let answer = app.test().get("/").send();
    for (name, values) in [
        ("x-frame-options", &["SAMEORIGIN"][..]),
        ("cross-origin-opener-policy", &["same-origin-allow-popups"]),
        ("referrer-policy", &[]),
    ] {
        assert_eq!(answer.headers_all(name).collect::<Vec<_>>(), values, "{name}");
    }
}

#[test]
fn invalid_settings_are_reported_once_at_start_up() {
    let app = App::new()
        .get("/a", || "a")
        .get("/b", || "b")
        .with(RequestIds::new().header("no name"))
        .with(SecurityHeaders::new().set("permissions-policy", "a\r\nb"))
        .with(Cors::new().allow_origin("https://a.example/").allow_headers(["x y"]))
        .with(Cors::new().allow_any_origin().allow_credentials(true))
        .with(ConcurrencyLimit::new(0))
        .with(middleware::RateLimit::per_second(0))
        .with(middleware::RateLimit::per_second(1).burst(0).redis("not a url"))
        .with(middleware::Compression::new().codings([]))
        .with(middleware::TimeoutBudget::new(std::time::Duration::ZERO));
    let reported = super::mistakes(app);
    for part in [
        "RequestIds: `no name`",
        "SecurityHeaders: `permissions-policy: a\\r\\nb`",
        "`https://a.example/` is not an origin",
        "Cors: `x y`",
        "any origin and credentials",
        "ConcurrencyLimit: a limit of 0",
        "RateLimit: a limit of no requests",
        "RateLimit: with a burst of 0",
        "RateLimit: this is no URL of a Redis server",
        "Compression: without a coding",
        "TimeoutBudget: a duration of zero",
    ] {
        assert_eq!(reported.matches(part).count(), 1, "{part} in\n{reported}");
    }
}

#[test]
fn the_innermost_body_limit_applies() {
    let app = App::new()
        .post("/small", |text: String| text)
        .route("/large", post(|text: String| text).with(BodyLimit::new(100)))
        .nest("/none", Router::new().post("/", || "unread").with(BodyLimit::new(0)))
        .with(BodyLimit::new(10));
    let client = app.test();
    client.post("/small").body("x".repeat(10)).send().assert_status(200);
    client.post("/small").body("x".repeat(11)).send().assert_status(413);
    client.post("/large").body("x".repeat(100)).send().assert_status(200);
    client.post("/large").body("x".repeat(101)).send().assert_status(413);
    client.post("/none").body("").send().assert_status(200);
    client.post("/none").body("x").send().assert_status(413);
}

#[test]
fn a_content_without_a_length_is_limited_too() {
    let read = |mut body: Body| -> Result<String> { Ok(std::io::read_to_string(&mut body)?) };
    let app = App::new()
        .post("/text", |text: String| text)
        .post("/stream", read)
        .with(BodyLimit::new(10));
    let service = app.build().unwrap();
    let chunked = |path: &str, content: &str| {
        let length = content.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        super::ask(&service, "192.0.2.1:1", &format!("{head}{length:x}\r\n{content}\r\n0\r\n\r\n"))
    };
    assert!(chunked("/text", "0123456789").starts_with("HTTP/1.1 200"));
    assert!(chunked("/text", "0123456789a").starts_with("HTTP/1.1 413"));
    assert!(chunked("/stream", "0123456789").ends_with("0123456789"));
    let refused = chunked("/stream", "0123456789a");
    assert!(!refused.starts_with("HTTP/1.1 200"), "{refused}");
}
