//! What do the bytes of one request and its response cost, without a socket?
//!
//! `cargo bench -p filoplume-benches --bench exchange`; for instructions instead of time run the
//! printed binary under `valgrind --tool=callgrind`.

use std::hint::black_box;
use std::time::SystemTime;

use filoplume_benches::report;
use filoplume_http1::{
    ContentLength, Date, Headers, Limits, ServerConnection, StaticField, parse_request_head,
};
use http::StatusCode;

const PLAIN: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";

const BROWSER: &[u8] = b"GET /articles/2026/threads?page=2 HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-GB,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=9f8b3c1d7e6a5b4c; theme=dark; consent=1\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\r\n";

static TEXT: StaticField = StaticField::new("content-type: text/plain; charset=utf-8\r\n");

fn main() {
    let limits = Limits::default();
    let date = Date::new(SystemTime::now());
    for (name, input) in [("plain", PLAIN), ("browser", BROWSER)] {
        report(&format!("parse the head of a {name} request"), 20_000, || {
            black_box(parse_request_head(black_box(input), &limits).expect("a good head"));
        });
        let mut connection = ServerConnection::new();
        let mut output = Vec::with_capacity(4096);
        report(&format!("{name} request and a response of 13 bytes"), 20_000, || {
            output.clear();
            let head = connection.read_head(black_box(input), &limits).expect("a good head");
            let mut headers = Headers::new();
            headers.insert_static(&TEXT);
            let length = ContentLength::Known(13);
            connection.write_head(StatusCode::OK, &headers, length, &date, &mut output);
            output.extend_from_slice(b"Hello, World!");
            connection.write_done();
            connection.next();
            black_box((&output, head));
        });
    }
}
