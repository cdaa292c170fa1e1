//! What every peer server does in the same way, so that only the engines differ.

use std::env;
use std::hash::{DefaultHasher, Hasher};
use std::iter;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// The message as JSON, for servers that have no JSON of their own.
pub fn message_json() -> Vec<u8> {
    serde_json::to_vec(&MESSAGE).expect("a message of one text is JSON")
}

/// The first argument: where to listen.
pub fn address_argument() -> SocketAddr {
    let argument = env::args().nth(1).expect("the first argument is the address to listen on");
    argument.parse().expect("the address looks like 127.0.0.1:8080")
}

/// The second argument: how many threads serve. The default is the number that every peer has.
pub fn threads_argument() -> usize {
    env::args().nth(2).map_or(WORKERS, |argument| {
        argument.parse().expect("the second argument is the number of threads")
    })
}

/// The value of `us=` or `ms=` in a target or a query, or 10 ms.
pub fn time(target: &str) -> Duration {
    match value(target, "us=") {
        Some(us) => Duration::from_micros(us),
        None => Duration::from_millis(value(target, "ms=").unwrap_or(10)),
    }
}

/// What `GET /miss` answers when the call was quick.
pub const HIT: &str = "hit";

/// What `GET /miss` answers when the call had to wait.
pub const MISS: &str = "miss";

/// How long this call of `/miss?one_in=N&us=M` has to wait; `None` when it hits. Every Nth call of
/// the process misses, and none when N is 0. Calls with N = 0 are not counted.
pub fn miss(target: &str) -> Option<Duration> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let one_in = value(target, "one_in=").filter(|&one_in| one_in > 0)?;
    let call = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    call.is_multiple_of(one_in).then(|| time(target))
}

/// A handler for `/miss` that blocks its thread when it misses.
pub fn look_up(target: &str) -> &'static str {
    match miss(target) {
        Some(length) => {
            thread::sleep(length);
            MISS
        }
        None => HIT,
    }
}

/// The number that follows `name` in a target or a query.
pub fn value(target: &str, name: &str) -> Option<u64> {
    target.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)?.parse().ok())
}

/// The number of MiB of `/zeros?mib=`, or 1.
pub fn mebibytes(query: &str) -> u64 {
    value(query, "mib=").unwrap_or(1)
}

/// How often a message is sent to everybody.
pub const BROADCAST_EVERY: Duration = Duration::from_millis(500);

/// The message that is sent to everybody. It begins with the time of sending: microseconds since
/// 1970. `BROADCAST_BYTES` in the environment is its length, 1 KiB by default.
pub fn broadcast_text(sent: SystemTime) -> String {
    let bytes = env::var("BROADCAST_BYTES").ok().and_then(|bytes| bytes.parse().ok());
    let since = sent.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut text = format!("{:016}", since.as_micros());
    text.extend(iter::repeat_n('.', bytes.unwrap_or(1024_usize).saturating_sub(text.len())));
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nth_call_misses_and_hits_are_not_counted() {
        let calls =
            |times: usize, target: &'static str| (0..times).filter(move |_| miss(target).is_some());
        assert_eq!(calls(15, "one_in=10&us=1").count(), 1);
        assert_eq!(calls(100, "one_in=0").count(), 0);
        assert_eq!(calls(5, "/miss?one_in=10&us=1").count(), 1);
    }

    #[test]
    fn a_broadcast_begins_with_its_time() {
        let text = broadcast_text(UNIX_EPOCH + Duration::from_micros(1_763_835_000_123_456));
        assert_eq!((text.len(), &text[..18]), (1024, "1763835000123456.."));
    }

    #[test]
    fn a_time_is_in_microseconds_or_milliseconds() {
        assert_eq!(time("/sleep?us=5"), Duration::from_micros(5));
        assert_eq!(time("ms=5"), Duration::from_millis(5));
        assert_eq!(time("/sleep"), Duration::from_millis(10));
    }
}
