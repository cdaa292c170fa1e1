//! The todo app in a real browser: registering, adding, completing, removing, signing out and in
//! again.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

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
