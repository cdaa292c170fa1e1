//! Sessions in every kind of storage, under attacks and failures.

mod logins;
mod panics;
mod remembered;
mod stores;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use filoplume::Key;
use filoplume::middleware::Sessions;
use filoplume::prelude::*;
use filoplume::session::{MemoryStore, RedisStore, SessionStore, SqliteStore};
use harness::Redis;

const NAME: &str = "__Host-session";

fn key() -> Key {
    Key::from_secret([3; 32]).expect("it is long enough")
}

/// Returns an app with all operations on a session.
fn app(sessions: Sessions) -> App {
    App::new()
        .get("/", |session: Session| -> Result<String> {
            Ok(format!("{:?}", session.get::<String>("user")?))
        })
        .get("/plain", || "no session here")
        .get("/subject", |session: Session| -> Result<String> {
            Ok(format!("{:?}", session.subject()?))
        })
        .post("/subject/{user}", |session: Session, Path(user): Path<String>| session.log_in(user))
        .get("/{name}", |session: Session, Path(name): Path<String>| -> Result<String> {
            Ok(format!("{:?}", session.get::<String>(&name)?))
        })
        .put("/{name}/{value}", |session: Session, Path((name, value)): Path<(String, String)>| {
            session.insert(name, value)
        })
        .post("/large/{bytes}", |session: Session, Path(bytes): Path<usize>| {
            session.insert("a", "x".repeat(bytes))
        })
        .delete("/{name}", |session: Session, Path(name): Path<String>| session.remove(&name))
        .post("/login/{user}", |session: Session, Path(user): Path<String>| -> Result<()> {
            session.renew()?;
            session.insert("user", user)
        })
        .post("/logout", |session: Session| session.destroy())
        .post("/clear", |session: Session| session.clear())
        .post("/panic", |session: Session| -> Result<()> {
            session.insert("user", "half")?;
            panic!("on purpose");
        })
        .post("/refused", |session: Session| -> Result<()> {
            session.insert("failures", "1")?;
            Err(Error::forbidden("wrong password"))
        })
        .with(sessions)
}

/// Runs a test with each kind of storage that this machine has. The second argument says whether
/// sessions are kept on the server.
fn with_each_storage(test: impl Fn(&dyn Fn() -> Sessions, bool)) {
    test(&|| Sessions::in_cookie(key()), false);
    let memory = Arc::new(MemoryStore::new());
    test(&|| Sessions::new(Arc::clone(&memory), key()), true);
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("sessions.db");
    test(&|| Sessions::new(SqliteStore::open(&file).expect("it can be opened"), key()), true);
    if let Some(redis) = Redis::start() {
        test(&|| Sessions::new(redis_store(&redis), key()), true);
    }
}

#[test]
fn a_session_stores_renews_and_removes() {
    with_each_storage(|sessions, is_on_server| {
        let client = app(sessions()).test();
        client.get("/").send().assert_text("None").assert_no_header("set-cookie");
        client.put("/color/red").send().assert_status(200);
        let before = client.cookie(NAME).expect("it is set");
        client.get("/color").send().assert_text("Some(\"red\")");

        client.post("/login/ada").send().assert_status(200);
        let after = client.cookie(NAME).expect("it is set");
        assert_ne!(before, after);
        client.get("/").send().assert_text("Some(\"ada\")");
        client.get("/color").send().assert_text("Some(\"red\")");

        // Another instance, or the same one after a restart.
        let other = app(sessions()).test().without_cookies();
        let ask = |cookie: &str| other.get("/").cookie(NAME, cookie).send().text().to_owned();
        assert_eq!(ask(&after), "Some(\"ada\")");
        assert_eq!(ask(&before), "None");

        client.delete("/color").send().assert_status(200);
        client.get("/color").send().assert_text("None");
        let last = client.cookie(NAME).expect("it is set");
        client.post("/logout").send().assert_status(200);
        assert_eq!(client.cookie(NAME), None);
        client.get("/").send().assert_text("None");
        if is_on_server {
            assert_eq!(ask(&last), "None", "a copy of the cookie is worth nothing");
        }
    });
}

#[test]
fn the_number_of_a_row_can_log_in() {
    let client = App::new()
        .post("/login/{id}", |session: Session, Path(id): Path<i64>| session.log_in(id))
        .get("/", |session: Session| session.subject())
        .with(Sessions::in_cookie(key()))
        .test();
    client.post("/login/17").send().assert_status(200);
    client.get("/").send().assert_text("17");
}

#[test]
fn changes_are_saved_after_an_error_but_not_after_a_panic() {
    with_each_storage(|sessions, _| {
        let client = app(sessions()).test();
        client.post("/refused").send().assert_status(403);
        client.get("/failures").send().assert_text("Some(\"1\")");
        client.post("/panic").send().assert_status(500);
        client.get("/").send().assert_text("None");
    });
}

#[test]
fn a_forged_or_changed_cookie_is_not_a_session() {
    with_each_storage(|sessions, is_on_server| {
        let client = app(sessions()).test();
        client.post("/login/ada").send().assert_status(200);
        let cookie = client.cookie(NAME).expect("it is set");
        let attacker = app(sessions()).test().without_cookies();
        let ask = |cookie: &str| attacker.get("/").cookie(NAME, cookie).send().text().to_owned();
        assert_eq!(ask(&cookie), "Some(\"ada\")");
        for at in 0..cookie.len() {
            assert_eq!(ask(&cookie[..at]), "None", "cut at {at}");
            let mut changed = cookie.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(ask(&String::from_utf8_lossy(&changed)), "None", "changed at {at}");
        }
        for made_up in ["", "x", &"A".repeat(87), &"A".repeat(6000), "%00", "ä"] {
            assert_eq!(ask(made_up), "None");
        }
        let other_key = if is_on_server {
            Sessions::new(MemoryStore::new(), Key::generate())
        } else {
            Sessions::in_cookie(Key::generate())
        };
        let other = app(other_key).test().without_cookies();
        other.get("/").cookie(NAME, &cookie).send().assert_text("None");
    });
}

#[test]
fn login_does_not_keep_a_planted_session() {
    with_each_storage(|sessions, is_on_server| {
        let attacker = app(sessions()).test();
        attacker.put("/color/red").send().assert_status(200);
        let planted = attacker.cookie(NAME).expect("it is set");
        let victim = app(sessions()).test();
        victim.set_cookie(NAME, &planted);
        victim.post("/login/ada").send().assert_status(200);
        victim.get("/").send().assert_text("Some(\"ada\")");
        attacker.get("/").send().assert_text("None");
        // An unknown ID is not used either.
        let unknown = app(sessions()).test();
        unknown.set_cookie(NAME, &planted);
        unknown.put("/color/blue").send().assert_status(200);
        if is_on_server {
            assert_ne!(unknown.cookie(NAME), Some(planted));
        }
    });
}

#[test]
fn a_key_can_be_changed_without_ending_sessions() {
    let store = Arc::new(MemoryStore::new());
    let places: [&dyn Fn(Key) -> Sessions; 2] =
        [&Sessions::in_cookie, &|key| Sessions::new(Arc::clone(&store), key)];
    for sessions in places {
        let (old, new) = (Key::generate(), Key::generate());
        let before = app(sessions(old.clone())).test();
        before.post("/login/ada").send().assert_status(200);
        let cookie = before.cookie(NAME).expect("it is set");

        let changed = app(sessions(new.clone()).old_key(old)).test();
        changed.set_cookie(NAME, &cookie);
        changed.get("/").send().assert_text("Some(\"ada\")");
        changed.put("/color/red").send().assert_status(200);
        changed.get("/color").send().assert_text("Some(\"red\")");
        changed.post("/login/bob").send().assert_status(200);
        let renewed = changed.cookie(NAME).expect("it is set");

        let after = app(sessions(new)).test().without_cookies();
        after.get("/").cookie(NAME, &renewed).send().assert_text("Some(\"bob\")");
        after.get("/").cookie(NAME, &cookie).send().assert_text("None");
    }
}

#[test]
fn concurrent_requests_keep_the_changes_of_each() {
    with_each_storage(|sessions, is_on_server| {
        if !is_on_server {
            return;
        }
        const COUNT: usize = 4;
        let barrier = Arc::new(Barrier::new(COUNT));
        let together = app(sessions())
            .post(
                "/together/{name}",
                |session: Session,
                 Path(name): Path<String>,
                 State(barrier): State<Arc<Barrier>>| {
                    barrier.wait();
                    session.insert(name, "kept")
                },
            )
            .state(Arc::clone(&barrier))
            .test()
            .without_cookies();
        let first = together.put("/color/red").send();
        let cookie = first.cookie(NAME).expect("it is set");
        std::thread::scope(|scope| {
            for number in 0..COUNT {
                let (together, path) = (&together, format!("/together/n{number}"));
                scope.spawn(move || {
                    together.post(&path).cookie(NAME, cookie).send().assert_status(200).status()
                });
            }
        });
        for number in 0..COUNT {
            let kept = together.get(&format!("/n{number}")).cookie(NAME, cookie).send();
            kept.assert_text("Some(\"kept\")");
        }
        together.get("/color").cookie(NAME, cookie).send().assert_text("Some(\"red\")");
    });
}

#[test]
fn a_slow_request_does_not_restore_a_session_that_was_ended() {
    with_each_storage(|sessions, is_on_server| {
        if !is_on_server {
            return;
        }
        let barrier = Arc::new(Barrier::new(2));
        let client = app(sessions())
            .post("/slow", |session: Session, State(barrier): State<Arc<Barrier>>| {
                // The first wait is after the session was read, and the second one ends when the
                // session was ended.
                barrier.wait();
                barrier.wait();
                session.insert("late", "yes")
            })
            .post("/slow/renew", |session: Session, State(barrier): State<Arc<Barrier>>| {
                barrier.wait();
                barrier.wait();
                session.renew()
            })
            .state(Arc::clone(&barrier))
            .test()
            .without_cookies();
        for path in ["/slow", "/slow/renew"] {
            let login = client.post("/login/ada").send();
            let cookie = login.cookie(NAME).expect("it is set");
            std::thread::scope(|scope| {
                let slow = scope.spawn(|| client.post(path).cookie(NAME, cookie).send());
                barrier.wait();
                client.post("/logout").cookie(NAME, cookie).send().assert_status(200);
                barrier.wait();
                slow.join().expect("it does not panic").assert_no_header("set-cookie");
            });
            client.get("/").cookie(NAME, cookie).send().assert_text("None");
            client.get("/late").cookie(NAME, cookie).send().assert_text("None");
        }
    });
}

#[test]
fn idle_sessions_end() {
    with_each_storage(|sessions, _| {
        let short = |sessions: Sessions| sessions.idle_timeout(Duration::from_secs(1));
        let client = app(short(sessions())).test().without_cookies();
        let set = client.put("/color/red").send();
        assert!(
            set.header("set-cookie").is_some_and(|cookie| cookie.contains("; Max-Age=1")),
            "{set:?}"
        );
        let cookie = set.cookie(NAME).expect("it is set");
        let deadline = Instant::now() + Duration::from_secs(10);
        // A request extends a session only if a second has passed, and by then this one has ended.
        while client.get("/color").cookie(NAME, cookie).send().text() != "None" {
            assert!(Instant::now() < deadline, "it does not end");
            // Polls, because no event tells that time has passed.
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

/// `Max-Age=0` would make the browser delete the cookie.
#[test]
fn a_session_of_less_than_a_second_is_given_to_the_browser() {
    with_each_storage(|sessions, _| {
        let client = app(sessions().idle_timeout(Duration::from_millis(500))).test();
        let set = client.put("/color/red").send();
        let cookie = set.header("set-cookie").expect("it is set");
        assert!(cookie.ends_with("; Max-Age=1"), "{cookie}");
    });
}

#[test]
fn a_session_in_a_cookie_has_a_maximum_length() {
    let client = app(Sessions::in_cookie(key())).test();
    client.post("/large/2700").send().assert_status(200);
    let refused = client.post("/large/5000").send();
    refused.assert_status(500).assert_no_header("set-cookie");
    assert!(!refused.text().contains("4096"), "{refused:?}");
    let client = app(Sessions::new(MemoryStore::new(), key())).test();
    client.post("/large/100000").send().assert_status(200);
    client.post("/large/300000").send().assert_status(500);
}

#[test]
fn the_cookie_has_the_safest_attributes() {
    let set = |app: App| {
        let answer = app.test().put("/color/red").send();
        let cookie = answer.header("set-cookie").expect("it is set").to_owned();
        let (name, _) = cookie.split_once('=').expect("it has a value");
        let (_, attributes) = cookie.split_once("; ").expect("it has attributes");
        (name.to_owned(), attributes.to_owned())
    };
    let sessions = || Sessions::in_cookie(key());
    let (name, attributes) = set(app(sessions()));
    assert_eq!(
        (&*name, &*attributes),
        (NAME, "HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=86400")
    );
    let (name, attributes) = set(app(sessions().until_browser_closes()).development(true));
    assert_eq!((&*name, &*attributes), ("session", "HttpOnly; SameSite=Lax; Path=/"));
    let strict = sessions().domain("example.org").same_site(filoplume::extract::SameSite::Strict);
    let (name, attributes) = set(app(strict.until_browser_closes()));
    assert_eq!(
        (&*name, &*attributes),
        ("session", "HttpOnly; SameSite=Strict; Secure; Path=/; Domain=example.org")
    );
    let (name, _) = set(app(sessions().cookie_name("sid").secure(false)));
    assert_eq!(name, "sid");
    // Browsers accept no `__Host-` with another path.
    let (name, attributes) = set(app(sessions().path("/color").until_browser_closes()));
    assert_eq!((&*name, &*attributes), ("session", "HttpOnly; SameSite=Lax; Secure; Path=/color"));
}

#[test]
fn responses_that_used_a_session_are_private_to_caches() {
    let client = App::new()
        .get("/plain", || "the same for all")
        .get("/read", |session: Session| format!("{:?}", session.is_empty().ok()))
        .get("/own", |_: Session| ([("cache-control", "max-age=60"), ("vary", "accept")], "x"))
        .get("/public", |session: Session| -> Result<_> {
            session.insert("a", 1)?;
            Ok(([("cache-control", "public, max-age=60"), ("vary", "accept, COOKIE")], "x"))
        })
        .get("/private", |session: Session| -> Result<_> {
            session.insert("a", 2)?;
            Ok(([("cache-control", "no-store")], "x"))
        })
        .with(Sessions::in_cookie(key()))
        .test();
    client.get("/plain").send().assert_no_header("vary").assert_no_header("cache-control");
    client
        .get("/read")
        .send()
        .assert_header("vary", "Cookie")
        .assert_header("cache-control", "private, no-cache");
    let own = client.get("/own").send();
    own.assert_header("cache-control", "max-age=60");
    assert_eq!(own.headers_all("vary").collect::<Vec<_>>(), ["accept", "Cookie"]);
    // A shared cache would give the session to other clients.
    let public = client.get("/public").send();
    public
        .assert_header("cache-control", "private, no-cache")
        .assert_header("vary", "accept, COOKIE");
    client.get("/private").send().assert_header("cache-control", "no-store");
}

#[test]
fn a_value_of_another_type_is_a_mistake_of_the_program() {
    let client = App::new()
        .get("/", |session: Session| -> Result<String> {
            session.insert("n", "seventeen")?;
            Ok(session.get::<u32>("n")?.map_or_else(String::new, |n| n.to_string()))
        })
        .with(Sessions::in_cookie(key()))
        .test();
    client.get("/").send().assert_status(500);
}

#[test]
fn using_a_session_after_the_response_is_an_error() {
    let kept = Arc::new(std::sync::Mutex::new(None::<Session>));
    let client = App::new()
        .get("/", |session: Session, State(kept): State<Arc<std::sync::Mutex<Option<Session>>>>| {
            *kept.lock().expect("nobody panicked") = Some(session);
        })
        .state(Arc::clone(&kept))
        .with(Sessions::in_cookie(key()))
        .test();
    client.get("/").send().assert_status(200);
    let session: Session = kept.lock().expect("nobody panicked").take().expect("it was kept");
    let error = session.insert("late", "yes").expect_err("the response is made");
    assert!(error.to_string().contains("already saved"), "{error}");
}

#[test]
fn flash_messages_are_shown_once() {
    with_each_storage(|sessions, _| {
        let client = App::new()
            .post("/", |flash: Flash| -> Result<Redirect> {
                flash.success("saved <b>")?;
                flash.push("odd", "two")?;
                Ok(Redirect::to("/"))
            })
            .post("/many", |flash: Flash| {
                (0..100).try_for_each(|number| flash.info(number.to_string()))
            })
            .get("/", |flash: Flash| flash.take().map(Json))
            .with(sessions())
            .test();
        client.get("/").send().assert_text("[]");
        let shown = client.post("/").follow_redirects(1).send();
        shown.assert_text(
            r#"[{"level":"success","text":"saved <b>"},{"level":"odd","text":"two"}]"#,
        );
        client.get("/").send().assert_text("[]");
        client.post("/many").send().assert_status(200);
        let many: Vec<HashMap<String, String>> = client.get("/").send().json();
        assert_eq!((many.len(), many[19]["text"].as_str()), (20, "99"));
    });
}

fn redis_store(server: &Redis) -> RedisStore {
    RedisStore::connect(&server.url()).expect("it answers")
}
