//! Peers that fail, stall or attack: the server stays within its limits and serves the others.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{ErrorKind, Write};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, ServerConfig};
use filoplume_tests::{
    Client, Ended, Example, Gate, TestServer, ask, eventually, eventually_within, holds_for, reset,
    site,
};

const MEGABYTE: u64 = 1_000_000;

/// The usual handler of tests, and `/sleep`, which blocks.
fn sleeps(request: Request) -> filoplume_runtime::Response {
    if request.path() == "/sleep" {
        thread::sleep(Duration::from_millis(5));
    }
    site(request)
}

#[test]
fn a_reset_in_the_middle_of_a_request_is_harmless() {
    let server = TestServer::start(sleeps);
    let mut other = server.client();
    let requests = [
        "",
        "G",
        "GET / HTTP/1.1\r\nHo",
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nsome",
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 9000000\r\n\r\nsome",
        "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "POST /unread HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nsome",
        "GET / HTTP/1.1\r\nHost: t\r\n\r\nGET / HT",
        "GET /sleep HTTP/1.1\r\nHost: t\r\n\r\n",
        "BAD\r\n\r\n",
    ];
    for _ in 0..10 {
        for request in requests {
            let mut client = server.client();
            client.send(request);
            reset(client);
            other.is_alive();
        }
    }
    drop(other);
    server.is_left_by_all();
    server.client().is_alive();
}

#[test]
fn a_reset_in_the_middle_of_a_response_is_harmless() {
    let server = TestServer::start(sleeps);
    let mut other = server.client();
    for target in ["/large?n=50000000", "/stream?n=50000000"] {
        for read in [0, 1, 100_000] {
            for _ in 0..5 {
                let mut client = server.client();
                ask(&mut client, target);
                if read > 0 {
                    client.read_exactly(read);
                }
                reset(client);
                other.is_alive();
            }
        }
    }
    drop(other);
    server.is_left_by_all();
    server.client().is_alive();
}

#[test]
fn a_client_that_disconnects_while_its_handler_runs_is_harmless() {
    for resets in [false, true] {
        let gate = Gate::new();
        let server = TestServer::start({
            let gate = gate.clone();
            move |request: Request| {
                if request.path() == "/gate" {
                    gate.pass();
                }
                site(request)
            }
        });
        let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
        for client in &mut clients {
            ask(client, "/gate");
        }
        gate.holds(20);
        for client in clients {
            if resets {
                reset(client);
            }
        }
        server.client().is_alive();
        gate.open();
        server.is_left_by_all();
        server.client().is_alive();
        assert_eq!(server.metrics().panics, 0);
    }
}

#[test]
fn a_client_that_closes_at_once_is_harmless() {
    let server = TestServer::start(site);
    for n in 0..300 {
        let mut client = server.client();
        match n % 3 {
            0 => drop(client),
            1 => reset(client),
            _ => {
                client.send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
            }
        }
    }
    server.client().is_alive();
    server.is_left_by_all();
}

#[test]
fn a_flood_from_a_peer_that_never_reads_takes_bounded_memory() {
    let child = Example("bench_engine").start();
    child.client().get("/");
    let before = child.process().resident_bytes();
    let flooder = child.client();
    flooder.tcp().set_nonblocking(true).unwrap();
    let requests = "GET /plaintext HTTP/1.1\r\nHost: t\r\n\r\n".repeat(1500);
    let mut offered = 0;
    let mut last_taken = Instant::now();
    // Until the whole flood is sent, or the server has taken nothing for a while.
    while offered < 55 * MEGABYTE && last_taken.elapsed() < Duration::from_secs(1) {
        match flooder.tcp().write(requests.as_bytes()) {
            Ok(written) => {
                offered += written as u64;
                last_taken = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
        let grown = child.process().resident_bytes().saturating_sub(before);
        assert!(grown < 20 * MEGABYTE, "{grown} bytes more after {offered}");
    }
    assert!(
        offered < 55 * MEGABYTE,
        "the server keeps reading although its responses are not read"
    );
    assert_eq!(child.client().get("/").status, 200);
    holds_for(Duration::from_millis(300), "memory stays bounded", || {
        child.process().resident_bytes().saturating_sub(before) < 20 * MEGABYTE
    });
}

#[test]
fn a_flood_of_large_unread_responses_takes_bounded_memory() {
    let child = Example("bench_engine").start();
    child.client().get("/");
    let before = child.process().resident_bytes();
    let request = "GET /large?n=1000000 HTTP/1.1\r\nHost: t\r\n\r\n";
    let mut flooders: Vec<Client> = (0..5).map(|_| child.client()).collect();
    for flooder in &mut flooders {
        flooder.send(request.repeat(1000));
    }
    for _ in 0..50 {
        assert_eq!(child.client().get("/").status, 200);
        let grown = child.process().resident_bytes().saturating_sub(before);
        assert!(grown < 40 * MEGABYTE, "{grown} bytes more");
    }
}

#[test]
fn slow_readers_of_long_responses_cost_little_and_delay_no_other() {
    let child = Example("bench_engine").start();
    child.client().get("/");
    let before = child.process().resident_bytes();
    let mut slow: Vec<Client> = (0..50).map(|_| child.client()).collect();
    for (index, client) in slow.iter_mut().enumerate() {
        let path = if index % 2 == 0 { "large" } else { "stream" };
        ask(client, &format!("/{path}?n=50000000"));
    }
    let mut other = child.client();
    for _ in 0..50 {
        for client in &mut slow {
            // On a busy machine nothing may have arrived yet.
            let _ = client.read_some(1000);
        }
        assert_eq!(other.get("/plaintext").status, 200);
    }
    let grown = child.process().resident_bytes().saturating_sub(before);
    assert!(grown < 40 * MEGABYTE, "{grown} bytes more for 50 responses of 50 MB");
}

#[test]
fn a_thousand_slow_heads_hold_no_thread_and_delay_no_other() {
    let child = Example("bench_engine").start();
    let mut good = child.client();
    good.get("/");
    let (memory, threads) = (child.process().resident_bytes(), child.process().threads());
    let mut slow: Vec<Client> = (0..1000).map(|_| child.client()).collect();
    for client in &mut slow {
        client.send("GET / HTTP/1.1\r\nHost: t\r\nX: ");
    }
    for round in 0..3 {
        for client in &mut slow {
            client.send("x");
        }
        let started = Instant::now();
        for _ in 0..100 {
            assert_eq!(good.get("/plaintext").status, 200);
        }
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "round {round}: {:?}",
            started.elapsed()
        );
    }
    assert!(
        child.process().threads() <= threads + 8,
        "{threads}, then {}",
        child.process().threads()
    );
    let grown = child.process().resident_bytes().saturating_sub(memory);
    assert!(grown < 10 * MEGABYTE, "{grown} bytes more for 1000 halves of a head");
    for client in &mut slow {
        assert_eq!(client.send("x\r\n\r\n").response().status, 200);
    }
}

#[test]
fn without_descriptors_the_server_waits_and_recovers() {
    let child = Example("bench_engine").start_with_descriptors(40);
    let mut served = child.client();
    assert_eq!(served.get("/").status, 200);
    // The system accepts connections up to the backlog. Those beyond the server's descriptors wait
    // there.
    let mut clients: Vec<Client> = (0..80).map(|_| child.client()).collect();
    for client in &mut clients {
        ask(client, "/");
    }
    eventually("the server is full", || child.process().descriptors() >= 25);
    let before = child.process().cpu_time();
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(1500) {
        assert_eq!(served.get("/plaintext").status, 200, "who is connected is served");
        served.is_silent_for(Duration::from_millis(50));
    }
    let used = child.process().cpu_time() - before;
    assert!(used < Duration::from_millis(300), "{used:?} of CPU time in {:?}", started.elapsed());
    // Half of these connections still wait, unless they were served in the meantime.
    drop(clients);
    drop(served);
    eventually_within(Duration::from_secs(2), "a new connection is served", || {
        let mut client = child.client().patience(Duration::from_millis(100));
        client.try_send("GET / HTTP/1.1\r\nHost: t\r\n\r\n").is_ok()
            && client.try_response().is_ok()
    });
}

#[test]
fn connections_that_wait_for_a_descriptor_are_served_when_one_is_free() {
    let child = Example("bench_engine").start_with_descriptors(40);
    let mut clients: Vec<Client> = (0..60).map(|_| child.client()).collect();
    for client in &mut clients {
        ask(client, "/");
    }
    eventually("the server is full", || child.process().descriptors() >= 25);
    // Each served connection makes room for another one.
    let mut served = 0;
    eventually("all are served", || {
        clients.retain_mut(|client| {
            let has_answer = client.tcp().peek(&mut [0]).is_ok();
            if has_answer {
                assert_eq!(client.response().status, 200);
                served += 1;
            }
            !has_answer
        });
        clients.is_empty()
    });
    assert_eq!(served, 60);
}

#[test]
fn a_half_closed_idle_connection_is_closed() {
    let server = TestServer::start(sleeps);
    for target in ["/", "/sleep", "/sleep", "/sleep"] {
        let mut client = server.client();
        client.get(target);
        client.finish();
        client.is_closed();
    }
    server.is_left_by_all();
}

#[test]
fn a_disconnected_client_is_noticed_without_a_request() {
    let server = TestServer::with(ServerConfig::default(), sleeps);
    let clients: Vec<Client> = (0..200).map(|_| server.client()).collect();
    eventually("all are accepted", || server.metrics().connections == 200);
    drop(clients);
    server.is_left_by_all();
}

#[test]
fn random_bytes_are_answered_or_closed() {
    let child = Example("bench_engine").start();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    for round in 0..300 {
        let mut bytes =
            b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                .to_vec();
        for _ in 0..(round % 6) + 1 {
            // xorshift: the same bytes in every run.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = usize::try_from(state >> 8).unwrap() % bytes.len();
            bytes[at] = state.to_le_bytes()[0];
        }
        let mut client = child.client();
        let _ = client.try_send(&bytes);
        let _ = client.tcp().shutdown(std::net::Shutdown::Write);
        match client.try_response() {
            Ok(_) | Err(Ended::Closed(_) | Ended::Reset(_)) => {}
            Err(silent) => panic!("{}: {silent}", bytes.escape_ascii()),
        }
    }
    assert_eq!(child.client().get("/").status, 200);
}
