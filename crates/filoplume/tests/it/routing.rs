//! Which handler answers, and what happens if there is none.

use expect_test::{Expect, expect};
use filoplume::prelude::*;
use filoplume::routing::{any, head, on, options};
use filoplume::testing::TestClient;
use serde_json::Value;

fn method(name: &str) -> Method {
    Method::from_bytes(name.as_bytes()).expect("a valid method")
}

/// Sends a request, and returns a summary of the response in one line.
fn ask(client: &TestClient, request: &str) -> String {
    let (name, target) = request.split_once(' ').expect("a method and a target");
    let response = client.request(method(name), target).send();
    let mut line = format!("{request} -> {}", response.status().as_u16());
    for header in ["location", "allow"] {
        if let Some(value) = response.header(header) {
            line.push_str(&format!(" {header}: {value}"));
        }
    }
    let is_problem = response.header("content-type") == Some("application/problem+json");
    if !is_problem && !response.body().is_empty() {
        line.push_str(&format!(" {}", response.text().replace('\0', "\\0")));
    } else if is_problem && !response.body().is_empty() {
        let problem: Value = response.json();
        line.push_str(
            problem["detail"]
                .as_str()
                .map(|detail| format!(" ({detail})"))
                .unwrap_or_default()
                .as_str(),
        );
    }
    line + "\n"
}

#[track_caller]
fn check(app: App, requests: &[&str], expected: &Expect) {
    let client = app.test();
    let lines: Vec<_> = requests.iter().map(|request| ask(&client, request)).collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn a_trailing_slash_is_redirected_to_the_form_with_a_route() {
    let app = App::new()
        .get("/", || "root")
        .get("/without", || "without")
        .get("/with/", || "with")
        .get("/both", || "both")
        .get("/both/", || "both/")
        .get("/users/{id}", |Path(id): Path<String>| id)
        .get("/files/{*path}", |Path(path): Path<String>| path);
    check(
        app,
        &[
            "GET /",
            "GET /without",
            "GET /without/",
            "GET /without/?a=b%20c",
            "POST /without/",
            "GET /with",
            "GET /with/",
            "GET /both",
            "GET /both/",
            "GET /users/1/",
            "GET /users/",
            "GET /users",
            "GET /files/",
            "GET /files",
            "GET /files/a/",
            "GET /without//",
            "GET //without/",
            "GET //evil.example/",
            "GET /nowhere/",
        ],
        &expect![[r#"
            GET / -> 200 root
            GET /without -> 200 without
            GET /without/ -> 308 location: /without
            GET /without/?a=b%20c -> 308 location: /without?a=b%20c
            POST /without/ -> 308 location: /without
            GET /with -> 308 location: /with/
            GET /with/ -> 200 with
            GET /both -> 200 both
            GET /both/ -> 200 both/
            GET /users/1/ -> 308 location: /users/1
            GET /users/ -> 404
            GET /users -> 404
            GET /files/ -> 404
            GET /files -> 404
            GET /files/a/ -> 200 a/
            GET /without// -> 404
            GET //without/ -> 404
            GET //evil.example/ -> 404
            GET /nowhere/ -> 404
        "#]],
    );
}

#[test]
fn a_redirect_never_leads_to_another_host() {
    let app = App::new().get("/{a}/{b}", || "two").get("/x/{a}/", || "x").get("/{a}/y/z/", || "z");
    let client = app.test();
    for target in [
        "//evil.example/",
        "//evil.example",
        "//evil.example/x",
        "//x/y/",
        "//y/z",
        "/%5Cevil.example/",
        "/%2Fevil.example/",
    ] {
        let response = client.get(target).send();
        let location = response.header("location").unwrap_or("/");
        assert!(
            location.starts_with('/') && !location[1..].starts_with(['/', '\\']),
            "{target} leads to {location}"
        );
    }
}

/// A client resolves `.` and `..` before it follows: it would reach another path, or a loop.
#[test]
fn a_redirect_has_no_dot_segments() {
    let app =
        App::new().get("/a/{x}/{y}/b/", || "a").get("/{x}/", || "x").get("/{x}/{y}/", || "xy");
    let client = app.test();
    for target in [
        "/a/./x/b",
        "/a//./x/b/",
        "/a/../x/b",
        "/a/%2e/x/b",
        "/a/%2e/x/%62/",
        "/a//%2E%2e/x/b/",
        "/a/x/%2e%2e/b",
        "/%2e",
        "/%2e%2e",
        "//%2e%2e",
        "/x/%2e%2e",
        "/x//%2e%2e/",
    ] {
        let response = client.get(target).send();
        let location = response.header("location").unwrap_or("/");
        let has_dots = location.split('/').any(|part| {
            matches!(part.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
        });
        assert!(!has_dots, "{target} leads to {location}");
    }
    // Other paths are redirected as usual.
    client.get("/a/x.y/..z/b").send().assert_status(308).assert_header("location", "/a/x.y/..z/b/");
}

#[test]
fn implied_methods_are_answered() {
    let app = App::new()
        .get("/get", || "got")
        .route("/own", get(|| "got").head(|| ([("x-head", "own")], "")).options(|| "own options"))
        .route("/post", post(|| "posted").put(|| "put"))
        .route("/head", head(|| "only head"))
        .route("/options", options(|| "only options"))
        .route("/any", any(|method: Method| format!("any {method}")))
        .route("/mixed", get(|| "got").any(|method: Method| format!("any {method}")))
        .route(
            "/vote",
            on([method("PURGE"), Method::PUT, Method::PUT], |method: Method| {
                format!("on {method}")
            }),
        );
    check(
        app,
        &[
            "HEAD /get",
            "OPTIONS /get",
            "POST /get",
            "BREW /get",
            "HEAD /own",
            "OPTIONS /own",
            "GET /post",
            "OPTIONS /post",
            "GET /head",
            "HEAD /head",
            "GET /options",
            "OPTIONS /options",
            "GET /any",
            "BREW /any",
            "OPTIONS /any",
            "GET /mixed",
            "HEAD /mixed",
            "POST /mixed",
            "PURGE /vote",
            "PUT /vote",
            "GET /vote",
            "get /get",
            "OPTIONS *",
        ],
        &expect![[r#"
            HEAD /get -> 200
            OPTIONS /get -> 204 allow: GET, HEAD, OPTIONS
            POST /get -> 405 allow: GET, HEAD, OPTIONS
            BREW /get -> 405 allow: GET, HEAD, OPTIONS
            HEAD /own -> 200
            OPTIONS /own -> 200 own options
            GET /post -> 405 allow: POST, PUT, OPTIONS
            OPTIONS /post -> 204 allow: POST, PUT, OPTIONS
            GET /head -> 405 allow: HEAD, OPTIONS
            HEAD /head -> 200
            GET /options -> 405 allow: OPTIONS
            OPTIONS /options -> 200 only options
            GET /any -> 200 any GET
            BREW /any -> 200 any BREW
            OPTIONS /any -> 200 any OPTIONS
            GET /mixed -> 200 got
            HEAD /mixed -> 200
            POST /mixed -> 200 any POST
            PURGE /vote -> 200 on PURGE
            PUT /vote -> 200 on PUT
            GET /vote -> 405 allow: PURGE, PUT, OPTIONS
            get /get -> 405 allow: GET, HEAD, OPTIONS
            OPTIONS * -> 204 allow: GET, HEAD, OPTIONS, POST, PUT, PURGE
        "#]],
    );
}

#[test]
fn head_has_the_content_length_of_get() {
    let client = App::new().get("/", || "Hello!").test();
    client.head("/").send().assert_header("content-length", "6").assert_text("");
}

#[test]
fn literal_text_wins_over_captures() {
    let app = App::new()
        .get("/users/{id}", |Path(id): Path<String>| format!("user {id}"))
        .get("/users/me", || "me")
        .get("/users/{id}/posts/{post}", |Path((id, post)): Path<(String, String)>| {
            format!("{id} {post}")
        })
        .get("/files/{name}.txt", |Path(name): Path<String>| format!("text {name}"))
        .get("/files/{name}", |Path(name): Path<String>| format!("file {name}"))
        .get("/api/v{major}/info", |Path(major): Path<String>| format!("version {major}"))
        .get("/img/img-{id}.png", |Path(id): Path<String>| format!("image {id}"))
        .get("/static/{*path}", |Path(path): Path<String>| format!("static {path}"))
        .get("/static/known.css", || "known");
    check(
        app,
        &[
            "GET /users/17",
            "GET /users/me",
            "GET /users/meme",
            "GET /users/1/posts/2",
            "GET /users/me/posts/2",
            "GET /users//posts/2",
            "GET /files/a.txt",
            "GET /files/a.b.txt",
            "GET /files/a.png",
            "GET /files/.txt",
            "GET /api/v2/info",
            "GET /api/v/info",
            "GET /img/img-7.png",
            "GET /img/img-.png",
            "GET /static/a/b/c",
            "GET /static/known.css",
            "GET /static/known.css.map",
            "GET /static//a",
            "GET /static/../etc/passwd",
            "GET /Users/17",
        ],
        &expect![[r#"
            GET /users/17 -> 200 user 17
            GET /users/me -> 200 me
            GET /users/meme -> 200 user meme
            GET /users/1/posts/2 -> 200 1 2
            GET /users/me/posts/2 -> 200 me 2
            GET /users//posts/2 -> 404
            GET /files/a.txt -> 200 text a
            GET /files/a.b.txt -> 200 text a.b
            GET /files/a.png -> 200 file a.png
            GET /files/.txt -> 200 file .txt
            GET /api/v2/info -> 200 version 2
            GET /api/v/info -> 404
            GET /img/img-7.png -> 200 image 7
            GET /img/img-.png -> 404
            GET /static/a/b/c -> 200 static a/b/c
            GET /static/known.css -> 200 known
            GET /static/known.css.map -> 200 static known.css.map
            GET /static//a -> 200 static /a
            GET /static/../etc/passwd -> 200 static ../etc/passwd
            GET /Users/17 -> 404
        "#]],
    );
}

#[test]
fn paths_are_matched_encoded_and_captures_are_decoded() {
    let app = App::new()
        .get("/café", || "coffee")
        .get("/a b/{x}", |Path(x): Path<String>| format!("x={x}"))
        .get("/~user/@{name}", |Path(name): Path<String>| format!("name={name}"))
        .get("/{{braces}}", || "braces")
        .get("/one/{x}", |Path(x): Path<String>| format!("one={x}"))
        .get("/raw/{x}", || "not looked at");
    check(
        app,
        &[
            "GET /caf%C3%A9",
            "GET /caf%c3%a9?q",
            "GET /a%20b/c%20d",
            "GET /%7Euser/%40me",
            "GET /~user/@m%65",
            "GET /%7Bbraces%7D",
            "GET /{braces}",
            "GET /one/a%2Fb",
            "GET /one/a/b",
            "GET /one/%2e%2e",
            "GET /one/%ff",
            "GET /one/100%",
            "GET /one/%zz",
            "GET /one/%E2%82%AC+%C3%B6",
            "GET /raw/%ff",
            "GET /%ff",
            "GET /one/%00",
        ],
        &expect![[r#"
            GET /caf%C3%A9 -> 200 coffee
            GET /caf%c3%a9?q -> 308 location: /caf%C3%A9?q
            GET /a%20b/c%20d -> 200 x=c d
            GET /%7Euser/%40me -> 308 location: /~user/@me
            GET /~user/@m%65 -> 200 name=me
            GET /%7Bbraces%7D -> 200 braces
            GET /{braces} -> 308 location: /%7Bbraces%7D
            GET /one/a%2Fb -> 200 one=a/b
            GET /one/a/b -> 404
            GET /one/%2e%2e -> 200 one=..
            GET /one/%ff -> 400 (`x` in the path is not UTF-8)
            GET /one/100% -> 400 (`x` in the path has a `%` without two hexadecimal digits behind it)
            GET /one/%zz -> 400 (`x` in the path has a `%` without two hexadecimal digits behind it)
            GET /one/%E2%82%AC+%C3%B6 -> 200 one=€+ö
            GET /raw/%ff -> 200 not looked at
            GET /%ff -> 404
            GET /one/%00 -> 200 one=\0
        "#]],
    );
}

#[test]
fn other_target_forms_are_handled() {
    let app = || {
        App::new().get("/", || "root").get("/a/{x}", |Path(x): Path<String>| x).post("/p", || "p")
    };
    check(
        app(),
        &[
            "GET http://localhost/a/1?q",
            "GET http://localhost",
            "GET http://localhost?q",
            "GET HTTP://localhost/a/1/",
            "OPTIONS *",
            "CONNECT localhost:80",
            "OPTIONS /",
        ],
        &expect![[r#"
            GET http://localhost/a/1?q -> 200 1
            GET http://localhost -> 200 root
            GET http://localhost?q -> 200 root
            GET HTTP://localhost/a/1/ -> 308 location: /a/1
            OPTIONS * -> 204 allow: GET, HEAD, POST, OPTIONS
            CONNECT localhost:80 -> 501 (this server opens no tunnels)
            OPTIONS / -> 204 allow: GET, HEAD, OPTIONS
        "#]],
    );
    // A fallback is only for paths.
    check(
        app().fallback(|| "fallback"),
        &["CONNECT localhost:80", "OPTIONS *", "GET /nowhere"],
        &expect![[r#"
            CONNECT localhost:80 -> 501 (this server opens no tunnels)
            OPTIONS * -> 204 allow: GET, HEAD, POST, OPTIONS
            GET /nowhere -> 200 fallback
        "#]],
    );
}

#[test]
fn a_long_path_is_matched_or_refused() {
    let client = App::new()
        .get("/{a}/{b}/{c}", || "three")
        .get("/{a}/{b}/x", || "x")
        .get("/rest/{*rest}", |Path(rest): Path<String>| rest.len().to_string())
        .test();
    client.get(&format!("/rest/{}", "a/".repeat(3000))).send().assert_text("6000");
    client.get(&"/a".repeat(3000)).send().assert_status(404);
    client.get(&"/%".repeat(3000)).send().assert_status(404);
    client.get(&format!("/{}", "/".repeat(6000))).send().assert_status(404);
    client.get(&format!("/a/b/{}", "y".repeat(6000))).send().assert_text("three");
    client.get(&format!("/rest/{}", "a".repeat(100_000))).send().assert_status(414);
}

/// Records that it was called.
fn records_call(name: &'static str) -> impl Middleware {
    move |mut request: Request, next: Next<'_>| {
        let mut names =
            request.extensions().get::<Vec<&'static str>>().cloned().unwrap_or_default();
        names.push(name);
        request.extensions_mut().insert(names);
        next.run(request)
    }
}

fn called(
    Extension(names): Extension<Vec<&'static str>>,
    State(state): State<&'static str>,
) -> String {
    format!("{} state={state}", names.join(">"))
}

#[test]
fn nested_routers_have_their_own_middleware_state_and_captures() {
    let items = Router::new()
        .get("/{item}", |Path((shop, item)): Path<(String, u32)>| format!("{item} of {shop}"))
        .get("/", |Path(shop): Path<String>| format!("all of {shop}"));
    let shop = Router::new()
        .with(records_call("shop"))
        .state("shop")
        .get("/", called)
        .route("/own", get(called).with(records_call("route")))
        .nest("/deep", Router::new().with(records_call("deep")).get("/", called).state("deep"))
        .merge(Router::new().with(records_call("merged")).get("/merged", called));
    let app = App::new()
        .with(records_call("app"))
        .state("app")
        .get("/", called)
        .nest("/shops/{shop}/items", items)
        .nest("/shop", shop)
        .with(records_call("late"));
    check(
        app,
        &[
            "GET /",
            "GET /shop",
            "GET /shop/",
            "GET /shop/own",
            "GET /shop/deep",
            "GET /shop/merged",
            "GET /shops/x%20y/items/3",
            "GET /shops/x/items",
            "GET /shops/x/items/me",
            "GET /shop/nowhere",
        ],
        &expect![[r#"
            GET / -> 200 app>late state=app
            GET /shop -> 200 app>late>shop state=shop
            GET /shop/ -> 308 location: /shop
            GET /shop/own -> 200 app>late>shop>route state=shop
            GET /shop/deep -> 200 app>late>shop>deep state=deep
            GET /shop/merged -> 200 app>late>shop>merged state=shop
            GET /shops/x%20y/items/3 -> 200 3 of x y
            GET /shops/x/items -> 200 all of x
            GET /shops/x/items/me -> 400 (`item` in the path is wrong: `me` is not a whole number from 0 to 4294967295)
            GET /shop/nowhere -> 404
        "#]],
    );
}

#[test]
fn the_innermost_fallback_with_a_matching_prefix_answers() {
    let tenant = Router::new().get("/known", || "known").fallback(
        |Path(tenant): Path<String>, request: Request| {
            format!("tenant {tenant}: {}", request.path())
        },
    );
    let inner = Router::new().get("/known", || "known").fallback(|| "inner");
    let api = Router::new()
        .get("/known", || "known")
        .fallback(|| "api")
        .nest("/inner", inner)
        .nest("/none", Router::new().get("/x", || "x"));
    let app = App::new()
        .nest("/api", api)
        .nest("/t/{tenant}", tenant)
        .fallback(|| (StatusCode::NOT_FOUND, "app"));
    check(
        app,
        &[
            "GET /api",
            "GET /api/",
            "GET /api/x",
            "GET /api/inner",
            "GET /api/inner/x/y",
            "GET /api/innerx",
            "GET /api/none/y",
            "GET /apix",
            "GET /t/a%20b/x/y",
            "GET /t/a/known",
            "POST /t/a/known",
            "GET /api/known/",
            "GET /%61pi/x?y",
            "GET /api/%69nner/x",
            "GET /api/inner/%78",
            "GET /./%61pi/x",
            "GET /t",
        ],
        &expect![[r#"
            GET /api -> 200 api
            GET /api/ -> 200 api
            GET /api/x -> 200 api
            GET /api/inner -> 200 inner
            GET /api/inner/x/y -> 200 inner
            GET /api/innerx -> 200 api
            GET /api/none/y -> 200 api
            GET /apix -> 404 app
            GET /t/a%20b/x/y -> 200 tenant a b: /t/a%20b/x/y
            GET /t/a/known -> 200 known
            POST /t/a/known -> 405 allow: GET, HEAD, OPTIONS
            GET /api/known/ -> 308 location: /api/known
            GET /%61pi/x?y -> 308 location: /api/x?y
            GET /api/%69nner/x -> 308 location: /api/inner/x
            GET /api/inner/%78 -> 200 inner
            GET /./%61pi/x -> 404 app
            GET /t -> 404 app
        "#]],
    );
}

#[test]
fn middleware_of_the_app_sees_unmatched_requests() {
    let app = App::new().get("/a", || "a").with(|request: Request, next: Next<'_>| {
        let route = next.context().route().map(str::to_owned);
        let mut response = next.run(request);
        response.set_header("x-route", format!("{route:?}"))?;
        Ok::<_, Error>(response)
    });
    let client = app.test();
    client.get("/a").send().assert_header("x-route", "Some(\"/a\")");
    client.get("/a/").send().assert_status(308).assert_header("x-route", "None");
    client.get("/nowhere").send().assert_status(404).assert_header("x-route", "None");
    client.post("/a").send().assert_status(405).assert_header("x-route", "None");
    client.options("/a").send().assert_status(204).assert_header("x-route", "None");
}

#[test]
fn middleware_can_change_the_method_before_the_route_is_chosen() {
    let app = App::new().route("/a", post(|| "posted").delete(|| "deleted")).with(
        |mut request: Request, next: Next<'_>| {
            if request.header("x-method") == Some("DELETE") {
                request.set_method(Method::DELETE);
            }
            next.run(request)
        },
    );
    let client = app.test();
    client.post("/a").send().assert_text("posted");
    client.post("/a").header("x-method", "DELETE").send().assert_text("deleted");
}

#[test]
fn routes_can_be_printed() {
    let app = App::new()
        .get("/", || "")
        .route("/notes/{id}", get(|| "").on([Method::PUT, method("PURGE")], || "").any(|| ""))
        .nest("/api", Router::new().get("/", || "").nest("/v1", Router::new().post("/x", || "")))
        .nest("/docs", Router::new().files("/", StaticFiles::folder("src")))
        .files("/src", StaticFiles::folder("src"))
        .merge(Router::new().get("/merged", || ""))
        .fallback(|| StatusCode::NOT_FOUND);
    expect![[r#"
        GET        /
        GET        /notes/{id}
        PUT,PURGE  /notes/{id}
        ANY        /notes/{id}
        GET        /src/
        GET        /src/{*file}
        GET        /api
        POST       /api/v1/x
        FALLBACK   /docs/*
        GET        /merged
        FALLBACK   /*
    "#]]
    .assert_eq(&app.routes().to_string());
    let places: Vec<_> = app.routes().iter().map(|route| route.written_at.clone()).collect();
    assert!(
        places.iter().all(|place| place.starts_with("crates/filoplume/tests/it/routing.rs:")),
        "{places:?}"
    );
}

/// Returns what `main` prints, without line numbers.
#[track_caller]
pub(crate) fn check_mistakes(app: App, expected: &Expect) {
    let place = format!("{}:", std::panic::Location::caller().file());
    let place = place.trim_start_matches("crates/filoplume/tests/it/");
    let error = app.build().expect_err("the app has mistakes");
    let mut text = format!("{error:?}\n").replace("crates/filoplume/tests/it/", "");
    let mut shown = String::new();
    while let Some(at) = text.find(place) {
        let end = at + place.len();
        shown.push_str(&text[..end]);
        shown.push('_');
        text = text[end..]
            .trim_start_matches(|character: char| character.is_ascii_digit() || character == ':')
            .to_owned();
    }
    expected.assert_eq(&(shown + &text));
}

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
              - nest "api" (routing.rs:_): a prefix begins with `/`: write "/api"
              - nest "/api/" (routing.rs:_): a prefix ends without `/`: write "/api"
              - nest "/" (routing.rs:_): a prefix ends without `/`; to join routers without a prefix use `merge`
              - nest "" (routing.rs:_): a prefix begins with `/`; to join routers without a prefix use `merge`
              - nest "/{*all}" (routing.rs:_): a prefix cannot capture all the rest
              - route "users" (routing.rs:_): a pattern begins with `/`: write "/users"
              - route "" (routing.rs:_): a pattern begins with `/`: write "/"
              - route "/users/:id" (routing.rs:_): captures are written in braces: `{id}` instead of `:id`
              - route "/files/*rest" (routing.rs:_): captures are written in braces: `{*rest}` instead of `*rest`
              - route "/users/<int:id>" (routing.rs:_): captures are written in braces: `{id}` instead of `<int:id>`
              - route "/users/{id:[0-9]+}" (routing.rs:_): a capture has no pattern of its own: write `{id}`, and the type of `Path` decides what it can be
              - route "/search?q={q}" (routing.rs:_): `?` is no part of a path; queries are read with `Query`
              - route "/{id" (routing.rs:_): a `{` is not closed; one that stands for itself is doubled
              - route "/id}" (routing.rs:_): a `}` closes nothing; one that stands for itself is doubled
              - route "/{}" (routing.rs:_): a capture has a name: `{id}`, `{*rest}`
              - route "/{a}-{b}" (routing.rs:_): a segment has one capture; take it apart in the handler
              - route "/{*rest}/more" (routing.rs:_): `{*rest}` captures all the rest, so it is the last segment
              - route "/{a}/{a}" (routing.rs:_): two captures have the name `a`
              - route "/{a b}" (routing.rs:_): the name of a capture has letters, digits, `_`, `-` and `.`, unlike `a b`
              - route "/{x}/{x}" (routing.rs:_): two captures have the name `x`
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
              - route "/users/{name}" (routing.rs:_) conflicts with route "/users/{id}" (routing.rs:_): both match the same paths: give the captures the same names
              - GET /same has two handlers: routing.rs:_ and routing.rs:_; keep one of them
              - ANY /anything has two handlers: routing.rs:_ and routing.rs:_; keep one of them
              - route "/files/{name}.txt" (routing.rs:_) conflicts with route "/files/{*a}" (routing.rs:_): captures at the same place are of one kind, either all with text before them or all with text behind them, and `{*rest}` shares its place with no capture; what is left over can be answered by a fallback
              - route "/{name}.txt" (routing.rs:_) conflicts with route "/v{major}" (routing.rs:_): captures at the same place are of one kind, either all with text before them or all with text behind them, and `{*rest}` shares its place with no capture; what is left over can be answered by a fallback
              - route "/files/{*b}" (routing.rs:_) conflicts with route "/files/{*a}" (routing.rs:_): both match the same paths: give the captures the same names
              - GET /caf%C3%A9 has two handlers: routing.rs:_ and routing.rs:_; keep one of them
              - GET /api/x has two handlers: routing.rs:_ and routing.rs:_; keep one of them
              - the fallback of "/api/" (routing.rs:_) has the prefix of another fallback (routing.rs:_)
              - there are two fallbacks: routing.rs:_ and routing.rs:_; keep one of them
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
              - the fallback of "/users/" (routing.rs:_) cannot stand beside that of "/users/{id}/": all the rest of a prefix, which a fallback answers, shares its place with no capture in the prefix of another one
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
              - there are two states of type `it::routing::an_app_whose_handlers_take_missing_values_does_not_start::Db` (routing.rs:_); wrap one in a type of its own
              - GET /state (routing.rs:_) takes `State<Arc<u8>>`, and no such state was given: add `.state(..)` to the app; what was given is `it::routing::an_app_whose_handlers_take_missing_values_does_not_start::Db`, `it::routing::an_app_whose_handlers_take_missing_values_does_not_start::Db`
              - GET /path (routing.rs:_) takes `Path<..>`, and its pattern captures nothing: write `{name}`
              - the fallback of "/" (routing.rs:_) takes `Path<..>`, and its pattern captures nothing: write `{name}`
        "#]],
    );
}

#[test]
fn an_address_in_use_is_reported_in_one_line() {
    let first = App::new().start("127.0.0.1:0").expect("a free port");
    let address = first.local_addr();
    let error = App::new().listen(address).expect_err("the port is taken");
    let text = format!("{error:?}").replace(&address.to_string(), "ADDRESS");
    expect!["cannot listen on ADDRESS: Address already in use (os error 98)"].assert_eq(&text);
    let error = App::new().listen("no port").expect_err("that is no address");
    expect!["cannot resolve no port: invalid socket address"].assert_eq(&format!("{error:?}"));
}

#[test]
fn a_started_app_answers_until_it_is_shut_down() {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    let app = App::new().get("/", || "hi").start("127.0.0.1:0").expect("a free port");
    assert_eq!(app.url(), format!("http://{}", app.local_addr()));
    let mut socket = TcpStream::connect(app.local_addr()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhi"),
        "{answer}"
    );
    let address = app.local_addr();
    app.shutdown();
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[cfg(unix)]
#[test]
fn an_app_can_listen_on_a_unix_socket() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let at = path.clone();
    // It listens until the process of the test ends.
    std::thread::spawn(move || {
        App::new().get("/", |peer: filoplume::Peer| peer.to_string()).listen_unix(at)
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut socket = loop {
        match UnixStream::connect(&path) {
            Ok(socket) => break socket,
            Err(error) => assert!(Instant::now() < deadline, "nobody listens: {error}"),
        }
        std::thread::yield_now();
    };
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nunix"), "{answer}");
}
