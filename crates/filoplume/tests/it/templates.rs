//! Pages from templates.

use std::fs;

use filoplume::prelude::*;
use serde::Serialize;

#[derive(Serialize)]
struct Note {
    title: String,
    stars: Option<u8>,
}

fn strings(templates: &[(&'static str, &'static str)]) -> Templates {
    Templates::from_strings(templates.iter().copied()).expect("they can be parsed")
}

#[test]
fn values_are_escaped_for_their_context() {
    let templates = strings(&[
        ("page.html", "<p>{{ value }}</p>"),
        ("page.unknown", "<p>{{ value }}</p>"),
        ("mail.txt", "{{ value }}"),
        ("data.json", "{\"value\": {{ value }}}"),
    ]);
    let hostile = "<script>alert(\"1\")</script>&'";
    let context = || context! { value => hostile };
    for name in ["page.html", "page.unknown"] {
        let page = templates.render(name, context()).expect("it is rendered").0;
        assert!(!page.contains("<script") && page.contains("&lt;script"), "{page}");
        assert!(!page.contains("&'"), "{page}");
    }
    assert_eq!(templates.render_text("mail.txt", context()).expect("it is rendered"), hostile);
    let json = templates.render_text("data.json", context()).expect("it is rendered");
    let value: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(value["value"], hostile);
    // Unescaped output is not sent as HTML by mistake.
    assert!(
        templates
            .render("mail.txt", context())
            .is_err_and(|error| error.to_string().contains("render_text"))
    );
}

#[test]
fn structs_and_maps_are_contexts() {
    let templates = strings(&[(
        "notes.html",
        "{{ user.name }}:{% for note in notes %} {{ note.title }}{% if note.stars %}({{ \
         note.stars }}){% endif %}{% endfor %}",
    )]);
    let notes = vec![
        Note { title: "a & b".to_owned(), stars: Some(3) },
        Note { title: "c".to_owned(), stars: None },
    ];
    let page =
        templates.render("notes.html", context! { user => context! { name => "ada" }, notes });
    assert_eq!(page.expect("it is rendered").0, "ada: a &amp; b(3) c");
    #[derive(Serialize)]
    struct Page {
        user: std::collections::BTreeMap<&'static str, &'static str>,
        notes: Vec<Note>,
    }
    let page = Page { user: [("name", "bob")].into(), notes: Vec::new() };
    assert_eq!(templates.render("notes.html", page).expect("it is rendered").0, "bob:");
}

#[test]
fn a_folder_is_read_with_its_subfolders_and_reloaded_on_changes() {
    let folder = tempfile::tempdir().expect("there is room");
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("it can be written");
    };
    fs::create_dir_all(folder.path().join("users/.hidden")).expect("it can be made");
    write("base.html", "[{% block body %}{% endblock %}]");
    write("users/list.html", "{% extends 'base.html' %}{% block body %}{{ count }}{% endblock %}");
    write("users/.hidden/broken.html", "{% if %}");
    write("logo.png", "\u{0}{% if %}");
    let templates = Templates::from_folder(folder.path()).expect("they can be parsed");
    let page = |templates: &Templates| {
        templates.render("users/list.html", context! { count => 3 }).map(|page| page.0)
    };
    assert_eq!(page(&templates).expect("it is rendered"), "[3]");

    let fixed = templates.clone().reload(false);
    let fresh = templates.reload(true);
    assert_eq!(page(&fixed).expect("it is rendered"), "[3]");
    write("base.html", "<<{% block body %}{% endblock %}>>");
    assert_eq!(page(&fresh).expect("it is rendered"), "<<3>>");
    write("base.html", "{% if %}");
    assert!(page(&fresh).is_err());
    assert_eq!(page(&fixed).expect("it is rendered"), "[3]");

    for name in ["../base.html", "users/.hidden/broken.html", "/etc/passwd", "nothing.html", ""] {
        assert!(fresh.render(name, context! {}).is_err(), "{name}");
    }
}

#[test]
fn a_broken_folder_is_an_error_at_start_up() {
    let folder = tempfile::tempdir().expect("there is room");
    fs::write(folder.path().join("bad.html"), "fine\n{% for x %}\n").expect("it can be written");
    let error =
        Templates::from_folder(folder.path()).map(drop).expect_err("it is broken").to_string();
    assert!(error.contains("bad.html, line 2"), "{error}");
    let missing = Templates::from_folder(folder.path().join("nowhere"))
        .map(drop)
        .expect_err("it is not there");
    assert!(missing.to_string().contains("nowhere"), "{missing}");
}

fn failing() -> App {
    let templates = strings(&[
        ("page.html", "line one\n{{ user.nmae }}\n"),
        ("loop.html", "{% include 'loop.html' %}"),
    ]);
    App::new()
        .get("/", |State(templates): State<Templates>| {
            templates.render("page.html", context! { user => context! { name => "s3cret" } })
        })
        .get("/missing", |State(templates): State<Templates>| {
            templates.render("none.html", context! {})
        })
        .get("/loop", |State(templates): State<Templates>| {
            templates.render("loop.html", context! {})
        })
        .state(templates)
}

#[test]
fn errors_are_shown_in_the_log_and_in_development_mode() {
    let client = failing().test();
    for path in ["/", "/missing", "/loop"] {
        let answer = client.get(path).header("accept", "text/html").send();
        answer.assert_status(500);
        assert!(!answer.text().contains("html,") && !answer.text().contains("nmae"), "{answer:?}");
    }
    let client = failing().development(true).test();
    let page = client.get("/").header("accept", "text/html").send();
    page.assert_status(500).assert_contains("page.html, line 2").assert_contains("user.nmae");
    assert!(!page.text().contains("s3cret"), "values are not shown: {page:?}");
    client.get("/missing").header("accept", "text/html").send().assert_contains("none.html");
    let hint = |path: &str| {
        let json: serde_json::Value = client.get(path).send().json();
        json["development"]["hint"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(
        hint("/"),
        "Give `user.nmae` to `context!`, or use `|default(\"\")` where it may be missing."
    );
    assert_eq!(hint("/missing"), "The templates are `loop.html`, `page.html`.");
}

#[test]
fn globals_filters_and_html_responses_work() {
    let templates = strings(&[("a.html", "{{ site }}: {{ name|shout }}")])
        .global("site", "Notes & more")
        .configure(|environment| {
            environment.add_filter("shout", |text: String| text.to_uppercase());
        });
    let client = App::new()
        .get("/{name}", |State(templates): State<Templates>, Path(name): Path<String>| {
            templates.render("a.html", context! { name })
        })
        .state(templates)
        .test();
    let page = client.get("/%3Cb%3E").send();
    page.assert_text("Notes &amp; more: &lt;B&gt;")
        .assert_header("content-type", "text/html; charset=utf-8");
}
