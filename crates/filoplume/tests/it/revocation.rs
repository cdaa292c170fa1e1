//! Logins that the server revokes, wherever their sessions are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use filoplume::Key;
use filoplume::middleware::Sessions;
use filoplume::prelude::*;
use filoplume::session::{Generations, MemoryGenerations, MemoryStore, SqliteStore};
use filoplume::testing::TestClient;

const NAME: &str = "__Host-session";

fn key() -> Key {
    Key::from_secret([9; 32]).expect("it is long enough")
}

fn app(sessions: Sessions) -> App {
    App::new()
        .get("/", |session: Session| -> Result<String> { Ok(format!("{:?}", session.subject()?)) })
        .get("/plain", || "no session here")
        .post("/login/{user}", |session: Session, Path(user): Path<String>| session.log_in(user))
        .post("/basket", |session: Session| session.insert("basket", "tea"))
        .get("/basket", |session: Session| session.get::<String>("basket"))
        .post("/clear", |session: Session| session.clear())
        .post(
            "/logout-everywhere",
            |session: Session, State(generations): State<Arc<MemoryGenerations>>| {
                if let Some(subject) = session.subject()? {
                    generations.advance(subject);
                }
                session.destroy()
            },
        )
        .post(
            "/password",
            |session: Session, State(generations): State<Arc<MemoryGenerations>>| -> Result<()> {
                let subject = session.subject()?.ok_or(Error::unauthorized("log in first"))?;
                generations.advance(&*subject);
                session.log_in(subject)
            },
        )
        .with(sessions)
}

/// Runs a test with each kind of storage, and with generations.
fn with_each_storage(test: impl Fn(&dyn Fn() -> TestClient, &MemoryGenerations)) {
    let folder = tempfile::tempdir().expect("there is room");
    let sqlite =
        Arc::new(SqliteStore::open(folder.path().join("sessions.db")).expect("it can be opened"));
    let memory = Arc::new(MemoryStore::new());
    for sessions in [
        Sessions::in_cookie(key()),
        Sessions::new(Arc::clone(&memory), key()),
        Sessions::new(Arc::clone(&sqlite), key()),
    ] {
        let generations = Arc::new(MemoryGenerations::new());
        let sessions = sessions.generations(Arc::clone(&generations));
        let client = || app(sessions.clone()).state(Arc::clone(&generations)).test();
        test(&client, &generations);
    }
}

#[test]
fn logging_out_everywhere_ends_all_copies_and_no_other_user() {
    with_each_storage(|client, _| {
        let (here, phone, other) = (client(), client(), client());
        here.post("/login/ada").send().assert_status(200);
        phone.post("/login/ada").send().assert_status(200);
        other.post("/login/bob").send().assert_status(200);
        let copy = here.cookie(NAME).expect("it is set");
        here.post("/logout-everywhere").send().assert_status(200);
        let thief = client();
        thief.set_cookie(NAME, &copy);
        for void in [&here, &phone, &thief] {
            void.get("/").send().assert_text("None");
        }
        assert_eq!(phone.cookie(NAME), None, "the browser forgets it");
        other.get("/").send().assert_text("Some(\"bob\")");
        phone.post("/login/ada").send().assert_status(200);
        phone.get("/").send().assert_text("Some(\"ada\")");
    });
}

#[test]
fn a_changed_password_ends_all_logins_but_the_one_that_changed_it() {
    with_each_storage(|client, _| {
        let (here, phone) = (client(), client());
        here.post("/login/ada").send().assert_status(200);
        here.post("/basket").send().assert_status(200);
        phone.post("/login/ada").send().assert_status(200);
        let before = here.cookie(NAME).expect("it is set");
        here.post("/password").send().assert_status(200);
        here.get("/").send().assert_text("Some(\"ada\")");
        here.get("/basket").send().assert_text("tea");
        phone.get("/").send().assert_text("None");
        let thief = client();
        thief.set_cookie(NAME, &before);
        thief.get("/").send().assert_text("None");
        thief.post("/password").send().assert_status(401);
    });
}

#[test]
fn a_revoked_session_reveals_nothing_and_a_new_one_can_begin() {
    with_each_storage(|client, generations| {
        let ada = client();
        ada.post("/login/ada").send().assert_status(200);
        ada.post("/basket").send().assert_status(200);
        generations.advance("ada");
        ada.get("/plain").send().assert_no_header("set-cookie");
        ada.get("/basket").send().assert_status(404);
        ada.post("/basket").send().assert_status(200);
        ada.get("/basket").send().assert_text("tea");
        ada.get("/").send().assert_text("None");
    });
}

#[test]
fn a_session_without_a_login_is_not_revoked() {
    with_each_storage(|client, generations| {
        let visitor = client();
        visitor.post("/basket").send().assert_status(200);
        generations.advance("ada");
        visitor.get("/basket").send().assert_text("tea");
        visitor.post("/login/ada").send().assert_status(200);
        visitor.get("/basket").send().assert_text("tea");
        visitor.post("/clear").send().assert_status(200);
        visitor.get("/").send().assert_text("None");
    });
}

#[test]
fn a_revoked_session_is_removed_from_its_store() {
    let (store, generations) = (Arc::new(MemoryStore::new()), Arc::new(MemoryGenerations::new()));
    let sessions = Sessions::new(Arc::clone(&store), key()).generations(Arc::clone(&generations));
    let client = app(sessions).state(Arc::clone(&generations)).test();
    client.post("/login/ada").send().assert_status(200);
    assert_eq!(store.len(), 1);
    generations.advance("ada");
    client.get("/").send().assert_text("None");
    assert_eq!(store.len(), 0);
}

#[test]
fn generations_in_memory_revoke_the_logins_of_earlier_processes() {
    let start = || {
        let generations = Arc::new(MemoryGenerations::new());
        app(Sessions::in_cookie(key()).generations(Arc::clone(&generations)))
            .state(generations)
            .test()
    };
    let before = start();
    before.post("/login/ada").send().assert_status(200);
    let copy = before.cookie(NAME).expect("it is set");
    before.post("/logout-everywhere").send().assert_status(200);
    let after = start();
    after.set_cookie(NAME, &copy);
    after.get("/").send().assert_text("None");
}

#[test]
fn requests_fail_while_generations_cannot_be_read() {
    let fails = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&fails);
    let generations = move |_: &str| match switch.load(Ordering::Relaxed) {
        true => Err(Error::from(std::io::Error::other("the database is asleep"))),
        false => Ok(3),
    };
    assert_eq!(generations.current("ada").expect("it does not fail yet"), 3);
    let unused = Arc::new(MemoryGenerations::new());
    let client = app(Sessions::in_cookie(key()).generations(generations)).state(unused).test();
    client.post("/login/ada").send().assert_status(200);
    client.get("/").send().assert_text("Some(\"ada\")");
    fails.store(true, Ordering::Relaxed);
    let refused = client.get("/").send();
    refused.assert_status(500).assert_no_header("set-cookie");
    assert!(!refused.text().contains("asleep"), "{refused:?}");
    client.post("/login/ada").send().assert_status(500);
    fails.store(false, Ordering::Relaxed);
    client.get("/").send().assert_text("Some(\"ada\")");
}

#[test]
fn logins_from_before_generations_were_added_are_revoked() {
    let plain = app(Sessions::in_cookie(key())).state(Arc::new(MemoryGenerations::new())).test();
    plain.post("/login/ada").send().assert_status(200);
    plain.get("/").send().assert_text("Some(\"ada\")");
    for (generation, expected) in [(0, "Some(\"ada\")"), (1, "None")] {
        let sessions = Sessions::in_cookie(key()).generations(move |_: &str| Ok(generation));
        let later = app(sessions).state(Arc::new(MemoryGenerations::new())).test();
        later.set_cookie(NAME, &plain.cookie(NAME).expect("it is set"));
        later.get("/").send().assert_text(expected);
    }
}
