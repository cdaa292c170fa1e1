//! Attacks on the threads: handlers that block, all at once or suddenly.
//!
//! Each attack runs against the default and the strict configuration. `filoplume_tests::attack` has
//! the limits of its cost, and the requests of the good clients. Run with `--nocapture` to see the
//! figures.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use filoplume_tests::attack::{Attack, Crowd, Site};

/// More than the maximum number of threads of handlers and leaders.
const ALL_THREADS: usize = 512 + 64;

/// How long an attack lasts after it has connected.
const LASTS: Duration = Duration::from_millis(1200);

fn ask(site: &Site, count: usize, target: &str) -> Crowd {
    let mut crowd = site.attackers(count);
    crowd.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
    crowd
}

/// Calls `target` this many times, so that the server learns that it is quick.
fn is_known_to_be_quick(site: &Site, target: &str, times: usize) {
    let requests = format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n").repeat(times);
    let before = site.metrics().requests;
    let mut crowd = site.attackers(1);
    crowd.send(requests);
    let end = Instant::now() + Duration::from_secs(2);
    while site.metrics().requests < before + times as u64 && Instant::now() < end {
        crowd.stays_for(Duration::from_millis(5));
        crowd.told();
    }
}

/// A route that blocks for six seconds occupies eight of nine threads. Its other requests are
/// refused after two seconds.
#[test]
fn a_route_that_blocks_for_seconds() {
    Attack::new("700 calls of 6 s").may_cost_threads(ALL_THREADS).is_withstood(|site| {
        let mut crowd = ask(site, 700, "/slow?ms=6000");
        crowd.stays_for(Duration::from_millis(2800));
        let told = crowd.told();
        assert_eq!(told.keys().collect::<Vec<_>>(), [&503], "{told:?}");
        crowd
    });
}

#[test]
fn a_route_that_blocks_suddenly() {
    Attack::new("a quick route blocks, 20 at once").is_withstood(|site| {
        is_known_to_be_quick(site, "/slow", 300);
        let mut crowd = ask(site, 20, "/slow?ms=2000");
        crowd.stays_for(LASTS);
        crowd
    });
}

#[test]
fn many_routes_that_block_suddenly() {
    Attack::new("40 quick routes block at once").is_withstood(|site| {
        (0..40).for_each(|number| is_known_to_be_quick(site, &format!("/slow/{number}"), 30));
        let mut crowd = site.attackers(40);
        crowd.send_each(|number| format!("GET /slow/{number}?ms=2000 HTTP/1.1\r\nHost: t\r\n\r\n"));
        crowd.stays_for(LASTS);
        crowd
    });
}

/// An attacker who knows a route that computes, such as a login, needs only many connections.
#[test]
fn a_route_that_computes() {
    Attack::new("300 calls that compute for 20 ms").is_withstood(|site| {
        let mut crowd = ask(site, 300, "/compute");
        crowd.stays_for(LASTS);
        crowd
    });
}

#[test]
fn everything_at_once() {
    Attack::new("contents, trickles, readers and blocks")
        .may_cost_threads(ALL_THREADS)
        .is_withstood(|site| {
            let head = "POST /json HTTP/1.1\r\nHost: t\r\nContent-Type: \
                        application/json\r\nContent-Length: 1900000\r\n\r\n[";
            let mut contents = site.attackers(200);
            contents.send(head);
            let mut trickles = site.attackers(100);
            trickles.send("POST /upload HTTP/1.1\r\nHost: t\r\nContent-Length: 900000\r\n\r\n");
            let readers = ask(site, 100, "/big");
            let slow = ask(site, 600, "/slow?ms=6000");
            trickles.drip(&[b'x'; 200], Duration::from_millis(200), LASTS * 2);
            (contents, trickles, readers, slow)
        });
}
