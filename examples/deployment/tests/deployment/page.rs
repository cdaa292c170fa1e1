//! The page in a real browser, through haproxy.

use harness::{Browser, beside_others};

use super::{LAME_DUCK, start};

#[test]
fn the_page_shows_each_note_once() {
    let _shared = beside_others();
    let Some((folder, stack)) = start(LAME_DUCK) else { return };
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let url = format!("http://{}/", stack.address());
    browser.open(&url);
    browser.fill("input[name=name]", "Ada");
    browser.fill("input[name=password]", "correct horse");
    browser.click("button[value='/api/accounts']");
    browser.wait_for_text("You are Ada.");
    let texts = ["buy <b>milk</b>", "water the plants", "call Grace"];
    for (added, text) in texts.into_iter().enumerate() {
        // The feed begins with the notes that the page shows already, and goes on with new ones.
        browser.open(&url);
        browser.fill("input[name=text]", text);
        browser.click("#note button");
        browser.wait_for_text(&format!("Ada: {text}"));
        let count = browser.evaluate("document.querySelectorAll('#notes li').length");
        assert_eq!(count, added + 1, "after {text:?}");
    }
    let first = "document.querySelector('#notes li').textContent === 'Ada: call Grace'";
    browser.wait_for(first);
    browser.open(&url);
    browser.wait_for(first);
}
