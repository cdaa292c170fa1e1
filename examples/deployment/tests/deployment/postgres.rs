//! PostgreSQL is away: stopped, or silent.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use deployment::stack::{LAME_DUCK, Stack};
use harness::{Client, beside_others, eventually};

use super::traffic::{Traffic, log_in, request, try_request};
use super::{start, threads};

const AWAY: Duration = Duration::from_secs(5);

/// How long requests may fail after PostgreSQL is back.
const RECOVERY: Duration = Duration::from_secs(2);

/// Sends requests while PostgreSQL is away. Returns how long each failure took.
fn requests_without_postgres(address: SocketAddr, cookie: &str) -> Vec<Duration> {
    let end = Instant::now() + AWAY;
    let mut times = Vec::new();
    while Instant::now() < end {
        let asked = Instant::now();
        let response = request(address, "GET", "/api/notes", "", "");
        assert_eq!(response.status, 503, "{response:?}");
        times.push(asked.elapsed());
        // The session comes from Redis, but the list of files comes from PostgreSQL.
        assert_eq!(request(address, "GET", "/api/files", cookie, "").status, 503);
        // Requests that need no database are answered.
        for target in ["/page.js", "/live", "/ready"] {
            assert_eq!(Client::connect(address).get(target).status, 200, "{target}");
        }
    }
    times
}

/// Waits until both instances answer from the database. Returns how long that took.
fn recovery(stack: &Stack) -> Duration {
    let back = Instant::now();
    for index in 0..2 {
        eventually("there are notes again", || {
            try_request(stack.instance(index), "GET", "/", "", "")
                .is_ok_and(|response| response.status == 200)
        });
    }
    back.elapsed()
}

fn check_says(address: SocketAddr, what: &str) {
    let status = format!("\"name\":\"database\",\"status\":\"{what}\"");
    eventually(&status, || Client::connect(address).get("/ready").text().contains(&status));
}

#[test]
fn without_postgres_what_needs_it_fails_soon_and_the_rest_is_served() {
    const ROUNDS: usize = 3;
    let _shared = beside_others();
    let Some((_folder, mut stack)) = start(LAME_DUCK) else { return };
    let address = stack.address();
    let cookie = log_in(address, "ada");
    let processes = [0, 1].map(|index| stack.instance_process(index).unwrap());
    let before = processes.map(threads);
    let scripts = Traffic::start(address, 8, "/page.js");
    let pages = Traffic::start(address, 24, "/");
    pages.goes_on(200);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        stack.stop_postgres().unwrap();
        let mut times = requests_without_postgres(address, &cookie);
        check_says(address, "failed");
        scripts.goes_on(100);
        stack.start_postgres().unwrap();
        let recovery = recovery(&stack);
        times.sort_unstable();
        let median = times[times.len() / 2];
        rounds.push((recovery, median, times[times.len() - 1]));
        pages.goes_on(200);
        if recovery < RECOVERY && median < Duration::from_secs(1) {
            break;
        }
    }
    println!("recovery, median and longest time of a failure: {rounds:?}");
    let (recovery, median, _) = rounds[rounds.len() - 1];
    assert!(recovery < RECOVERY && median < Duration::from_secs(1), "{rounds:?}");
    check_says(address, "passed");
    assert_eq!(request(address, "GET", "/api/files", &cookie, "").status, 200);
    assert_eq!(scripts.stop().concat(), [""; 0]);
    // Each failure is a response, and not a connection that ended. The status is 500 if the commit
    // failed.
    let failures = pages.stop().concat();
    let is = |status| move |failure: &&String| failure.contains(status);
    let [tried, unknown] =
        ["503 Service", "500 Int"].map(|s| failures.iter().filter(is(s)).count());
    assert_eq!(tried + unknown, failures.len(), "{failures:?}");
    assert!(unknown <= 24 * rounds.len(), "{unknown} of {tried}");
    for (process, before) in processes.into_iter().zip(before) {
        eventually("no thread is lost", || threads(process) <= before + 2);
    }
}

/// The connections stay open, and no answer arrives. A client cannot tell that from a long query.
#[test]
fn a_silent_postgres_holds_as_many_threads_as_it_has_connections() {
    /// The connections of an instance.
    const CONNECTIONS: usize = 16;
    let _shared = beside_others();
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    let address = stack.address();
    let processes = [0, 1].map(|index| stack.instance_process(index).unwrap());
    let scripts = Traffic::start(address, 8, "/page.js");
    let pages = Traffic::start(address, 64, "/");
    pages.goes_on(300);
    let before = processes.map(threads);
    stack.pause_postgres(true).unwrap();
    let end = Instant::now() + AWAY;
    while Instant::now() < end {
        for target in ["/page.js", "/live", "/ready"] {
            let response = Client::connect(address).get(target);
            assert_eq!(response.status, 200, "{target}: {response:?}");
        }
        for (process, before) in processes.iter().zip(before) {
            assert!(threads(*process) <= before + CONNECTIONS + 8);
        }
    }
    check_says(address, "late");
    scripts.goes_on(100);
    stack.pause_postgres(false).unwrap();
    recovery(&stack);
    pages.goes_on(200);
    check_says(address, "passed");
    assert_eq!(scripts.stop().concat(), [""; 0]);
    // Requests that got no connection were answered with a 503. The others have waited.
    for failure in pages.stop().concat() {
        assert!(failure.contains("503"), "{failure}");
    }
    for (process, before) in processes.into_iter().zip(before) {
        eventually("no thread is lost", || threads(process) <= before + 2);
    }
}
