//! Records after the handshake that no library would send: messages cut at any byte, records
//! without content, key updates and renegotiations without end, and alerts in the middle.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use filoplume_tests::record_client::{ALERT, DATA, HANDSHAKE, KEY_UPDATE, RecordClient};
use filoplume_tests::site;
use filoplume_tests::tls::TlsServer;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

/// More bytes of records without content than the server reads before it gives up.
const FLOOD_BYTES: usize = 16 << 20;

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

fn connect(server: &TlsServer, version: &'static SupportedProtocolVersion) -> RecordClient {
    RecordClient::connect(server.server.address(), &server.authority, version)
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n").into_bytes()
}

/// Sends a request and the first part of `records`, so that the server has read both when it
/// responds. Then it gets the rest, which must have a request for `/second`.
#[track_caller]
fn answers_both(client: &mut RecordClient, first: &[u8], records: &[u8], cut: usize) {
    let (before, after) = records.split_at(cut);
    client.send(&[first, before].concat()).unwrap();
    client.receive_until("GET /first");
    client.send(after).unwrap();
    client.receive_until("GET /second");
}

#[test]
fn a_key_update_in_pieces_is_understood_wherever_the_network_cuts_it() {
    let server = TlsServer::start(site);
    let mut client = connect(&server, &TLS13);
    for message in KEY_UPDATE {
        for middle in 1..message.len() {
            let mut cut = 0;
            loop {
                let first = client.seal(DATA, &get("/first"));
                let mut records = client.seal(HANDSHAKE, &message[..middle]);
                records.extend(client.seal(HANDSHAKE, &message[middle..]));
                client.update_keys();
                records.extend(client.seal(DATA, &get("/second")));
                answers_both(&mut client, &first, &records, cut);
                cut += 1;
                if cut > records.len() - 1 {
                    break;
                }
            }
        }
    }
    assert_eq!(server.server.metrics().connections, 1, "one connection serves all");
}

#[test]
fn a_key_update_of_single_bytes_is_understood() {
    let server = TlsServer::start(site);
    let mut client = connect(&server, &TLS13);
    for message in KEY_UPDATE.into_iter().cycle().take(50) {
        let first = client.seal(DATA, &get("/first"));
        let mut records = Vec::new();
        for byte in message {
            records.extend(client.seal(HANDSHAKE, &[byte]));
        }
        client.update_keys();
        // More than one message before the request.
        records.extend(client.seal_key_update(true));
        records.extend(client.seal_key_update(false));
        records.extend(client.seal(DATA, &get("/second")));
        answers_both(&mut client, &first, &records, 30);
    }
}

/// A name, and a function that makes records for which the server ends the connection.
type Row = (&'static str, fn(&mut RecordClient) -> Vec<u8>);

/// Sends what each row makes until the server ends the connection.
fn ends(version: &'static SupportedProtocolVersion, rows: &[Row]) {
    let server = TlsServer::start(site);
    for (name, row) in rows {
        let mut client = connect(&server, version);
        let first = client.seal(DATA, &get("/first"));
        client.send(&first).unwrap();
        client.receive_until("GET /first");
        let mut sent = 0;
        loop {
            let records = row(&mut client);
            assert!(!records.is_empty(), "{name}: the row has an end");
            sent += records.len();
            assert!(sent < FLOOD_BYTES * 2, "{name}: the server reads without end");
            if client.send(&records).is_err() || sent > FLOOD_BYTES {
                break;
            }
        }
        client.receive_to_end();
        server.client().is_alive();
    }
    server.server.is_left_by_all();
    assert_eq!(server.server.metrics().memory_used, 0);
}

fn repeated(count: usize, mut make: impl FnMut() -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(|_| make()).collect()
}

#[test]
fn a_flood_of_records_without_content_ends_the_connection() {
    ends(
        &TLS13,
        &[
            ("empty", |client| repeated(1000, || client.seal(DATA, b""))),
            ("key updates", |client| repeated(500, || client.seal_key_update(false))),
            ("key updates that ask for one", |client| {
                repeated(500, || client.seal_key_update(true))
            }),
            ("key updates between empty records", |client| {
                repeated(500, || {
                    let empty = client.seal(DATA, b"");
                    [empty, client.seal_key_update(true)].concat()
                })
            }),
        ],
    );
    ends(
        &TLS12,
        &[
            ("empty", |client| repeated(1000, || client.seal(DATA, b""))),
            ("warnings", |client| repeated(500, || client.seal(ALERT, &[1, 90]))),
            ("renegotiations", |client| repeated(100, || client.seal(HANDSHAKE, &hello()))),
            ("empty handshake records", |client| repeated(500, || client.seal(HANDSHAKE, b""))),
        ],
    );
}

/// A message that claims to be long and comes in single bytes must not hold memory of many times
/// its length.
#[test]
fn a_long_message_in_tiny_records_ends_the_connection() {
    let server = TlsServer::start(site);
    for version in VERSIONS {
        let mut client = connect(&server, version);
        let mut records = client.seal(HANDSHAKE, &[1, 0, 0xff, 0xf0]);
        records.extend(repeated(3000, || client.seal(HANDSHAKE, b"x")));
        assert!(records.len() < 80_000);
        // The server may close while the message is sent.
        let _ = client.send(&records);
        client.receive_to_end();
    }
    server.server.is_left_by_all();
}

#[test]
fn a_few_records_without_content_disturb_nothing() {
    let server = TlsServer::start(site);
    for version in VERSIONS {
        let mut client = connect(&server, version);
        for _ in 0..200 {
            let first = client.seal(DATA, &get("/first"));
            let mut records = repeated(20, || client.seal(DATA, b""));
            if version == &TLS12 {
                records.extend(client.seal(HANDSHAKE, b""));
            }
            for piece in get("/second").chunks(7) {
                records.extend(client.seal(DATA, b""));
                records.extend(client.seal(DATA, piece));
            }
            let cut = records.len() / 2;
            answers_both(&mut client, &first, &records, cut);
        }
    }
}

/// A `ClientHello` with one cipher suite and nothing else.
fn hello() -> Vec<u8> {
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0xcc, 0xa9, 1, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    [&[1, 0, 0, length][..], &body].concat()
}

#[test]
fn one_renegotiation_is_refused_by_a_warning_also_in_pieces() {
    let server = TlsServer::start(site);
    let hello = hello();
    for middle in [1, 4, 20, hello.len() - 1] {
        let mut client = connect(&server, &TLS12);
        let first = client.seal(DATA, &get("/first"));
        let mut records = client.seal(HANDSHAKE, &hello[..middle]);
        let cut = records.len();
        records.extend(client.seal(HANDSHAKE, &hello[middle..]));
        records.extend(client.seal(DATA, &get("/second")));
        answers_both(&mut client, &first, &records, cut);
    }
}

#[test]
fn alerts_in_the_middle_end_the_connection_in_order() {
    let server = TlsServer::start(site);
    for version in VERSIONS {
        for (kind, content) in [
            (ALERT, &[1, 0][..]),
            (ALERT, &[2, 80]),
            (ALERT, &[2, 0]),
            (ALERT, &[2]),
            (ALERT, &[]),
            (ALERT, &[3, 3]),
            (ALERT, &[2, 80, 2, 80]),
            (HANDSHAKE, &[20, 0, 0, 0]),
            (HANDSHAKE, &[24, 0, 0, 1, 2]),
            (HANDSHAKE, &[24, 0, 0, 0]),
            (HANDSHAKE, &[0xff, 0xff, 0xff, 0xff]),
            (20, &[1]),
            (24, b"heartbeat"),
            (0, &[]),
        ] {
            let mut client = connect(&server, version);
            let first = client.seal(DATA, &get("/first"));
            client.send(&first).unwrap();
            client.receive_until("GET /first");
            let half = client.seal(DATA, b"GET /second HTTP/1.1\r\nHo");
            let odd = client.seal(kind, content);
            // This follows the odd record: the server must not answer it.
            let rest = client.seal(DATA, b"st: t\r\n\r\n");
            client.send(&[half, odd, rest].concat()).unwrap();
            assert_eq!(client.receive_to_end(), b"", "{version:?} {kind} {content:?}");
            server.client().is_alive();
        }
    }
    server.server.is_left_by_all();
}
