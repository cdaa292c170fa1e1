//! The server for measurements of the engine: `bench_engine ADDRESS`. It has the default
//! configuration.
//!
//! `GET /`, `/plaintext`, `/json`, `/sleep?ms=10` (or `?us=100`), `/miss?one_in=10&us=1000`,
//! `/cpu?ms=20`, `/panic`, `/large?n=`, `/stream?n=`; `POST /echo`, `/length`, `/noread`. SIGTERM
//! stops it gracefully.

use std::env;
use std::hint::black_box;
use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, Response, Result, Server};

/// A large body of up to this length is made in memory. A longer one comes from a reader.
const IN_MEMORY_MAX: u64 = 1024 * 1024;

/// An echo is collected before it is sent back.
const ECHO_BYTES_MAX: u64 = 64 * 1024 * 1024;

fn main() -> ExitCode {
    let Some(address) = env::args().nth(1) else {
        eprintln!("usage: bench_engine ADDRESS, such as bench_engine 127.0.0.1:5000");
        return ExitCode::from(2);
    };
    match run(&address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_engine: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(address: &str) -> Result<()> {
    let server = Server::bind(address)?;
    #[cfg(unix)]
    server.shutdown_on_signals()?;
    server.incoming().for_each(answer)
}

fn answer(request: Request) -> Response {
    let mut response = Response::default();
    match (request.method().as_str(), request.path()) {
        ("GET" | "HEAD", "/plaintext") => response.set_text("Hello, World!"),
        ("GET" | "HEAD", "/json") => response.set_json(r#"{"message":"Hello, World!"}"#),
        ("GET" | "HEAD", "/") => response.set_text("Hello from Filoplume!"),
        ("GET", "/sleep") => {
            thread::sleep(time(&request, 10));
            response.set_text("slept")
        }
        ("GET", "/miss") => {
            response.set_text(miss(number(&request, "one_in", 10), number(&request, "us", 1000)))
        }
        ("GET", "/cpu") => response.set_text(hash_for(time(&request, 20)).to_string()),
        ("GET", "/panic") => panic!("asked to"),
        ("GET" | "HEAD", "/large") => match number(&request, "n", 1024) {
            n if n <= IN_MEMORY_MAX => {
                response.set_bytes(vec![b'x'; usize::try_from(n).unwrap_or(0)])
            }
            n => response.set_reader(io::repeat(b'x'), n),
        },
        ("GET" | "HEAD", "/stream") => {
            response.set_stream(io::repeat(b'x').take(number(&request, "n", 1024)))
        }
        ("POST", "/echo") => return echo(request),
        ("POST", "/length") => return length(request),
        ("POST", "/noread") => response.set_text("not read"),
        (
            _,
            "/" | "/plaintext" | "/json" | "/sleep" | "/miss" | "/cpu" | "/panic" | "/large"
            | "/stream",
        ) => {
            response.set_status(405);
            response.add_header("allow", "GET, HEAD").expect("a valid header")
        }
        (_, "/echo" | "/length" | "/noread") => {
            response.set_status(405);
            response.add_header("allow", "POST").expect("a valid header")
        }
        _ => response.set_status(404).set_text("not found"),
    };
    response
}

/// Simulates a cache: one call in `one_in` is a miss, which waits.
fn miss(one_in: u64, us: u64) -> &'static str {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    if one_in == 0 || CALLS.fetch_add(1, Ordering::Relaxed) % one_in != 0 {
        return "hit";
    }
    thread::sleep(Duration::from_micros(us));
    "miss"
}

/// Returns the body and its type.
fn echo(request: Request) -> Response {
    let mut response = Response::default();
    if let Some(content_type) = request.headers().get("content-type") {
        response.set_header("content-type", content_type).expect("it was a header before");
    }
    match request.into_body().into_bytes(ECHO_BYTES_MAX) {
        Ok(bytes) => response.set_bytes(bytes),
        Err(error) => failed(&mut response, &error),
    };
    response
}

/// Returns the length of the body, which is read as a stream.
fn length(mut request: Request) -> Response {
    let mut response = Response::default();
    let known = request.body().as_slice().map(|content| content.len() as u64);
    let length = known.map_or_else(|| io::copy(request.body_mut(), &mut io::sink()), Ok);
    match length {
        Ok(length) => response.set_text(length.to_string()),
        Err(error) => failed(&mut response, &error),
    };
    response
}

fn failed<'a>(response: &'a mut Response, error: &io::Error) -> &'a mut Response {
    let status = match error.kind() {
        io::ErrorKind::TimedOut => 408,
        io::ErrorKind::FileTooLarge => 413,
        _ => 400,
    };
    response.set_status(status).set_text(error.to_string())
}

fn number(request: &Request, name: &str, default: u64) -> u64 {
    request.query_value(name).and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Returns how long the handler takes: `us=` microseconds or `ms=` milliseconds.
fn time(request: &Request, default_ms: u64) -> Duration {
    match number(request, "us", 0) {
        0 => Duration::from_millis(number(request, "ms", default_ms)),
        us => Duration::from_micros(us),
    }
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
