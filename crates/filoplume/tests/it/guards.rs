//! Attempts to reach paths below the prefix of a router with middleware, without a login.

use filoplume::middleware::BasicAuth;
use filoplume::prelude::*;
use filoplume::routing::any;
use filoplume::testing::TestClient;

fn auth() -> BasicAuth {
    BasicAuth::user("ada", "sesame")
}

/// A folder with `index.html`, `public.html` and `admin/secret.html`.
fn site() -> tempfile::TempDir {
    let site = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| std::fs::write(site.path().join(name), text).expect("a file");
    std::fs::create_dir(site.path().join("admin")).expect("a folder");
    write("index.html", "start");
    write("public.html", "public");
    write("admin/index.html", "secret start");
    write("admin/secret.html", "secret");
    site
}

fn method(name: &str) -> Method {
    Method::from_bytes(name.as_bytes()).expect("a method")
}

/// Targets that some software could treat as a path below `/admin`.
const BELOW_ADMIN: &[&str] = &[
    "/admin",
    "/admin/",
    "/admin/secret.html",
    "/admin/secret.html?x=/public.html",
    "/%61dmin/secret.html",
    "/%61%64%6d%69%6E/secret.html",
    "/admin%2fsecret.html",
    "/admin%2Fsecret.html",
    "/admin%5csecret.html",
    "/admin/%73ecret.html",
    "/admin//secret.html",
    "//admin/secret.html",
    "///admin/secret.html",
    "/./admin/secret.html",
    "/%2e/admin/secret.html",
    "/x/../admin/secret.html",
    "/x/%2e%2e/admin/secret.html",
    "/x/../%61dmin/secret.html",
    "/x/%2e%2e/%61dmin/secret.html",
    "/x/..%2fadmin/secret.html",
    "/../admin/secret.html",
    "/admin/../admin/",
    "/admin/../admin/secret.html",
    "/admin/./secret.html",
    "/admin/x/../secret.html",
    "/ADMIN/secret.html",
    "/Admin/secret.html",
    "/%41dmin/secret.html",
    "/admin/unknown",
    "http://example.org/admin/secret.html",
    "http://example.org/%61dmin/secret.html",
];

const METHODS: &[&str] = &["GET", "HEAD", "POST", "OPTIONS", "DELETE", "BREW"];

/// Asserts that every response is a challenge, or a redirect to a path that has one.
#[track_caller]
fn check_closed(client: &TestClient, targets: &[&str]) {
    for target in targets {
        for name in METHODS {
            let response = client.request(method(name), target).send();
            let status = response.status().as_u16();
            assert!(
                matches!(status, 401 | 308 | 400),
                "{name} {target}: {status} {}",
                response.text()
            );
            assert!(!response.text().contains("secret"), "{name} {target}: {}", response.text());
            if let Some(location) = response.header("location") {
                // A client would resolve these itself, and send another path.
                let has_dots = location.split('/').any(|part| part == "." || part == "..");
                assert!(!has_dots, "{name} {target} leads to {location}");
                client.request(method(name), location).send().assert_status(401);
            }
        }
    }
}

#[test]
fn files_of_the_outer_router_are_behind_the_login_of_the_prefix() {
    let site = site();
    let files = || StaticFiles::folder(site.path());
    let admin = || Router::new().get("/users", || "users").with(auth());
    let apps = [
        App::new().nest("/admin", admin()).files("/", files()),
        App::new().files("/", files()).nest("/admin", admin()),
        App::new().merge(Router::new().files("/", files())).nest("/admin", admin()),
        App::new().merge(Router::new().nest("/admin", admin())).files("/", files()),
        App::new()
            .merge(Router::new().nest("/admin", Router::new()).with(auth()))
            .files("/", files()),
        App::new()
            .nest("/admin", Router::new().nest("/deep", Router::new()).with(auth()))
            .files("/", files()),
        App::new()
            .nest("/admin", Router::new().route("/users", get(|| "users").with(auth())))
            .nest("/admin", Router::new().with(auth()))
            .files("/", files()),
    ];
    for app in apps {
        let client = app.test();
        check_closed(&client, BELOW_ADMIN);
        client.get("/").send().assert_text("start");
        client.get("/public.html").send().assert_text("public");
        client.get("/administrator").send().assert_status(404);
        // With the login, the outer files are served.
        client.get("/admin/secret.html").basic("ada", "sesame").send().assert_text("secret");
        client.get("/admin/").basic("ada", "sesame").send().assert_text("secret start");
        client.get("/admin/nothing").basic("ada", "sesame").send().assert_status(404);
    }
}

#[test]
fn files_below_a_prefix_do_not_match_inside_a_nested_prefix() {
    let site = site();
    let app = App::new()
        .files("/static", StaticFiles::folder(site.path()))
        .nest("/static/admin", Router::new().get("/users", || "users").with(auth()));
    let client = app.test();
    let targets: Vec<_> = BELOW_ADMIN.iter().filter(|target| target.starts_with('/')).collect();
    let targets: Vec<_> = targets.iter().map(|target| format!("/static{target}")).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    // Dots that lead above `/static` match nothing.
    let targets: Vec<&str> =
        targets.into_iter().filter(|target| !target.starts_with("/static/../")).collect();
    check_closed(&client, &targets);
    client.get("/static/../admin/secret.html").send().assert_status(404);
    client.get("/static/public.html").send().assert_text("public");
    client.get("/static/admin/users").basic("ada", "sesame").send().assert_text("users");
}

#[test]
fn wildcards_captures_and_fallbacks_of_the_outer_router_do_not_match() {
    let path = |request: Request| format!("secret {}", request.path());
    let admin = || Router::new().get("/users", || "users").with(auth());
    let apps = [
        App::new().route("/{*rest}", any(path)).nest("/admin", admin()),
        App::new().nest("/admin", admin()).route("/{*rest}", any(path)),
        App::new().nest("/admin", admin()).fallback(path),
        App::new()
            .route("/{page}", any(path))
            .route("/{a}/{b}", any(path))
            .route("/{a}/{b}/{c}", any(path))
            .nest("/admin", admin())
            .fallback(path),
        App::new()
            .nest("/admin", admin())
            .nest("/{tenant}", Router::new().route("/{*rest}", any(path))),
        App::new()
            .nest("/admin", admin())
            .nest("/{tenant}", Router::new().fallback(path))
            .fallback(path),
    ];
    for app in apps {
        let client = app.test();
        check_closed(&client, BELOW_ADMIN);
        client.get("/about/it").send().assert_text("secret /about/it");
        client.get("/admin/users").basic("ada", "sesame").send().assert_text("users");
    }
}

#[test]
fn the_innermost_prefix_decides_and_outer_middleware_still_runs() {
    fn tag(
        name: &'static str,
    ) -> impl Fn(Request, Next<'_>) -> Result<Response> + Send + Sync + 'static {
        move |request, next| {
            let mut response = next.run(request);
            response.add_header("x-by", name)?;
            Ok(response)
        }
    }
    let inner = Router::new().get("/x", || "x").with(tag("inner"));
    let outer = Router::new().get("/{*rest}", || "outer").nest("/inner", inner).with(tag("outer"));
    let client =
        App::new().nest("/a", outer).get("/{*rest}", || "app").fallback(|| "fallback").test();
    let by = |path: &str| {
        let response = client.get(path).send();
        format!(
            "{} {}",
            response.text(),
            response.headers_all("x-by").collect::<Vec<_>>().join(" ")
        )
    };
    assert_eq!(by("/a/inner/x"), "x inner outer");
    assert_eq!(by("/a/inner/y"), "fallback inner outer");
    assert_eq!(by("/a/y"), "outer outer");
    assert_eq!(by("/a"), "fallback outer");
    assert_eq!(by("/b"), "app ");
    assert_eq!(by("/"), "fallback ");
}

#[test]
fn the_fallback_of_the_prefix_comes_first_and_needs_the_login_too() {
    let own = Router::new().get("/users", || "users").fallback(|| "own").with(auth());
    let client = App::new().nest("/admin", own).get("/{*rest}", || "app").test();
    client.get("/admin/x").send().assert_status(401);
    client.get("/admin/x").basic("ada", "sesame").send().assert_text("own");

    // A fallback without the login at the same prefix is put behind the login.
    let (closed, open) = (Router::new().with(auth()), Router::new().fallback(|| "open"));
    let client = App::new().nest("/admin", closed).nest("/admin", open).test();
    client.get("/admin/x").send().assert_status(401);
    client.get("/admin/x").basic("ada", "sesame").send().assert_text("open");

    // Without any fallback, clients that are logged in get a plain 404.
    let client = App::new().nest("/admin", Router::new().with(auth())).test();
    client.get("/admin/x").send().assert_status(401);
    client.get("/admin/x").basic("ada", "sesame").send().assert_status(404);
}

#[test]
fn a_literal_route_below_the_prefix_is_not_guarded() {
    let app = App::new()
        .nest("/admin", Router::new().get("/users", || "users").with(auth()))
        .get("/admin/login", || "login")
        .get("/admin/help/{*page}", |Path(page): Path<String>| page)
        .get("/Admin/about/{id}", |Path(id): Path<String>| id)
        .nest("/admin/assets", Router::new().get("/a.css", || "a").fallback(|| "none"));
    let client = app.test();
    client.get("/admin/login").send().assert_text("login");
    client.get("/admin/help/a/b").send().assert_text("a/b");
    client.get("/Admin/about/1").send().assert_text("1");
    client.get("/admin/assets/b").send().assert_text("none");
    client.get("/admin/users").send().assert_status(401);
    client.get("/admin/login/").send().assert_status(308);
    client.put("/admin/login").send().assert_status(405);
}

#[test]
fn a_prefix_with_captures_guards_each_of_its_paths() {
    let tenant = Router::new().get("/known", || "known").with(auth());
    let app = App::new()
        .nest("/t/{tenant}/admin", tenant)
        .nest("/t", Router::new().fallback(|| "secret"))
        .fallback(|| "secret");
    let client = app.test();
    for target in
        ["/t/a/admin", "/t/a/admin/x", "/t/a/%61dmin/x", "/t/a/ADMIN/x", "/t/a%2fadmin%2fx"]
    {
        client.get(target).send().assert_status(401);
    }
    client.get("/t/a/x").send().assert_text("secret");
}

#[test]
fn captures_and_state_reach_middleware_and_fallback() {
    let tenant = Router::new().state(1_u8).with(|request: Request, next: Next<'_>| {
        let context = next.context();
        let captures = format!("{:?} {:?}", context.captures(request.path()), context.route());
        let mut response = next.run(request);
        response.set_header("x-captures", captures)?;
        Ok::<_, Error>(response)
    });
    let fallback = |State(number): State<u16>| format!("fallback {number}");
    let client = App::new().nest("/{tenant}", tenant).state(2_u16).fallback(fallback).test();
    let response = client.get("/acme/x").send();
    response
        .assert_text("fallback 2")
        .assert_header("x-captures", r#"[("tenant", "acme")] Some("/{*rest}")"#);
}

#[test]
fn a_catch_all_of_the_same_prefix_without_the_middleware_is_refused() {
    let site = site();
    let apps = [
        App::new()
            .nest("/admin", Router::new().with(auth()))
            .files("/admin", StaticFiles::folder(site.path())),
        App::new().get("/admin/{*rest}", || "").nest("/admin", Router::new().with(auth())),
        App::new()
            .nest("/admin", Router::new().get("/{*rest}", || ""))
            .nest("/admin", Router::new().with(auth())),
    ];
    for app in apps {
        let message = app.start("127.0.0.1:0").expect_err("it is refused").to_string();
        assert!(
            message.contains("answers every path below \"/admin\" without the middleware"),
            "{message}"
        );
        assert_eq!(message.matches("guards.rs:").count(), 2, "both places are named: {message}");
    }
    let own = Router::new()
        .files("/files", StaticFiles::folder(site.path()))
        .get("/{*rest}", || "")
        .with(auth());
    assert!(own_app(own).is_ok());
}

/// Nothing below the prefix answers except the middleware, so only its fallback can show the
/// mistake.
#[test]
fn the_middleware_of_a_nested_router_without_routes_is_checked() {
    let router = Router::new().with(middleware::Csrf::new());
    let message = App::new().nest("/admin", router).start("127.0.0.1:0").unwrap_err().to_string();
    assert!(message.contains("the fallback of \"/admin/\""), "{message}");
}

#[test]
fn a_route_that_is_open_by_accident_is_refused() {
    let users = || Router::new().get("/users", || "users").with(auth());
    let reports = || Router::new().get("/reports", || "r").get("/sums", || "s");
    let deep = |router| Router::new().nest("/deep", router);
    let refused = [
        (App::new().nest("/admin", users()).nest("/admin", reports()), "/admin/reports"),
        (App::new().nest("/admin", reports()).nest("/admin", users()), "/admin/reports"),
        (App::new().nest("/admin", users()).nest("/ADMIN", reports()), "/ADMIN/reports"),
        (
            App::new().merge(Router::new().nest("/admin", users())).nest("/admin", reports()),
            "/admin/reports",
        ),
        (
            App::new().nest("/admin", users()).nest("/admin", Router::new().merge(reports())),
            "/admin/reports",
        ),
        (App::new().nest("/a", deep(users())).nest("/a", deep(reports())), "/a/deep/reports"),
        (
            App::new()
                .nest("/admin", users())
                .nest("/admin", Router::new().files("/files", StaticFiles::folder("src"))),
            "/admin/files",
        ),
        (App::new().nest("/admin", users()).get("/admin/{id}", || "id"), "/admin/{id}"),
        (App::new().nest("/admin", users()).get("/Admin/{id}/x", || "id"), "/Admin/{id}/x"),
        (
            App::new().nest("/admin", users()).nest("/admin/{id}", Router::new().get("/", || "")),
            "/admin/{id}",
        ),
        (
            App::new()
                .nest("/admin", users().with(middleware::SecurityHeaders::new()))
                .nest("/admin", reports().with(auth())),
            "/admin/reports",
        ),
        // Each router lacks the middleware of the other one, which is reported as one mistake.
        (
            App::new()
                .nest("/admin", users())
                .nest("/admin", reports().with(middleware::SecurityHeaders::new())),
            "/admin/",
        ),
    ];
    for (app, pattern) in refused {
        let message = app.start("127.0.0.1:0").expect_err(pattern).to_string();
        assert!(message.contains(&format!("\"{pattern}")), "{message}");
        assert_eq!(message.matches("guards.rs:").count(), 2, "both places are named: {message}");
    }
}

#[test]
fn routers_at_one_prefix_may_be_one_or_have_the_same_middleware() {
    let users = || Router::new().get("/users", || "users").with(auth());
    let reports = || Router::new().get("/reports", || "reports");
    let closed = [
        App::new().nest("/admin", users().merge(reports())),
        App::new().nest("/admin", users()).nest("/admin", reports().with(auth())),
        App::new()
            .nest("/admin", users())
            .nest("/admin", Router::new().get("/{*rest}", || "reports").with(auth())),
        App::new()
            .merge(Router::new().nest("/admin", users()).nest("/admin", reports()).with(auth())),
    ];
    for app in closed {
        let client = app.test();
        check_closed(&client, &["/admin/reports", "/admin/users", "/admin/x"]);
        client.get("/admin/reports").basic("ada", "sesame").send().assert_text("reports");
    }
    let own = Router::new().route("/reports", get(|| "reports").with(auth()));
    let client = App::new().nest("/admin", users()).nest("/admin", own).test();
    client.get("/admin/reports").send().assert_status(401);
    let open = [
        App::new().nest("/admin", users()).get("/admin/reports", || "reports"),
        App::new().nest("/admin", users()).merge(Router::new().get("/admin/reports", || "reports")),
        App::new().nest("/admin", Router::new().merge(users()).merge(reports())),
    ];
    for app in open {
        let client = app.test();
        client.get("/admin/reports").send().assert_text("reports");
        client.get("/admin/users").send().assert_status(401);
    }
}

fn own_app(router: Router) -> Result<()> {
    App::new().nest("/admin", router).start("127.0.0.1:0").map(|app| app.shutdown())
}

#[test]
fn a_trailing_slash_is_not_redirected_in_a_loop() {
    let app = App::new().get("/{*rest}", |Path(rest): Path<String>| rest).nest(
        "/admin",
        Router::new().get("/users", || "users").get("/list/", || "list").with(auth()),
    );
    let client = app.test();
    let ask = |path: &str| client.get(path).basic("ada", "sesame").send();
    ask("/admin/users/").assert_status(308).assert_header("location", "/admin/users");
    ask("/admin/list").assert_status(308).assert_header("location", "/admin/list/");
    client.get("/admin/x/").send().assert_status(401);
    client.get("/x/").send().assert_text("x/");
}

#[test]
fn methods_and_forms_of_guarded_paths_are_behind_the_middleware_too() {
    let admin = Router::new().post("/secret", || "done").with(auth());
    let client = App::new().nest("/admin", admin).get("/", || "start").test();
    for (name, target, status) in [
        ("GET", "/admin/secret", 405),
        ("PUT", "/admin/secret", 405),
        ("OPTIONS", "/admin/secret", 204),
        ("POST", "/admin/secret/", 308),
        ("POST", "/admin/%73ecret", 308),
        ("GET", "/admin/nothing", 404),
    ] {
        let refused = client.request(method(name), target).send();
        refused.assert_status(401);
        assert_eq!((refused.header("allow"), refused.header("location")), (None, None), "{target}");
        client.request(method(name), target).basic("ada", "sesame").send().assert_status(status);
    }
    let listed = client.get("/admin/secret").basic("ada", "sesame").send();
    listed.assert_status(405).assert_header("allow", "POST, OPTIONS");
    client.put("/").send().assert_status(405);
}

/// Appends a name to what was noted before.
fn noting(name: &'static str) -> impl Fn(Request, Next<'_>) -> Result<Response> {
    move |request, next| {
        let mut response = next.run(request);
        response.add_header("x-inner-first", name)?;
        Ok(response)
    }
}

#[test]
fn a_fallback_of_another_router_keeps_its_states_and_is_the_outer_one() {
    let outer = Router::new().state(7_u8).with(noting("outer"));
    let outer = outer.get("/x", || "x").fallback(|State(state): State<u8>| state.to_string());
    let guarded = Router::new().get("/y", || "y").with(noting("guarded"));
    let client = App::new().nest("/api", outer).nest("/api/admin", guarded).test();
    let response = client.get("/api/admin/unknown").send();
    response.assert_text("7");
    let noted: Vec<_> = response.headers_all("x-inner-first").collect();
    assert_eq!(noted, ["guarded", "outer"]);
}
