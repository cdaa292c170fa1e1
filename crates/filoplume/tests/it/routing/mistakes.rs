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
        .nest("api", Router::new())
        .nest("/api/", Router::new())
        .nest("/", Router::new())
        .nest("", Router::new())
        .nest("/{*all}", Router::new())
        .nest("/{x}", Router::new().get("/{x}", || ""));
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - nest "api" (routing/mistakes.rs:_): a prefix begins with `/`: write "/api"
              - nest "/api/" (routing/mistakes.rs:_): a prefix ends without `/`: write "/api"
              - nest "/" (routing/mistakes.rs:_): a prefix ends without `/`; to join routers without a prefix use `merge`
              - nest "" (routing/mistakes.rs:_): a prefix begins with `/`; to join routers without a prefix use `merge`
              - nest "/{*all}" (routing/mistakes.rs:_): a prefix cannot capture all the rest
              - route "users" (routing/mistakes.rs:_): a pattern begins with `/`: write "/users"
              - route "" (routing/mistakes.rs:_): a pattern begins with `/`: write "/"
              - route "/users/:id" (routing/mistakes.rs:_): captures are written in braces: `{id}` instead of `:id`
              - route "/files/*rest" (routing/mistakes.rs:_): captures are written in braces: `{*rest}` instead of `*rest`
              - route "/users/<int:id>" (routing/mistakes.rs:_): captures are written in braces: `{id}` instead of `<int:id>`
              - route "/users/{id:[0-9]+}" (routing/mistakes.rs:_): a capture has no pattern of its own: write `{id}`, and the type of `Path` decides what it can be
              - route "/search?q={q}" (routing/mistakes.rs:_): `?` is no part of a path; queries are read with `Query`
              - route "/{id" (routing/mistakes.rs:_): a `{` is not closed; one that stands for itself is doubled
              - route "/id}" (routing/mistakes.rs:_): a `}` closes nothing; one that stands for itself is doubled
              - route "/{}" (routing/mistakes.rs:_): a capture has a name: `{id}`, `{*rest}`
              - route "/{a}-{b}" (routing/mistakes.rs:_): a segment has one capture; take it apart in the handler
              - route "/{*rest}/more" (routing/mistakes.rs:_): `{*rest}` captures all the rest, so it is the last segment
              - route "/{a}/{a}" (routing/mistakes.rs:_): two captures have the name `a`
              - route "/{a b}" (routing/mistakes.rs:_): the name of a capture has letters, digits, `_`, `-` and `.`, unlike `a b`
              - route "/{x}/{x}" (routing/mistakes.rs:_): two captures have the name `x`
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
              - route "/users/{name}" (routing/mistakes.rs:_) conflicts with route "/users/{id}" (routing/mistakes.rs:_): both match the same paths: give the captures the same names
              - GET /same has two handlers: routing/mistakes.rs:_ and routing/mistakes.rs:_; keep one of them
              - ANY /anything has two handlers: routing/mistakes.rs:_ and routing/mistakes.rs:_; keep one of them
              - route "/files/{name}.txt" (routing/mistakes.rs:_) conflicts with route "/files/{*a}" (routing/mistakes.rs:_): captures at the same place are of one kind, either all with text before them or all with text behind them, and `{*rest}` shares its place with no capture; what is left over can be answered by a fallback
              - route "/{name}.txt" (routing/mistakes.rs:_) conflicts with route "/v{major}" (routing/mistakes.rs:_): captures at the same place are of one kind, either all with text before them or all with text behind them, and `{*rest}` shares its place with no capture; what is left over can be answered by a fallback
              - route "/files/{*b}" (routing/mistakes.rs:_) conflicts with route "/files/{*a}" (routing/mistakes.rs:_): both match the same paths: give the captures the same names
              - GET /caf%C3%A9 has two handlers: routing/mistakes.rs:_ and routing/mistakes.rs:_; keep one of them
              - GET /api/x has two handlers: routing/mistakes.rs:_ and routing/mistakes.rs:_; keep one of them
              - the fallback of "/api/" (routing/mistakes.rs:_) has the prefix of another fallback (routing/mistakes.rs:_)
              - there are two fallbacks: routing/mistakes.rs:_ and routing/mistakes.rs:_; keep one of them
        "#]],
    );
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
              - the fallback of "/users/" (routing/mistakes.rs:_) cannot stand beside that of "/users/{id}/": all the rest of a prefix, which a fallback answers, shares its place with no capture in the prefix of another one
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
              - there are two states of type `it::routing::mistakes::an_app_whose_handlers_take_missing_values_does_not_start::Db` (routing/mistakes.rs:_); wrap one in a type of its own
              - GET /state (routing/mistakes.rs:_) takes `State<Arc<u8>>`, and no such state was given: add `.state(..)` to the app; what was given is `it::routing::mistakes::an_app_whose_handlers_take_missing_values_does_not_start::Db`, `it::routing::mistakes::an_app_whose_handlers_take_missing_values_does_not_start::Db`
              - GET /path (routing/mistakes.rs:_) takes `Path<..>`, and its pattern captures nothing: write `{name}`
              - the fallback of "/" (routing/mistakes.rs:_) takes `Path<..>`, and its pattern captures nothing: write `{name}`
        "#]],
    );
}
