//! Crowds of slow, silent and hostile peers, and a good client that measures latencies beside them.
//!
//! The figures are printed. The limits are generous, because the machine may be busy.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "a figure is for those who read the output of a test")]

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::ServerConfig;
use filoplume_tests::{
    Child, Client, Ended, Example, GoodClient, Latencies, TestServer, ask, eventually, holds_for,
    may_open, site,
};

const MEGABYTE: u64 = 1_000_000;

/// The number of peers in a crowd.
const CROWD: usize = 1000;

/// Maximum additional latency of the good client beside a crowd, compared to none.
const MORE_MAX: Duration = Duration::from_millis(15);

/// Maximum ratio of the latency beside a crowd to that without one, whatever else the machine does.
const TIMES_MAX: u32 = 4;

/// Maximum number of tries of a measurement. Other work only makes the machine slower, so the best
/// try counts.
const TRIES: usize = 5;

/// Measures beside `crowd` until a try is within the limits.
#[track_caller]
fn nobody_waits(child: &Child, what: &str, mut crowd: impl FnMut()) {
    for attempt in 1..=TRIES {
        let alone = GoodClient::start(child.address(), "/plaintext");
        thread::sleep(Duration::from_millis(200));
        let p99_max = alone.stop().p99() * TIMES_MAX + MORE_MAX;
        let good = GoodClient::start(child.address(), "/plaintext");
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(400) {
            // At most 20,000 calls per second: the peers are slow, and this thread must not occupy
            // a processor.
            (0..20).for_each(|_| crowd());
            thread::sleep(Duration::from_millis(1));
        }
        let latencies = good.stop();
        println!("{what}: {latencies}, of {p99_max:?} at most");
        if latencies.p99() < p99_max {
            return;
        }
        assert!(attempt < TRIES, "{what}: the good client waits");
    }
}

/// Checks the cost of a crowd that sends `start`, and then repeatedly `drip`.
#[track_caller]
fn crowd_is_borne(what: &str, start: &str, drip: &[u8], end: &str) {
    let child = Example("bench_engine").start();
    child.client().get("/plaintext");
    let (memory, threads) = (child.process().resident_bytes(), child.process().threads());
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| child.client()).collect();
    for client in &mut crowd {
        client.send(start);
    }
    let started = Instant::now();
    let mut next = 0;
    nobody_waits(&child, what, || {
        // The peers take turns, so their rates are equal. On a busy machine the deadline of a peer
        // may have passed.
        let _ = crowd[next % CROWD].try_send(drip);
        next += 1;
    });
    let grown = child.process().resident_bytes().saturating_sub(memory);
    println!("{what}: {grown} bytes more for {CROWD} of them");
    assert!(grown < 40 * MEGABYTE, "{grown} bytes");
    assert!(
        child.process().threads() <= threads + 8,
        "{threads}, then {}",
        child.process().threads()
    );
    // Slow peers that finish in time are answered.
    for client in crowd.iter_mut().take(20) {
        let _ = client.try_send(end);
        match client.try_response() {
            Ok(response) if response.status == 200 => {}
            Ok(response) if response.status == 408 && is_late(started) => {}
            Err(Ended::Closed(_) | Ended::Reset(_)) if is_late(started) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Returns whether the shortest deadline, 10 s, may have passed for peers that began at `started`.
fn is_late(started: Instant) -> bool {
    started.elapsed() > Duration::from_secs(5)
}

#[test]
fn a_thousand_slow_heads_delay_no_other_client() {
    crowd_is_borne("slow heads", "GET / HTTP/1.1\r\nHost: t\r\nX: ", b"x", "\r\n\r\n");
}

#[test]
fn a_thousand_slow_bodies_delay_no_other_client() {
    // The peers have sent different parts of the content, so the end is longer than the missing
    // part. The surplus is discarded with the connection.
    let head =
        "POST /length HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n";
    crowd_is_borne("slow bodies", head, b"x", &"x".repeat(1000));
}

#[test]
fn a_thousand_slow_chunks_delay_no_other_client() {
    let head = "POST /length HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    crowd_is_borne("slow chunks", head, b"1\r\nx\r\n", "0\r\n\r\n");
}

#[test]
fn a_thousand_slow_readers_delay_no_other_client() {
    let child = Example("bench_engine").start();
    child.client().get("/plaintext");
    let memory = child.process().resident_bytes();
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| child.client()).collect();
    for client in &mut crowd {
        // Otherwise the system would buffer the whole response for the reader.
        socket2::SockRef::from(client.tcp()).set_recv_buffer_size(8 * 1024).unwrap();
        client.tcp().set_nonblocking(true).unwrap();
        ask(client, "/large?n=5000000");
    }
    let mut next = 0;
    nobody_waits(&child, "slow readers", || {
        let _ = crowd[next % CROWD].read_some(500);
        next += 1;
    });
    let grown = child.process().resident_bytes().saturating_sub(memory);
    println!("slow readers: {grown} bytes more for {CROWD} of them");
    assert!(grown < 200 * MEGABYTE, "{grown} bytes");
}

#[test]
fn readers_that_always_have_room_for_more_do_not_starve_the_others() {
    let server = TestServer::with(ServerConfig::default().event_loops(1), site);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut greedy: Vec<Client> = (0..8).map(|_| server.client()).collect();
        for client in &mut greedy {
            ask(client, "/large?n=500000000000");
        }
        for mut client in greedy {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    // On a busy machine nothing may have arrived yet.
                    let _ = client.read_some(1_000_000);
                }
            });
        }
        // Both new and kept connections are served.
        let mut kept = server.client().patience(Duration::from_secs(5));
        let mut latencies = Latencies::default();
        let mut failure = None;
        for n in 0..100 {
            let started = Instant::now();
            let mut new = server.client().patience(Duration::from_secs(5));
            for client in [&mut kept, &mut new] {
                ask(client, "/");
                if let Err(ended) = client.try_response() {
                    failure.get_or_insert(format!("request {n}: {ended}"));
                }
            }
            latencies.add(started.elapsed());
            if failure.is_some() {
                break;
            }
        }
        is_over.store(true, Ordering::SeqCst);
        println!("greedy readers: {latencies}");
        assert_eq!(failure, None);
    });
}

#[test]
fn ten_thousand_idle_connections_cost_little() {
    const IDLE: usize = 10_000;
    if !may_open(IDLE + 500) {
        return;
    }
    let child = Example("bench_engine").start();
    let memory = child.process().resident_bytes();
    let mut idle: Vec<Client> = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let mut client = child.client();
        assert_eq!(client.get("/plaintext").status, 200);
        idle.push(client);
    }
    let grown = child.process().resident_bytes().saturating_sub(memory);
    println!("{IDLE} idle: {grown} bytes more");
    assert!(grown < 20 * MEGABYTE, "{grown} bytes");
    nobody_waits(&child, "idle connections", || thread::sleep(Duration::from_millis(1)));
    let before = child.process().cpu_time();
    holds_for(Duration::from_millis(500), "nothing is done for them", || {
        child.process().cpu_time() - before < Duration::from_millis(100)
    });
    for client in idle.iter_mut().step_by(100) {
        assert_eq!(client.get("/plaintext").status, 200);
    }
    drop(idle);
    eventually("their descriptors are free", || child.process().descriptors() < 100);
}

#[test]
fn short_connections_leave_no_resources_behind() {
    let child = Example("bench_engine").start();
    child.client().get("/plaintext");
    let descriptors = child.process().descriptors();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for index in 0..4_usize {
            let (child, is_over) = (&child, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let mut client = child.client();
                    match index {
                        0 => drop(client),
                        1 => filoplume_tests::reset(client),
                        2 => assert_eq!(client.get("/plaintext").status, 200),
                        _ => {
                            ask(&mut client, "/plaintext");
                            client.finish();
                            assert_eq!(client.response().status, 200);
                            client.is_closed();
                        }
                    }
                    // The number of ports is limited, so this opens only a few thousand
                    // connections.
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        nobody_waits(&child, "churn", || thread::sleep(Duration::from_millis(1)));
        is_over.store(true, Ordering::SeqCst);
    });
    eventually("as many descriptors as before", || child.process().descriptors() <= descriptors);
}

#[test]
fn two_hundred_handlers_that_sleep_for_three_seconds_delay_no_other_client() {
    let child = Example("bench_engine").start();
    child.client().get("/plaintext");
    let mut asleep: Vec<Client> = (0..200).map(|_| child.client()).collect();
    for client in &mut asleep {
        ask(client, "/sleep?ms=3000");
    }
    nobody_waits(&child, "200 asleep", || thread::sleep(Duration::from_millis(1)));
    for (index, client) in asleep.iter_mut().enumerate() {
        assert_eq!(client.response().text(), "slept", "client {index}");
    }
}

#[test]
fn endless_messages_are_refused_while_they_arrive() {
    let child = Example("bench_engine").start();
    child.client().get("/plaintext");
    let memory = child.process().resident_bytes();
    let chunked = "POST /length HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    let rows = [
        ("header lines", "GET / HTTP/1.1\r\nHost: t\r\n".to_owned(), "X: y\r\n", 431),
        ("a header line", "GET / HTTP/1.1\r\nHost: t\r\nX: ".to_owned(), "y", 431),
        ("a target", "GET /".to_owned(), "y", 414),
        ("a method", String::new(), "Y", 431),
        ("trailer lines", format!("{chunked}0\r\n"), "X: y\r\n", 431),
        ("a trailer line", format!("{chunked}0\r\nX: "), "y", 431),
        ("a chunk extension", format!("{chunked}1;"), "y", 400),
        ("chunk extensions", chunked.to_owned(), "1;yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\nx\r\n", 400),
        ("a chunk size", chunked.to_owned(), "0", 400),
    ];
    for (what, start, more, status) in rows {
        let mut client = child.client();
        client.send(start);
        let piece = more.repeat(4096 / more.len());
        let mut sender = client.tcp().try_clone().unwrap();
        let is_answered = AtomicBool::new(false);
        let response = thread::scope(|scope| {
            let sent = scope.spawn(|| {
                let mut sent = 0;
                while !is_answered.load(Ordering::SeqCst)
                    && sender.write_all(piece.as_bytes()).is_ok()
                {
                    sent += piece.len();
                }
                sent
            });
            let response = client.try_response();
            is_answered.store(true, Ordering::SeqCst);
            println!("{what}: {} bytes were sent", sent.join().unwrap());
            response
        });
        match response {
            Ok(response) => assert_eq!(response.status, status, "{what}: {response:?}"),
            Err(ended) => panic!("{what}: {ended}"),
        }
        let grown = child.process().resident_bytes().saturating_sub(memory);
        assert!(grown < 10 * MEGABYTE, "{what}: {grown} bytes more");
    }
    assert_eq!(child.client().get("/plaintext").status, 200);
}

#[test]
fn twenty_thousand_headers_and_a_length_of_400_gigabytes_cost_nothing() {
    let child = Example("bench_engine").start();
    child.client().get("/plaintext");
    let (memory, cpu) = (child.process().resident_bytes(), child.process().cpu_time());
    let headers: String = (0..20_000).map(|n| format!("X-{n}: y\r\n")).collect();
    for _ in 0..20 {
        let mut client = child.client();
        // The request may be refused before it is completely sent.
        let _ = client.try_send(format!("GET / HTTP/1.1\r\nHost: t\r\n{headers}\r\n"));
        assert_eq!(client.response().status, 431);
        let mut client = child.client();
        client.send("POST /length HTTP/1.1\r\nHost: t\r\nContent-Length: 400000000000\r\n\r\nx");
        assert_eq!(client.response().status, 413);
    }
    let grown = child.process().resident_bytes().saturating_sub(memory);
    assert!(grown < 10 * MEGABYTE, "{grown} bytes more");
    let used = child.process().cpu_time() - cpu;
    assert!(used < Duration::from_secs(1), "{used:?} of CPU time");
}

#[test]
fn colliding_field_names_cost_as_much_as_others() {
    let child = Example("bench_engine").start();
    let mut client = child.client();
    let mut cost = |name: &dyn Fn(usize) -> String| {
        let headers: String = (0..95).map(|n| format!("{}: y\r\n", name(n))).collect();
        let request = format!("GET /plaintext HTTP/1.1\r\nHost: t\r\n{headers}\r\n");
        let before = child.process().cpu_time();
        for _ in 0..2000 {
            assert_eq!(client.send(&request).response().status, 200);
        }
        child.process().cpu_time() - before
    };
    // Anagrams collide in sums, common prefixes in hashes of the prefix, and different case in
    // hashes that ignore case.
    let different = cost(&|n| format!("{n:02}{}", "abcdefgh".repeat(8)));
    let anagrams = cost(&|n| format!("{}b{}", "a".repeat(n), "a".repeat(95 - n)));
    let starts = cost(&|n| format!("{}{n:02}", "abcdefgh".repeat(8)));
    let cases = cost(&|n| (0..7).map(|bit| if n >> bit & 1 == 0 { 'a' } else { 'A' }).collect());
    println!(
        "CPU for 2000 requests of 95 names: {different:?}, {anagrams:?}, {starts:?}, {cases:?}"
    );
    for alike in [anagrams, starts, cases] {
        assert!(
            alike < different * 4 + Duration::from_millis(200),
            "{alike:?} beside {different:?}"
        );
    }
}

#[test]
fn after_sigterm_stuck_clients_are_disconnected_at_the_deadline() {
    let mut child = Example("bench_engine").start();
    let mut half = child.client();
    half.send("GET / HTTP/1.1\r\nHo");
    let mut content = child.client();
    content.send("POST /length HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nx");
    let mut unread = child.client();
    ask(&mut unread, "/large?n=50000000");
    let mut asleep = child.client();
    ask(&mut asleep, "/sleep?ms=60000");
    let mut soon = child.client();
    ask(&mut soon, "/sleep?ms=1000");
    for client in [&mut half, &mut content, &mut asleep, &mut soon] {
        client.is_silent_for(Duration::from_millis(30));
    }
    child.signal("TERM");
    let started = Instant::now();
    assert_eq!(soon.response().text(), "slept", "what comes to its end in time is answered");
    // The deadline is 10 s.
    let status = child.ends_within(Duration::from_secs(20));
    assert!(status.success(), "{status:?}");
    assert!(
        started.elapsed() > Duration::from_secs(4),
        "{:?}: they had their time",
        started.elapsed()
    );
    for client in [&mut half, &mut content, &mut asleep, &mut unread] {
        assert!(matches!(client.read_until_end(), Ended::Closed(_) | Ended::Reset(_)));
    }
}
