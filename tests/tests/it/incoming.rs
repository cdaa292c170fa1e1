//! Requests that the program pulls.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashSet;
use std::io::Read;
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use filoplume_runtime::{RecvError, Response, Server, ServerConfig};
use filoplume_tests::{Client, DEADLINE, TestServer, ask, eventually};

fn bound() -> TestServer {
    TestServer::bound(ServerConfig::default())
}

/// Answers each request with its path until the server ends, on a separate thread.
fn answers(server: &Server) -> JoinHandle<usize> {
    let incoming = server.incoming();
    thread::spawn(move || {
        let mut answered = 0;
        for request in incoming {
            let path = request.path().to_owned();
            request.respond(path).unwrap();
            answered += 1;
        }
        answered
    })
}

#[test]
fn the_iterator_yields_every_request_and_ends_with_the_server() {
    let server = bound();
    let pulls = answers(server.server());
    let mut client = server.client();
    for n in 0..100 {
        let path = format!("/{n}");
        assert_eq!(client.get(&path).text(), path);
    }
    for n in 0..20 {
        ask(&mut client, &format!("/{n}"));
    }
    for n in 0..20 {
        assert_eq!(client.response().text(), format!("/{n}"));
    }
    server.server().shutdown_handle().shutdown();
    assert_eq!(pulls.join().unwrap(), 120);
    assert!(server.server().incoming().next().is_none(), "and stays ended");
}

#[test]
fn several_threads_pull_from_one_server() {
    let server = bound();
    let together = Arc::new(Barrier::new(4));
    let pulls: Vec<_> = (0..4)
        .map(|_| {
            let incoming = server.server().incoming();
            let together = Arc::clone(&together);
            thread::spawn(move || {
                for request in incoming {
                    // Passes only if four threads have a request each.
                    together.wait();
                    request.respond(format!("{:?}", thread::current().id())).unwrap();
                }
            })
        })
        .collect();
    for _ in 0..10 {
        let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for client in &mut clients {
            ask(client, "/");
        }
        let threads: HashSet<String> =
            clients.iter_mut().map(|client| client.response().text().to_owned()).collect();
        assert_eq!(threads.len(), 4);
    }
    server.server().shutdown_handle().shutdown();
    for pull in pulls {
        pull.join().unwrap();
    }
}

#[test]
fn a_request_dropped_unanswered_is_a_500() {
    let server = bound();
    let puller = server.server().clone();
    let pulls = thread::spawn(move || {
        for n in 0..6 {
            let request = puller.recv().unwrap();
            if n % 2 == 0 {
                drop(request);
            } else {
                request.respond("answered").unwrap();
            }
        }
        // One more is dropped by a panic of the program.
        let request = puller.recv().unwrap();
        let panics = thread::spawn(move || {
            let _request = request;
            std::panic::resume_unwind(Box::new("asked to"));
        });
        assert!(panics.join().is_err());
    });
    let mut client = server.client();
    for n in 0..6 {
        assert_eq!(client.get("/").status, if n % 2 == 0 { 500 } else { 200 });
    }
    assert_eq!(client.get("/").status, 500);
    pulls.join().unwrap();
}

#[test]
fn requests_can_be_received_with_recv_try_recv_and_recv_timeout() {
    let server = bound();
    assert!(matches!(server.server().try_recv(), Err(RecvError::Empty)));
    let started = Instant::now();
    let none = server.server().recv_timeout(Duration::from_millis(50));
    assert!(matches!(none, Err(RecvError::TimedOut)), "{none:?}");
    assert!(started.elapsed() >= Duration::from_millis(50));
    let mut client = server.client();
    ask(&mut client, "/recv");
    server.server().recv().unwrap().respond("1").unwrap();
    assert_eq!(client.response().text(), "1");
    ask(&mut client, "/try");
    let mut tried = None;
    eventually("the request can be had", || {
        tried = server.server().try_recv().ok();
        tried.is_some()
    });
    tried.unwrap().respond("2").unwrap();
    assert_eq!(client.response().text(), "2");
    ask(&mut client, "/timeout");
    server.server().recv_timeout(DEADLINE).unwrap().respond("3").unwrap();
    assert_eq!(client.response().text(), "3");
    assert_eq!(server.metrics().incoming, 0);
}

#[test]
fn unblock_wakes_a_waiting_thread_or_the_next_one_that_would_wait() {
    let server = bound();
    let waits = {
        let server = server.server().clone();
        thread::spawn(move || server.recv().map(drop))
    };
    server.server().unblock();
    let woken = waits.join().unwrap();
    assert!(matches!(woken, Err(RecvError::Unblocked)), "{woken:?}");
    // The server continues.
    let mut client = server.client();
    ask(&mut client, "/");
    server.server().recv().unwrap().respond("here").unwrap();
    assert_eq!(client.response().text(), "here");
}

#[test]
fn a_request_may_be_answered_by_any_thread_in_any_order() {
    let server = bound();
    let mut clients: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        ask(client, &format!("/{n}"));
    }
    let mut requests: Vec<_> = (0..10).map(|_| server.server().recv().unwrap()).collect();
    requests.sort_by_key(|request| request.path().to_owned());
    let threads: Vec<_> = requests
        .into_iter()
        .rev()
        .map(|request| {
            thread::spawn(move || {
                let path = request.path().to_owned();
                request.respond(path).unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.response().text(), format!("/{n}"));
    }
}

#[test]
fn a_streamed_content_is_pulled_with_its_request() {
    let config = ServerConfig::default().buffered_content_bytes_max(1000);
    let server = TestServer::bound(config);
    let puller = server.server().clone();
    let pulls = thread::spawn(move || {
        for _ in 0..4 {
            let mut request = puller.recv().unwrap();
            let is_in_memory = request.body().as_slice().is_some();
            let mut content = Vec::new();
            request.body_mut().read_to_end(&mut content).unwrap();
            request.respond(format!("{} {is_in_memory}", content.len())).unwrap();
        }
    });
    let mut client = server.client();
    assert_eq!(client.post("/", vec![b'c'; 1000]).text(), "1000 true");
    assert_eq!(client.post("/", vec![b'c'; 500_000]).text(), "500000 false");
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2000\r\n\r\n").send(vec![b'c'; 500]);
    client.is_silent_for(Duration::from_millis(20));
    // The rest of the content arrived at once, so nothing is streamed.
    assert_eq!(client.send(vec![b'c'; 1500]).response().text(), "2000 true");
    client
        .send("POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n");
    assert_eq!(client.response().status, 100);
    assert_eq!(client.send(vec![b'c'; 2000]).response().text(), "2000 false");
    pulls.join().unwrap();
}

#[test]
fn an_unread_stream_is_dropped_with_its_request() {
    let server = TestServer::bound(ServerConfig::default().buffered_content_bytes_max(10));
    let puller = server.server().clone();
    let pulls = thread::spawn(move || {
        while let Ok(request) = puller.recv() {
            if request.path() != "/drop" {
                request.respond("not read").unwrap();
            }
        }
    });
    let mut client = server.client();
    for _ in 0..5 {
        assert_eq!(client.post("/", vec![b'c'; 5000]).text(), "not read");
        assert_eq!(client.post("/drop", vec![b'c'; 5000]).status, 500);
    }
    server.server().shutdown_handle().shutdown();
    pulls.join().unwrap();
}

#[test]
fn a_response_may_be_a_stream() {
    let server = bound();
    let puller = server.server().clone();
    let pulls = thread::spawn(move || {
        for _ in 0..3 {
            let mut response = Response::default();
            response.set_stream(std::io::repeat(b's').take(3_000_000));
            puller.recv().unwrap().respond(response).unwrap();
        }
    });
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").body.len(), 3_000_000);
    }
    pulls.join().unwrap();
}

#[test]
fn a_request_for_a_full_queue_is_refused_at_once() {
    let server = TestServer::bound(ServerConfig::default().queue_capacity(3));
    assert!(server.server().try_recv().is_err(), "pulling begins");
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        ask(client, &format!("/{n}"));
        if n < 3 {
            eventually("the request is queued", || server.metrics().incoming == n + 1);
        }
    }
    for client in &mut clients[3..] {
        let response = client.response();
        assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    }
    assert_eq!(server.metrics().overloaded, 5);
    for _ in 0..3 {
        server.server().recv().unwrap().respond("late").unwrap();
    }
    for client in &mut clients[..3] {
        assert_eq!(client.response().text(), "late");
    }
    ask(&mut clients[7], "/");
    server.server().recv().unwrap().respond("again").unwrap();
    assert_eq!(clients[7].response().text(), "again");
}

#[test]
fn requests_received_before_a_shutdown_can_still_be_answered() {
    let server = bound();
    assert!(server.server().try_recv().is_err(), "pulling begins");
    let mut clients: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for client in &mut clients {
        ask(client, "/");
    }
    eventually("all are queued", || server.metrics().incoming == 5);
    server.server().shutdown_handle().shutdown();
    let pulls = answers(server.server());
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.text(), "/");
        assert!(response.closes(), "{response:?}");
        client.is_closed();
    }
    assert_eq!(pulls.join().unwrap(), 5);
    server.server().wait();
}

#[test]
fn a_pulled_request_may_outlive_the_server() {
    let server = bound();
    let mut client = server.client();
    ask(&mut client, "/");
    let request = server.server().recv().unwrap();
    server.server().shutdown_handle().shutdown_within(Duration::ZERO);
    server.server().wait();
    // The response may not arrive, but nothing may hang or panic.
    let _ = request.respond("late");
    client.read_until_end();
}

#[test]
fn responding_to_a_disconnected_peer_is_not_an_error() {
    let server = bound();
    for _ in 0..20 {
        let mut client = server.client();
        ask(&mut client, "/");
        let request = server.server().recv().unwrap();
        filoplume_tests::reset(client);
        request.respond(vec_text()).expect("a disconnected peer does not end the loop");
    }
    server.is_left_by_all();
}

fn vec_text() -> String {
    "t".repeat(100_000)
}

#[test]
fn a_server_serves_once() {
    let server = bound();
    assert!(server.server().try_recv().is_err());
    let error = server.server().serve(|_| "no").expect_err("it is pulled already");
    assert!(error.is_already_serving());
    let server = TestServer::start(|_| "yes");
    assert!(matches!(server.server().recv(), Err(RecvError::Closed)));
    assert!(server.server().incoming().next().is_none());
    assert_eq!(server.client().get("/").text(), "yes");
}

#[test]
fn a_streamed_content_that_finds_the_queue_full_is_skipped() {
    let config = ServerConfig::default().queue_capacity(1).buffered_content_bytes_max(10);
    let server = TestServer::bound(config);
    assert!(server.server().try_recv().is_err(), "pulling begins");
    let mut first = server.client();
    ask(&mut first, "/first");
    eventually("the queue is full", || server.metrics().incoming == 1);
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.post("/", vec![b'c'; 5000]).status, 503);
    }
    server.server().recv().unwrap().respond("first").unwrap();
    assert_eq!(first.response().text(), "first");
    ask(&mut client, "/again");
    server.server().recv().unwrap().respond("again").unwrap();
    assert_eq!(client.response().text(), "again");
}

/// A limit on their number would refuse requests that are pulled soon, or let requests wait for
/// minutes.
#[test]
fn requests_wait_as_long_as_the_program_pulls_them_in_time() {
    let timeout = Duration::from_millis(200);
    let server = TestServer::bound(ServerConfig::default().queue_timeout(timeout));
    assert!(matches!(server.server().try_recv(), Err(RecvError::Empty)));
    let mut first = server.client();
    ask(&mut first, "/first");
    eventually("it waits", || server.metrics().incoming == 1);
    // The program pulls nothing. Far fewer wait than the queue has room for.
    let deadline = Instant::now() + DEADLINE;
    let refused = loop {
        assert!(Instant::now() < deadline, "all of them wait");
        let waiting = server.metrics().incoming;
        let mut client = server.client();
        ask(&mut client, "/more");
        eventually("it waits or is refused", || {
            server.metrics().incoming > waiting || server.metrics().overloaded > 0
        });
        if server.metrics().overloaded > 0 {
            break client.response();
        }
        // These requests are dropped with their connections when they are pulled.
        thread::sleep(timeout / 4);
    };
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    // The program pulls again, and gets requests again.
    let pulls = answers(server.server());
    assert_eq!(first.response().text(), "/first");
    eventually("all are pulled", || server.metrics().incoming == 0);
    assert_eq!(server.client().get("/next").text(), "/next");
    server.server().shutdown_handle().shutdown();
    pulls.join().unwrap();
}
