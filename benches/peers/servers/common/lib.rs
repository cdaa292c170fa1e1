//! What every peer server does in the same way, so that only the engines differ.

use std::env;
use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;

/// How many worker threads each peer gets.
pub const WORKERS: usize = 2;

/// How many threads a peer may use for calls that are marked as blocking.
pub const BLOCKING_THREADS_MAX: usize = 512;

/// How many connections may wait to be accepted. Below `somaxconn` of current kernels.
pub const BACKLOG: u16 = 4096;

/// What every server answers to `GET /plaintext`.
pub const HELLO: &str = "Hello, World!";

/// What every server answers to `GET /json`, serialized for each request.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Message {
    pub message: &'static str,
}

/// The one message.
pub const MESSAGE: Message = Message { message: HELLO };

/// The message as JSON, for those that have no way of their own.
pub fn message_json() -> Vec<u8> {
    serde_json::to_vec(&MESSAGE).expect("a message of one text is JSON")
}

/// The first argument: where to listen.
pub fn address_argument() -> SocketAddr {
    let argument = env::args().nth(1).expect("the first argument is the address to listen on");
    argument.parse().expect("the address looks like 127.0.0.1:8080")
}

/// The second argument: how many threads serve; as many as every peer has, if it is not there.
pub fn threads_argument() -> usize {
    env::args()
        .nth(2)
        .map_or(WORKERS, |argument| argument.parse().expect("the second argument is the number of threads"))
}

/// The value of `us=` or `ms=` in a target or a query, or 10 ms.
pub fn time(target: &str) -> Duration {
    let value = |name| target.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)?.parse().ok());
    match value("us=") {
        Some(us) => Duration::from_micros(us),
        None => Duration::from_millis(value("ms=").unwrap_or(10)),
    }
}

/// Keeps a core busy with hashing until this much time has passed.
pub fn spin(length: Duration) -> u64 {
    let start = Instant::now();
    let mut hasher = DefaultHasher::new();
    while start.elapsed() < length {
        for round in 0..1_000 {
            hasher.write_u64(round);
        }
    }
    hasher.finish()
}
