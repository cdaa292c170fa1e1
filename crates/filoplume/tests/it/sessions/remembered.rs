//! Sessions that are remembered: in each storage, and lifetimes that are refused.

use std::sync::Mutex;

use filoplume::testing::TestClient;

use super::stores::seconds_left;
use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns an app whose logins are remembered for a number of milliseconds.
fn remembering(sessions: Sessions) -> App {
    App::new()
        .post("/login", |session: Session| session.log_in("ada"))
        .post("/login/{milliseconds}", |session: Session, Path(milliseconds): Path<u64>| {
            session.log_in("ada")?;
            session.remember(Duration::from_millis(milliseconds))
        })
        .get("/", |session: Session| session.subject())
        .with(sessions)
}

/// Waits until a session has ended. Polls, because no event tells that time has passed.
fn wait_for_end(client: &TestClient, cookie: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.get("/").cookie(NAME, cookie).send().status() != 404 {
        assert!(Instant::now() < deadline, "the session does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn each_storage_keeps_a_remembered_session_without_use() {
    with_each_storage(|sessions, _| {
        let short = || sessions().until_browser_closes().idle_timeout(Duration::from_secs(1));
        let client = remembering(short()).test().without_cookies();
        let day = format!("/login/{}", DAY.as_millis());
        let (usual, remembered) = (client.post("/login").send(), client.post(&day).send());
        let lasting = remembered.header("set-cookie").expect("the login sets a cookie");
        assert!(lasting.contains("; Max-Age=86400"), "{lasting}");
        wait_for_end(&client, usual.cookie(NAME).expect("the login sets a cookie"));
        let cookie = remembered.cookie(NAME).expect("the login sets a cookie");
        client.get("/").cookie(NAME, cookie).send().assert_text("ada");
        // Another instance, or the same one after a restart.
        let other = remembering(short()).test().without_cookies();
        other.get("/").cookie(NAME, cookie).send().assert_text("ada");
    });
}

#[test]
fn each_storage_ends_a_remembered_session_despite_its_use() {
    with_each_storage(|sessions, _| {
        let client = remembering(sessions().idle_timeout(DAY)).test().without_cookies();
        let login = client.post("/login/1000").send();
        wait_for_end(&client, login.cookie(NAME).expect("the login sets a cookie"));
    });
}

#[test]
fn redis_removes_a_remembered_session_by_itself() {
    let Some(redis) = Redis::start() else { return };
    let sessions = Sessions::new(redis_store(&redis), key()).idle_timeout(Duration::from_secs(60));
    let client = remembering(sessions).test();
    client.post("/login").send().assert_status(200);
    assert!((1..=60).contains(&seconds_left(&redis)));
    redis.ask("FLUSHALL");
    client.post(&format!("/login/{}", DAY.as_millis())).send().assert_status(200);
    assert!((86_000..=86_400).contains(&seconds_left(&redis)));
}

/// Runs a login with a lifetime and returns the reason of its refusal.
fn refusal(lifetime: Duration) -> String {
    let reason = Arc::new(Mutex::new(String::new()));
    let written = Arc::clone(&reason);
    let client = remembering(Sessions::in_cookie(key()).absolute_timeout(DAY))
        .with(move |request: Request, next: Next<'_>| {
            let response = next.run(request);
            let error = Error::of(&response).expect("the login is refused");
            *written.lock().expect("nothing panics") = format!("{error:?}");
            response
        })
        .test();
    let response = client.post(&format!("/login/{}", lifetime.as_millis())).send();
    response.assert_status(500);
    assert!(!response.text().contains("remembered"), "the reason is for the log: {response:?}");
    let reason = reason.lock().expect("nothing panics");
    reason.clone()
}

#[test]
fn a_lifetime_beyond_the_absolute_timeout_is_refused() {
    let reason = refusal(DAY + Duration::from_secs(1));
    assert!(reason.contains("the `absolute_timeout` of `Sessions`"), "{reason}");
    let sessions = Sessions::in_cookie(key()).absolute_timeout(DAY);
    let longest = remembering(sessions).test().post("/login/86400000").send();
    longest.assert_status(200);
}

#[test]
fn a_lifetime_below_a_second_is_refused() {
    for lifetime in [Duration::ZERO, Duration::from_millis(999)] {
        let reason = refusal(lifetime);
        assert!(reason.contains("that would end it at once"), "{reason}");
    }
}

#[test]
fn the_session_of_the_next_user_is_not_remembered() {
    let sessions = Sessions::in_cookie(Key::generate()).until_browser_closes();
    let client = App::new()
        .post("/login/{name}", |session: Session, Path(name): Path<String>| session.log_in(name))
        .post("/remember", |session: Session| session.remember(DAY))
        .with(sessions.secure(true).cookie_name(NAME))
        .test();
    client.post("/login/ada").send().assert_status(200);
    let remembered = client.post("/remember").send();
    assert!(remembered.header("set-cookie").unwrap().contains("Max-Age="));
    for (name, is_remembered) in [("ada", true), ("bob", false)] {
        let login = client.post(&format!("/login/{name}")).send();
        let cookie = login.header("set-cookie").unwrap();
        assert_eq!(cookie.contains("Max-Age="), is_remembered, "{name}: {cookie}");
    }
}
