//! Redis is away: silent, or stopped.

use std::thread;
use std::time::{Duration, Instant};

use deployment::stack::{LAME_DUCK, Stack};
use harness::{Client, beside_others, eventually};

use super::traffic::{Traffic, log_in, request};
use super::{start, threads};

const AWAY: Duration = Duration::from_secs(5);

/// Between two rounds of requests while Redis is away.
const PAUSE: Duration = Duration::from_millis(100);

/// Lets Redis go away and come back, while clients send requests.
fn is_away(stack: &mut Stack, goes: fn(&mut Stack), returns: fn(&mut Stack)) {
    let address = stack.address();
    let cookie = log_in(address, "ada");
    let processes = [0, 1].map(|index| stack.instance_process(index).unwrap());
    let before = processes.map(threads);
    let traffic = Traffic::start(address, 16, "/");
    traffic.goes_on(100);
    goes(stack);
    let end = Instant::now() + AWAY;
    while Instant::now() < end {
        // Requests with a session fail within the time-out, and the others do not need Redis.
        let response = request(address, "GET", "/api/files", &cookie, "");
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(Client::connect(address).get("/api/notes").status, 200);
        assert_eq!(Client::connect(address).get("/ready").status, 200);
        // While Redis is stopped no request waits. Without a pause, the loop would exceed the rate
        // limit of the API.
        thread::sleep(PAUSE);
    }
    traffic.goes_on(100);
    returns(stack);
    eventually("sessions are back", || {
        request(address, "GET", "/api/files", &cookie, "").status == 200
    });
    traffic.goes_on(100);
    let failures: Vec<String> = traffic.stop().into_iter().flatten().collect();
    assert_eq!(failures, [""; 0]);
    // Threads that waited for Redis are free again, and end.
    for (process, before) in processes.into_iter().zip(before) {
        eventually("no thread is lost", || threads(process) <= before + 2);
    }
    // The feeds of both instances are joined again.
    let mut reader = Client::connect(stack.instance(1));
    reader.send("GET /feed HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(reader.read_head_only().unwrap().status, 200);
    let mut feed = Vec::new();
    eventually("a note of the first instance is in the feed of the second", || {
        let note = "{\"text\":\"again\"}";
        let sent = request(stack.instance(0), "POST", "/api/notes", &cookie, note);
        assert!(matches!(sent.status, 201 | 429), "{sent:?}");
        let mut bytes = [0; 4096];
        let Ok(length) = std::io::Read::read(&mut reader.tcp(), &mut bytes) else { return false };
        feed.extend_from_slice(&bytes[..length]);
        String::from_utf8_lossy(&feed).contains("again")
    });
}

#[test]
fn without_redis_pages_are_served_and_sessions_are_not() {
    let _shared = beside_others();
    let Some((_folder, mut stack)) = start(LAME_DUCK) else { return };
    is_away(
        &mut stack,
        |stack| stack.pause_redis(true).unwrap(),
        |stack| stack.pause_redis(false).unwrap(),
    );
}

#[test]
fn a_redis_that_was_stopped_and_started_again_has_the_sessions() {
    let _shared = beside_others();
    let Some((_folder, mut stack)) = start(LAME_DUCK) else { return };
    is_away(&mut stack, |stack| stack.stop_redis().unwrap(), |stack| stack.start_redis().unwrap());
}
