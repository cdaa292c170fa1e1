//! What development mode shows of an error, to browsers and to tools.

use super::*;

#[test]
fn development_mode_shows_browsers_all_details() {
    let client = app().development(true).test();
    let response = client
        .get("/broken?a=<b>")
        .header("accept", BROWSER)
        .header("authorization", "Bearer abcdef")
        .header("x-odd", "<i>")
        .cookie("session", "deadbeef")
        .send();
    response
        .assert_status(500)
        .assert_header("cache-control", "no-store")
        .assert_contains("cannot open &lt;secret&gt;.db\ncaused by: password 1234 was refused")
        .assert_contains("GET /broken\nwritten at crates/filoplume/tests/it/presentation.rs:")
        .assert_contains("GET /broken?a=&lt;b&gt;")
        .assert_contains("<td>x-odd</td><td>&lt;i&gt;</td>")
        .assert_contains("<td>authorization</td><td>(hidden, 13 bytes)</td>")
        .assert_contains("<td>cookie</td><td>(hidden, 16 bytes)</td>")
        .assert_contains("App::map_error");
    for secret in ["abcdef", "deadbeef", "<i>", "<b>", "<secret>"] {
        assert!(!response.text().contains(secret), "{secret} is shown");
    }
}

#[test]
fn development_mode_shows_the_place_of_a_panic() {
    let client = app().development(true).test();
    let response = client.get("/panics").header("accept", BROWSER).send();
    response
        .assert_status(500)
        .assert_contains("panicked at crates/filoplume/tests/it/presentation.rs:")
        .assert_contains(": boom &lt;b&gt;");
    let json: Value = client.get("/panics").send().json();
    let cause = json["development"]["causes"][0].as_str().unwrap_or_default();
    assert!(cause.starts_with("panicked at ") && cause.ends_with(": boom <b>"), "{cause}");
}

#[test]
fn development_mode_adds_a_member_for_tools() {
    let client = app().development(true).test();
    let mut json: Value = client.get("/broken").send().json();
    let place = json["development"]["written_at"].take();
    assert!(
        place.as_str().is_some_and(|place| place.contains("tests/it/presentation.rs:")),
        "{place}"
    );
    let expected = json!({
        "title": "Internal Server Error",
        "status": 500,
        "development": {
            "causes": ["cannot open <secret>.db", "password 1234 was refused"],
            "route": "GET /broken",
            "written_at": null,
            "hint": "`?` converted this error. Choose its response for all handlers with `App::map_error`, or in this handler with `Error::new`.",
        },
    });
    assert_eq!(json, expected);
    client
        .get("/broken")
        .header("accept", "text/plain")
        .send()
        .assert_contains("caused by: password 1234");
}

/// The fallback answers the whole prefix, so its pattern is like every path there.
#[test]
fn a_hint_names_no_fallback() {
    let api = Router::new().get("/users", || "all");
    let with_fallback = Router::new().get("/", || "root").fallback(|| StatusCode::NOT_FOUND);
    let client = App::new()
        .nest("/api", api.with(middleware::RequestIds::new()))
        .nest("/shop", with_fallback)
        .development(true)
        .test();
    for (path, hint) in [
        ("/api/nothing", "No route matches the path."),
        ("/api/usres", "No route matches the path. Did you mean GET /api/users?"),
        ("/shop/nothing", "No route matches the path."),
    ] {
        let json: Value = client.get(path).send().json();
        assert_eq!(json["development"]["hint"], *hint, "{path}");
    }
}

#[test]
fn development_mode_shows_hints() {
    let client = app().development(true).test();
    let hint = |response: TestResponse| {
        let json: Value = response.json();
        json["development"]["hint"].as_str().unwrap_or_default().to_owned()
    };
    let hints = [
        hint(client.get("/user/17").send()),
        hint(client.get("/elsewhere").send()),
        hint(client.put("/users").send()),
        hint(client.post("/users").body("{}").send()),
        hint(client.get("/extension").send()),
        hint(client.get("/users/me").send()),
    ];
    expect![[r#"
        No route matches the path. Did you mean GET /users/{id}?
        No route matches the path.
        The path has routes for other methods: POST, OPTIONS.
        The client must set `Content-Type`. The test client's `json`, `form` and `multipart` do this, and so do `curl --json`, `curl -d` for a form and `curl -F` for a form with files.
        `Extension` reads a value that middleware adds. Add that middleware with `.with(..)` to the app, the router or the route, before the middleware that reads the value.
    "#]]
    .assert_eq(&hints.join("\n"));
}

#[test]
fn development_mode_lists_the_routes_if_none_matches() {
    let client = app().development(true).test();
    let response = client.get("/user/17").header("accept", BROWSER).send();
    response
        .assert_status(404)
        .assert_contains("<tr class=\"alike\"><td>GET</td><td>/users/{id}</td></tr>")
        .assert_contains("<tr><td>POST</td><td>/users</td></tr>");
    let response = App::new().development(true).test().get("/").header("accept", BROWSER).send();
    response.assert_contains("The app has no routes yet");
}

/// The fallback of a nested router is a route, too.
#[test]
fn a_missing_page_of_a_nested_router_has_the_hint_of_any_other() {
    let users = Router::new().get("/{id}", || "user").with(middleware::RequestIds::new());
    let client = App::new().nest("/users", users).development(true).test();
    let response = client.get("/users/17/posts").header("accept", BROWSER).send();
    response.assert_status(404).assert_contains("No route matches the path.");
    response.assert_contains("<td>/users/{id}</td>");
}

#[test]
fn development_mode_is_off_by_default() {
    for app in [app(), app().development(false)] {
        let response = app.test().get("/broken").header("accept", BROWSER).send();
        response.assert_no_header("cache-control");
        assert!(!response.text().contains("Request"));
    }
}

#[test]
fn development_mode_is_logged_at_start_up() {
    let lines = logged(|| {
        let client = app().development(true).test();
        client.get("/users/1").send();
        client.get("/users/2").send();
    });
    assert_eq!(
        lines,
        ["WARN development mode is on: every client is shown errors, routes and requests"]
    );
    assert!(logged(|| drop(app().test())).is_empty());
}
