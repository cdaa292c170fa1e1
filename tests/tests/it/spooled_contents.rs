//! Contents that wait in files until they are complete: a slow peer holds no thread, however long
//! its content is.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::Read;
use std::thread;
use std::time::Duration;

use filoplume::prelude::*;
use filoplume_runtime::{Plan, Refusal, Refused, ServerConfig, Service};
use filoplume_tests::tls::TlsServer;
use filoplume_tests::{Client, TestServer, chunked, eventually, pattern};
use tempfile::TempDir;

/// The length of the part that is written at once.
const PART: usize = 256 * 1024;

/// Answers with the content, and `/length` with its length only. `/save` first saves the content as
/// a file, and reads it from this file.
struct Spooled(TempDir);

impl Service for Spooled {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().spooled()
    }

    fn call(&self, mut request: Request) -> Response {
        if request.path() == "/save" {
            let path = self.0.path().join("saved");
            request.body_mut().save_to(&path).unwrap();
            let saved = fs::read(&path).unwrap();
            fs::remove_file(path).unwrap();
            return with_bytes(saved);
        }
        let length = request.body().len();
        if request.path() == "/length" {
            return Response::from(length.unwrap().to_string());
        }
        let mut first = [0; 3];
        let read = request.body_mut().read(&mut first).unwrap();
        request.body_mut().unread(&first[..read]);
        assert_eq!(request.body().len(), length, "what was read is put back");
        with_bytes(request.into_body().into_bytes(u64::MAX).unwrap().to_vec())
    }

    fn refused(&self, _: &Request, refused: &Refused<'_>) -> Option<Response> {
        Some(with_bytes(refused.because().to_string().into_bytes()))
    }
}

fn with_bytes(bytes: Vec<u8>) -> Response {
    let mut response = Response::new(200);
    response.set_bytes(bytes);
    response
}

/// Returns a folder, and a configuration for files in it.
fn spooling() -> (TempDir, ServerConfig) {
    let folder = tempfile::tempdir().unwrap();
    // A fixed maximum, whatever is free on this machine.
    let config = ServerConfig::default().spool_folder(folder.path()).spooled_bytes_max(8 << 30);
    (folder, config)
}

fn server(config: ServerConfig) -> TestServer {
    TestServer::with(config, Spooled(tempfile::tempdir().unwrap()))
}

fn head(path: &str, length: usize) -> String {
    format!("PUT {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n")
}

const CHUNKED: &str = "PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";

fn refused(server: &TestServer) -> u64 {
    let metrics = server.metrics();
    metrics.refusals().find(|(refusal, _)| *refusal == Refusal::Spool).map_or(0, |found| found.1)
}

#[track_caller]
fn is_empty_again(server: &TestServer, folder: &TempDir) {
    eventually("the space is given back", || server.metrics().spooled_bytes == 0);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "no file is left");
}

#[test]
fn contents_of_all_lengths_arrive_whole_and_the_next_request_behind_them() {
    let (folder, config) = spooling();
    let server = server(config);
    let around = |length: usize| [length - 1, length, length + 1];
    let lengths =
        [[0, 1, 70_000], around(PART), around(2 * PART), around(1 << 20), around(5 << 20)];
    for length in lengths.concat() {
        let content = pattern(length);
        let mut client = server.client();
        let sender = client.tcp().try_clone().unwrap();
        let mut bytes = Vec::new();
        for path in ["/", "/save"] {
            bytes.extend(head(path, length).into_bytes());
            bytes.extend(&content);
        }
        bytes.extend(CHUNKED.as_bytes());
        bytes.extend(chunked(&content, 70_001));
        bytes.extend(head("/", 4).into_bytes());
        bytes.extend(b"next");
        let sent = thread::spawn(move || std::io::Write::write_all(&mut &sender, &bytes).unwrap());
        for way in ["length", "saved", "chunked"] {
            assert!(client.response().body == content, "{way}, {length} bytes");
        }
        assert_eq!(client.response().text(), "next");
        sent.join().unwrap();
    }
    is_empty_again(&server, &folder);
}

#[test]
fn slow_peers_hold_no_thread() {
    let (folder, config) = spooling();
    let server = server(config.threads_max(2));
    let content = pattern(3 << 20);
    let mut clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(head("/", content.len())).send(&content[..2 << 20]);
    }
    eventually("the parts are in files", || server.metrics().spooled_bytes >= 40 * 7 * PART as u64);
    let metrics = server.metrics();
    assert_eq!(metrics.held_streams, 0);
    assert!(metrics.memory_used < 40 * 2 * PART, "{metrics:?}");
    // Both threads are free for others.
    for _ in 0..10 {
        assert_eq!(server.client().post("/", pattern(500_000)).status, 200);
    }
    for mut client in clients {
        client.send(&content[2 << 20..]);
        assert!(client.response().body == content);
    }
    is_empty_again(&server, &folder);
}

#[test]
fn a_content_that_finds_no_space_is_refused_and_others_are_served() {
    let (folder, config) = spooling();
    let server = server(config.spooled_bytes_max(2 << 20));
    let content = pattern(3 << 20);
    // The first content announces its length, so that little of it is read.
    let mut client = server.client();
    client.send(head("/", content.len())).send(&content[..PART + 100]);
    let response = client.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    let because = "have 0 of the 2097152 bytes of `ServerConfig::spooled_bytes_max`; if the disk";
    assert!(response.text().contains(because), "{}", response.text());
    assert_eq!(server.metrics().spooled_bytes, 0);
    let mut client = server.client();
    let bytes = [CHUNKED.as_bytes(), &chunked(&content, 100_000)].concat();
    let sender = client.tcp().try_clone().unwrap();
    // The server may stop reading before all is sent.
    let sent = thread::spawn(move || drop(std::io::Write::write_all(&mut &sender, &bytes)));
    assert_eq!(client.response().status, 503);
    drop(client);
    sent.join().unwrap();
    assert_eq!(refused(&server), 2);
    eventually("the space is given back", || server.metrics().spooled_bytes == 0);
    assert!(server.client().post("/", pattern(3 << 19)).body == pattern(3 << 19));
    is_empty_again(&server, &folder);
}

#[test]
fn what_has_begun_has_its_space_until_it_ends() {
    let (folder, config) = spooling();
    let server = server(config.spooled_bytes_max(8 << 20));
    let content = pattern(3 << 20);
    let mut begun = server.client();
    begun.send(head("/", content.len())).send(&content[..PART + 1]);
    eventually("a part is in a file", || server.metrics().spooled_bytes == PART as u64 + 1);
    // This content would fit only if no space were reserved for the rest of the first one.
    let mut other = server.client();
    let long = head("/", 6 << 20).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(other.send(&long).response().status, 503, "it is refused before it is sent");
    begun.send(&content[PART + 1..]);
    assert!(begun.response().body == content);
    eventually("the space is given back", || server.metrics().spooled_bytes == 0);
    let mut other = server.client();
    assert_eq!(other.send(&long).read_exactly(25), b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(refused(&server), 1);
    drop(other);
    is_empty_again(&server, &folder);
}

#[test]
fn slow_uploads_are_ended_when_half_of_the_space_is_taken() {
    for loops in [1, 2] {
        let (folder, config) = spooling();
        let minute = Duration::from_secs(60);
        let config = config.spooled_bytes_max(8 << 20).content_timeout(minute).event_loops(loops);
        let server = server(config.head_timeout(minute));
        // Its content waits in memory, of which there is enough.
        let mut short = server.client();
        short.send(head("/", 1000)).send(pattern(500));
        let slow: Vec<Client> = (0..2)
            .map(|_| {
                let mut client = server.client();
                client.send(head("/", 3 << 20)).send(pattern(2 * PART));
                client
            })
            .collect();
        // Six of eight MiB are taken, so slow uploads are ended. When one has ended, the other has
        // time again.
        eventually("one is ended", || server.metrics().timed_out > 0);
        let was_late = |refusal: Refusal| refusal == Refusal::Late;
        eventually("with a 408", || server.metrics().refusals().any(|(why, _)| was_late(why)));
        drop(slow);
        is_empty_again(&server, &folder);
        short.send(&pattern(1000)[500..]);
        assert!(short.response().body == pattern(1000));
        assert_eq!(server.metrics().memory_used, 0);
    }
}

#[test]
fn who_takes_much_of_the_space_must_be_faster_while_it_is_short() {
    let (folder, config) = spooling();
    let server = server(config.content_bytes_max(8 << 30));
    // This content takes half of the space. It has to arrive at 4.8 MB/s, but arrives at 200 kB/s,
    // as the other one does.
    let mut long = server.client();
    long.send(head("/", 4 << 30)).send(pattern(2 * PART));
    eventually("its space is reserved", || server.metrics().spooled_bytes > 0);
    let content = pattern(8 * PART);
    let mut short = server.client();
    short.send(head("/", content.len()));
    for piece in content.chunks(20_000) {
        short.send(piece);
        // The server may end the long one between two pieces.
        let _ = std::io::Write::write_all(&mut long.tcp(), piece);
        thread::sleep(Duration::from_millis(100));
    }
    assert!(short.response().body == content, "a small one has time");
    let metrics = server.metrics();
    let late = metrics.refusals().find(|(refusal, _)| *refusal == Refusal::Late);
    assert_eq!(late.map(|(_, count)| count), Some(1), "{metrics:?}");
    is_empty_again(&server, &folder);
}

#[test]
fn one_slow_upload_has_time_while_there_is_space() {
    let (_folder, config) = spooling();
    let server = server(config.spooled_bytes_max(8 << 20));
    let content = pattern(3 << 20);
    let mut client = server.client();
    client.send(head("/", content.len())).send(&content[..2 * PART]);
    // Longer than an upload has while space is short.
    client.is_silent_for(Duration::from_millis(1500));
    client.send(&content[2 * PART..]);
    assert!(client.response().body == content);
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_in_memory_takes_half_of_the_budget_for_memory() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let folder = tempfile::tempdir_in("/dev/shm");
    let (true, Ok(folder)) = (mounts.contains(" /dev/shm tmpfs "), folder) else {
        skip::because("there is no folder in memory");
        return;
    };
    let config = ServerConfig::default().spool_folder(folder.path()).memory_max(16 << 20);
    let server = server(config.clone());
    let mut client = server.client();
    assert_eq!(client.send(head("/", (8 << 20) + 1)).response().status, 503);
    drop(server);
    // A maximum that the program sets takes precedence.
    let server = self::server(config.spooled_bytes_max(32 << 20));
    let content = pattern((8 << 20) + 1);
    assert!(server.client().post("/", &content).body == content);
}

#[test]
fn one_client_takes_no_more_than_its_share_of_the_space() {
    let (folder, config) = spooling();
    let config = config.spooled_bytes_max(4 << 20).buffered_content_bytes_max(300_000);
    // With this limit, clients on this machine are counted too.
    let server = server(config.connections_per_client_max(100));
    let content = pattern(900_000);
    let mut holder = server.client();
    holder.send(head("/", content.len())).send(&content[..3 * PART + 1000]);
    eventually("a part is in a file", || server.metrics().spooled_bytes > 2 * PART as u64);
    // The share of a client is a quarter, 1 MiB, and little of it is left.
    let response = server.client().post("/", content.clone());
    assert_eq!(response.status, 503);
    let because = " of its 1048576; if the disk";
    assert!(response.text().contains(because), "{}", response.text());
    assert_eq!(refused(&server), 1);
    holder.send(&content[3 * PART + 1000..]);
    assert!(holder.response().body == content);
    drop(holder);
    is_empty_again(&server, &folder);
    assert_eq!(server.client().post("/", content).status, 200);
}

#[test]
fn long_files_are_closed_and_give_their_space_back() {
    const LONG: usize = 70 << 20;
    let (folder, config) = spooling();
    let server = server(config.content_bytes_max(1 << 30));
    let content = pattern(LONG);
    let mut client = server.client();
    client.send(head("/length", LONG)).send(&content);
    assert_eq!(client.response().text(), LONG.to_string());
    is_empty_again(&server, &folder);
    // This one is dropped by its loop.
    client.send(head("/length", LONG + 1)).send(&content);
    eventually("it is in a file", || server.metrics().spooled_bytes > LONG as u64 - PART as u64);
    drop(client);
    is_empty_again(&server, &folder);
    assert_eq!(server.metrics().held_descriptors, 0);
}

#[test]
fn a_folder_that_has_gone_refuses_long_contents_only() {
    let (folder, config) = spooling();
    let server = server(config);
    folder.close().unwrap();
    assert_eq!(server.client().post("/", pattern(2 << 20)).status, 503);
    assert_eq!(server.client().post("/", pattern(1 << 19)).status, 200);
    assert_eq!(refused(&server), 1);
}

#[test]
fn clients_that_leave_give_their_space_back() {
    let (folder, config) = spooling();
    let server = server(config);
    let clients: Vec<Client> = (0..10)
        .map(|_| {
            let mut client = server.client();
            client.send(head("/", 3 << 20)).send(pattern(2 << 20));
            client
        })
        .collect();
    eventually("the parts are in files", || server.metrics().spooled_bytes >= 10 * 7 * PART as u64);
    drop(clients);
    server.is_left_by_all();
    is_empty_again(&server, &folder);
}

#[test]
fn a_content_above_the_limit_or_too_slow_is_refused() {
    let (folder, config) = spooling();
    let config = config.content_bytes_max(1 << 20).content_timeout(Duration::from_millis(300));
    let server = server(config.bytes_per_second_min(1 << 30));
    let mut client = server.client();
    assert_eq!(client.send(head("/", (1 << 20) + 1)).response().status, 413);
    let mut client = server.client();
    client.send(CHUNKED).send(chunked(&pattern((1 << 20) + 1), 1 << 18));
    assert_eq!(client.response().status, 413);
    let mut client = server.client();
    client.send(head("/", 1 << 20)).send(pattern(3 * PART));
    assert_eq!(client.response().status, 408);
    drop(client);
    is_empty_again(&server, &folder);
}

#[test]
fn a_peer_that_holds_its_content_back_is_told_to_go_on() {
    let (_folder, config) = spooling();
    let server = server(config);
    let content = pattern(2 << 20);
    let mut client = server.client();
    let head = head("/", content.len()).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    client.send(head);
    assert_eq!(client.read_exactly(25), b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(&content);
    assert!(client.response().body == content);
}

#[test]
fn a_shutdown_waits_for_a_content() {
    let (_folder, config) = spooling();
    let server = server(config);
    let content = pattern(2 << 20);
    let mut client = server.client();
    client.send(head("/", content.len())).send(&content[..1 << 20]);
    eventually("a part is in a file", || server.metrics().spooled_bytes > 0);
    let stopping = server.server().shutdown_handle();
    let ended = thread::spawn(move || stopping.shutdown());
    client.send(&content[1 << 20..]);
    assert!(client.response().body == content);
    ended.join().unwrap();
}

#[test]
fn a_content_may_come_by_tls() {
    let (folder, config) = spooling();
    let server = TlsServer::with(config, Spooled(tempfile::tempdir().unwrap()));
    let content = pattern(3 << 20);
    assert!(server.client().post("/", content.clone()).body == content);
    drop(server);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn a_form_is_read_from_its_file() {
    let (folder, config) = spooling();
    let saved = tempfile::tempdir().unwrap();
    let path = saved.path().join("upload");
    let target = path.clone();
    let save = move |mut form: Multipart| -> Result<String> {
        let mut names = Vec::new();
        while let Some(field) = form.next_field()? {
            names.push(field.name().to_owned());
            if field.is_file() {
                field.save_to(&target)?;
            }
        }
        Ok(names.join(" "))
    };
    let route = post(save).spooled().content_bytes_max(64 << 20);
    let app = App::new().route("/", route).config(config).build().unwrap();
    let server = TestServer::start(app);
    let content = pattern(4 << 20);
    let mut form = b"--b\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nhello\r\n--b\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"
        .to_vec();
    form.extend(&content);
    form.extend(b"\r\n--b--\r\n");
    let mut client = server.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: {}\r\n\r\n",
        form.len()
    ));
    // The form stops in the middle, and holds no thread meanwhile.
    client.send(&form[..2 << 20]);
    eventually("a part is in a file", || server.metrics().spooled_bytes > 0);
    assert_eq!(server.metrics().held_streams, 0);
    client.send(&form[2 << 20..]);
    assert_eq!(client.response().text(), "title file");
    assert!(fs::read(path).unwrap() == content);
    is_empty_again(&server, &folder);
}
