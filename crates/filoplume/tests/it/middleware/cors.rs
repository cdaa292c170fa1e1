//! Which other origins may send requests, and the responses to preflights.

use std::time::Duration;

use filoplume::middleware::Cors;
use filoplume::prelude::*;
use filoplume::routing;
use filoplume::testing::{TestClient, TestResponse};

use super::vary;

const APP: &str = "https://app.example";

fn client(cors: Cors) -> TestClient {
    App::new()
        .get("/", || "hi")
        .put("/", || -> Result<()> { Err(Error::conflict("no")) })
        .with(cors)
        .test()
}

fn preflight(client: &TestClient, origin: &str, method: &str, headers: &str) -> TestResponse {
    let request = client
        .options("/")
        .header("origin", origin)
        .header("access-control-request-method", method);
    if headers.is_empty() {
        request.send()
    } else {
        request.header("access-control-request-headers", headers).send()
    }
}

fn has_cors(response: &TestResponse) -> bool {
    response
        .headers()
        .iter()
        .any(|(name, _)| name.to_ascii_lowercase().starts_with("access-control-"))
}

#[test]
fn only_allowed_origins_may_read_responses() {
    let client = client(
        Cors::new().allow_origins([APP, "http://localhost:3000"]).expose_headers(["etag", "x-a"]),
    );
    for origin in [APP, "http://localhost:3000"] {
        let response = client.get("/").header("origin", origin).send();
        response.assert_text("hi").assert_header("access-control-allow-origin", origin);
        response
            .assert_header("access-control-expose-headers", "etag, x-a")
            .assert_header("vary", "Origin");
    }
    let hostile = [
        "https://evil.example",
        "https://app.example.evil.example",
        "null",
        "HTTPS://APP.EXAMPLE",
        "*",
        "",
    ];
    for origin in hostile {
        let response = client.get("/").header("origin", origin).send();
        assert!(!has_cors(&response), "{response:?}");
        response.assert_text("hi").assert_header("vary", "Origin");
    }
    let twice =
        client.get("/").header("origin", APP).header("origin", "https://evil.example").send();
    assert!(!has_cors(&twice));
    // A cache must not use this response for the app's origin.
    client.get("/").send().assert_header("vary", "Origin");
}

#[test]
fn any_origin_needs_no_vary() {
    let client = client(Cors::new().allow_any_origin());
    let response = client.get("/").send();
    response.assert_header("access-control-allow-origin", "*");
    assert!(response.header("vary").is_none());
}

#[test]
fn errors_have_cors_headers_too() {
    let client = client(Cors::new().allow_origin(APP));
    for response in [client.put("/"), client.delete("/"), client.get("/nowhere")] {
        let response = response.header("origin", APP).send();
        assert!(response.status().is_client_error());
        response.assert_header("access-control-allow-origin", APP);
    }
}

#[test]
fn a_preflight_is_answered_without_the_handler() {
    let cors = Cors::new()
        .allow_origin(APP)
        .allow_methods([Method::GET, Method::PUT])
        .allow_headers(["content-type", "x-a"])
        .allow_credentials(true)
        .max_age(Duration::from_secs(600));
    let app = App::new().route("/", any(|| -> &str { panic!("a handler was called") })).with(cors);
    let client = app.test();
    let response = preflight(&client, APP, "PUT", "content-type");
    response
        .assert_status(204)
        .assert_header("access-control-allow-origin", APP)
        .assert_header("access-control-allow-methods", "GET, PUT")
        .assert_header("access-control-allow-headers", "content-type, x-a")
        .assert_header("access-control-allow-credentials", "true")
        .assert_header("access-control-max-age", "600");
    assert_eq!(
        vary(&response),
        "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
    );
    let other = preflight(&client, "https://evil.example", "PUT", "content-type");
    other.assert_status(204);
    assert!(vary(&other).starts_with("Origin, ") && !has_cors(&other), "{other:?}");
}

#[test]
fn an_options_request_that_is_not_a_preflight_is_passed_on() {
    let app = App::new()
        .get("/", || "hi")
        .route("/asked", routing::options(|| "the handler"))
        .with(Cors::new().allow_origin(APP));
    let client = app.test();
    client.options("/").send().assert_status(204).assert_header("allow", "GET, HEAD, OPTIONS");
    let response = client.options("/asked").header("origin", APP).send();
    response.assert_text("the handler").assert_header("access-control-allow-origin", APP);
    client
        .options("/asked")
        .header("access-control-request-method", "GET")
        .send()
        .assert_text("the handler");
}

#[test]
fn only_what_browsers_send_is_mirrored() {
    let client = client(Cors::new().allow_origin(APP).mirror_headers().allow_any_method());
    let response = preflight(&client, APP, "QUERY", "x-a,x-b");
    response.assert_header("access-control-allow-methods", "QUERY");
    response.assert_header("access-control-allow-headers", "x-a,x-b");
    for hostile in ["<script>", "a b", "x-a;q=1", "x-a, , x-b", "\"x\""] {
        let response = preflight(&client, APP, "PUT", hostile);
        assert!(
            response.status() == 204 && response.header("access-control-allow-headers").is_none(),
            "{hostile}"
        );
    }
}

#[test]
fn a_predicate_decides_and_is_not_called_without_an_origin() {
    let client = client(Cors::new().allow_credentials(true).allow_origins_if(|origin| {
        assert!(!origin.is_empty());
        origin.strip_prefix("https://").is_some_and(|host| host.ends_with(".example"))
    }));
    let response = client.get("/").header("origin", "https://a.example").send();
    response.assert_header("access-control-allow-origin", "https://a.example");
    response.assert_header("access-control-allow-credentials", "true");
    assert!(!has_cors(&client.get("/").send()));
    assert!(!has_cors(&client.get("/").header("origin", "null").send()));
}

#[test]
fn private_network_access_is_opt_in_and_only_for_requests_that_ask() {
    let ask = |is_allowed: bool, asks: Option<&str>| {
        let client = client(Cors::new().allow_private_network(is_allowed).allow_origin(APP));
        let mut request = client
            .options("/")
            .header("origin", APP)
            .header("access-control-request-method", "GET");
        if let Some(asks) = asks {
            request = request.header("access-control-request-private-network", asks);
        }
        let response = request.send();
        let is_known_to_caches = vary(&response).contains("Access-Control-Request-Private-Network");
        assert_eq!(is_known_to_caches, is_allowed);
        response.header("access-control-allow-private-network").map(str::to_owned)
    };
    assert_eq!(ask(false, Some("true")), None);
    assert_eq!(ask(true, Some("true")).as_deref(), Some("true"));
    assert_eq!([ask(true, None), ask(true, Some("false"))], [None, None]);
}

#[test]
fn a_router_and_a_route_can_have_their_own_policy() {
    let api = Router::new()
        .get("/notes", || "all")
        .put("/notes/{id}", |_: Path<u32>| "changed")
        .with(Cors::new().allow_origin(APP).allow_methods([Method::PUT]));
    let app = App::new()
        .get("/", || "private")
        .nest("/api", api)
        .route("/open", get(|| "open").with(Cors::new().allow_any_origin()));
    let client = app.test();
    let ask = |path: &str, method: &str| {
        let request = client
            .options(path)
            .header("origin", APP)
            .header("access-control-request-method", method);
        request.send()
    };
    ask("/api/notes/7", "PUT").assert_status(204).assert_header("access-control-allow-origin", APP);
    ask("/open", "GET").assert_header("access-control-allow-origin", "*");
    // A path without the policy stays closed, and so does a method without a handler.
    let closed = ask("/", "GET");
    closed.assert_status(204);
    assert!(!has_cors(&closed) && closed.header("allow").is_some(), "{closed:?}");
    // Below the prefix, the policy of the router answers, and does not list the method.
    for method in ["DELETE", "NOT A METHOD"] {
        let response = ask("/api/notes/7", method);
        response.assert_status(204).assert_header("access-control-allow-methods", "PUT");
    }
    client
        .get("/api/notes")
        .header("origin", APP)
        .send()
        .assert_header("access-control-allow-origin", APP);
}

#[test]
fn credentials_headers_of_a_handler_are_removed() {
    let own = || ([("access-control-allow-credentials", "true")], "hi");
    for allows in [false, true] {
        let cors = Cors::new().allow_origin(APP).allow_credentials(allows);
        let client = App::new().get("/", own).with(cors).test();
        let response = client.get("/").header("origin", APP).send();
        let is_credentials =
            |name: &str| name.eq_ignore_ascii_case("access-control-allow-credentials");
        let found: Vec<_> =
            response.headers().iter().filter(|(name, _)| is_credentials(name)).collect();
        assert_eq!(found.len(), usize::from(allows), "{response:?}");
        let other = client.get("/").header("origin", "https://evil.example").send();
        other.assert_no_header("access-control-allow-credentials");
    }
}

#[test]
fn a_policy_replaces_headers_of_the_handler() {
    let own = || ([("access-control-allow-origin", "*"), ("vary", "Accept")], "hi");
    let app = App::new().get("/", own).with(Cors::new().allow_origin(APP)).test();
    let response = app.get("/").header("origin", "https://evil.example").send();
    assert!(!has_cors(&response));
    assert_eq!(vary(&response), "Accept, Origin");
}
