//! Mistakes in routes, which are all reported at start-up.

use super::*;

#[test]
fn invalid_patterns_are_all_reported_at_once() {
    let app = App::new()
        .get("users", || "")
        .get("", || "")
        .get("/users/:id", || "")
        .get("/files/*rest", || "")
        .get("/users/<int:id>", || "")
        .get("/users/{id:[0-9]+}", || "")
        .get("/search?q={q}", || "")
        .get("/{id", || "")
        .get("/id}", || "")
        .get("/{}", || "")
        .get("/{a}-{b}", || "")
        .get("/{*rest}/more", || "")
        .get("/{a}/{a}", || "")
        .get("/{a b}", || "")
        .route("/on", on([], || ""))
        .get("/any/{path:.*}", || "")
        .get("/files/{rest...}", || "")
        .get("/files/**", || "")
        .get("/blog/[slug]", || "")
        .get("/docs/[...page]", || "")
        .get("GET /a", || "")
        .get("http://localhost/y", || "")
        .nest("api", Router::new())
        .nest("v1/", Router::new())
        .nest("https://localhost/v2/", Router::new())
        .nest("/api/", Router::new())
        .nest("/", Router::new())
        .nest("", Router::new())
        .nest("/{*all}", Router::new())
        .nest("/{x}", Router::new().get("/{x}", || ""))
        .nest("/v3", Router::new().get("", || "").get("users", || ""));
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - nest "api" (routing/mistakes.rs:_): a prefix must begin with `/`: write "/api"
              - nest "v1/" (routing/mistakes.rs:_): a prefix must begin with `/`: write "/v1"
              - nest "https://localhost/v2/" (routing/mistakes.rs:_): a prefix must begin with `/`: write "/v2", without scheme and host
              - nest "/api/" (routing/mistakes.rs:_): a prefix cannot end with `/`: write "/api"
              - nest "/" (routing/mistakes.rs:_): a prefix names a path; use `merge` to join routers without a prefix
              - nest "" (routing/mistakes.rs:_): a prefix names a path; use `merge` to join routers without a prefix
              - nest "/{*all}" (routing/mistakes.rs:_): a prefix cannot capture the rest of the path
              - route "users" (routing/mistakes.rs:_): a pattern begins with `/`: write "/users"
              - route "" (routing/mistakes.rs:_): a pattern begins with `/`: write "/"
              - route "/users/:id" (routing/mistakes.rs:_): captures are written in braces: `{id}` instead of `:id`
              - route "/files/*rest" (routing/mistakes.rs:_): captures are written in braces: `{*rest}` instead of `*rest`
              - route "/users/<int:id>" (routing/mistakes.rs:_): captures are written in braces: `{id}` instead of `<int:id>`
              - route "/users/{id:[0-9]+}" (routing/mistakes.rs:_): a capture cannot have a pattern: write `{id}`; the type of `Path` decides what it can be
              - route "/search?q={q}" (routing/mistakes.rs:_): `?` is not part of a path; read the query with `Query`
              - route "/{id" (routing/mistakes.rs:_): a `{` is not closed; write a literal brace as `{{`
              - route "/id}" (routing/mistakes.rs:_): a `}` without `{`; write a literal brace as `}}`
              - route "/{}" (routing/mistakes.rs:_): a capture needs a name: `{id}`, `{*rest}`
              - route "/{a}-{b}" (routing/mistakes.rs:_): a segment can have only one capture; split it in the handler
              - route "/{*rest}/more" (routing/mistakes.rs:_): `{*rest}` captures the rest of the path, so it must be the last segment
              - route "/{a}/{a}" (routing/mistakes.rs:_): two captures have the name `a`
              - route "/{a b}" (routing/mistakes.rs:_): a capture name can contain letters, digits, `_`, `-` and `.`, unlike `a b`
              - `on` (routing/mistakes.rs:_) has no methods, so its handler answers nothing: name its methods, or use `any`
              - route "/any/{path:.*}" (routing/mistakes.rs:_): a capture cannot have a pattern: write `{path}`; the type of `Path` decides what it can be
              - route "/files/{rest...}" (routing/mistakes.rs:_): the rest is captured by a star: write `{*rest}`
              - route "/files/**" (routing/mistakes.rs:_): captures are written in braces: `{*rest}` instead of `**`
              - route "/blog/[slug]" (routing/mistakes.rs:_): captures are written in braces: `{slug}` instead of `[slug]`; literal brackets are `%5B` and `%5D`
              - route "/docs/[...page]" (routing/mistakes.rs:_): captures are written in braces: `{*page}` instead of `[...page]`; literal brackets are `%5B` and `%5D`
              - route "GET /a" (routing/mistakes.rs:_): a pattern begins with `/`: write "/a", without the method
              - route "http://localhost/y" (routing/mistakes.rs:_): a pattern begins with `/`: write "/y", without scheme and host
              - route "/{x}/{x}" (routing/mistakes.rs:_): two captures have the name `x`
              - route "" below "/v3" (routing/mistakes.rs:_): a pattern begins with `/`: write "/"
              - route "users" below "/v3" (routing/mistakes.rs:_): a pattern begins with `/`: write "/users"
        "#]],
    );
}

#[test]
fn conflicts_name_both_routes() {
    fn handler() -> &'static str {
        ""
    }
    let app = App::new()
        .get("/users/{id}", handler)
        .post("/users/{name}", handler)
        .get("/same", handler)
        .route("/same", get(handler).post(handler))
        .route("/anything", any(handler).any(handler))
        .get("/files/{*a}", handler)
        .get("/files/{name}.txt", handler)
        .get("/v{major}", handler)
        .get("/{name}.txt", handler)
        .get("/files/{*b}", handler)
        .nest("/api", Router::new().get("/x", handler).fallback(handler))
        .nest("/api", Router::new().get("/x", handler).fallback(handler))
        .get("/caf%C3%A9", handler)
        .get("/café", handler)
        .fallback(handler)
        .merge(Router::new().fallback(handler));
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - route "/users/{name}" (routing/mistakes.rs:_) conflicts with route "/users/{id}" (routing/mistakes.rs:_): both match the same paths: use the same names for the captures
              - GET /same has several handlers; keep one of them: routing/mistakes.rs:_, routing/mistakes.rs:_
              - ANY /anything has several handlers; keep one of them: routing/mistakes.rs:_, routing/mistakes.rs:_
              - route "/files/{name}.txt" (routing/mistakes.rs:_) conflicts with route "/files/{*a}" (routing/mistakes.rs:_): captures at the same position must be of one kind, either all with text before them or all with text after them, and `{*rest}` cannot stand beside another capture; a fallback can answer the remaining paths
              - route "/{name}.txt" (routing/mistakes.rs:_) conflicts with route "/v{major}" (routing/mistakes.rs:_): captures at the same position must be of one kind, either all with text before them or all with text after them, and `{*rest}` cannot stand beside another capture; a fallback can answer the remaining paths
              - route "/files/{*b}" (routing/mistakes.rs:_) conflicts with route "/files/{*a}" (routing/mistakes.rs:_): both match the same paths: use the same names for the captures
              - GET /caf%C3%A9 has several handlers; keep one of them: routing/mistakes.rs:_, routing/mistakes.rs:_
              - GET /api/x has several handlers; keep one of them: routing/mistakes.rs:_, routing/mistakes.rs:_
              - the fallback of "/api/" (routing/mistakes.rs:_) has the prefix of another fallback (routing/mistakes.rs:_)
              - there are two fallbacks: routing/mistakes.rs:_ and routing/mistakes.rs:_; keep one of them
        "#]],
    );
}

#[test]
fn a_second_fallback_names_the_first_one_and_no_route_of_the_same_pattern() {
    let line = line!() + 1;
    let first = Router::new().fallback(|| "first");
    let second = Router::new().get("/{*rest}", || "a route").fallback(|| "second");
    let error = App::new().nest("/api", first).nest("/api", second).build().unwrap_err();
    let expected = format!("the prefix of another fallback ({}:{line}:", file!());
    assert!(format!("{error:?}").contains(&expected), "{error:?}");
}

#[test]
fn a_fallback_below_a_capture_conflicts_with_another_one() {
    let one = Router::new().get("/x", || "x").fallback(|| "no such note of one");
    let app =
        App::new().nest("/users", Router::new().nest("/{id}", one).fallback(|| "no such user"));
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - the fallback of "/users/" (routing/mistakes.rs:_) conflicts with that of "/users/{id}/": a fallback answers every path below its prefix, so the prefix of another one cannot have a capture at the same position
        "#]],
    );
}

#[test]
fn an_app_whose_handlers_take_missing_values_does_not_start() {
    struct Db;
    fn wants_state(_: State<std::sync::Arc<u8>>) {}
    fn wants_path(_: Path<u8>) {}
    let app = App::new()
        .get("/state", wants_state)
        .get("/path", wants_path)
        .fallback(wants_path)
        .state(Db)
        .state(Db)
        .nest("/has", Router::new().state(std::sync::Arc::new(1_u8)).get("/state", wants_state));
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - there are two states of type `it::routing::mistakes::an_app_whose_handlers_take_missing_values_does_not_start::Db` (routing/mistakes.rs:_ and routing/mistakes.rs:_): wrap one of them in a type of its own
              - GET /state (routing/mistakes.rs:_) extracts `State<Arc<u8>>`, but there is no such state: add `.state(..)` to the app; the states of the app are `it::routing::mistakes::an_app_whose_handlers_take_missing_values_does_not_start::Db`, `it::routing::mistakes::an_app_whose_handlers_take_missing_values_does_not_start::Db`
              - GET /path (routing/mistakes.rs:_) extracts `Path<..>`, but its pattern has no capture: write `{name}`
              - the fallback of "/" (routing/mistakes.rs:_) extracts `Path<..>`, but its pattern has no capture: write `{name}`
        "#]],
    );
}

#[test]
fn a_second_handler_names_the_first_one() {
    let app = App::new().get("/", || "another");
    let line = line!() + 1;
    let app = app.get("/same", || "first");
    let app = app.get("/other", || "another").get("/same", || "second");
    let error = app.build().unwrap_err();
    let expected = format!("keep one of them: {}:{line}:", file!());
    assert!(format!("{error:?}").contains(&expected), "{error:?}");
}
