//! Forms of visitors without a session, and what happens when a session begins.

use std::sync::Arc;

use filoplume::Key;
use filoplume::middleware::{Csrf, CsrfToken, Sessions};
use filoplume::prelude::*;
use filoplume::session::MemoryStore;
use filoplume::testing::TestClient;

const SESSION: &str = "__Host-session";
const SECRET: &str = "__Host-session-csrf";

fn key() -> Key {
    Key::from_secret([5; 32]).expect("it is long enough")
}

fn app(sessions: Sessions) -> App {
    App::new()
        .get("/", |token: CsrfToken| token.to_string())
        .get("/visit", |session: Session| session.insert("visited", true))
        .get("/basket", |token: CsrfToken, session: Session| -> Result<String> {
            session.insert("basket", "empty")?;
            Ok(token.to_string())
        })
        .get("/new", |session: Session| -> Result<String> {
            session.renew()?;
            let token = CsrfToken::of(&session)?;
            session.insert("user", "ada")?;
            Ok(token.to_string())
        })
        .post("/look", || "nothing is kept")
        .post("/basket", |session: Session| session.insert("basket", "tea"))
        .post("/login", |session: Session| -> Result<()> {
            session.renew()?;
            session.insert("user", "ada")
        })
        .post("/logout", |session: Session| session.destroy())
        .with(sessions)
        .with(Csrf::new())
}

/// Runs a test with sessions on the server, and with sessions in the cookie.
fn with_both_storages(test: impl Fn(TestClient)) {
    test(app(Sessions::new(MemoryStore::new(), key())).test());
    test(app(Sessions::in_cookie(key())).test());
}

fn token(client: &TestClient, path: &str) -> String {
    client.get(path).send().assert_status(200).text().to_owned()
}

fn post(client: &TestClient, path: &str, token: &str) -> u16 {
    client.post(path).header("x-csrf-token", token).send().status().into()
}

#[test]
fn a_visitor_who_loads_and_sends_a_form_gets_no_session() {
    let store = Arc::new(MemoryStore::new());
    for _ in 0..100 {
        let client = app(Sessions::new(Arc::clone(&store), key())).test();
        let page = client.get("/").send();
        let cookies: Vec<_> = page.headers_all("set-cookie").collect();
        let attributes = cookies[0].split_once("; ").map(|(_, attributes)| attributes);
        assert_eq!(attributes, Some("HttpOnly; SameSite=Lax; Secure; Path=/"));
        assert_eq!(cookies.len(), 1, "{cookies:?}");
        page.assert_header("cache-control", "private, no-cache").assert_header("vary", "Cookie");
        assert_eq!(post(&client, "/look", page.text()), 200);
        assert_eq!(client.cookie(SESSION), None);
        let again = client.get("/").send();
        again.assert_no_header("set-cookie");
        assert_ne!(again.text(), page.text(), "each page has another mask");
        assert_eq!(post(&client, "/look", again.text()), 200);
        assert_eq!(post(&client, "/look", page.text()), 200);
    }
    assert!(store.is_empty());
}

#[test]
fn a_new_session_accepts_the_forms_of_open_pages() {
    with_both_storages(|client| {
        let open = token(&client, "/");
        assert_eq!(post(&client, "/basket", &open), 200);
        assert!(client.cookie(SESSION).is_some());
        assert_eq!(post(&client, "/basket", &open), 200);
        // The secret is now in the session, and no longer in the cookie.
        client.set_cookie(SECRET, "");
        assert_eq!(post(&client, "/basket", &open), 200);
        assert_eq!(post(&client, "/basket", &token(&client, "/")), 200);
    });
}

#[test]
fn a_page_that_begins_a_session_has_a_valid_token() {
    for path in ["/basket", "/new"] {
        with_both_storages(|client| {
            let page = token(&client, path);
            assert!(client.cookie(SESSION).is_some());
            assert_eq!(client.cookie(SECRET), None);
            assert_eq!(post(&client, "/look", &page), 200);
        });
    }
}

#[test]
fn a_secret_from_a_cookie_is_ignored_in_a_session() {
    with_both_storages(|client| {
        // An attacker plants a known secret next to an existing session.
        let planted = token(&client, "/");
        let secret = client.cookie(SECRET).expect("it is set");
        client.set_cookie(SECRET, "");
        client.get("/visit").send().assert_status(200);
        client.set_cookie(SECRET, &secret);
        assert_eq!(post(&client, "/basket", &planted), 403);
        client.get("/visit").send().assert_status(200);
        assert_eq!(post(&client, "/basket", &planted), 403, "nor does the session take it over");
        assert_eq!(post(&client, "/basket", &token(&client, "/")), 200);
    });
}

#[test]
fn login_and_logout_end_the_old_secret() {
    with_both_storages(|client| {
        let before = token(&client, "/");
        let secret = client.cookie(SECRET).expect("it is set");
        assert_eq!(post(&client, "/login", &before), 200);
        assert_eq!(client.cookie(SECRET), None, "the browser forgets it");
        client.set_cookie(SECRET, &secret);
        assert_eq!(post(&client, "/basket", &before), 403);
        let own = token(&client, "/");
        assert_eq!(post(&client, "/logout", &own), 200);
        assert_eq!(client.cookie(SESSION), None);
        client.set_cookie(SECRET, "");
        assert_eq!(post(&client, "/look", &own), 403);
        assert_eq!(post(&client, "/look", &token(&client, "/")), 200);
    });
}

/// Somebody who knew the session before the login may have known its secret as well.
#[test]
fn a_login_replaces_the_secret_of_the_session_that_it_renews() {
    with_both_storages(|client| {
        client.get("/visit").send().assert_status(200);
        let before = token(&client, "/");
        assert_eq!(client.cookie(SECRET), None, "it is in the session");
        assert_eq!(post(&client, "/login", &before), 200);
        assert_eq!(post(&client, "/basket", &before), 403);
        assert_eq!(post(&client, "/basket", &token(&client, "/")), 200);
    });
}

#[test]
fn a_logout_without_a_session_removes_the_secret_as_well() {
    with_both_storages(|client| {
        let before = token(&client, "/");
        assert!(client.cookie(SECRET).is_some());
        assert_eq!(post(&client, "/logout", &before), 200);
        assert_eq!(client.cookie(SECRET), None);
        assert_eq!(post(&client, "/look", &before), 403);
    });
}

#[test]
fn a_secret_without_the_signature_of_the_app_is_ignored() {
    with_both_storages(|client| {
        let page = token(&client, "/");
        let secret = client.cookie(SECRET).expect("it is set");
        let other = app(Sessions::in_cookie(Key::generate())).test();
        let foreign_page = token(&other, "/");
        client.set_cookie(SECRET, &other.cookie(SECRET).expect("it is set"));
        assert_eq!(post(&client, "/look", &foreign_page), 403);
        for cut in 0..secret.len() {
            client.set_cookie(SECRET, &secret[..cut]);
            assert_eq!(post(&client, "/look", &page), 403, "cut at {cut}");
        }
        // A value that was signed for sessions with another name.
        let admin = app(Sessions::in_cookie(key()).cookie_name("admin")).test();
        let admin_page = token(&admin, "/");
        client.set_cookie(SECRET, &admin.cookie("admin-csrf").expect("it is set"));
        assert_eq!(post(&client, "/look", &admin_page), 403);
        client.set_cookie(SECRET, &secret);
        assert_eq!(post(&client, "/look", &page), 200);
    });
}

#[test]
fn forms_survive_a_change_of_the_key() {
    let old = app(Sessions::in_cookie(key())).test();
    let page = token(&old, "/");
    let new = app(Sessions::in_cookie(Key::generate()).old_key(key())).test();
    new.set_cookie(SECRET, &old.cookie(SECRET).expect("it is set"));
    assert_eq!(post(&new, "/look", &page), 200);
}

#[test]
fn the_cookie_is_named_after_the_session_cookie() {
    let plain = app(Sessions::in_cookie(key())).development(true).test();
    let named = app(Sessions::in_cookie(key()).cookie_name("sid").domain("example.org")).test();
    let set = |client: &TestClient| client.get("/").send().header("set-cookie").map(str::to_owned);
    assert!(set(&plain).is_some_and(|cookie| {
        cookie.starts_with("session-csrf=") && !cookie.contains("Secure")
    }));
    assert!(set(&named).is_some_and(|cookie| {
        cookie.starts_with("sid-csrf=") && cookie.ends_with("; Secure; Path=/; Domain=example.org")
    }));
}
