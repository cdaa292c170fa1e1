//! How the content of requests is decoded, within limits.

mod turns;

use std::io::{self, Read, Write};

use filoplume::extract::HeaderMap;
use filoplume::middleware::Decompression;
use filoplume::prelude::*;
use filoplume::testing::{TestClient, TestResponse};
use filoplume::{Body, Multipart, ServerConfig};
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

use super::ask;

const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

fn encoded(coding: &str, content: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    match coding {
        "gzip" | "x-gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut coded = Vec::new();
            let mut encoder = brotli::CompressorReader::new(content, 4096, 5, 20);
            encoder.read_to_end(&mut coded).unwrap();
            coded
        }
        "zstd" => zstd::stream::encode_all(content, 3).unwrap(),
        other => panic!("{other}"),
    }
}

fn copied(mut body: Body) -> Result<String> {
    let mut text = Vec::new();
    // Reads in small pieces, as some parsers do.
    let mut buffer = [0; 7];
    loop {
        match body.read(&mut buffer)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            read => text.extend_from_slice(&buffer[..read]),
        }
    }
}

#[derive(serde::Deserialize)]
struct Note {
    a: String,
}

fn routes() -> App {
    App::new()
        .post("/text", |text: String| text)
        .post("/bytes", |bytes: Vec<u8>| bytes)
        .post("/json", |Json(note): Json<Note>| note.a)
        .post("/maybe", |note: Option<Json<Note>>| note.map_or("none".to_owned(), |note| note.0.a))
        .post("/form", |Form(note): Form<Note>| note.a)
        .get("/form", |Form(note): Form<Note>| note.a)
        .post("/multipart", |mut form: Multipart| -> Result<String> {
            let field = form.next_field()?.ok_or_else(|| Error::bad_request("no field"))?;
            Ok(field.text()?)
        })
        .post("/stream", copied)
        .post("/request", |request: Request| copied(request.into_body()))
        .post("/nothing", || "nothing is read")
        .route("/short", post(|text: String| text).content_bytes_max(100))
        .route("/short-stream", post(copied).content_bytes_max(100))
        .post("/head", |headers: HeaderMap, request: Request| {
            let names = ["content-encoding", "content-length", "content-type"];
            let values = names.map(|name| headers.get(name).is_some());
            format!("{values:?} {:?} {:?}", request.content_length(), request.body().len())
        })
}

fn client() -> TestClient {
    routes().with(Decompression::new().bytes_max(3_000_000)).test()
}

fn send(client: &TestClient, path: &str, coding: &str, content: impl AsRef<[u8]>) -> TestResponse {
    let content_type = match path {
        "/json" | "/maybe" => "application/json",
        "/form" => "application/x-www-form-urlencoded",
        "/multipart" => "multipart/form-data; boundary=x",
        _ => "text/plain",
    };
    let request = client.post(path).header("content-type", content_type);
    request.header("content-encoding", coding).body(content.as_ref()).send()
}

#[test]
fn all_extractors_see_decoded_content_or_refuse_it() {
    let multipart = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nhi\r\n--x--\r\n";
    let rows = [
        ("/text", "hi"),
        ("/bytes", "hi"),
        ("/json", r#"{"a":"hi"}"#),
        ("/maybe", r#"{"a":"hi"}"#),
        ("/form", "a=hi"),
        ("/multipart", multipart),
        ("/stream", "hi"),
        ("/short", "hi"),
        ("/request", "hi"),
    ];
    let (decoding, plain) = (client(), routes().test());
    for (path, content) in rows {
        for coding in CODINGS {
            let coded = encoded(coding, content.as_bytes());
            send(&decoding, path, coding, &coded).assert_status(200).assert_text("hi");
            let answer = send(&plain, path, coding, &coded);
            if path == "/request" {
                // This handler takes the whole request as it was sent, with its headers.
                answer.assert_status(200);
                continue;
            }
            answer.assert_status(415).assert_header("accept-encoding", "identity");
        }
        for client in [&decoding, &plain] {
            send(client, path, "identity", content).assert_status(200).assert_text("hi");
        }
    }
}

#[test]
fn content_that_is_not_coded_is_passed_on_with_its_headers() {
    let client = App::new()
        .post("/", |request: Request| {
            let of = |name| request.header(name).unwrap_or_default().to_owned();
            [of("content-encoding"), of("content-length")].join(" ")
        })
        .with(Decompression::new())
        .test();
    send(&client, "/", "identity", "hi").assert_text("identity 2");
    send(&client, "/", "gzip", encoded("gzip", b"hi")).assert_text(" ");
}

#[test]
fn codings_in_a_row_are_decoded_from_the_last_to_the_first() {
    let client = client();
    for (header, applied) in [
        ("gzip, br", &["gzip", "br"][..]),
        ("deflate, identity, X-GZIP, zstd", &["deflate", "gzip", "zstd"]),
        ("gzip,gzip", &["gzip", "gzip"]),
    ] {
        let content =
            applied.iter().fold(b"hi".to_vec(), |content, coding| encoded(coding, &content));
        send(&client, "/text", header, &content).assert_status(200).assert_text("hi");
    }
    // Several fields are one list (RFC 9110, 5.3).
    let content = encoded("br", &encoded("gzip", b"hi"));
    let request = client.post("/text").header("content-encoding", "gzip");
    request.header("content-encoding", "br").body(&content[..]).send().assert_text("hi");
    send(&client, "/text", "br, gzip", &content).assert_status(400);
}

#[test]
fn an_unsupported_coding_is_refused_and_the_supported_ones_are_named() {
    let client = client();
    for coding in ["compress", "gzip, aes128gcm", "gzip;q=1", "gzip, gzip, gzip, gzip"] {
        for path in ["/text", "/stream", "/request", "/nothing"] {
            send(&client, path, coding, "?")
                .assert_status(415)
                .assert_header("accept-encoding", "gzip, deflate, br, zstd");
        }
    }
}

#[test]
fn a_content_that_is_cut_off_or_continues_is_malformed() {
    let client = client();
    let text: String = (0..300).map(|n| format!("{n} green bottles\n")).collect();
    for coding in CODINGS {
        let coded = encoded(coding, text.as_bytes());
        for path in ["/text", "/stream"] {
            send(&client, path, coding, &coded).assert_text(&text);
            for end in (1..40).chain(coded.len() - 20..coded.len()) {
                let answer = send(&client, path, coding, &coded[..end]);
                assert_eq!(answer.status(), 400, "{coding} cut at {end} of {}", coded.len());
            }
            for garbage in [&b"\0"[..], b"?", &[0; 40_000], b"\x1f\x8b"] {
                let answer = send(&client, path, coding, [&coded, garbage].concat());
                assert_eq!(answer.status(), 400, "{coding} and {} bytes", garbage.len());
            }
            send(&client, path, coding, "plain text").assert_status(400);
        }
        let twice = [coded.clone(), coded].concat();
        let is_concatenable = matches!(coding, "gzip" | "zstd");
        let status = if is_concatenable { 200 } else { 400 };
        send(&client, "/text", coding, &twice).assert_status(status);
    }
}

#[test]
fn the_limit_of_the_route_applies_to_the_decoded_content() {
    let client = client();
    for path in ["/short", "/short-stream"] {
        for coding in CODINGS {
            for (length, status) in [(100, 200), (101, 413), (5_000_000, 413)] {
                let answer = send(&client, path, coding, encoded(coding, &vec![b'a'; length]));
                assert_eq!(answer.status(), status, "{path} {coding} {length}");
            }
        }
        // The encoded content alone is too long, which is known before it is decoded.
        send(&client, path, "gzip", [b'?'; 101]).assert_status(413);
    }
    // If the route has no limit, the limit for content in memory and that of the middleware apply.
    for (path, length, status) in [
        ("/text", 2 << 20, 200),
        ("/text", (2 << 20) + 1, 413),
        ("/stream", 3_000_000, 200),
        ("/stream", 3_000_001, 413),
        ("/request", 3_000_001, 413),
    ] {
        let answer = send(&client, path, "br", encoded("br", &vec![b'a'; length]));
        assert_eq!(answer.status(), status, "{path} {length}");
    }
}

/// Without a limit between two codings, a short content could keep a thread busy for any time, and
/// decode to nothing.
#[test]
fn the_limit_applies_between_two_codings_too() {
    let client = client();
    for outer in CODINGS {
        let inner = if matches!(outer, "gzip" | "deflate") { "zstd" } else { "gzip" };
        let coded = encoded(outer, &encoded(inner, b"").repeat(400_000));
        assert!(coded.len() < 100_000, "{outer} {}", coded.len());
        let answer = send(&client, "/text", &format!("{inner}, {outer}"), &coded);
        assert_eq!(answer.status(), 413, "{outer}");
    }
}

/// Regression: windows of a gigabyte were accepted, so that 300 KB took 75 MB.
#[test]
fn brotli_with_large_windows_is_not_the_coding_br() {
    let mut params = brotli::enc::BrotliEncoderParams::default();
    let client = client();
    for (log, status) in [(10, 200), (24, 200), (25, 400), (30, 400)] {
        params.lgwin = log;
        params.large_window = log > 24;
        let mut encoder = brotli::CompressorWriter::with_params(Vec::new(), 4096, &params);
        encoder.write_all(b"hello").unwrap();
        send(&client, "/text", "br", encoder.into_inner()).assert_status(status);
    }
    for codings in ["br, br", "br, zstd", "zstd, gzip, zstd"] {
        send(&client, "/text", codings, "?").assert_status(415);
    }
}

/// Regression: the memory of decoders was not counted, and a lack of it could end the process.
#[test]
fn the_memory_of_decoders_counts_in_the_budget() {
    let app = routes()
        .with(Decompression::new())
        .config(ServerConfig::default().memory_max(40 << 20))
        .start("127.0.0.1:0")
        .unwrap();
    let used = || app.server().metrics().unwrap().memory_used;
    let begin = |coding: &str| {
        let mut socket = std::net::TcpStream::connect(app.local_addr()).unwrap();
        let head = format!(
            "POST /stream HTTP/1.1\r\nHost: a\r\nContent-Encoding: {coding}\r\n\
             Content-Length: 2000000\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        // The handler starts when the first part of the content has arrived.
        let random: Vec<u8> = (0..400_000_u64).map(|at| (at * at % 251) as u8).collect();
        let noise = random.iter().scan(7_u32, |state, byte| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some(byte ^ (*state >> 24) as u8)
        });
        let content = encoded(coding, &noise.collect::<Vec<_>>());
        let _ = socket.write_all(&content[..content.len() - 100]);
        socket
    };
    let eventually = |what: &str, holds: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !holds() {
            assert!(begun.elapsed().as_secs() < 30, "{what}: {}", used());
            std::thread::yield_now();
        }
    };
    let gzip = begin("gzip");
    eventually("a little", &|| used() > 32 * 1024);
    assert!(used() < 2 << 20, "{}", used());
    let first = begin("br");
    eventually("a window", &|| used() > 16 << 20);
    let mut second = begin("br");
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        second.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n"));
    drop(first);
    eventually("it is given back", &|| used() < 2 << 20);
    drop(gzip);
    eventually("all is given back", &|| used() == 0);
    app.shutdown();
}

#[test]
fn what_a_handler_sees_of_a_decoded_request() {
    let client = client();
    send(&client, "/head", "gzip", encoded("gzip", b"hi"))
        .assert_text("[false, false, true] None None");
    client
        .post("/head")
        .header("content-type", "a/b")
        .body("hi")
        .send()
        .assert_text("[false, true, true] Some(2) Some(2)");
    // An empty content needs no decoding, and content that nobody reads is not decoded.
    send(&client, "/text", "gzip", "").assert_status(200).assert_text("");
    send(&routes().test(), "/text", "gzip", "").assert_status(200).assert_text("");
    send(&client, "/nothing", "gzip", "?").assert_status(200);
    client.get("/form?a=hi").header("content-encoding", "gzip").send().assert_text("hi");
}

/// The framing of a message says nothing about its content (RFC 9110, 6.4).
#[test]
fn an_empty_content_is_accepted_however_it_is_framed() {
    let service = routes().with(Decompression::new()).build().unwrap();
    let framings = ["Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"];
    let garbage = "Transfer-Encoding: chunked\r\n\r\n5\r\nplain\r\n0\r\n\r\n";
    for codings in ["gzip", "deflate", "br", "zstd", "br, gzip", "identity"] {
        for path in ["/text", "/bytes", "/stream", "/short", "/short-stream", "/request"] {
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                 Content-Encoding: {codings}\r\n"
            );
            for framing in framings {
                let answer = ask(&service, "[::1]:7", &format!("{head}{framing}"));
                let is_empty = answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n");
                assert!(is_empty, "{path} {codings} {framing:?}: {answer}");
            }
            let status = if codings == "identity" { 200 } else { 400 };
            let answer = ask(&service, "[::1]:7", &format!("{head}{garbage}"));
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{path} {codings}: {answer}"
            );
        }
    }
    // The decoder of the inner coding got no bytes, although the content was not empty.
    let answer = send(&client(), "/text", "br, gzip", encoded("gzip", b""));
    answer.assert_status(400);
}

#[test]
fn middleware_of_a_route_decodes_too_and_a_missing_route_is_still_missing() {
    let route = post(|text: String| text).with(Decompression::new());
    let client = App::new().route("/", route).post("/plain", |text: String| text).test();
    send(&client, "/", "gzip", encoded("gzip", b"hi")).assert_text("hi");
    send(&client, "/plain", "gzip", encoded("gzip", b"hi")).assert_status(415);
    send(&client, "/nowhere", "gzip", encoded("gzip", b"hi")).assert_status(404);
}

/// Middleware further in reads the decoded form, and puts it back for the handler.
#[test]
fn middleware_further_in_sees_decoded_content() {
    let client = App::new()
        .delete("/notes", |Form(note): Form<Note>| note.a)
        .with(Decompression::new())
        .with(middleware::MethodOverride::new())
        .test();
    let form = client.post("/notes").header("content-type", "application/x-www-form-urlencoded");
    let form = form.header("content-encoding", "br").body(encoded("br", b"_method=DELETE&a=hi"));
    form.send().assert_status(200).assert_text("hi");
}

#[test]
fn a_content_that_will_be_refused_is_not_asked_for() {
    let head = |path: &str, coding: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\n\
             Content-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let (plain, decoding) =
        (routes().build().unwrap(), routes().with(Decompression::new()).build().unwrap());
    for (service, path, coding, length, begins) in [
        (&plain, "/text", "gzip", 20, "HTTP/1.1 415 "),
        (&plain, "/stream", "gzip", 20, "HTTP/1.1 415 "),
        (&decoding, "/stream", "compress", 20, "HTTP/1.1 415 "),
        (&decoding, "/text", "compress", 20, "HTTP/1.1 415 "),
        (&decoding, "/short", "gzip", 101, "HTTP/1.1 413 "),
        (&decoding, "/text", "gzip", 20, "HTTP/1.1 100 "),
    ] {
        let answer = ask(service, "[::1]:7", &head(path, coding, length));
        assert!(answer.starts_with(begins), "{path} {coding}: {answer}");
    }
}

#[test]
fn a_decoded_stream_is_followed_by_the_next_request() {
    let app = routes().with(Decompression::new()).start("127.0.0.1:0").unwrap();
    let text = "all work and no play\n".repeat(100_000);
    for coding in CODINGS {
        let mut socket = std::net::TcpStream::connect(app.local_addr()).unwrap();
        write!(
            socket,
            "POST /stream HTTP/1.1\r\nHost: a\r\nContent-Encoding: {coding}\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        )
        .unwrap();
        for piece in encoded(coding, text.as_bytes()).chunks(100) {
            write!(socket, "{:x}\r\n", piece.len()).unwrap();
            socket.write_all(piece).unwrap();
            socket.write_all(b"\r\n").unwrap();
        }
        let next = "0\r\n\r\nPOST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\
                    Connection: close\r\n\r\n";
        socket.write_all(next.as_bytes()).unwrap();
        let answer = io::read_to_string(socket).unwrap();
        assert!(answer.contains(&text), "{coding}");
        assert!(answer.ends_with("nothing is read"), "{coding}");
    }
    app.shutdown();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_content_is_decoded_or_refused(
        coding in 0..4_usize,
        text in "[a-c]{0,200}",
        at in any::<usize>(),
        byte in any::<u8>(),
    ) {
        let client = client();
        let coding = CODINGS[coding];
        let mut content = encoded(coding, text.as_bytes());
        let at = at % content.len();
        content[at] ^= byte;
        let answer = send(&client, "/bytes", coding, &content);
        let is_decoded = answer.status() == 200 && (byte != 0 || answer.text() == text);
        prop_assert!(is_decoded || matches!(answer.status().as_u16(), 400 | 413), "{answer:?}");
    }
}

#[test]
fn a_content_of_just_the_longest_length_is_decoded() {
    let coded = encoded("gzip", b"hi");
    for (bytes_max, status) in [(coded.len(), 200), (coded.len() - 1, 413)] {
        let app =
            App::new().post("/", copied).with(Decompression::new().bytes_max(bytes_max as u64));
        let client = app.test();
        let request = client.post("/").header("content-encoding", "gzip");
        request.body(coded.clone()).send().assert_status(status);
    }
}

#[test]
fn a_content_without_bytes_has_no_coding() {
    let app = App::new()
        .post("/", |request: Request| format!("{:?}", request.header("content-encoding")))
        .with(Decompression::new());
    let client = app.test();
    let request = client.post("/").header("content-encoding", "gzip");
    request.body("").send().assert_text("None");
}
