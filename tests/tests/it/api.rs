//! The API of requests, responses and metrics, as a program uses it.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Read;

use filoplume_runtime::{
    Body, Method, Plan, Request, Response, ResponseBody, ServerConfig, Service, StatusCode, Version,
};
use filoplume_tests::{TestServer, eventually, site};

#[test]
fn a_request_shows_what_was_sent() {
    let server = TestServer::start(|request: Request| {
        assert_eq!(request.method(), Method::PUT);
        assert_eq!(request.target(), "/a%20b/c?x=1&y=&z&x=2&w=a%26b");
        assert_eq!(request.path(), "/a%20b/c");
        assert_eq!(request.query(), Some("x=1&y=&z&x=2&w=a%26b"));
        assert_eq!(request.version(), Version::Http11);
        assert_eq!(request.authority(), Some("example.org:81"));
        for (name, value) in [
            ("x", Some("1")),
            ("y", Some("")),
            ("z", Some("")),
            ("w", Some("a%26b")),
            ("a", None),
            ("X", None),
            ("", None),
        ] {
            assert_eq!(request.query_value(name), value, "{name}");
        }
        for name in ["x-one", "X-ONE", "x-One"] {
            assert_eq!(request.header(name), Some("first"), "{name}");
        }
        assert_eq!(request.headers().get_all("X-One").count(), 2);
        assert_eq!(request.header("x-bytes"), None, "it is no text");
        assert_eq!(request.headers().get("x-bytes"), Some(&b"\xff\xfe"[..]));
        assert_eq!(request.header("x-none"), None);
        assert_eq!(request.body().as_slice(), Some(&b"\0\xff"[..]));
        assert_eq!(request.body().len(), Some(2));
        Response::from("seen")
    });
    let head =
        b"PUT /a%20b/c?x=1&y=&z&x=2&w=a%26b HTTP/1.1\r\nHOST: example.org:81\r\nX-One: first\r\n\
        x-oNE:second\r\nX-Bytes: \xff\xfe\r\nContent-Length: 2\r\n\r\n\0\xff";
    let mut client = server.client();
    assert_eq!(client.send(head).response().text(), "seen");
}

#[test]
fn the_peer_is_that_of_the_socket() {
    let server = TestServer::start(|request: Request| request.peer().to_string());
    let mut client = server.client();
    let own = client.tcp().local_addr().unwrap().to_string();
    assert_eq!(client.get("/").text(), own);
}

#[test]
fn the_route_of_the_plan_is_available_in_the_call() {
    struct Numbered;
    impl Service for Numbered {
        fn plan(&self, request: &mut Request) -> Plan {
            match request.path() {
                "/none" => Plan::new(),
                "/pool" => Plan::new().route(u32::MAX).on_pool(),
                _ => Plan::new().route(7),
            }
        }
        fn call(&self, request: Request) -> Response {
            Response::from(format!("{:?}", request.route()))
        }
    }
    let server = TestServer::start(Numbered);
    let mut client = server.client();
    assert_eq!(client.get("/").text(), "Some(7)");
    assert_eq!(client.get("/none").text(), "None");
    assert_eq!(client.get("/pool").text(), format!("Some({})", u32::MAX));
    let posted = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(client.send(posted).response().text(), "Some(7)");
    let closures = TestServer::start(|request: Request| format!("{:?}", request.route()));
    assert_eq!(closures.client().get("/").text(), "None");
}

#[test]
fn responses_have_the_content_type_of_their_kind() {
    let server = TestServer::start(|request: Request| {
        let mut response = Response::default();
        match request.path() {
            "/text" => response.set_text("täxt"),
            "/html" => response.set_html("<p>html"),
            "/json" => response.set_json("{}"),
            "/bytes" => response.set_bytes(&b"\0\xff"[..]),
            "/typed" => {
                response.set_header("content-type", "image/png").unwrap().set_bytes(&b"png"[..])
            }
            "/created" => response.set_status(201).add_header("location", "/1").unwrap(),
            "/str" => return Response::from("str"),
            "/string" => return Response::from("string".to_owned()),
            _ => response.set_status(404),
        };
        response
    });
    let mut client = server.client();
    for (path, content_type, body) in [
        ("/text", Some("text/plain; charset=utf-8"), "täxt".as_bytes()),
        ("/html", Some("text/html; charset=utf-8"), b"<p>html"),
        ("/json", Some("application/json"), b"{}"),
        ("/bytes", Some("application/octet-stream"), b"\0\xff"),
        ("/typed", Some("image/png"), b"png"),
        ("/str", Some("text/plain; charset=utf-8"), b"str"),
        ("/string", Some("text/plain; charset=utf-8"), b"string"),
    ] {
        let response = client.get(path);
        assert_eq!(
            (response.status, response.header("content-type")),
            (200, content_type),
            "{path}"
        );
        assert_eq!(response.body, body, "{path}");
    }
    let response = client.get("/created");
    assert_eq!((response.status, response.header("location")), (201, Some("/1")));
    assert_eq!(response.header("content-length"), Some("0"));
    assert_eq!(client.get("/else").status, 404);
}

#[test]
fn headers_are_added_beside_others_or_replace_them() {
    let server = TestServer::start(|_: Request| {
        let mut response = Response::default();
        response.add_header("Set-Cookie", "a=1").unwrap();
        response.add_header("set-cookie", "b=2").unwrap();
        response.add_header("X-Set", "old").unwrap();
        response.set_header("x-set", "new").unwrap();
        response
    });
    let response = server.client().get("/");
    assert_eq!(response.headers("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(response.header("x-set"), Some("new"));
}

#[test]
fn a_request_becomes_one_of_the_http_crate_and_comes_back() {
    let request = http::Request::builder()
        .method("POST")
        .uri("/path?query=1")
        .header("X-Header", "value")
        .header("x-header", "other")
        .body(b"content".to_vec())
        .unwrap();
    let mut request = Request::try_from(request).unwrap();
    request.extensions_mut().insert(17_u32);
    assert_eq!((request.method().as_str(), request.target()), ("POST", "/path?query=1"));
    assert_eq!((request.path(), request.query_value("query")), ("/path", Some("1")));
    assert_eq!(request.header("X-HEADER"), Some("value"));
    let converted: http::Request<Body> = request.try_into().unwrap();
    assert_eq!(converted.uri().path(), "/path");
    assert_eq!(converted.version(), http::Version::HTTP_11);
    assert_eq!(converted.headers().get_all("x-header").iter().count(), 2);
    assert_eq!(converted.extensions().get::<u32>(), Some(&17));
    let mut content = String::new();
    converted.into_body().read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
}

#[test]
fn a_response_of_the_http_crate_is_sent_and_ours_becomes_one() {
    let server = TestServer::start(|_: Request| {
        http::Response::builder()
            .status(418)
            .header("X-Tea", "pot")
            .body("short and stout")
            .unwrap()
    });
    let response = server.client().get("/");
    assert_eq!((response.status, response.header("x-tea")), (418, Some("pot")));
    assert_eq!(response.text(), "short and stout");
    let mut ours = Response::new(201);
    ours.set_json("{}").add_header("location", "/1").unwrap();
    let converted: http::Response<ResponseBody> = ours.into();
    assert_eq!(converted.status(), StatusCode::CREATED);
    assert_eq!(converted.headers()["location"], "/1");
    assert!(matches!(converted.body(), ResponseBody::Bytes(bytes) if bytes == "{}"));
}

#[test]
fn the_metrics_add_up() {
    let server = TestServer::with(ServerConfig::default().event_loops(2), site);
    let mut clients: Vec<_> = (0..10).map(|_| server.client()).collect();
    for client in &mut clients {
        for _ in 0..7 {
            client.is_alive();
        }
    }
    eventually("ten connections are parked after 70 requests", || {
        let metrics = server.metrics();
        (metrics.parked, metrics.requests) == (10, 70)
    });
    let metrics = server.metrics();
    assert_eq!((metrics.accepted, metrics.connections), (10, 10));
    assert_eq!(
        (metrics.refused, metrics.overloaded, metrics.timed_out, metrics.panics),
        (0, 0, 0, 0)
    );
    assert_eq!(
        (metrics.accept_errors, metrics.leased, metrics.upgraded, metrics.incoming),
        (0, 0, 0, 0)
    );
    let pool = metrics.pool;
    assert_eq!(pool.threads_started - pool.threads_retired, pool.threads as u64, "{pool:?}");
    assert!(
        pool.threads >= 2 && pool.threads_peak >= pool.threads && pool.idle <= pool.threads,
        "{pool:?}"
    );
    clients.truncate(3);
    eventually("three are left", || {
        server.metrics().connections == 3 && server.metrics().parked == 3
    });
    clients[0].send("BAD\r\n\r\n");
    assert_eq!(clients[0].response().status, 400);
    clients[0].is_closed();
    clients.remove(0);
    eventually("the refusal is counted", || server.metrics().refused == 1);
    clients.clear();
    server.is_left_by_all();
    assert_eq!(server.metrics().requests, 70);
}

#[test]
fn a_server_that_does_not_serve_has_no_metrics() {
    let server = TestServer::bound(ServerConfig::default());
    assert!(server.server().metrics().is_none());
}

#[test]
fn a_request_of_the_http_crate_that_http_1_cannot_express_is_refused() {
    let request =
        http::Request::builder().method("GET").uri("relative:80").body(Vec::new()).unwrap();
    assert!(Request::try_from(request).is_err());
    let request =
        http::Request::builder().uri("/").version(http::Version::HTTP_2).body(Vec::new()).unwrap();
    assert!(Request::try_from(request).is_err(), "its documentation says so");
}
