//! What an app reports at start-up about common mistakes: the route with its line, the mistake, and
//! the fix. Messages of the compiler are in `tests/compile_errors`.

use expect_test::expect;
use filoplume::extract::{FromRequest, Multipart};
use filoplume::middleware::{CspNonce, RequestId, RequestIds, TimeLeft};
use filoplume::prelude::*;
use filoplume::routing::{RouteOptions, any, on};
use filoplume::websocket::WebSocketUpgrade;
use filoplume::{Context, Permits};
use serde::Deserialize;

use crate::routing::check_mistakes;

#[derive(Deserialize)]
#[expect(dead_code, reason = "only what it asks for matters")]
struct Page {
    book: String,
    page: u32,
}

#[derive(Clone)]
struct User;

#[test]
fn a_parameter_that_is_validated_is_checked_like_any_other() {
    #[derive(Deserialize, garde::Validate)]
    struct Book {
        #[garde(skip)]
        page: u32,
    }
    let app = App::new()
        .get("/books/{book}", |Valid(Path(book)): Valid<Path<Book>>| book.page.to_string());
    let error = app.build().unwrap_err().to_string();
    assert!(error.contains("there is no capture for the field `page`"), "{error}");
}

#[test]
fn captures_must_fit_the_parameters() {
    let app = App::new()
        .get("/one/{id}", |Path((_, _)): Path<(u32, u32)>| "")
        .get("/two/{a}/{b}", |Path(_): Path<u32>| "")
        .get("/books/{book}", |Path(_): Path<Page>| "")
        .get("/none", |Path(_): Path<String>| "")
        .get("/lenient/{id}", |_: Result<Path<(u32, u32)>>| "")
        .nest("/shops/{shop}", Router::new().get("/{item}", |Path(_): Path<String>| ""));
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - GET /one/{id} (mistakes.rs:_): `Path<(u32, u32)>` does not fit the pattern: it is a tuple of 2 values, but the pattern has one capture, `id`: use `Path<T>`, or add captures to the pattern
              - GET /two/{a}/{b} (mistakes.rs:_): `Path<u32>` does not fit the pattern: it is one value, but the pattern has 2 captures, `a`, `b`: use a tuple with a type for each, or a struct with a field for each
              - GET /books/{book} (mistakes.rs:_): `Path<it::mistakes::Page>` does not fit the pattern: there is no capture for the field `page`: write `{page}` in the pattern, or make the field an `Option` or `#[serde(default)]`
              - GET /none (mistakes.rs:_) extracts `Path<..>`, but its pattern has no capture: write `{name}`
              - GET /lenient/{id} (mistakes.rs:_): `Path<(u32, u32)>` does not fit the pattern: it is a tuple of 2 values, but the pattern has one capture, `id`: use `Path<T>`, or add captures to the pattern
              - GET /shops/{shop}/{item} (mistakes.rs:_): `Path<String>` does not fit the pattern: it is one value, but the pattern has 2 captures, `shop`, `item`: use a tuple with a type for each, or a struct with a field for each
        "#]],
    );
}

#[test]
fn a_query_must_have_names() {
    let app = App::new()
        .get("/one", |Query(_): Query<u32>| "")
        .get("/list", |Query(_): Query<Vec<String>>| "")
        .post("/form", |Form(_): Form<String>| "");
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - GET /one (mistakes.rs:_): it takes `Query<u32>`, which reads one value, but queries and forms have named values: use a struct with `#[derive(Deserialize)]` and a field for each name
              - GET /list (mistakes.rs:_): it takes `Query<Vec<String>>`, which reads a list of values, but queries and forms have named values: use a struct with `#[derive(Deserialize)]` and a field for each name
              - POST /form (mistakes.rs:_): it takes `Form<String>`, which reads one value, but queries and forms have named values: use a struct with `#[derive(Deserialize)]` and a field for each name
        "#]],
    );
}

#[test]
fn values_from_middleware_must_be_provided() {
    let app = App::new()
        .get("/user", |_: Extension<User>| "")
        .get("/id", |_: RequestId| "")
        .get("/time", |_: TimeLeft| "")
        .get("/nonce", |_: CspNonce| "")
        .get("/session", |_: Session| "")
        .with(middleware::Logger::new());
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - GET /user (mistakes.rs:_): it takes `Extension<it::mistakes::User>`, but no middleware of the route adds one to the request: add the middleware with `.with(..)`; if it implements `configure`, call `options.provide::<it::mistakes::User>()` there
              - GET /id (mistakes.rs:_): it takes a `RequestId`, and requests have none: add `.with(middleware::RequestIds::new())` to the app
              - GET /time (mistakes.rs:_): it takes a `TimeLeft`, and requests have no deadline: add `.with(middleware::TimeoutBudget::new(..))` to the app
              - GET /nonce (mistakes.rs:_): it takes a `CspNonce`, and no policy has `{nonce}`: add `.with(middleware::SecurityHeaders::new().content_security_policy("script-src 'nonce-{nonce}'"))` to the app
              - GET /session (mistakes.rs:_): it uses a session, and there are none: add `.with(Sessions::new(store, key))` to the app, before what uses them
        "#]],
    );
}

/// Middleware that declares the extension that it adds.
struct Login;

impl Middleware for Login {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        request.extensions_mut().insert(User);
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.provide::<User>();
    }
}

#[test]
fn a_state_is_no_extension_and_an_extension_is_no_state() {
    let app = App::new()
        .get("/state", |_: Extension<String>| "")
        .nest("/in", Router::new().get("/extension", |_: State<User>| "").with(Login))
        .state(String::new());
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - GET /state (mistakes.rs:_): it takes `Extension<String>`, but `String` is a state: take `State<String>`
              - GET /in/extension (mistakes.rs:_) extracts `State<it::mistakes::User>`, but there is no such state: add `.state(..)` to the app, or take `Extension<..>`, which middleware adds
        "#]],
    );
}

#[test]
fn values_that_a_closure_adds_cannot_be_checked() {
    let put = |mut request: Request, next: Next<'_>| {
        request.extensions_mut().insert(User);
        next.run(request)
    };
    let app = App::new().get("/", |_: Extension<User>| "there").with(put);
    app.test().get("/").send().assert_text("there");
    // This middleware is not around the route.
    let app = App::new()
        .get("/", |_: Extension<User>| "there")
        .nest("/in", Router::new().get("/", |_: Extension<User>| "there").with(put));
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - GET / (mistakes.rs:_): it takes `Extension<it::mistakes::User>`, but no middleware of the route adds one to the request: add the middleware with `.with(..)`; if it implements `configure`, call `options.provide::<it::mistakes::User>()` there
        "#]],
    );
}

#[test]
fn optional_values_need_no_provider() {
    let app = App::new()
        .get("/option", |user: Option<Extension<User>>| user.is_some().to_string())
        .get("/result", |user: Result<Extension<User>>| user.is_ok().to_string())
        .get("/id", |Extension(id): Extension<RequestId>| id.to_string())
        .with(RequestIds::new());
    let client = app.test();
    client.get("/option").send().assert_text("false");
    client.get("/result").send().assert_text("false");
    client.get("/id").send().assert_status(200);
}

#[test]
fn a_handler_that_takes_a_result_gets_the_rejection() {
    let add = |number: Result<Json<u32>>| match number {
        Ok(Json(number)) => Ok((number + 1).to_string()),
        Err(error) => Err(error.with_field("number", "is wanted")),
    };
    let client = App::new().post("/", add).test();
    client.post("/").json(&serde_json::json!(1)).send().assert_text("2");
    client
        .post("/")
        .json(&serde_json::json!("one"))
        .send()
        .assert_status(422)
        .assert_contains("is wanted");
    client.post("/").body("1").send().assert_status(415).assert_contains("is wanted");
}

#[test]
fn an_error_with_a_status_may_have_any_content() {
    let app = App::new()
        .get("/pair", || Err::<(), _>((StatusCode::CONFLICT, "lent out")))
        .get("/status", || Err::<(), _>(StatusCode::GONE))
        .get("/json", || Err::<(), _>((StatusCode::CONFLICT, Json(1))))
        .get("/redirect", || Err::<(), _>(Redirect::to("/login")));
    let client = app.test();
    client.get("/pair").send().assert_status(409).assert_contains(r#""detail":"lent out""#);
    client.get("/status").send().assert_status(410);
    client.get("/json").send().assert_status(409).assert_text("1");
    client.get("/redirect").send().assert_status(303);
}

/// An extractor of the app that declares what it needs.
struct Admin;

impl FromRequest for Admin {
    type Rejection = Error;

    fn from_request(_: &mut Request, _: &Context<'_>) -> Result<Self> {
        Ok(Self)
    }

    fn configure(options: &mut RouteOptions) {
        Session::configure(options);
        Path::<(String, u32)>::configure(options);
    }
}

#[test]
fn an_extractor_of_the_app_declares_what_it_needs() {
    check_mistakes(
        App::new().get("/{name}", |_: Admin| ""),
        &expect![[r#"
            the app cannot start:
              - GET /{name} (mistakes.rs:_): it uses a session, and there are none: add `.with(Sessions::new(store, key))` to the app, before what uses them
              - GET /{name} (mistakes.rs:_): `Path<(String, u32)>` does not fit the pattern: it is a tuple of 2 values, but the pattern has one capture, `name`: use `Path<T>`, or add captures to the pattern
        "#]],
    );
}

#[test]
fn states_must_be_given_once_and_with_the_right_type() {
    let app = App::new()
        .get("/", |State(_): State<String>| "")
        .state(std::sync::Arc::new(String::new()))
        .state(1_u8)
        .state(2_u8);
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - there are two states of type `u8` (mistakes.rs:_ and mistakes.rs:_): wrap one of them in a type of its own
              - GET / (mistakes.rs:_) extracts `State<String>`, but there is no such state: add `.state(..)` to the app; the states of the app are `Arc<String>`, `u8`, `u8`
        "#]],
    );
}

#[test]
fn a_websocket_is_opened_with_get_by_a_handler_that_takes_the_upgrade() {
    let app = App::new()
        .websocket("/app", || "x")
        .nest("/in", Router::new().websocket("/router", || "x"))
        .post("/post", |upgrade: WebSocketUpgrade| upgrade)
        .route("/route", on([Method::PUT], |upgrade: WebSocketUpgrade| upgrade));
    check_mistakes(
        app,
        &expect![[r#"
            the app cannot start:
              - GET /app (mistakes.rs:_): the handler of `.websocket(..)` opens no WebSocket: take a parameter `upgrade: WebSocketUpgrade` and return it; an extractor that contains one calls `WebSocketUpgrade::configure(options)` in its own `configure`; for an upgrade of your own add the route with `.get(..)`
              - POST /post (mistakes.rs:_): it takes a `WebSocketUpgrade`, but a WebSocket is opened with `GET`: add the route with `.websocket(..)`
              - PUT /route (mistakes.rs:_): it takes a `WebSocketUpgrade`, but a WebSocket is opened with `GET`: add the route with `.websocket(..)`
              - GET /in/router (mistakes.rs:_): the handler of `.websocket(..)` opens no WebSocket: take a parameter `upgrade: WebSocketUpgrade` and return it; an extractor that contains one calls `WebSocketUpgrade::configure(options)` in its own `configure`; for an upgrade of your own add the route with `.get(..)`
        "#]],
    );
    let app = App::new()
        .get("/get", |upgrade: WebSocketUpgrade| upgrade)
        .websocket("/result", |upgrade: Result<WebSocketUpgrade>| upgrade)
        .post("/result", |upgrade: Result<WebSocketUpgrade>| upgrade.is_ok().to_string())
        .route("/any", any(|upgrade: WebSocketUpgrade| upgrade))
        .nest("/in", Router::new().websocket("/", |upgrade: WebSocketUpgrade| upgrade));
    assert!(app.build().is_ok());
}

#[test]
fn a_permit_is_not_held_while_a_content_arrives() {
    let (database, mail) = (Permits::new("database", 16), Permits::new("mail", 2));
    let upload = |_: Body| "";
    let app = App::new()
        .route("/stream", post(upload).uses(&database))
        .route("/parts", get(|| "").post(|_: Multipart| "").uses(&database))
        .route("/two", get(|| "").uses(&database).uses(&mail))
        .nest("/all", Router::new().route("/vital", post(upload).vital()).with(mail));
    check_mistakes(
        app,
        &expect![[r#"
        the app cannot start:
          - POST /stream (mistakes.rs:_): the route uses the permits "database", but its handler reads the content as it arrives: a slow client would hold a permit until its last byte; add `.spooled()` (feature `spool`), so that the handler is called when the content is there, or replace `uses(..)` by `Permits::take` in the handler, behind the content
          - POST /parts (mistakes.rs:_): the route uses the permits "database", but its handler reads the content as it arrives: a slow client would hold a permit until its last byte; add `.spooled()` (feature `spool`), so that the handler is called when the content is there, or replace `uses(..)` by `Permits::take` in the handler, behind the content
          - GET /two (mistakes.rs:_): the route uses the permits "database" and "mail": a route can use only one kind, because two that are taken one after the other can block each other; keep `uses(..)` for the scarcer one, and take the other in the handler with `Permits::take`, always in this order
          - POST /all/vital (mistakes.rs:_): the route is vital and uses the permits "mail": it would wait for requests that hold them; leave out `vital()` or `uses(..)`
          - POST /all/vital (mistakes.rs:_): the route uses the permits "mail", but its handler reads the content as it arrives: a slow client would hold a permit until its last byte; add `.spooled()` (feature `spool`), so that the handler is called when the content is there, or replace `uses(..)` by `Permits::take` in the handler, behind the content
    "#]],
    );
    let app = App::new()
        .route("/spooled", post(upload).uses(&database).spooled())
        .route("/parts", post(|_: Multipart| "").spooled().uses(&database))
        .route("/json", post(|_: Json<Vec<u8>>| "").uses(&database))
        .route("/request", post(|_: Request| "").uses(&database).uses(&database));
    assert!(app.build().is_ok());
}

trait Shelf: Send + Sync {}

struct Oak;

impl Shelf for Oak {}

/// The compiler converts an `Arc` into one of a trait only where it knows that it has to.
#[test]
fn a_state_of_a_trait_says_how_it_is_given() {
    type Shared = std::sync::Arc<dyn Shelf>;
    let app = |app: App| app.get("/", |_: State<Shared>| "found").build();
    let error = app(App::new().state(std::sync::Arc::new(Oak))).unwrap_err().to_string();
    assert!(error.contains("write `.state(value as Arc<dyn it::mistakes::Shelf>)`"), "{error}");
    app(App::new().state(std::sync::Arc::new(Oak) as Shared)).unwrap();
}

#[test]
fn a_file_of_sessions_that_cannot_be_created_is_named() {
    let error = filoplume::session::SqliteStore::open("/no/such/folder/s.db").unwrap_err();
    assert!(error.to_string().contains("/no/such/folder/s.db"), "{error}");
}

#[test]
fn a_proxy_is_named_by_its_address() {
    let error = App::new().trust_proxies(["proxy.example"]).build().unwrap_err().to_string();
    assert!(error.contains(r#""proxy.example""#) && error.contains("an IP address"), "{error}");
}
