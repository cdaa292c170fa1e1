//! Response bodies that a closure writes or an iterator yields.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::ErrorKind::WouldBlock;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use filoplume_runtime::pushed::Pushed;
use filoplume_runtime::{Request, Response, ServerConfig};
use filoplume_tests::{Client, DEADLINE, Framing, TestServer, eventually};

/// A service whose bodies are written by the closure that the path selects.
#[allow(clippy::needless_pass_by_value, reason = "a service takes its request")]
fn written(request: Request) -> Response {
    let path = request.path().to_owned();
    let mut response = Response::default();
    response.set_pushed(Pushed::written(move |out| match path.as_str() {
        "/fails" => {
            out.write_all(b"some")?;
            out.flush()?;
            Err(std::io::Error::other("the disk is full"))
        }
        "/panics" => panic!("a test"),
        _ => (0..10_000).try_for_each(|number| writeln!(out, "line {number}")),
    }));
    response
}

#[test]
fn a_body_is_written_by_a_closure_on_a_thread_of_the_pool() {
    let server = TestServer::start(written);
    let mut client = server.client();
    let response = client.get("/");
    assert_eq!(response.text().lines().count(), 10_000);
    assert_eq!(response.text().lines().last(), Some("line 9999"));
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head_response().status, 200);
    for path in ["/fails", "/panics"] {
        let mut client = server.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = String::from_utf8(client.read_to_end()).unwrap();
        assert!(!answer.ends_with("0\r\n\r\n"), "{path}: {answer}");
    }
    eventually("the panic is counted", || server.metrics().panics == 1);
    assert_eq!(server.client().get("/").status, 200);
}

#[test]
fn a_closure_that_writes_gets_a_503_if_no_thread_is_free() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let waiting = Arc::clone(&gate);
    let server = TestServer::with(ServerConfig::default().threads_max(2), move |_: Request| {
        let gate = Arc::clone(&waiting);
        let mut response = Response::default();
        response.set_pushed(Pushed::written(move |out| {
            out.write_all(b"begun")?;
            out.flush()?;
            drop(gate.lock());
            Ok(())
        }));
        response
    });
    let mut clients = Vec::new();
    eventually("the threads are used up", || {
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let status = client.read_head_only().unwrap().status;
        clients.push(client);
        status == 503
    });
    drop(closed);
    eventually("a thread is free again", || server.client().get("/").status == 200);
}

/// Bodies without end.
#[allow(clippy::needless_pass_by_value, reason = "a service takes its request")]
fn endless(_: Request) -> Response {
    let mut response = Response::default();
    response.set_pushed(Pushed::written(|out| {
        loop {
            out.write_all(&[b'x'; 1000])?;
        }
    }));
    response
}

#[test]
fn a_client_that_takes_nothing_is_cut_off_while_threads_are_scarce() {
    let server = TestServer::with(ServerConfig::default().threads_max(8), endless);
    let ask = || {
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let mut reader = ask();
    // A short silence may come from a busy machine.
    let read = |reader: &mut Client| {
        let begun = Instant::now();
        loop {
            match reader.read_some(1 << 16) {
                Err(error) if error.kind() == WouldBlock && begun.elapsed() < DEADLINE => {}
                read => return read.unwrap() > 0,
            }
        }
    };
    let mut lazy: Vec<_> = (0..2).map(|_| ask()).collect();
    eventually("three threads write", || server.metrics().held_streams == 3);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(read(&mut reader));
    }
    assert_eq!(server.metrics().held_streams, 3, "there are threads for others");
    lazy.push(ask());
    eventually("half of the threads write", || server.metrics().held_streams == 4);
    let mut refused = ask();
    assert_eq!(refused.read_head_only().unwrap().status, 503, "and no more");
    let begun = Instant::now();
    while server.metrics().held_streams > 3 {
        assert!(begun.elapsed() < Duration::from_secs(20), "a client is cut off");
        assert!(read(&mut reader), "it is not the one that reads");
    }
    assert!(read(&mut reader));
}

#[test]
fn a_body_of_an_iterator_is_sent_piece_by_piece_and_an_error_cuts_it_short() {
    let server = TestServer::start(|request: Request| {
        let fails = request.path() == "/fails";
        let mut response = Response::default();
        response.set_iterator((0..5).map(move |number| {
            if fails && number == 3 {
                return Err(std::io::Error::other("a test"));
            }
            Ok(format!("{number}"))
        }));
        response
    });
    let response = server.client().get("/");
    assert_eq!((response.text(), response.framing), ("01234", Framing::Chunked));
    let mut client = server.client();
    client.send("GET /fails HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(!client.read_to_end().ends_with(b"0\r\n\r\n"));
}
