//! Nested routers: their middleware, state, captures and fallbacks.

use super::*;

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
        places
            .iter()
            .all(|place| place.starts_with("crates/filoplume/tests/it/routing/routers.rs:")),
        "{places:?}"
    );
}

#[test]
fn routes_are_listed_with_their_middleware() {
    fn require_key(request: Request, next: Next<'_>) -> Response {
        next.run(request)
    }
    let admin = Router::new()
        .route("/", get(|| "").with(middleware::BasicAuth::user("ada", "sesame")))
        .merge(
            Router::new()
                .get("/users", || "")
                .with(|request: Request, next: Next<'_>| next.run(request)),
        )
        .fallback(|| "")
        .with(require_key);
    let app = App::new().get("/", || "").nest("/admin", admin);
    expect![[r#"
        GET       /
        GET       /admin        behind require_key, BasicAuth
        GET       /admin/users  behind require_key, a closure
        FALLBACK  /admin/*      behind require_key
    "#]]
    .assert_eq(&app.routes().to_string());
}
