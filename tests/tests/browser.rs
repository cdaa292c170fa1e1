//! Apps in a real browser: the todo app, text across origins, and an app over TLS with a WebSocket
//! and an event stream.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use filoplume::Listen;
use filoplume::prelude::*;
use filoplume::sse::{Event, Hub, LastEventId};
use filoplume::websocket::{Socket, WebSocketUpgrade};
use filoplume_tests::tls::Authority;
use filoplume_tests::{Browser, Example};

#[test]
fn sqlite_todo_works_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let database = folder.path().join("todos.db");
    let app = Example("sqlite_todo").start_with(&[database.to_str().unwrap()]);

    browser.open(&format!("http://{}/", app.address()));
    browser.wait_for("location.pathname === '/login'");
    browser.fill("input[name=name]", "Ada");
    browser.fill("input[name=password]", "correct horse");
    browser.click("button[formaction='/register']");
    browser.wait_for_text("Todos of Ada");
    browser.wait_for_text("Nothing is to be done.");

    for text in ["buy <b>milk</b>", "water the plants"] {
        browser.fill("input[name=text]", text);
        browser.click(".add button");
        browser.wait_for_text(text);
    }
    let count = browser.evaluate("document.querySelectorAll('li b').length");
    assert_eq!(count, 0, "what is typed is text, never markup");

    browser.click("li:nth-child(1) .toggle");
    browser.wait_for("document.querySelectorAll('li.done').length === 1");
    browser.click("li:nth-child(2) .remove");
    browser.wait_for_no_text("water the plants");

    browser.click("#logout button");
    browser.wait_for("location.pathname === '/login'");
    browser.fill("input[name=name]", "Ada");
    browser.fill("input[name=password]", "wrong password");
    browser.click("button:not([formaction])");
    browser.wait_for_text("There is nobody with this name and password.");
    browser.fill("input[name=name]", "Ada");
    browser.fill("input[name=password]", "correct horse");
    browser.click("button:not([formaction])");
    browser.wait_for_text("buy <b>milk</b>");
    browser.wait_for("document.querySelectorAll('li.done').length === 1");
}

#[test]
fn cors_spa_shows_text_that_its_page_has_sent() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let page = filoplume_tests::free_address();
    let _app = Example("cors_spa").start_with(&[page.to_string().as_str()]);
    browser.open(&format!("http://{page}/"));
    browser.fill("input[name=text]", "hello across origins");
    browser.click("button");
    browser.wait_for_text("hello across origins");
}

/// A page that shows the messages of a socket and of an event stream.
const LIVE_PAGE: &str = r#"<!DOCTYPE html>
<title>live</title>
<p>A page over TLS.</p>
<script>
  const show = text => document.body.append(document.createElement("hr"), text);
  const socket = new WebSocket(`wss://${location.host}/socket`);
  socket.onopen = () => socket.send("a".repeat(100000));
  socket.onmessage = message => show(`socket: ${message.data}`);
  const events = new EventSource("/events");
  events.onopen = () => fetch("/publish", { method: "POST" });
  events.onmessage = message => show(`event: ${message.data}`);
</script>
"#;

#[test]
fn a_page_a_socket_and_an_event_stream_work_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let (hub, authority) = (Hub::new(), Authority::new());
    let publishing = hub.clone();
    let app = App::new()
        .get("/", || Html(LIVE_PAGE))
        .websocket("/socket", |upgrade: WebSocketUpgrade| {
            upgrade.on_message(|socket: &Socket, text: String| {
                socket.send(format!("{} letters", text.len()))
            })
        })
        .get("/events", move |last: LastEventId| hub.subscribe(&last))
        .post("/publish", move |client: ClientAddr| {
            publishing.send(Event::new(format!("by {}", client.scheme())));
        });
    let tls = authority.issue("site", &["127.0.0.1"]).tls();
    let app = app.start_on(Listen::new().https("127.0.0.1:0", tls)).unwrap();

    browser.accept_any_certificate();
    browser.open(&format!("https://{}/", app.local_addr()));
    browser.wait_for_text("A page over TLS.");
    browser.wait_for_text("socket: 100000 letters");
    browser.wait_for_text("event: by https");
    assert_eq!(browser.evaluate("window.isSecureContext"), true);
}
