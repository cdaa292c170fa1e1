//! The server for measurements of the framework: `bench_server ADDRESS [STATIC_FOLDER]`. It has the
//! routes of `bench_engine`, written as an app, and the default configuration.
//!
//! `GET /`, `/plaintext`, `/json`, `/sleep?ms=10` (or `?us=100`), `/miss?one_in=10&us=1000`,
//! `/cpu?ms=20`, `/panic`, `/large?n=`, `/stream?n=`; `POST /echo`, `/length`, `/noread`;
//! `/static/` serves the folder. SIGTERM stops it gracefully. In the environment,
//! `BENCH_METRICS=1` adds `/metrics`, `BENCH_CONSOLE=1` adds `/console` for this machine, and
//! `BENCH_IDS=1` gives each request an ID.

use std::env;
use std::hint::black_box;
use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume::prelude::*;
use filoplume::response::Reader;
use filoplume::{Console, Headers};
use serde::{Deserialize, Serialize};

/// A large body of up to this length is made in memory. A longer one comes from a reader.
const IN_MEMORY_MAX: u64 = 1024 * 1024;

/// An echo is collected before it is sent back.
const ECHO_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

/// How long a handler takes, in milliseconds or microseconds.
#[derive(Deserialize)]
struct Time {
    ms: Option<u64>,
    us: Option<u64>,
}

impl Time {
    fn or_ms(self, default: u64) -> Duration {
        match (self.us, self.ms) {
            (Some(us), _) => Duration::from_micros(us),
            (None, ms) => Duration::from_millis(ms.unwrap_or(default)),
        }
    }
}

#[derive(Deserialize)]
struct Misses {
    one_in: u64,
    us: Option<u64>,
}

#[derive(Deserialize)]
struct Bytes {
    n: Option<u64>,
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let Some(address) = arguments.next() else {
        eprintln!(
            "usage: bench_server ADDRESS [STATIC_FOLDER], such as bench_server 127.0.0.1:5000 \
             public"
        );
        return ExitCode::from(2);
    };
    match app(arguments.next()).listen(&*address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn app(static_folder: Option<String>) -> App {
    let app = App::new()
        .get("/", || "Hello from Filoplume!")
        .get("/plaintext", || "Hello, World!")
        .get("/json", || Json(Message { message: "Hello, World!" }))
        .get("/sleep", |Query(time): Query<Time>| {
            thread::sleep(time.or_ms(10));
            "slept"
        })
        .get("/miss", miss)
        .get("/cpu", |Query(time): Query<Time>| hash_for(time.or_ms(20)).to_string())
        .get("/panic", || -> &'static str { panic!("asked to") })
        .get("/large", large)
        .get("/stream", |Query(bytes): Query<Bytes>| {
            Reader::new(io::repeat(b'x').take(bytes.n.unwrap_or(1024)))
        })
        .route("/echo", post(echo).content_bytes_max(ECHO_BYTES_MAX))
        .post("/length", length)
        .post("/noread", || "not read");
    let app = if is_set("BENCH_METRICS") { app.metrics("/metrics") } else { app };
    let app = if is_set("BENCH_CONSOLE") { app.console("/console", Console::local()) } else { app };
    let app = if is_set("BENCH_IDS") { app.with(middleware::RequestIds::new()) } else { app };
    match static_folder {
        Some(folder) => app.files("/static", StaticFiles::folder(folder)),
        None => app,
    }
}

fn is_set(name: &str) -> bool {
    env::var(name).is_ok_and(|value| value == "1")
}

/// Simulates a cache: one call in `one_in` is a miss, which waits.
fn miss(Query(pattern): Query<Misses>) -> &'static str {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    if pattern.one_in == 0 || CALLS.fetch_add(1, Ordering::Relaxed) % pattern.one_in != 0 {
        return "hit";
    }
    thread::sleep(Duration::from_micros(pattern.us.unwrap_or(1000)));
    "miss"
}

fn large(Query(bytes): Query<Bytes>) -> Result<Response> {
    match bytes.n.unwrap_or(1024) {
        n if n <= IN_MEMORY_MAX => vec![b'x'; usize::try_from(n)?].into_response(),
        n => Reader::sized(io::repeat(b'x'), n).into_response(),
    }
}

/// Returns the body and its type.
fn echo(headers: Headers, body: Vec<u8>) -> Result<Response> {
    let mut response = body.into_response()?;
    if let Some(content_type) = headers.get("content-type") {
        response.set_header("content-type", content_type)?;
    }
    Ok(response)
}

/// Returns the length of the body, which is read as a stream.
fn length(mut body: Body) -> Result<String> {
    let length = match body.as_slice() {
        Some(content) => content.len() as u64,
        None => io::copy(&mut body, &mut io::sink())?,
    };
    Ok(length.to_string())
}

/// Keeps a core busy for this time.
fn hash_for(time: Duration) -> u64 {
    let end = Instant::now() + time;
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    while Instant::now() < end {
        for byte in 0..1024_u64 {
            hash = black_box((hash ^ byte).wrapping_mul(0x0100_0000_01b3));
        }
    }
    hash
}
