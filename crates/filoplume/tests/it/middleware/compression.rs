//! Which responses are compressed, and how.

use std::io::{self, Read};

use filoplume::middleware::{Coding, Compression};
use filoplume::prelude::*;
use filoplume::response::Reader;
use filoplume::testing::TestResponse;

use super::vary;

const TEXT: &str = "all work and no play makes jack a dull boy\n";

fn long() -> String {
    TEXT.repeat(100)
}

fn app() -> App {
    let json = |body: String| ([("content-type", "application/json")], body);
    App::new()
        .get("/text", long)
        .get("/large", || TEXT.repeat(20_000))
        .get("/tiny", || "tiny")
        .get("/json", move || json(long()))
        .get("/picture", || ([("content-type", "image/png")], long()))
        .get("/untyped", || Reader::new(io::Cursor::new(long())))
        .get("/events", || {
            ([("content-type", "text/event-stream")], Reader::new(io::Cursor::new(long())))
        })
        .get("/stream", || ([("content-type", "text/plain")], Reader::new(io::Cursor::new(long()))))
        .get("/sized", || {
            ([("content-type", "text/plain")], Reader::sized(io::Cursor::new(long()), 430))
        })
        .get("/coded", || ([("content-encoding", "gzip")], long()))
        .get("/kept", || ([("cache-control", "private, No-Transform")], long()))
        .get("/digest", || ([("repr-digest", "sha-256=:AA==:")], long()))
        .get("/part", || (StatusCode::PARTIAL_CONTENT, [("content-range", "bytes 0-9/10")], long()))
        // A response with several ranges has them in its content and not in a header.
        .get("/parts", || (StatusCode::PARTIAL_CONTENT, long()))
        .get("/empty", || StatusCode::NO_CONTENT)
        .get("/error", || -> Result<()> { Err(Error::conflict("no".repeat(1000))) })
        .get("/tagged", || {
            ([("etag", "\"v1\""), ("accept-ranges", "bytes"), ("vary", "Cookie")], long())
        })
        .get("/unchanged", || (StatusCode::NOT_MODIFIED, [("etag", "\"v1\"")], ()))
        .with(Compression::new())
}

fn decoded(response: &TestResponse) -> String {
    let mut text = String::new();
    let body = response.body();
    match response.header("content-encoding") {
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_string(&mut text),
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_string(&mut text),
        Some("zstd") => zstd::stream::read::Decoder::new(body).unwrap().read_to_string(&mut text),
        None => (&body[..]).read_to_string(&mut text),
        other => panic!("{other:?}"),
    }
    .unwrap();
    text
}

#[test]
fn the_client_gets_an_accepted_coding_of_the_same_text() {
    let client = app().test();
    for (accepted, coding) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, br", Some("br")),
        ("gzip", Some("gzip")),
        ("x-gzip;q=0.1, br;q=0", Some("gzip")),
        ("identity, gzip;q=0.5", None),
        ("*;q=0", None),
        ("deflate", None),
        ("gzip;q=nonsense", None),
        ("", None),
    ] {
        for path in ["/text", "/json", "/stream"] {
            let response = client.get(path).header("accept-encoding", accepted).send();
            assert_eq!(response.header("content-encoding"), coding, "{path} {accepted}");
            response.assert_status(200).assert_header("vary", "Accept-Encoding");
            assert_eq!(decoded(&response), long());
            assert!(coding.is_none() || response.body().len() < 300, "{path} {accepted}");
        }
    }
    let unsaid = client.get("/text").send();
    unsaid.assert_text(&long()).assert_header("vary", "Accept-Encoding");
}

#[test]
fn responses_without_gain_or_with_risk_are_not_compressed() {
    let client = app().test();
    for path in ["/tiny", "/picture", "/untyped", "/events", "/kept", "/digest", "/empty", "/error"]
    {
        let plain = client.get(path).send();
        let response = client.get(path).header("accept-encoding", "gzip").send();
        assert!(response.header("content-encoding").is_none(), "{response:?}");
        assert!(
            !vary(&response).contains("Accept-Encoding"),
            "it does not depend on it: {response:?}"
        );
        assert_eq!(response.body(), plain.body());
    }
    let coded = client.get("/coded").header("accept-encoding", "br").send();
    coded.assert_header("content-encoding", "gzip").assert_text(&long());
}

#[test]
fn a_partial_response_is_not_compressed_but_has_vary() {
    let client = app().test();
    for (path, accepted) in
        [("/part", "gzip"), ("/part", "identity"), ("/parts", "gzip"), ("/parts", "identity")]
    {
        let part = client.get(path).header("accept-encoding", accepted).send();
        part.assert_status(206).assert_no_header("content-encoding").assert_text(&long());
        part.assert_header("vary", "Accept-Encoding");
    }
}

#[test]
fn large_content_is_compressed_while_it_is_sent() {
    let client = app().test();
    for coding in ["gzip", "br", "zstd"] {
        let response = client.get("/large").header("accept-encoding", coding).send();
        response
            .assert_header("content-encoding", coding)
            .assert_header("transfer-encoding", "chunked");
        assert_eq!(decoded(&response), TEXT.repeat(20_000));
    }
}

#[test]
fn compression_weakens_the_tag_drops_ranges_and_adds_vary() {
    let client = app().test();
    let response = client.get("/tagged").header("accept-encoding", "gzip").send();
    response.assert_header("etag", "W/\"v1\"");
    assert!(response.header("accept-ranges").is_none());
    assert_eq!(vary(&response), "Cookie, Accept-Encoding");
    let plain = client.get("/tagged").send();
    plain.assert_header("etag", "\"v1\"").assert_header("accept-ranges", "bytes");
}

#[test]
fn a_304_has_the_tag_that_the_client_knows() {
    let client = app().test();
    let ask = |known: &str| {
        let response = client
            .get("/unchanged")
            .header("accept-encoding", "gzip")
            .header("if-none-match", known)
            .send();
        response.assert_status(304);
        response.assert_header("vary", "Accept-Encoding");
        response.header("etag").map(str::to_owned)
    };
    assert_eq!(ask("\"v0\", W/\"v1\"").as_deref(), Some("W/\"v1\""));
    assert_eq!(ask("\"v1\"").as_deref(), Some("\"v1\""));
    assert_eq!(ask("*").as_deref(), Some("\"v1\""));
}

#[test]
fn head_has_the_headers_of_get_except_the_length() {
    let client = app().test();
    for path in ["/text", "/stream", "/tagged"] {
        let get = client.get(path).header("accept-encoding", "gzip").send();
        let head = client.head(path).header("accept-encoding", "gzip").send();
        for name in ["content-encoding", "content-type", "etag", "vary"] {
            assert_eq!(head.header(name), get.header(name), "{path} {name}");
        }
        assert!(head.body().is_empty() && head.header("content-length").is_none(), "{head:?}");
    }
    client
        .head("/picture")
        .header("accept-encoding", "gzip")
        .send()
        .assert_header("content-length", "4300");
}

#[test]
fn content_is_compressed_if_the_client_refuses_identity_however_short() {
    let client = app().test();
    let response = client.get("/tiny").header("accept-encoding", "gzip, identity;q=0").send();
    response.assert_header("content-encoding", "gzip").assert_header("vary", "Accept-Encoding");
    assert_eq!(decoded(&response), "tiny");
    client.get("/tiny").header("accept-encoding", "*;q=0").send().assert_text("tiny");
}

#[test]
fn the_known_length_of_a_reader_decides() {
    let response = app().test().get("/sized").header("accept-encoding", "gzip").send();
    assert!(response.header("content-encoding").is_none(), "430 bytes are too short");
    let app = App::new()
        .get("/", || {
            ([("content-type", "text/plain")], Reader::sized(io::Cursor::new(long()), 430))
        })
        .with(Compression::new().bytes_min(1).codings([Coding::Gzip]).gzip_level(9));
    let response = app.test().get("/").header("accept-encoding", "zstd, gzip").send();
    response.assert_header("content-encoding", "gzip");
    assert_eq!(decoded(&response), long()[..430]);
}

#[test]
fn a_stream_takes_constant_memory() {
    /// Gigabytes of generated text, and how much of it was read.
    struct Endless(u64);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = usize::try_from(self.0).unwrap_or(usize::MAX).min(buffer.len());
            assert!(length <= 1 << 20, "each read asks for at most a buffer");
            buffer[..length].fill(b'a');
            self.0 -= length as u64;
            Ok(length)
        }
    }
    for coding in ["gzip", "br", "zstd"] {
        let app = App::new()
            .get("/", || {
                ([("content-type", "text/plain")], Reader::sized(Endless(32 << 20), 32 << 20))
            })
            .with(Compression::new().gzip_level(1).brotli_level(1).zstd_level(1));
        let response = app.test().get("/").header("accept-encoding", coding).send();
        response.assert_header("content-encoding", coding);
        assert!(response.body().len() < 1 << 20);
    }
}

#[test]
fn hostile_accept_encoding_lists_are_harmless() {
    let client = app().test();
    let many = "gzip;q=0.1,".repeat(500);
    for hostile in
        [many.as_str(), ",,,;;;===", "gzip;q=1;q=0", ";q=1", "*;q=", "gzip;;q=0.5", "\u{e9}, gzip"]
    {
        let response = client.get("/text").header("accept-encoding", hostile).send();
        response.assert_status(200);
        assert_eq!(decoded(&response), long(), "{hostile}");
    }
}

#[test]
fn content_of_just_the_least_length_is_compressed() {
    let app = App::new()
        .get("/bytes/{length}", |Path(length): Path<usize>| "x".repeat(length))
        .get("/sized/{length}", |Path(length): Path<u64>| {
            let reader = Reader::sized(io::repeat(b'x').take(length), length);
            ([("content-type", "text/plain")], reader)
        })
        .with(Compression::new().bytes_min(300));
    let client = app.test();
    for (path, coding) in [
        ("/bytes/299", None),
        ("/bytes/300", Some("gzip")),
        ("/sized/299", None),
        ("/sized/300", Some("gzip")),
    ] {
        let response = client.get(path).header("accept-encoding", "gzip").send();
        assert_eq!(response.header("content-encoding"), coding, "{path}");
        assert_eq!(vary(&response), coding.map(|_| "Accept-Encoding").unwrap_or_default());
        assert_eq!(decoded(&response).len().to_string(), path[7..]);
    }
}
