//! The console in a real browser.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume::prelude::*;
use filoplume::{Console, RunningApp};
use filoplume_tests::{Browser, Client, Gate, Noise, eventually};

const MS: Duration = Duration::from_millis(1);

fn start(app: App) -> RunningApp {
    app.console("/console", Console::with_password("ada", "sesame")).start("127.0.0.1:0").unwrap()
}

/// Opens the console with the credentials, as a person who has typed them.
fn open(browser: &mut Browser, app: &RunningApp) {
    browser.open(&format!("http://ada:sesame@{}/console", app.local_addr()));
    browser.wait_for("document.body.dataset.state === 'live'");
}

/// A script that returns the row of a route.
fn row(pattern: &str) -> String {
    format!(
        "[...document.querySelectorAll('#routes tbody tr')]\
         .find(row => row.cells[0].lastChild.textContent === '{pattern}')"
    )
}

#[test]
fn a_person_sees_routes_and_sorts_them_with_the_keyboard() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let app = start(
        App::new()
            .get("/b/{id}", |Path(id): Path<String>| id)
            .get("/a", || "a")
            .get("/broken", || Err::<(), _>(Error::internal("planted cause"))),
    );
    let mut client = Client::connect(app.local_addr());
    for target in ["/b/planted", "/b/2", "/b/3", "/a", "/a", "/broken"] {
        client.get(target);
    }
    open(&mut browser, &app);
    for pattern in ["/a", "/b/{id}", "/broken", "/console"] {
        browser.wait_for(&row(pattern));
    }
    browser.wait_for_text("GET /broken: 500");
    assert_eq!(browser.evaluate("document.body.innerText.includes('planted')"), false);
    let patterns = "[...document.querySelectorAll('#routes tbody tr')]\
                    .map(row => row.cells[0].lastChild.textContent)";
    let first_two =
        format!("{patterns}.filter(text => !text.includes('console')).slice(0, 2).join()");
    browser.wait_for(&format!("{first_two} === '/b/{{id}},/a'"));
    let sorted = "document.querySelector('th[data-sort=route]').getAttribute('aria-sort')";
    assert!(browser.evaluate(sorted).is_null());
    browser.evaluate("document.querySelector('th[data-sort=route] button').focus()");
    browser.press("Enter");
    browser.wait_for(&format!("{first_two} === '/a,/b/{{id}}'"));
    assert_eq!(browser.evaluate(sorted), "ascending");
    browser.press("Enter");
    browser.wait_for(&format!("{first_two} === '/broken,/b/{{id}}'"));
    assert_eq!(browser.evaluate(sorted), "descending");
    // Snapshots that come meanwhile change neither the order nor the focus.
    let total = "Number(document.querySelector('#uptime').textContent.match(/[0-9.]+/)[0])";
    let before = browser.evaluate(total).as_f64().unwrap();
    browser.wait_for(&format!("{total} > {before}"));
    assert_eq!(browser.evaluate("document.activeElement.textContent"), "route");
    browser.press("p");
    browser.wait_for("document.body.dataset.state === 'paused'");
    browser.press("p");
    browser.wait_for("document.body.dataset.state === 'live'");
    app.shutdown();
    browser.wait_for_text("connection lost, trying again");
}

#[test]
fn a_route_that_begins_to_block_is_shown_soon() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let blocks = Arc::new(AtomicBool::new(false));
    let is_blocking = Arc::clone(&blocks);
    let app = start(App::new().get("/orders", move || {
        if is_blocking.load(Ordering::SeqCst) {
            thread::sleep(MS * 50);
        }
    }));
    let mut client = Client::connect(app.local_addr());
    client.get("/orders");
    open(&mut browser, &app);
    let place = format!("{}.cells[9].innerText", row("/orders"));
    browser.wait_for(&format!("{} !== undefined", row("/orders")));
    // A busy machine may interrupt a call for so long that the route runs on the pool for a while.
    eventually("the route runs on the loops", || {
        (0..100).for_each(|_| _ = client.get("/orders"));
        browser.evaluate(&place) == "loop"
    });
    blocks.store(true, Ordering::SeqCst);
    let (begun, noise) = (Instant::now(), Noise::start());
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (address, blocks) = (app.local_addr(), Arc::clone(&blocks));
            thread::spawn(move || {
                let mut client = Client::connect(address);
                while blocks.load(Ordering::SeqCst) {
                    client.get("/orders");
                }
            })
        })
        .collect();
    browser.wait_for(&format!("{place} === 'pool'"));
    let shown = begun.elapsed();
    println!("a route that begins to block was shown on the pool after {shown:?}");
    let shown_max = Duration::from_secs(1) + noise.stop();
    assert!(shown < shown_max, "{shown:?} of {shown_max:?}");
    assert_eq!(browser.evaluate(&format!("{}.className", row("/orders"))), "moved");
    browser.wait_for(&format!("{}.cells[8].innerText.endsWith(' s')", row("/orders")));
    blocks.store(false, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    app.shutdown();
}

#[test]
fn a_call_that_does_not_return_is_shown_with_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let gate = Gate::new();
    let at_gate = gate.clone();
    let app = start(App::new().get("/gate", move || at_gate.pass()));
    open(&mut browser, &app);
    browser.wait_for_text("No handler is running.");
    let mut client = Client::connect(app.local_addr());
    client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.holds(1);
    let call = "document.querySelector('#calls tbody').innerText";
    browser.wait_for(&format!("{call}.includes('GET /gate')"));
    if cfg!(target_os = "linux") {
        browser.wait_for(&format!("{call}.includes('its thread waits for a condition variable')"));
    }
    gate.open();
    client.response();
    browser.wait_for_text("No handler is running.");
    app.shutdown();
}

#[test]
fn a_phone_needs_no_sideways_scrolling() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let long = "/a-rather-long-path/{with_a_capture}/that-does-not-fit/{on_a_phone}";
    let app = start(
        App::new()
            .get(long, || thread::sleep(MS * 30))
            .slow_after(MS)
            .health(Health::new().check("a-check-with-a-long-name", MS * 30_000, || {
                Err::<(), _>(Error::unavailable("planted/outage/".repeat(9)))
            }))
            .with(middleware::RequestIds::new()),
    );
    let mut client = Client::connect(app.local_addr());
    client.get("/a-rather-long-path/1/that-does-not-fit/2");
    assert_eq!(client.get("/ready").status, 503);
    for is_dark in [false, true] {
        browser.show_as(360, 740, is_dark);
        open(&mut browser, &app);
        browser.wait_for(&row(long));
        browser.wait_for_text("200 after");
        browser.wait_for_text("planted/outage");
        let state = "document.querySelector('#checks td.bad').textContent";
        assert_eq!(browser.evaluate(state), "failed");
        let widths = browser.evaluate("[document.documentElement.scrollWidth, window.innerWidth]");
        assert!(widths[0].as_u64() <= widths[1].as_u64(), "{widths}");
        assert_eq!(widths[1], 360);
        let colour = browser.evaluate("getComputedStyle(document.body).backgroundColor");
        let expected = if is_dark { "rgb(19, 21, 23)" } else { "rgb(246, 246, 244)" };
        assert_eq!(colour, expected);
    }
    app.shutdown();
}

#[test]
fn a_person_sees_why_connections_were_ended_and_the_memory_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let config = ServerConfig::default().content_timeout(MS * 500);
    let app = start(App::new().post("/", |text: String| text).config(config));
    let mut slow = TcpStream::connect(app.local_addr()).unwrap();
    slow.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf").unwrap();
    open(&mut browser, &app);
    let reasons = "[...document.querySelectorAll('#ended tbody tr')]\
                   .map(row => row.cells[0].textContent)";
    browser.wait_for(&format!("{reasons}.includes('deadline: content')"));
    if cfg!(target_os = "linux") {
        browser
            .wait_for("/^process [0-9.]+ MiB$/.test(document.querySelector('#process').innerText)");
    }
}
