//! Attacks on long-lived connections that need more than a socket: TLS, or a thread of the pool. As
//! in `attacks_live.rs`, good clients are served as if these were not there.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use filoplume_tests::attack::{Attack, Site, UPGRADE};
use filoplume_tests::{Client, eventually_within, incompressible};
use rustls::version::TLS13;

/// How long an attack lasts after it has connected.
const LASTS: Duration = Duration::from_millis(500);

/// How long sockets that do not answer may stay, with some time for a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// The threads that upgraded connections and written bodies may cost: half of all, in addition to
/// what any attack may cost.
const HALF_OF_THREADS: usize = 512 / 2 + 64 + 8;

/// Returns clients over TLS that have sent `request` and read nothing.
fn over_tls(site: &Site, count: usize, request: &str) -> Vec<Client> {
    let config = Arc::new(site.authority().client(&TLS13));
    let client = |index| {
        let client = Client::over_tcp(site.tls_attacker(index)).unwrap();
        let mut client = client.try_secure("localhost", &config).unwrap();
        client.send(request);
        client
    };
    (0..count).map(client).collect()
}

/// Calls `send` for as long as the attack lasts, and longer until it returns `true`.
fn goes_on_until(mut send: impl FnMut() -> bool) {
    let end = Instant::now() + LASTS;
    let mut is_done = false;
    while Instant::now() < end || !is_done {
        is_done |= send();
        assert!(Instant::now() < end + PATIENCE, "nobody is too slow");
        thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn sockets_over_tls_that_do_not_read_what_a_room_says() {
    Attack::new("50 sockets over TLS in a room that do not read").is_withstood(|site| {
        let clients = over_tls(site, 50, &format!("GET /room {UPGRADE}"));
        let room = &site.live().room;
        eventually_within(PATIENCE, "all have joined", || room.len() == clients.len());
        let message = incompressible(16 * 1024);
        goes_on_until(|| room.broadcast(&message).slow > 0);
        clients
    });
}

#[test]
fn event_streams_over_tls_that_nobody_reads() {
    Attack::new("50 event streams over TLS that nobody reads").is_withstood(|site| {
        let clients = over_tls(site, 50, "GET /feed HTTP/1.1\r\nHost: t\r\n\r\n");
        let hub = &site.live().hub;
        eventually_within(PATIENCE, "all have joined", || hub.clients() == clients.len());
        let event = "x".repeat(16 * 1024);
        goes_on_until(|| hub.send(event.as_str()).disconnected > 0);
        clients
    });
}

#[test]
fn floods_of_pings_over_tls() {
    let pings = [&[0x89, 0x80 | 125][..], &[0; 4], &[b'p'; 125]].concat().repeat(1000);
    Attack::new("8 floods of pings over TLS").is_withstood(|site| {
        let clients = over_tls(site, 8, &format!("GET /ws {UPGRADE}"));
        let floods: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                let pings = pings.clone();
                client.tcp().set_write_timeout(Some(LASTS)).unwrap();
                thread::spawn(move || {
                    let end = Instant::now() + LASTS;
                    // The server stops reading from a peer that does not read.
                    while Instant::now() < end && client.try_send(&pings).is_ok() {}
                })
            })
            .collect();
        floods.into_iter().for_each(|flood| flood.join().unwrap());
    });
}

#[test]
fn sockets_on_threads_that_say_nothing() {
    let attack = Attack::new("600 sockets on threads that say nothing");
    attack.may_cost_threads(HALF_OF_THREADS).is_withstood(|site| {
        let mut crowd = site.attackers(600);
        crowd.send(format!("GET /on-thread {UPGRADE}")).stays_for(LASTS);
        let told = crowd.told();
        let (accepted, refused) = (told.get(&101), told.get(&503));
        assert!(accepted.is_some_and(|count| *count <= 256), "{told:?}");
        assert!(refused.is_some_and(|count| *count >= 300), "{told:?}");
        crowd
    });
}

#[test]
fn floods_of_pings_to_sockets_on_threads() {
    let pings = [&[0x89, 0x80 | 125][..], &[0; 4], &[b'p'; 125]].concat().repeat(100_000);
    Attack::new("50 floods of pings to sockets on threads").is_withstood(|site| {
        let mut crowd = site.attackers(50);
        crowd.send(format!("GET /on-thread {UPGRADE}")).send_all_within(LASTS, &pings);
        crowd
    });
}

#[test]
fn sockets_on_threads_that_compute() {
    let messages = [&[0x82, 0x80 | 100][..], &[0; 4], &[7; 100]].concat().repeat(50);
    let attack = Attack::new("600 sockets on threads that compute for each message");
    attack.may_cost_threads(HALF_OF_THREADS).is_withstood(|site| {
        let mut crowd = site.attackers(600);
        crowd.send(format!("GET /computes {UPGRADE}")).send(&messages).stays_for(LASTS);
        crowd
    });
}

#[test]
fn sockets_on_threads_that_compute_what_they_send() {
    let attack = Attack::new("600 sockets on threads that compute what they send");
    attack.may_cost_threads(HALF_OF_THREADS).is_withstood(|site| {
        let mut crowd = site.attackers(600);
        crowd.send(format!("GET /sends {UPGRADE}")).stays_for(LASTS);
        crowd
    });
}

#[test]
fn written_bodies_that_nobody_reads() {
    let attack = Attack::new("600 written bodies that nobody reads");
    attack.may_cost_threads(HALF_OF_THREADS).is_withstood(|site| {
        let mut crowd = site.attackers(600);
        crowd.send("GET /written HTTP/1.1\r\nHost: t\r\n\r\n").stays_for(LASTS);
        crowd
    });
}

#[test]
fn written_bodies_that_compute() {
    let attack = Attack::new("600 written bodies that compute");
    attack.may_cost_threads(HALF_OF_THREADS).is_withstood(|site| {
        let mut crowd = site.attackers(600);
        crowd.send("GET /computed HTTP/1.1\r\nHost: t\r\n\r\n").stays_for(LASTS);
        crowd
    });
}

#[test]
fn written_bodies_over_tls_that_nobody_reads() {
    Attack::new("50 written bodies over TLS that nobody reads").is_withstood(|site| {
        let clients = over_tls(site, 50, "GET /written HTTP/1.1\r\nHost: t\r\n\r\n");
        thread::sleep(LASTS);
        clients
    });
}
