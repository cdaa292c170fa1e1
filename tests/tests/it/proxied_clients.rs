//! Clients behind a proxy that the app trusts. All their connections come from the proxy, but each
//! client still leaves something to the others.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use filoplume::extract::Proxies;
use filoplume::prelude::*;
use filoplume::{Permits, Refusal, RunningApp, ServerConfig};
use filoplume_tests::{Client, Gate, eventually};

/// Two clients on the internet, and one on a private network.
const ONE: &str = "203.0.113.7";
const OTHER: &str = "198.51.100.4";
const PRIVATE: &str = "10.1.2.3";

/// The number of threads.
const THREADS: usize = 9;

/// An app behind a proxy on this machine. `/gate` waits at a gate, and `/query` with a permit.
fn app(config: ServerConfig) -> (RunningApp, Gate) {
    let gate = Gate::new();
    let (at_gate, with_permit) = (gate.clone(), gate.clone());
    let database = Permits::new("database", THREADS);
    let app = App::new()
        .route("/gate", get(move || at_gate.pass()).on_pool())
        .route("/query", get(move || with_permit.pass()).uses(&database).on_pool())
        .route("/other", get(|| "hi").on_pool())
        .post("/length", |text: String| text.len().to_string())
        .trust_proxies(Proxies::loopback())
        .config(config)
        .start("127.0.0.1:0")
        .unwrap();
    (app, gate)
}

fn head(start: &str, client: &str) -> String {
    format!("{start} HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: {client}\r\n")
}

fn send(app: &RunningApp, count: usize, request: &str) -> Vec<Client> {
    let send = |_| {
        let mut client = Client::connect(app.local_addr());
        client.send(request);
        client
    };
    (0..count).map(send).collect()
}

fn are_answered(clients: &mut [Client]) {
    for client in clients {
        let status = client.response().status;
        assert!(matches!(status, 200 | 204), "{status}");
    }
}

#[test]
fn one_client_leaves_a_third_of_the_threads_to_others() {
    let (default, behind_proxy) = (ServerConfig::default(), ServerConfig::behind_proxy());
    for (config, client, taken) in [
        (default.clone(), ONE, THREADS / 3 * 2),
        (default, PRIVATE, THREADS - 1),
        (behind_proxy, ONE, THREADS / 3 * 2),
    ] {
        let (app, gate) = app(config.threads_max(THREADS));
        let gate_of = |client| head("GET /gate", client) + "\r\n";
        let mut clients = send(&app, 30, &gate_of(client));
        let waiting = |count| {
            eventually("the others wait", || app.server().metrics().unwrap().waiting == count);
        };
        waiting(30 - taken);
        eventually("a route leaves a ninth, and nobody less", || gate.waiting() == taken);
        if client == ONE {
            clients.extend(send(&app, 5, &gate_of(OTHER)));
            // The other client has two thirds of the rest.
            eventually("the other client has threads", || gate.waiting() == taken + 2);
            waiting(30 - taken + 5 - 2);
        }
        clients.extend(send(&app, 3, &(head("GET /other", OTHER) + "\r\n")));
        let last = clients.len() - 3;
        are_answered(&mut clients[last..]);
        gate.open();
        are_answered(&mut clients[..last]);
        app.shutdown();
    }
}

#[test]
fn one_client_leaves_a_third_of_the_permits_to_others() {
    let (app, gate) = app(ServerConfig::default());
    let query_of = |client| head("GET /query", client) + "\r\n";
    let mut clients = send(&app, 20, &query_of(ONE));
    eventually("the others wait", || app.server().metrics().unwrap().waiting == 14);
    eventually("six have permits", || gate.waiting() == 6);
    clients.extend(send(&app, 1, &query_of(OTHER)));
    eventually("the other client has a permit", || gate.waiting() == 7);
    gate.open();
    are_answered(&mut clients);
    app.shutdown();
}

#[test]
fn one_client_leaves_a_third_of_the_memory_to_others() {
    const MEMORY: usize = 2_000_000;
    let (app, _gate) = app(ServerConfig::default().memory_max(MEMORY));
    let upload = |client| head("POST /length", client) + "Content-Length: 50000\r\n\r\n";
    let part = "x".repeat(49_999);
    let of_one = send(&app, 60, &(upload(ONE) + &part));
    let refused = || {
        let metrics = app.server().metrics().unwrap();
        let mut refusals = metrics.refusals();
        refusals.find(|(refusal, _)| *refusal == Refusal::Memory).map_or(0, |(_, count)| count)
    };
    let used = || app.server().metrics().unwrap().memory_used;
    eventually("those that do not fit are refused", || {
        used() >= (60 - usize::try_from(refused()).unwrap()) * part.len()
    });
    let used_before = used();
    assert!((MEMORY / 2..=MEMORY / 3 * 2 + 1).contains(&used_before), "{used_before}");
    let before = refused();
    let mut of_other = send(&app, 2, &(upload(OTHER) + &part));
    eventually("they are there", || used() >= used_before + 2 * part.len());
    for client in &mut of_other {
        client.send("x");
        assert_eq!(client.response().text(), "50000");
    }
    assert_eq!(refused(), before);
    drop(of_one);
    app.shutdown();
}

/// A proxy sends the requests of all clients over few connections, and threads keep these.
#[test]
fn a_connection_counts_for_the_client_of_its_current_request() {
    let (app, gate) = app(ServerConfig::default().threads_max(THREADS));
    let mut kept: Vec<Client> = send(&app, THREADS * 2, "");
    let other_of = |client| head("GET /other", client) + "\r\n";
    for round in 0..20 {
        for (number, client) in kept.iter_mut().enumerate() {
            client.send(other_of(if (round + number) % 3 == 0 { ONE } else { OTHER }));
        }
        are_answered(&mut kept);
    }
    // The earlier requests are no longer counted: each client may take as much as before.
    let gate_of = |client| head("GET /gate", client) + "\r\n";
    for client in &mut kept {
        client.send(gate_of(ONE));
    }
    eventually("two thirds are taken", || gate.waiting() == THREADS / 3 * 2);
    let mut others = send(&app, 9, &gate_of(OTHER));
    eventually("and two thirds of the rest", || gate.waiting() == THREADS / 3 * 2 + 2);
    gate.open();
    are_answered(&mut kept);
    are_answered(&mut others);
    app.shutdown();
}

/// A client cannot use a header to be counted as another one.
#[test]
fn nobody_but_a_trusted_proxy_names_clients() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let app = App::new()
        .route("/gate", get(move || at_gate.pass()).on_pool())
        .trust_proxies(Proxies::new().network("192.0.2.0/24"))
        .config(ServerConfig::default().threads_max(THREADS).connections_per_client_max(100))
        .start("127.0.0.1:0")
        .unwrap();
    let mut clients: Vec<Client> = (0..20)
        .flat_map(|number| {
            send(&app, 1, &(head("GET /gate", &format!("203.0.113.{number}")) + "\r\n"))
        })
        .collect();
    eventually("the others wait", || app.server().metrics().unwrap().waiting == 14);
    eventually("they are one client", || gate.waiting() == 6);
    gate.open();
    are_answered(&mut clients);
    app.shutdown();
}
