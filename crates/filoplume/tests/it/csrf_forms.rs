//! How the test client sends the CSRF token of a page, and how apps see it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use filoplume::Key;
use filoplume::middleware::{Csrf, CsrfToken, Sessions};
use filoplume::prelude::*;
use filoplume::testing::{MultipartForm, TestClient, TestRequest};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    title: String,
}

fn names(mut form: Multipart) -> Result<String> {
    let mut names = Vec::new();
    while let Some(field) = form.next_field()? {
        names.push(field.name().to_owned());
    }
    Ok(names.join(","))
}

/// An app with a page: `{token}` is replaced by the field.
fn client(page: &'static str) -> TestClient {
    App::new()
        .get("/notes/7", |token: CsrfToken| Html(page.replace("{token}", &token.field())))
        .post("/notes", |Form(note): Form<Note>| note.title)
        .put("/notes", |Form(note): Form<Note>| note.title)
        .post("/all", |Form(all): Form<Vec<(String, String)>>| format!("{all:?}"))
        .post("/raw", |form: String| format!("{}", form.starts_with("_csrf=")))
        .post("/files", names)
        .post("/empty", || "done")
        .with(Sessions::in_cookie(Key::generate()))
        .with(Csrf::new())
        .test()
}

fn photo() -> MultipartForm {
    MultipartForm::new().text("title", "cat").file("photo", "cat.png", "image/png", b"meow")
}

/// Returns the message of the test that sends this request.
#[track_caller]
fn failure_of(request: TestRequest<'_>) -> String {
    let failed = catch_unwind(AssertUnwindSafe(|| request.send()));
    *failed.expect_err("it fails").downcast::<String>().expect("it has a message")
}

#[test]
fn a_form_is_sent_with_the_field_and_extracted_without_it() {
    let client = client(
        "<form method=post action=../notes>{token}</form><form method=post action=/all>{token}\
         </form><form method=post action=/raw>{token}</form><form method=post action=/empty>\
         {token}</form>",
    );
    let page = client.get("/notes/7").send();
    let title = [("title", "tea & milk")];
    client.post("/notes").form(&title).csrf(&page).send().assert_text("tea & milk");
    client.post("/notes").csrf(&page).form(&title).send().assert_text("tea & milk");
    client.post("/notes?x=1").csrf(&page).form(&title).send().assert_text("tea & milk");
    let answer = client.post("/notes").form(&[("_csrf", "x"), ("title", "a")]).csrf(&page).send();
    answer.assert_text("a");
    let wrong = client.post("/notes").form(&[("titel", "a")]).csrf(&page).send();
    wrong.assert_status(422).assert_contains("unknown field `titel`");
    client.post("/all").form(&[("a", "b")]).csrf(&page).send().assert_text(r#"[("a", "b")]"#);
    client.post("/raw").form(&[("a", "b")]).csrf(&page).send().assert_text("true");
    client.post("/empty").csrf(&page).send().assert_text("done");
    client.post("/all").csrf(&page).send().assert_text("[]");
    client.post("/notes").form(&title).send().assert_status(403);
}

#[test]
fn a_form_is_extracted_with_its_fields_where_nothing_checks_tokens() {
    let app = App::new().post("/", |Form(all): Form<Vec<(String, String)>>| format!("{all:?}"));
    let answer = app.test().post("/").form(&[("_csrf", "x"), ("a", "b")]).send();
    answer.assert_text(r#"[("_csrf", "x"), ("a", "b")]"#);
}

#[test]
fn the_field_of_a_multipart_form_is_where_the_page_has_it() {
    let pages = [
        ("{token}<input name=title><input type=file name=photo>", 200),
        ("<input type=file name=photo>{token}", 403),
        ("<input name=title>{token}<input type=file name=photo>", 403),
        // A form without other fields gets them from a script.
        ("{token}", 200),
    ];
    for (fields, status) in pages {
        let page = format!("<form method=post action=/files>{fields}</form>");
        let client = client(Box::leak(page.into_boxed_str()));
        let page = client.get("/notes/7").send();
        let answer = client.post("/files").multipart(photo()).csrf(&page).send();
        assert_eq!(answer.status(), status, "{fields}: {}", answer.text());
        if status == 200 {
            answer.assert_text("_csrf,title,photo");
        } else {
            answer.assert_contains("the first one of a form with files");
        }
    }
}

#[test]
fn a_page_without_the_token_in_the_right_form_fails_the_test() {
    let client = client(
        "<form action=/logout method=post>{token}</form><form action=/notes>{token}</form>\
         <form method=post action=/all></form>",
    );
    let page = client.get("/notes/7").send();
    let list = "The forms of the page:\n- POST /logout, with the field `_csrf`\n- GET /notes, \
                with the field `_csrf`\n- POST /all, without the field `_csrf`";
    // A form without `method` is a `GET`.
    let failure = failure_of(client.post("/notes").form(&[("title", "a")]).csrf(&page));
    assert!(
        failure.starts_with("the page `GET /notes/7` has no form that is sent to POST /notes;")
            && failure.ends_with(list),
        "{failure}"
    );
    let start = "a form of the page `GET /notes/7` that is sent to POST /all has no field `_csrf`";
    for request in [
        client.post("/all").form(&[("title", "a")]),
        client.post("/all").multipart(photo()),
        client.post("/all"),
    ] {
        let failure = failure_of(request.csrf(&page));
        assert!(failure.starts_with(start) && failure.ends_with(list), "{failure}");
    }
    let bare = client.post("/notes").csrf(&page).send();
    let failure = failure_of(client.post("/all").form(&[("title", "a")]).csrf(&bare));
    assert!(failure.ends_with("The page has no forms."), "{failure}");
}

#[test]
fn requests_of_scripts_send_the_token_in_the_header() {
    let client = client("{token}");
    let page = client.get("/notes/7").send();
    client.post("/empty").body("text").csrf(&page).send().assert_text("done");
    client.post("/empty").csrf(&page).send().assert_text("done");
    client.put("/notes").form(&[("title", "a")]).csrf(&page).send().assert_text("a");
    let bare = client.post("/nowhere").send();
    let failure = failure_of(client.post("/empty").body("text").csrf(&bare));
    assert!(failure.starts_with("the page `POST /nowhere` has no field `_csrf`"), "{failure}");
}

#[test]
fn a_form_without_cookies_is_refused_with_the_reason() {
    let app = |sessions: Sessions| {
        App::new()
            .get("/", |token: CsrfToken| token.to_string())
            .post("/", || "done")
            .with(sessions)
            .with(Csrf::new())
    };
    let sessions = || Sessions::in_cookie(Key::generate());
    let refused = |app: App, prove: &dyn Fn(&str)| {
        let client = app.test().without_cookies();
        let token = client.get("/").send().text().to_owned();
        let answer = client.post("/").header("x-csrf-token", &token).send();
        prove(answer.assert_status(403).text());
    };
    let reason = "no cookie of this site came with the form";
    refused(app(sessions()), &|text| {
        assert!(text.contains(reason) && !text.contains("development"), "{text}");
    });
    let advice = "`Secure` cookies need HTTPS, or `App::development(true)` on your machine";
    refused(app(sessions().secure(true)).development(true), &|text| {
        assert!(text.contains(reason) && text.contains(advice), "{text}");
    });
    refused(app(sessions()).development(true), &|text| {
        assert!(text.contains(reason) && !text.contains("Secure"), "{text}");
    });
    // When a cookie was sent, the message blames the token.
    let client = app(sessions()).test();
    let token = client.get("/").send().text().to_owned();
    client.set_cookie("__Host-session-csrf", "x");
    let answer = client.post("/").header("x-csrf-token", &token).send();
    answer.assert_status(403).assert_contains("is not that of this session");
}
