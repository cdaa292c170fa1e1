//! Contents that handlers save as files. On Linux, the system moves long ones of declared length
//! from the socket into the file by itself.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use filoplume_runtime::{ContentError, Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::tls::TlsServer;
use filoplume_tests::{TestServer, chunked, eventually, pattern};
use tempfile::TempDir;

/// Longer than all that the engine, a pipe and the socket hold.
const LONG: usize = 9_000_001;

/// Saves the content of `/name` as the file `name`.
struct Saves {
    folder: PathBuf,
    bound: Option<u64>,
}

impl Service for Saves {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().streamed()
    }

    fn call(&self, mut request: Request) -> Response {
        let path = self.folder.join(request.path().trim_start_matches('/'));
        if let Some(bound) = self.bound {
            request.body_mut().bound(bound);
        }
        match request.body_mut().save_to(path) {
            Ok(length) => Response::from(length.to_string()),
            Err(error) => {
                let mut response = Response::new(409);
                response.set_text(format!("{:?} {}", error.kind(), is_peers(&error)));
                response
            }
        }
    }
}

fn is_peers(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|within| within.is::<ContentError>())
}

fn server(bound: Option<u64>) -> (TempDir, TestServer) {
    let folder = tempfile::tempdir().unwrap();
    let service = Saves { folder: folder.path().to_owned(), bound };
    let config = ServerConfig::default().content_bytes_max(100_000_000);
    (folder, TestServer::with(config, service))
}

fn head(name: &str, length: usize) -> String {
    format!("PUT /{name} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n")
}

#[test]
fn a_file_has_the_content_and_the_next_request_begins_behind_it() {
    let (folder, server) = server(None);
    for length in [0, 1, 65_536, 262_143, 400_000, LONG] {
        let content = pattern(length);
        let mut client = server.client();
        let sender = client.tcp().try_clone().unwrap();
        let mut bytes = head("length", length).into_bytes();
        bytes.extend(&content);
        bytes.extend(b"PUT /chunked HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
        bytes.extend(chunked(&content, 70_000));
        bytes.extend(head("next", 4).into_bytes());
        bytes.extend(b"next");
        // Sent in one go, so that the next request is at the socket before a content has ended.
        let sent = thread::spawn(move || io::Write::write_all(&mut &sender, &bytes).unwrap());
        assert_eq!(client.response().text(), length.to_string());
        assert_eq!(client.response().text(), length.to_string());
        assert_eq!(client.response().text(), "4");
        sent.join().unwrap();
        for (name, expected) in [("length", &content[..]), ("chunked", &content), ("next", b"next")]
        {
            let path = folder.path().join(name);
            assert!(fs::read(&path).unwrap() == expected, "{name}, {length} bytes");
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_content_that_arrives_in_pieces_is_saved_whole() {
    let (folder, server) = server(None);
    let content = pattern(2_000_000);
    let mut client = server.client();
    client.send(head("slow", content.len()));
    for piece in content.chunks(150_001) {
        client.send(piece);
        // The handler waits for the next piece meanwhile.
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.response().text(), "2000000");
    assert!(fs::read(folder.path().join("slow")).unwrap() == content);
    assert_eq!(client.send(head("next", 4)).send("next").response().text(), "4");
}

#[test]
fn a_peer_that_holds_its_content_back_is_told_to_go_on() {
    let (folder, server) = server(None);
    let content = pattern(1_000_000);
    let mut client = server.client();
    let head = head("held", content.len());
    client.send(head.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n"));
    assert_eq!(client.response().status, 100);
    assert_eq!(client.send(&content).response().text(), "1000000");
    assert!(fs::read(folder.path().join("held")).unwrap() == content);
}

#[test]
fn a_content_over_tls_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let service = Saves { folder: folder.path().to_owned(), bound: None };
    let server = TlsServer::with(ServerConfig::default(), service);
    let mut client = server.client();
    let content = pattern(1_000_000);
    client.send(head("sealed", content.len())).send(&content);
    assert_eq!(client.response().text(), "1000000");
    assert!(fs::read(folder.path().join("sealed")).unwrap() == content);
}

#[test]
fn half_of_a_content_leaves_no_file() {
    let (folder, server) = server(None);
    let mut client = server.client();
    client.send(head("half", LONG)).send(pattern(3_000_000)).finish();
    assert_eq!(client.response().text(), "UnexpectedEof true");
    assert!(!folder.path().join("half").exists());
}

#[test]
fn a_peer_that_falls_silent_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let service = Saves { folder: folder.path().to_owned(), bound: None };
    let config = ServerConfig::default()
        .content_bytes_max(100_000_000)
        .content_timeout(Duration::from_millis(700));
    let server = TestServer::with(config, service);
    let mut client = server.client();
    client.send(head("silent", LONG)).send(pattern(3_000_000));
    assert_eq!(client.response().text(), "TimedOut true");
    assert!(!folder.path().join("silent").exists());
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let (folder, server) = server(None);
    let path = folder.path().join("mine");
    fs::write(&path, "mine").unwrap();
    let mut client = server.client();
    assert_eq!(client.send(head("mine", 5)).send("yours").response().text(), "AlreadyExists false");
    assert_eq!(fs::read(path).unwrap(), b"mine");
}

#[test]
fn a_bound_holds_while_the_content_is_saved() {
    let (folder, server) = server(Some(1_000_000));
    let mut client = server.client();
    client.send(head("long", 3_000_000));
    // The server may close before everything is sent.
    let _ = client.try_send(pattern(3_000_000));
    assert_eq!(client.try_response().unwrap().text(), "InvalidData false");
    assert!(!folder.path().join("long").exists());
    eventually("the server is left by all", || server.metrics().connections == 0);
}
