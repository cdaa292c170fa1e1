//! Slow, silent or numerous peers. Good clients are served as if these were not there.
//!
//! Each attack runs against the default and the strict configuration. `filoplume_tests::attack` has
//! the limits of its cost, and the requests of the good clients. Run with `--nocapture` to see the
//! figures.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_tests::attack::{Attack, Crowd, Site};
use filoplume_tests::{eventually, eventually_within};

/// How long an attack lasts after it has connected.
const LASTS: Duration = Duration::from_millis(500);

/// A short part of an attack.
const MOMENT: Duration = Duration::from_millis(200);

fn post(target: &str, headers: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: t\r\n{headers}\r\n\r\n")
}

fn json(length: usize) -> String {
    post("/json", &format!("Content-Type: application/json\r\nContent-Length: {length}"))
}

/// Returns a head, and the start of a long content.
fn start_of(head: &str, content: &str) -> Vec<u8> {
    [head.as_bytes(), content.as_bytes()].concat()
}

/// Connects `count` attackers, each of which sends `bytes`.
fn crowd(site: &Site, count: usize, bytes: impl AsRef<[u8]>) -> Crowd {
    let mut crowd = site.attackers(count);
    crowd.send(bytes);
    crowd
}

#[test]
fn slow_heads() {
    Attack::new("600 heads, a byte now and then").is_withstood(|site| {
        let mut crowd = crowd(site, 600, "GET / HTTP/1.1\r\nHost: t\r\nX-Slow: ");
        crowd.drip(b"x", MOMENT, LASTS);
        crowd
    });
}

#[test]
fn idle_connections_where_few_fit() {
    // A connection without a complete head is closed after a second at the earliest, because it may
    // still send one.
    let attack =
        Attack::new("1,000 idle connections, 500 fit").newcomers_may_wait(Duration::from_secs(2));
    attack.connections_max(500).is_withstood(|site| {
        let mut crowd = crowd(site, 1000, "");
        crowd.stays_for(LASTS + Duration::from_secs(1));
        // Each loop may have one accepted connection that waits for room, and one that it closes.
        let only_some_fit = || site.metrics().connections <= 502;
        eventually_within(Duration::from_secs(3), "only some connections are open", only_some_fit);
        let metrics = site.metrics();
        assert!(metrics.connections_shed >= 400, "{metrics:?}");
        crowd
    });
}

#[test]
fn unfinished_contents_where_few_fit() {
    // A content that has stopped arriving counts as slow after a second.
    let attack =
        Attack::new("1,000 JSON contents, 500 fit").newcomers_may_wait(Duration::from_secs(2));
    attack.connections_max(500).is_withstood(|site| {
        let mut crowd = crowd(site, 1000, start_of(&json(1_900_000), "{"));
        crowd.stays_for(LASTS + Duration::from_secs(1));
        crowd
    });
}

#[test]
fn readers_that_do_not_read_where_few_fit() {
    // A second after the socket took bytes for the last time, the server tries to write once more,
    // and the socket often takes some again. Then another second passes.
    let attack = Attack::new("300 that ask for 4 MiB and do not read, 150 fit")
        .newcomers_may_wait(Duration::from_secs(5));
    attack.connections_max(150).is_withstood(|site| {
        let mut crowd = crowd(site, 300, "GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        crowd.stays_for(LASTS + Duration::from_secs(1));
        crowd
    });
}

#[test]
fn kept_connections_where_few_fit() {
    // A connection may be closed for another one when it has been idle for a moment.
    let attack = Attack::new("1,000 connections that were answered, 500 fit")
        .newcomers_may_wait(Duration::from_millis(250));
    attack.connections_max(500).is_withstood(|site| {
        let mut crowd = site.attackers(1000);
        for _ in 0..3 {
            crowd.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n").stays_for(LASTS / 3);
        }
        crowd
    });
}

/// Incomplete contents hold memory only for the bytes that have arrived, and no thread.
fn unfinished(name: &'static str, count: usize, bytes: &[u8]) {
    Attack::new(name).is_withstood(|site| {
        let mut crowd = crowd(site, count, bytes);
        crowd.stays_for(LASTS);
        crowd
    });
}

#[test]
fn unfinished_json() {
    unfinished(
        "600 JSON contents",
        600,
        &start_of(&json(1_900_000), &format!("{:<80}", "{\"a\":")),
    );
}

#[test]
fn unfinished_multipart() {
    let head = post(
        "/multipart",
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1900000",
    );
    let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nxxxxxxxxxxxxxxxx";
    unfinished("600 multipart contents", 600, &start_of(&head, part));
}

#[test]
fn unfinished_forms() {
    let head =
        post("/form", "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1900000");
    unfinished("600 forms", 600, &start_of(&head, &format!("a={:x<80}", "")));
}

#[test]
fn unfinished_chunks() {
    let head = post("/json", "Content-Type: application/json\r\nTransfer-Encoding: chunked");
    unfinished(
        "600 chunked contents",
        600,
        &start_of(&head, &format!("100000\r\n{:<80}", "{\"a\":")),
    );
}

#[test]
fn unfinished_uploads() {
    let head = post("/upload", "Content-Length: 900000");
    unfinished("600 uploads", 600, &start_of(&head, &"x".repeat(80)));
}

#[test]
fn uploads_that_are_asked_to_continue_and_do_not() {
    let head = post("/upload", "Content-Length: 900000\r\nExpect: 100-continue");
    unfinished("600 uploads that expect 100", 600, head.as_bytes());
}

#[test]
fn chunked_uploads_that_are_asked_to_continue_and_do_not() {
    let head = post("/upload", "Transfer-Encoding: chunked\r\nExpect: 100-continue");
    unfinished("600 chunked uploads that expect 100", 600, head.as_bytes());
}

#[test]
fn trickled_contents() {
    for (name, bytes) in [("300 contents of 0.5 KiB/s", 102), ("300 contents of 1 KiB/s", 205)] {
        Attack::new(name).is_withstood(|site| {
            let mut collected = crowd(site, 150, start_of(&json(1_900_000), "[\""));
            let mut streamed = crowd(site, 150, post("/upload", "Content-Length: 900000"));
            let end = Instant::now() + LASTS;
            while Instant::now() < end {
                collected.send(vec![b'x'; bytes]);
                streamed.send(vec![b'x'; bytes]).stays_for(MOMENT);
            }
            (collected, streamed)
        });
    }
}

/// Contents whose first part arrives quickly and whose rest arrives slowly hold memory. If they are
/// streamed, they also hold a thread.
#[test]
fn contents_that_stop_late() {
    // A streamed upload gets a thread when its start has arrived. A strict server collects 64 KiB
    // first.
    let attack = Attack::new("30 JSON and 30 uploads that stop after 900 KB");
    attack.is_withstood(|site| {
        let mut collected = crowd(site, 30, start_of(&json(1_900_000), "[\""));
        let mut streamed = crowd(site, 30, post("/upload", "Content-Length: 1000000"));
        let content = vec![b'x'; 900_000];
        collected.send_all_within(LASTS, &content);
        streamed.send_all_within(LASTS, &content).stays_for(LASTS);
        (collected, streamed)
    });
}

#[test]
fn contents_that_stop_late_where_memory_is_short() {
    let attack =
        Attack::new("100 JSON that stop after 900 KB, 32 MiB of memory").memory_max(32 << 20);
    attack.is_withstood(|site| {
        let mut crowd = crowd(site, 100, start_of(&json(1_900_000), "[\""));
        crowd.send_all_within(LASTS, &vec![b'x'; 900_000]).stays_for(LASTS);
        crowd
    });
}

#[test]
fn readers_that_do_not_read() {
    Attack::new("300 that ask for 4 MiB and do not read").is_withstood(|site| {
        let mut crowd = crowd(site, 300, "GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        crowd.stays_for(LASTS);
        crowd
    });
}

/// Memory is bounded by the budget and one response per thread. Connections of peers that do not
/// read are closed.
#[test]
fn readers_that_do_not_read_where_memory_is_short() {
    let name = "100 that do not read 4 MiB of their own, 64 MiB of memory";
    unread(name, 100, "GET /big/own HTTP/1.1\r\nHost: t\r\n\r\n");
}

/// A response that is compressed while it is sent keeps its whole content and its encoder. There
/// are fewer readers, because megabytes are compressed for each of them until its socket is full.
#[test]
fn readers_that_do_not_read_what_is_compressed_where_memory_is_short() {
    for (name, coding) in [
        ("12 that do not read 8 MiB in zstd, 64 MiB of memory", "zstd"),
        ("12 that do not read 8 MiB in Brotli, 64 MiB of memory", "br"),
        ("12 that do not read 8 MiB in gzip, 64 MiB of memory", "gzip"),
    ] {
        let head = "GET /big/compressed HTTP/1.1\r\nHost: t\r\nAccept-Encoding: ";
        unread(name, 12, &format!("{head}{coding}\r\n\r\n"));
    }
}

fn unread(name: &'static str, count: usize, head: &str) {
    const MEMORY: usize = 64 << 20;
    let attack = Attack::new(name).may_cost_threads(120);
    attack.memory_max(MEMORY).may_leave_unread(48 * (4 << 20)).is_withstood(|site| {
        let mut readers = crowd(site, count, head);
        eventually("memory is short", || site.metrics().memory_used >= MEMORY / 2);
        let is_long_enough = || site.metrics().memory_used < MEMORY / 2;
        eventually_within(Duration::from_secs(3), "it is not any more", is_long_enough);
        readers.stays_for(MOMENT);
        readers
    });
}

#[test]
fn pipelines_that_nobody_reads() {
    Attack::new("50 pipelines of 1,000 requests").is_withstood(|site| {
        let mut plain = site.attackers(25);
        let mut big = site.attackers(25);
        plain.send_all_within(LASTS, "GET / HTTP/1.1\r\nHost: t\r\n\r\n".repeat(1000).as_bytes());
        big.send_all_within(LASTS, "GET /big HTTP/1.1\r\nHost: t\r\n\r\n".repeat(1000).as_bytes());
        big.stays_for(LASTS);
        (plain, big)
    });
}

#[test]
fn connections_that_come_and_go() {
    // Connections that have already ended are in the same backlog as new ones.
    Attack::new("churn").newcomers_may_wait(Duration::from_secs(1)).is_withstood(|site| {
        let end = Instant::now() + LASTS;
        thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    for count in 0.. {
                        if Instant::now() >= end {
                            break;
                        }
                        let mut stream = site.attacker(thread * 250);
                        match count % 3 {
                            0 => {}
                            1 => stream.write_all(b"GET / HT").unwrap(),
                            _ => stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap(),
                        }
                        // A reset leaves no port in TIME_WAIT.
                        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                    }
                });
            }
        });
    });
}

/// An endless number of new sessions does not evict a session that is in use.
#[test]
fn new_sessions() {
    Attack::new("new sessions").is_withstood(|site| {
        let mut visitor = site.attacker(250);
        let (mut cookie, mut visits) = (String::new(), 0);
        let mut visit = || {
            let head = format!("GET /account/visits HTTP/1.1\r\nHost: t\r\n{cookie}\r\n");
            visitor.write_all(head.as_bytes()).unwrap();
            let answer = read_answer(&mut visitor);
            visits += 1;
            assert!(answer.ends_with(&format!("visit {visits}")), "visit {visits}: {answer}");
            if let Some((_, set)) = answer.split_once("set-cookie: ") {
                cookie = format!("Cookie: {}\r\n", set.split(';').next().unwrap());
            }
        };
        visit();
        visit();
        let mut flood = site.attackers(20);
        let end = Instant::now() + LASTS;
        let mut asked = 0;
        while Instant::now() < end {
            flood.send("GET /account/visits HTTP/1.1\r\nHost: t\r\n\r\n".repeat(8));
            asked += flood.count() * 8;
            flood.told();
            flood.send("GET /account/form HTTP/1.1\r\nHost: t\r\n\r\n").stays_for(MOMENT / 10);
            visit();
        }
        assert!(asked >= 2000, "{asked} sessions were no flood");
    });
}

/// Reads one response with a short content.
fn read_answer(stream: &mut impl Read) -> String {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the connection ended");
        answer.extend_from_slice(&buffer[..read]);
        let text = std::str::from_utf8(&answer).unwrap().to_ascii_lowercase();
        let Some((head, content)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split_once("content-length: ").unwrap().1;
        if length.split("\r\n").next().unwrap().parse() == Ok(content.len()) {
            // Only this header name is converted to lower case: the value of a cookie must stay as
            // it is.
            let text = String::from_utf8(answer).unwrap();
            return text.replace("Set-Cookie: ", "set-cookie: ");
        }
    }
}
