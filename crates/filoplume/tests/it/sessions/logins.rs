//! What becomes of the values of a session when users log in.

use std::collections::HashMap;
use std::sync::Mutex;

use super::*;

#[test]
fn another_user_sees_nothing_of_the_one_before() {
    with_each_storage(|sessions, _| {
        let client = app(sessions()).test();
        // The basket of a visitor.
        client.put("/basket/tea").send().assert_status(200);
        client.post("/subject/ada").send().assert_status(200);
        client.get("/basket").send().assert_text("Some(\"tea\")");
        client.put("/draft/secret").send().assert_status(200);
        client.post("/subject/ada").send().assert_status(200);
        client.get("/draft").send().assert_text("Some(\"secret\")");

        client.post("/subject/bob").send().assert_status(200);
        client.get("/subject").send().assert_text("Some(\"bob\")");
        client.get("/draft").send().assert_text("None");
        client.get("/basket").send().assert_text("None");
    });
}

#[test]
fn values_that_the_login_itself_sets_are_kept() {
    let app =
        app(Sessions::in_cookie(key())).post("/switch", |session: Session| -> Result<String> {
            session.log_in("bob")?;
            session.insert("theme", "dark")?;
            Ok(format!("{:?}", session.get::<String>("draft")?))
        });
    let client = app.test();
    client.post("/subject/ada").send().assert_status(200);
    client.put("/draft/secret").send().assert_status(200);
    client.put("/theme/light").send().assert_status(200);
    client.post("/switch").send().assert_text("None");
    client.get("/theme").send().assert_text("Some(\"dark\")");
    client.get("/subject").send().assert_text("Some(\"bob\")");
}

#[test]
fn a_deleted_user_is_a_stranger() {
    with_each_storage(|sessions, _| {
        let users = Arc::new(Mutex::new(HashMap::from([("ada".to_owned(), 1)])));
        let table = Arc::clone(&users);
        let generation = move |user: &str| -> Result<u64> {
            Ok(table.lock().expect("nothing panics").get(user).copied().unwrap_or(u64::MAX))
        };
        let client = app(sessions().generations(generation)).test();
        client.post("/subject/ada").send().assert_status(200);
        client.get("/subject").send().assert_text("Some(\"ada\")");
        users.lock().expect("nothing panics").clear();
        client.get("/subject").send().assert_status(200).assert_text("None");
        // The browser can be used by others.
        users.lock().expect("nothing panics").insert("bob".to_owned(), 0);
        client.post("/subject/bob").send().assert_status(200);
        client.get("/subject").send().assert_text("Some(\"bob\")");
    });
}
