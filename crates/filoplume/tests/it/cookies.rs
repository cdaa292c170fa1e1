//! Cookies of requests and responses.

use filoplume::Context;
use filoplume::Key;
use filoplume::extract::{COOKIES_MAX, Cookie, CookiesRejection, FromRequest};
use filoplume::prelude::*;
use filoplume::routing::RouteOptions;
use filoplume::testing::TestClient;

#[test]
fn cookies_that_a_handler_sets_are_sent_with_any_result() {
    let client = App::new()
        .get("/text", |cookies: Cookies| {
            cookies.set("a", "1");
            "text"
        })
        .get("/error", |cookies: Cookies| -> Result<()> {
            cookies.set("a", "2");
            Err(Error::conflict("no"))
        })
        .get("/nothing", |_: Cookies| "nothing is set")
        .get("/panic", |cookies: Cookies| {
            cookies.set("a", "3");
            assert!(cookies.get("a").is_none(), "a panic on purpose");
        })
        .fallback(|cookies: Cookies| {
            cookies.set("lost", "yes");
            StatusCode::NOT_FOUND
        })
        .test();
    let attributes = "; HttpOnly; SameSite=Lax; Secure; Path=/";
    client
        .get("/text")
        .send()
        .assert_header("set-cookie", &format!("a=1{attributes}"))
        .assert_text("text");
    client
        .get("/error")
        .send()
        .assert_status(409)
        .assert_header("set-cookie", &format!("a=2{attributes}"));
    client.get("/nothing").send().assert_no_header("set-cookie");
    client.get("/panic").send().assert_status(500).assert_no_header("set-cookie");
    client
        .get("/nowhere")
        .send()
        .assert_status(404)
        .assert_header("set-cookie", &format!("lost=yes{attributes}"));
}

#[test]
fn the_last_value_that_is_set_for_a_cookie_is_sent() {
    let client = App::new()
        .get("/", |cookies: Cookies| {
            cookies.set("a", "1");
            cookies.set("b", "1");
            cookies.set("a", "2");
            cookies.remove("b");
            format!("{:?} {:?}", cookies.get("a"), cookies.get("b"))
        })
        .test();
    let answer = client.get("/").header("cookie", "b=0").send();
    answer.assert_text(r#"Some("2") None"#);
    let sent: Vec<_> = answer.headers_all("set-cookie").collect();
    assert_eq!(sent.len(), 2);
    assert!(
        sent[0].starts_with("a=2;") && sent[1].starts_with("b=;") && sent[1].contains("Max-Age=0"),
        "{sent:?}"
    );
}

#[test]
fn a_value_round_trips() {
    let client = App::new()
        .post("/", |cookies: Cookies, value: String| cookies.set("a", value))
        .get("/", |cookies: Cookies| cookies.get("a").unwrap_or_default())
        .test();
    for value in
        ["", "a b", "x; Domain=evil.example", "a\r\nset-cookie: b=c", "äöü", "100%", "%41", "\"q\""]
    {
        let answer = client.post("/").body(value).send();
        answer.assert_status(200);
        assert_eq!(answer.headers_all("set-cookie").count(), 1, "{answer:?}");
        assert!(
            !answer.header("set-cookie").unwrap_or_default().contains("; Domain"),
            "{answer:?}"
        );
        client.get("/").send().assert_text(value);
    }
}

#[test]
fn development_mode_omits_secure() {
    let app = App::new().get("/", |cookies: Cookies| cookies.set("a", "b")).development(true);
    app.test().get("/").send().assert_header("set-cookie", "a=b; HttpOnly; SameSite=Lax; Path=/");
}

#[test]
fn malformed_cookies_are_skipped_and_too_many_are_refused() {
    let client = App::new()
        .get("/", |cookies: Cookies| {
            let all = cookies.received();
            all.iter().map(|(name, value)| format!("{name}={value};")).collect::<String>()
        })
        .test();
    client
        .get("/")
        .header("cookie", "; =x; a; b=1;; c=\"2\" ;b=3; ")
        .send()
        .assert_text("b=1;c=2;b=3;");
    let two = client.get("/").header("cookie", "a=1").header("cookie", "b=2").send();
    two.assert_text("a=1;b=2;");
    let raw = client.raw(b"GET / HTTP/1.1\r\nhost: x\r\ncookie: a=\xff; b=2\r\n\r\n");
    assert!(raw.ends_with(b"b=2;"), "{}", String::from_utf8_lossy(&raw));
    let many: String = (0..COOKIES_MAX + 20).map(|number| format!("n{number}=x; ")).collect();
    let read = client.get("/").header("cookie", &many).send();
    assert_eq!(read.text().matches('=').count(), COOKIES_MAX);
}

#[test]
fn a_mistake_of_the_program_is_a_500_without_details() {
    let client = App::new()
        .get("/name", |cookies: Cookies| cookies.set("a b", "secret"))
        .get("/long", |cookies: Cookies| cookies.set("a", "x".repeat(5000)))
        .get("/path", |cookies: Cookies| cookies.add(Cookie::build(("a", "b")).path("/\r\nx: y")))
        .test();
    for path in ["/name", "/long", "/path"] {
        let answer = client.get(path).send();
        answer.assert_status(500).assert_no_header("set-cookie").assert_no_header("x");
        assert!(!answer.text().contains("cookie"), "{answer:?}");
    }
}

/// Returns a client of an app that protects its cookies. `user` and `role` are signed, `cart` and
/// `note` are encrypted.
fn protecting_client(key: Key) -> TestClient {
    App::new()
        .post(
            "/{name}/{value}",
            |cookies: Cookies,
             State(key): State<Key>,
             Path((name, value)): Path<(String, String)>| {
                cookies.signed(&key).set(name.clone(), value.clone());
                cookies.encrypted(&key).set(format!("x{name}"), value);
            },
        )
        .get("/{name}", |cookies: Cookies, State(key): State<Key>, Path(name): Path<String>| {
            let signed = cookies.signed(&key).get(&name);
            let encrypted = cookies.encrypted(&key).get(&format!("x{name}"));
            format!("{signed:?} {encrypted:?}")
        })
        .state(key)
        .test()
        .without_cookies()
}

#[test]
fn protected_cookies_need_the_right_key() {
    let key = Key::generate();
    let client = protecting_client(key.clone());
    let set = client.post("/user/ada").send();
    let (signed, encrypted) =
        (set.cookie("user").expect("it is set"), set.cookie("xuser").expect("it is set"));
    assert!(signed.contains("ada") && !encrypted.contains("ada"));
    let read = |client: &TestClient, name: &str, signed: &str, encrypted: &str| {
        let cookie = format!("{name}={signed}; x{name}={encrypted}");
        client.get(&format!("/{name}")).header("cookie", &cookie).send().text().to_owned()
    };
    let (known, unknown) = (r#"Some("ada") Some("ada")"#, "None None");
    assert_eq!(read(&client, "user", signed, encrypted), known);
    assert_eq!(read(&protecting_client(key), "user", signed, encrypted), known, "after a restart");
    assert_eq!(
        read(&protecting_client(Key::generate()), "user", signed, encrypted),
        unknown,
        "another key"
    );
    assert_eq!(read(&client, "role", signed, encrypted), unknown, "another name");
    assert_eq!(read(&client, "user", encrypted, signed), unknown, "another protection");
    assert_eq!(read(&client, "user", "ada", "ada"), unknown, "none");
    assert_eq!(read(&client, "user", &signed.replace("ada", "adm"), ""), unknown, "another value");
    for cut in 0..encrypted.len().min(signed.len()) {
        assert_eq!(
            read(&client, "user", &signed[..cut], &encrypted[..cut]),
            unknown,
            "cut at {cut}"
        );
    }
    assert_eq!(
        read(&client, "user", &format!("{signed}x"), &format!("{encrypted}AAAA")),
        unknown,
        "longer"
    );
}

/// An extractor that reads cookies without declaring it.
struct Forgetful;

impl FromRequest for Forgetful {
    type Rejection = CookiesRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, CookiesRejection> {
        Cookies::from_request(request, context)?.set("a", "b");
        Ok(Self)
    }
}

/// An extractor that reads cookies and declares it.
struct Visits(u32);

impl FromRequest for Visits {
    type Rejection = CookiesRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, CookiesRejection> {
        let cookies = Cookies::from_request(request, context)?;
        let visits = cookies.get("visits").and_then(|text| text.parse().ok()).unwrap_or(0) + 1;
        cookies.set("visits", visits.to_string());
        Ok(Self(visits))
    }

    fn configure(options: &mut RouteOptions) {
        Cookies::configure(options);
    }
}

#[test]
fn an_extractor_of_the_app_loses_no_cookie() {
    let client = App::new()
        .get("/forgetful", |_: Forgetful| "never")
        .get("/visits", |Visits(visits): Visits| visits.to_string())
        .test();
    client.get("/forgetful").send().assert_status(500);
    client.get("/visits").send().assert_text("1");
    client.get("/visits").send().assert_text("2");
}

#[test]
fn unicode_spaces_in_a_name_are_kept() {
    let client =
        App::new().get("/", |cookies: Cookies| format!("{:?}", cookies.get("__Host-id"))).test();
    for white in ["\u{a0}", "\u{85}", "\u{2000}", "\u{3000}"] {
        for cookie in [format!("{white}__Host-id=evil"), format!("__Host-id{white}=evil")] {
            client.get("/").header("cookie", &cookie).send().assert_text("None");
        }
        let answer = client.get("/").header("cookie", &format!("__Host-id={white}good")).send();
        answer.assert_text(&format!("{:?}", Some(format!("{white}good"))));
    }
    client
        .get("/")
        .header("cookie", "a=b; \t__Host-id = good\t")
        .send()
        .assert_text("Some(\"good\")");
}
