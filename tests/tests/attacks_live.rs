//! Attacks on long-lived connections: TLS handshakes that stop halfway, sockets and event streams
//! that nobody reads, floods of pings, fragments and handshakes, and bombs. As in `attacks.rs`,
//! good clients are served as if these were not there.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use filoplume_tests::attack::{Attack, Crowd, Site, UPGRADE};
use filoplume_tests::{Client, eventually_within, incompressible};
use flate2::{Compress, Compression, FlushCompress};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion};

/// How long an attack lasts after it has connected.
const LASTS: Duration = Duration::from_millis(500);

/// How long sockets that do not answer may stay, with some time for a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens `count` sockets, and does not read the responses.
fn sockets(site: &Site, count: usize, path: &str) -> Crowd {
    let mut crowd = site.attackers(count);
    crowd.send(format!("GET {path} {UPGRADE}"));
    crowd
}

/// Returns the first TLS records of a client, its `ClientHello`.
fn hello(site: &Site, version: &'static SupportedProtocolVersion) -> Vec<u8> {
    let config = Arc::new(site.authority().client(version));
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(config, name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    hello
}

/// Returns a WebSocket frame of a client. Its mask is zero, which leaves the content unchanged.
fn frame(first: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match content.len() {
        length @ 0..=125 => frame.push(0x80 | u8::try_from(length).unwrap()),
        length => {
            frame.push(0xfe);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(content);
    frame
}

#[test]
fn half_handshakes() {
    for (name, version) in [("1.2", &TLS12), ("1.3", &TLS13)] {
        println!("TLS {name}");
        Attack::new("600 handshakes that stop at each stage").is_withstood(|site| {
            let hello = hello(site, version);
            let stages = [0, 1, 5, hello.len() / 2, hello.len() - 1, hello.len()];
            let mut crowd = site.tls_attackers(600);
            crowd.send_each(|index| &hello[..stages[index % stages.len()]]).stays_for(LASTS);
            crowd
        });
    }
}

#[test]
fn slow_handshakes() {
    Attack::new("300 handshakes, a byte now and then").is_withstood(|site| {
        let hello = hello(site, &TLS13);
        let mut crowd = site.tls_attackers(300);
        for byte in hello.chunks(1).take(10) {
            crowd.send(byte).stays_for(LASTS / 10);
        }
        crowd
    });
}

#[test]
fn garbage_instead_of_handshakes() {
    Attack::new("300 that send a record header and zeros").is_withstood(|site| {
        let mut crowd = site.tls_attackers(300);
        crowd.send(b"\x16\x03\x01\x40\x00").send_all_within(LASTS, &vec![0; 1 << 16]);
        crowd
    });
}

/// One client makes full handshakes as fast as it can, without resumption.
#[test]
fn handshakes_back_to_back() {
    Attack::new("handshakes back to back").newcomers_may_wait(Duration::from_secs(1)).is_withstood(
        |site| {
            let end = Instant::now() + LASTS;
            let mut config: ClientConfig = site.authority().client(&TLS13);
            config.resumption = rustls::client::Resumption::disabled();
            let config = Arc::new(config);
            let mut count = 0;
            while Instant::now() < end {
                let address = site.tls_address();
                let mut client = Client::try_connect_tls(address, "localhost", &config).unwrap();
                if count % 10 == 0 {
                    assert_eq!(client.get("/").text(), "plain");
                }
                count += 1;
            }
            assert!(count >= 20, "{count} handshakes were no flood");
        },
    );
}

/// Sessions whose clients ask for much and read nothing hold no more than plain connections do.
#[test]
fn tls_clients_that_do_not_read() {
    Attack::new("50 that ask for 4 MiB over TLS and do not read").is_withstood(|site| {
        let config = Arc::new(site.authority().client(&TLS13));
        let clients: Vec<Client> = (0..50)
            .map(|_| {
                let address = site.tls_address();
                let mut client = Client::try_connect_tls(address, "localhost", &config).unwrap();
                client.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
                client
            })
            .collect();
        thread::sleep(LASTS);
        clients
    });
}

#[test]
fn sockets_that_do_not_read_what_a_room_says() {
    Attack::new("300 sockets in a room that do not read").is_withstood(|site| {
        let crowd = sockets(site, 300, "/room");
        let room = &site.live().room;
        eventually_within(PATIENCE, "all have joined", || room.len() == crowd.count());
        let message = incompressible(16 * 1024);
        let end = Instant::now() + LASTS;
        let mut slow = 0;
        while Instant::now() < end || slow == 0 {
            slow += room.broadcast(&message).slow;
            assert!(Instant::now() < end + PATIENCE, "nobody is too slow");
            thread::sleep(Duration::from_micros(500));
        }
        crowd
    });
}

#[test]
fn event_streams_that_nobody_reads() {
    Attack::new("300 event streams that nobody reads").is_withstood(|site| {
        let mut crowd = site.attackers(300);
        crowd.send("GET /feed HTTP/1.1\r\nHost: t\r\n\r\n");
        let hub = &site.live().hub;
        eventually_within(PATIENCE, "all have joined", || hub.clients() == crowd.count());
        let event = "x".repeat(16 * 1024);
        let end = Instant::now() + LASTS;
        while Instant::now() < end {
            hub.send(event.as_str());
            thread::sleep(Duration::from_micros(500));
        }
        crowd
    });
}

/// Sends the same frames on each socket as fast as the server takes them.
fn flood(name: &'static str, count: usize, path: &'static str, frames: &[u8]) {
    Attack::new(name).is_withstood(|site| {
        let mut crowd = sockets(site, count, path);
        crowd.send_all_within(LASTS, frames);
        crowd
    });
}

#[test]
fn floods_of_pings() {
    flood("50 floods of pings", 50, "/ws", &frame(0x89, &[b'p'; 125]).repeat(100_000));
}

#[test]
fn fragments_of_one_byte() {
    let fragments = [frame(0x01, b"a"), frame(0x00, b"a").repeat(500_000)].concat();
    flood("50 messages of single bytes", 50, "/ws", &fragments);
}

#[test]
fn fragments_without_content() {
    let fragments = [frame(0x01, b""), frame(0x00, b"").repeat(500_000)].concat();
    flood("50 messages without content and end", 50, "/ws", &fragments);
}

#[test]
fn empty_messages() {
    flood("50 floods of empty messages", 50, "/ws", &frame(0x82, b"").repeat(500_000));
}

/// A few kilobytes that expand to 32 MiB, in one message.
#[test]
fn bombs() {
    let mut coder = Compress::new(Compression::best(), false);
    let mut coded = Vec::with_capacity(1 << 16);
    coder.compress_vec(&vec![0; 32 << 20], &mut coded, FlushCompress::Sync).unwrap();
    coded.truncate(coded.len() - 4);
    let bomb = frame(0xc2, &coded);
    Attack::new("50 bombs").is_withstood(|site| {
        let mut crowd = sockets(site, 50, "/ws");
        crowd.send(&bomb).stays_for(LASTS);
        let is_over = || site.metrics().connections < 10;
        eventually_within(PATIENCE, "the sockets are closed", is_over);
        crowd
    });
}

#[test]
fn messages_that_never_end() {
    let start = [&[0x82, 0xff][..], &(900_000_u64).to_be_bytes(), &[0; 4], &[7; 60_000]].concat();
    Attack::new("100 messages that stop").is_withstood(|site| {
        let mut crowd = sockets(site, 100, "/ws");
        crowd.send_all_within(LASTS, &start).stays_for(LASTS);
        crowd
    });
}

#[test]
fn messages_that_never_end_with_a_small_budget() {
    let start = [&[0x82, 0xff][..], &(900_000_u64).to_be_bytes(), &[0; 4], &[7; 60_000]].concat();
    let attack = Attack::new("300 messages that stop, 4 MiB of memory").memory_max(4 << 20);
    // While a socket waits for a thread, the server holds what it has read from it at once. All
    // messages together would be 18 MB.
    attack.may_leave_unread(300 * 16 * 1024).is_withstood(|site| {
        let mut crowd = sockets(site, 300, "/ws");
        crowd.send_all_within(LASTS, &start).stays_for(LASTS);
        crowd
    });
}

#[test]
fn sockets_that_answer_neither_a_ping_nor_a_close() {
    for path in ["/impatient", "/closing"] {
        Attack::new(path).is_withstood(|site| {
            let crowd = sockets(site, 300, path);
            // Only the good clients are left.
            let is_over = || site.metrics().connections < 10 && site.metrics().accepted > 300;
            eventually_within(PATIENCE, "the sockets are closed", is_over);
            crowd
        });
    }
}
