//! Middleware that cannot work with its settings, or in its place among other middleware. The app
//! does not start.

use std::time::Duration;

use expect_test::expect;
use filoplume::Key;
use filoplume::extract::Basic;
use filoplume::middleware::{
    BasicAuth, BearerAuth, Cors, Csrf, Jwt, MethodOverride, Middleware, RateLimit, Sessions,
};
use filoplume::prelude::*;

use crate::routing::check_mistakes;

fn sessions() -> Sessions {
    Sessions::in_cookie(Key::generate())
}

fn app() -> App {
    App::new().get("/", || "")
}

fn jwt() -> Jwt {
    Jwt::hs256([7; 32]).unwrap()
}

fn bearer() -> BearerAuth {
    BearerAuth::tokens(["t0ken"])
}

fn basic() -> BasicAuth {
    BasicAuth::user("ada", "sesame")
}

#[test]
fn values_that_can_never_work_are_reported() {
    let app = app()
        .with(BasicAuth::user("", ""))
        .with(BasicAuth::user("ada:lovelace", "sesame"))
        .with(BearerAuth::tokens(["", ""]))
        .with(
            sessions()
                .cookie_name("the session")
                .domain("https://a.org")
                .path("admin")
                .idle_timeout(Duration::ZERO)
                .absolute_timeout(Duration::ZERO),
        )
        .with(sessions().cookie_name("").domain("").path("/;"))
        .with(sessions().cookie_name("a").domain("a.org:80"))
        .with(sessions().cookie_name("b").domain("a.org/"))
        .with(Csrf::new().trust("admin.example.org").trust("https://*.org").trust("https://b/"))
        .with(MethodOverride::new().header(Some("a b")))
        .with(Cors::new());
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - BasicAuth: the password is empty, so everybody could log in; is the variable set from which it comes? For a key as the name of the user, use `BasicAuth::new` (middleware/mistakes.rs:_)
              - BasicAuth: the name of the user has a colon, but the first colon of credentials begins the password (RFC 7617), so nobody could log in (middleware/mistakes.rs:_)
              - BearerAuth: the token is empty; is the variable set from which it comes? (middleware/mistakes.rs:_)
              - Sessions: `the session` is not a name of a cookie: it can have letters, digits, `-` and `_` (middleware/mistakes.rs:_)
              - Sessions: `https://a.org` is not a domain: write `example.org`, without scheme, port and path (middleware/mistakes.rs:_)
              - Sessions: `admin` is not the path of a cookie: it begins with `/` and has no `;` (middleware/mistakes.rs:_)
              - Sessions: an `idle_timeout` of zero would end each session at once (middleware/mistakes.rs:_)
              - Sessions: an `absolute_timeout` of zero would end each session at once (middleware/mistakes.rs:_)
              - Sessions: `` is not a name of a cookie: it can have letters, digits, `-` and `_` (middleware/mistakes.rs:_)
              - Sessions: `` is not a domain: write `example.org`, without scheme, port and path (middleware/mistakes.rs:_)
              - Sessions: `/;` is not the path of a cookie: it begins with `/` and has no `;` (middleware/mistakes.rs:_)
              - Sessions: `a.org:80` is not a domain: write `example.org`, without scheme, port and path (middleware/mistakes.rs:_)
              - Sessions: `a.org/` is not a domain: write `example.org`, without scheme, port and path (middleware/mistakes.rs:_)
              - Csrf: `admin.example.org` is not an origin: it must begin with a scheme, such as `https://` (middleware/mistakes.rs:_)
              - Csrf: `https://*.org` is not an origin: name each origin (middleware/mistakes.rs:_)
              - MethodOverride: `a b` is not a header name (middleware/mistakes.rs:_)
              - Cors: no origin is allowed, so it has no effect: add `allow_origin`, or remove it (middleware/mistakes.rs:_)
        "#]],
    );
}

#[test]
fn a_mistake_has_the_line_that_adds_the_middleware() {
    let limit = || RateLimit::per_minute(0);
    let line = line!() + 1;
    let of_app = app().with(limit());
    let of_router = App::new().nest("/a", Router::new().get("/", || "").with(limit()));
    let of_route = App::new().route("/", get(|| "").with(limit()));
    for (app, line) in [of_app, of_router, of_route].into_iter().zip(line..) {
        let error = super::mistakes(app);
        assert!(error.contains(&format!("refuse everything ({}:{line}:", file!())), "{error}");
    }
}

#[test]
fn values_that_can_work_are_accepted() {
    let app = app()
        .with(BasicAuth::user("", "sesame"))
        .with(BasicAuth::new(|_: &Basic| true))
        .with(sessions().domain(".a.example").path("/admin").cookie_name("__Secure-a"))
        .with(Csrf::new().trust("https://Admin.example:8443/").trust("null"))
        .with(MethodOverride::new().header(None))
        .with(Cors::new().allow_origins::<&str>([]))
        .with(BearerAuth::tokens([""; 0]))
        .with(BearerAuth::tokens(["t0ken", ""]));
    app.build().unwrap();
}

#[test]
fn two_sessions_share_no_cookie() {
    let nested = |inner: Sessions, outer: Sessions| {
        App::new()
            .nest("/a", Router::new().get("/", || "").get("/b", || "").with(inner))
            .with(outer)
    };
    check_mistakes(
        nested(sessions(), sessions()),
        &expect![[r#"
            the app cannot start:
              - two `Sessions` use the cookie `__Host-session`: remove one, or give it another `cookie_name` (middleware/mistakes.rs:_)
        "#]],
    );
    check_mistakes(
        nested(sessions().secure(false), sessions().path("/a").cookie_name("session")),
        &expect![[r#"
            the app cannot start:
              - two `Sessions` use the cookie `session`: remove one, or give it another `cookie_name` (middleware/mistakes.rs:_)
        "#]],
    );
    assert!(nested(sessions(), sessions().cookie_name("other")).build().is_ok());
    let beside = App::new()
        .nest("/a", Router::new().get("/", || "").with(sessions()))
        .nest("/b", Router::new().get("/", || "").with(sessions()));
    assert!(beside.build().is_ok());
}

/// Paths of a guarded prefix that no route matches are behind the middleware of several routers.
/// Nobody chose its order, so the order is no mistake.
#[test]
fn middleware_that_is_joined_for_a_guard_is_no_mistake() {
    let api = || {
        let cors = cors().allow_headers(["content-type"]);
        Router::new().get("/", || "").with(cors).with(bearer())
    };
    let site = Router::new().fallback(|| "a page").with(basic());
    let module = || Router::new().get("/", || "").with(sessions());
    let pages = Router::new().fallback(|| "not found").with(sessions());
    for app in [
        App::new().merge(site).nest("/api", api()),
        App::new().merge(pages).nest("/admin", module()),
        App::new().nest("/a", module()).nest("/a", Router::new().get("/b", || "").with(sessions())),
    ] {
        assert!(app.build().is_ok());
    }
}

fn cors() -> Cors {
    Cors::new().allow_any_origin()
}

#[test]
fn a_preflight_needs_no_login() {
    fn nested(login: impl Middleware, cors: Cors) -> App {
        App::new().nest("/a", Router::new().get("/", || "").with(cors)).with(login)
    }
    for (app, login) in [
        (nested(basic(), cors().allow_headers(["content-type"])), "BasicAuth"),
        (nested(basic(), cors().allow_methods([Method::GET, Method::PUT])), "BasicAuth"),
        (nested(basic(), cors().allow_any_method()), "BasicAuth"),
        (nested(basic(), cors().mirror_headers()), "BasicAuth"),
        (nested(bearer(), cors()), "BearerAuth"),
        (nested(jwt(), cors()), "Jwt"),
        (app().with(jwt()).with(cors()).with(basic()), "Jwt"),
    ] {
        let error = super::mistakes(app);
        let expected = format!(
            "\n  - Cors: it is inside of `{login}`, which answers preflights with 401, because \
             browsers send them without credentials: add `Cors` before `{login}`, to the same app \
             or router (crates/filoplume/tests/it/middleware/mistakes.rs:"
        );
        assert!(error.contains(&expected), "{error}");
    }
    for works in [
        app().with(cors()).with(jwt()),
        // A browser sends the password that its user has typed, without a preflight.
        nested(basic(), cors().allow_methods([Method::GET])),
        nested(jwt().optional(), cors()),
        // The outer `Cors` answers preflights.
        app().with(cors()).with(bearer()).with(cors()),
        app()
            .get("/in", || "")
            .nest("/a", Router::new().get("/", || "").with(bearer()))
            .with(cors()),
    ] {
        assert!(works.build().is_ok());
    }
}

#[test]
fn a_method_is_overridden_before_a_route_is_chosen() {
    let route = post(|| "posted").delete(|| "deleted").with(MethodOverride::new());
    let app = App::new()
        .route("/", route)
        .nest("/a", Router::new().post("/", || "").with(MethodOverride::new()));
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - MethodOverride: in a router or a route it comes too late, because the method determines the route: add it to the app (middleware/mistakes.rs:_)
              - MethodOverride: in a router or a route it comes too late, because the method determines the route: add it to the app (middleware/mistakes.rs:_)
        "#]],
    );
}
