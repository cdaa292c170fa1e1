//! Decoded content is the same wherever the coded content is cut and however it is read. It is
//! never longer than the limit, and never incomplete. What an encoder wrote is decoded to the
//! original.

#![no_main]

use std::io::{Read, Write};
use std::sync::LazyLock;

use filoplume::StatusCode;
use filoplume::prelude::*;
use filoplume::testing::TestClient;
use filoplume_fuzz::{Seen, answers, ask};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use libfuzzer_sys::fuzz_target;

/// The longest content, as it is sent and as it is decoded.
const BYTES_MAX: u64 = 4096;

/// Values of `Content-Encoding`. The last two are refused.
const CODINGS: [&str; 9] =
    ["gzip", "x-gzip", "deflate", "br", "zstd", "gzip, deflate", "identity", "compress", "gzip, x"];

/// What a handler has read, or `None` if the content was refused.
type Content = Option<Vec<u8>>;

struct Fixture {
    client: TestClient,
    seen: Seen<Content>,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let seen = Seen::default();
    let (collected, read) = (Seen::clone(&seen), Seen::clone(&seen));
    let by_pieces = move |mut request: Request| -> StatusCode {
        let (mut content, mut piece) = (Vec::new(), [0; 7]);
        loop {
            match request.body_mut().read(&mut piece) {
                Ok(0) => break,
                Ok(length) => content.extend_from_slice(&piece[..length]),
                Err(_) => return StatusCode::BAD_REQUEST,
            }
            assert!(content.len() as u64 <= BYTES_MAX, "the limit holds for decoded content");
        }
        read.put(Some(content));
        StatusCode::OK
    };
    let app = App::new()
        .post("/collect", move |content: Vec<u8>| {
            assert!(content.len() as u64 <= BYTES_MAX, "the limit holds for decoded content");
            collected.put(Some(content));
        })
        .post("/read", by_pieces)
        .with(middleware::BodyLimit::new(BYTES_MAX))
        .with(middleware::Decompression::new().bytes_max(BYTES_MAX));
    Fixture { client: app.test().without_cookies(), seen }
});

/// Returns what a handler reads of a content. Checks that several ways of reading give the same.
fn decoded(coding: &str, content: &[u8]) -> Content {
    let Fixture { client, seen } = &*FIXTURE;
    let lines: [(&str, &[u8]); 1] = [("content-encoding", coding.as_bytes())];
    let answer = ask(client, Method::POST, b"/collect", &lines, content);
    assert!([200, 400, 413, 415].contains(&answer.status), "{answer:?}");
    let collected = seen.take().flatten();
    assert_eq!(collected.is_some(), answer.status == 200, "{answer:?}");

    let answer = ask(client, Method::POST, b"/read", &lines, content);
    let read = seen.take().flatten();
    assert_eq!(read.is_some(), answer.status == 200, "{answer:?}");
    assert_eq!(read, collected, "read by pieces");

    for length in [1, 5] {
        let answer = answers(&client.raw(chunked(coding, content, length)), &[Method::POST]);
        assert_eq!(answer.len(), 1);
        assert_eq!(seen.take().flatten(), collected, "in chunks of {length}");
    }
    collected
}

/// Returns a request with the content in chunks of `length` bytes.
fn chunked(coding: &str, content: &[u8], length: usize) -> Vec<u8> {
    let head = format!(
        "POST /collect HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-encoding: {coding}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    let mut request = head.into_bytes();
    for chunk in content.chunks(length) {
        request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    request
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("a vector takes everything");
    encoder.finish().expect("a vector takes everything")
}

fn zlib(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("a vector takes everything");
    encoder.finish().expect("a vector takes everything")
}

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else { return };
    let rest = rest.get(..2 * BYTES_MAX as usize).unwrap_or(rest);
    // The input is sent as it is.
    let coding = CODINGS[usize::from(first) % CODINGS.len()];
    let is_known = !["compress", "gzip, x"].contains(&coding);
    // A request that says that it has no content is accepted with any coding. That chunks contain
    // nothing is not known when they are refused.
    if rest.is_empty() && !is_known {
        return;
    }
    let found = decoded(coding, rest);
    assert!(is_known || found.is_none(), "{coding} is not known");

    // The input is encoded, and then sent.
    let is_short = rest.len() as u64 <= BYTES_MAX;
    for (coding, content) in
        [("gzip", gzip(rest)), ("deflate", zlib(rest)), ("gzip, deflate", zlib(&gzip(rest)))]
    {
        // Encoded content may be longer than the original, in each step.
        let fits = is_short && content.len() as u64 <= BYTES_MAX && rest.len() + 64 < 4096;
        let found = decoded(coding, &content);
        assert!(found.is_none() || found.as_deref() == Some(rest), "{coding}");
        assert!(!fits || found.is_some(), "{coding}: {} bytes", rest.len());
        // If the encoded content is cut off, that is an error, and no part of the original is
        // returned. Bytes after its end are an error too.
        let cut = usize::from(first) * content.len() / 256;
        if cut > 0 {
            assert_eq!(decoded(coding, &content[..cut]), None, "{coding}: {cut} bytes of it");
        }
        assert_eq!(decoded(coding, &[&*content, b"x"].concat()), None, "{coding}: one more byte");
    }
});
