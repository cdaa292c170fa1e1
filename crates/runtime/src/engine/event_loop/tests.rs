//! Tests of the decisions of an event loop. They lead it themselves and say what time it is, so
//! none of them waits.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod accepting;
mod ending;
mod messages;
mod moving;
mod pressing;
mod shedding;
mod waking;

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use super::*;
use crate::config::ServerConfig;
use crate::engine;
use crate::transport::Peer;

const HEAD_TIMEOUT: Duration = Duration::from_secs(100);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(200);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn config() -> ServerConfig {
    ServerConfig::default().head_timeout(HEAD_TIMEOUT).keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
}

/// The loops of one engine, which know each other.
fn event_loops<const N: usize>(config: ServerConfig) -> [EventLoop; N] {
    engine::tests::event_loops(&engine::tests::pulled(config))
}

fn event_loop() -> EventLoop {
    let [event_loop] = event_loops(config());
    event_loop
}

/// Returns an accepted connection and its client.
fn accepted() -> (Accepted, UnixStream) {
    engine::tests::accepted(Peer::Tcp(SocketAddr::from(([192, 0, 2, 7], 4711))))
}

/// Adds a connection that waits for its first head since `at`. Returns its token and its client.
fn add_new(event_loop: &mut EventLoop, at: Instant) -> (usize, UnixStream) {
    let (accepted, client) = accepted();
    let connection = event_loop.adopt(accepted, at);
    let token = connection.token();
    event_loop.park(connection, at);
    (token, client)
}

/// Adds a connection that is idle since `at`. Returns its token and its client.
fn add_idle(event_loop: &mut EventLoop, at: Instant) -> (usize, UnixStream) {
    let (token, client) = add_new(event_loop, at);
    let connection = event_loop.slab.parked_mut(token).unwrap();
    connection.guest.resume(false);
    connection.deadline = at + KEEP_ALIVE_TIMEOUT;
    (token, client)
}

/// Returns whether the loop was woken since the last call.
fn was_woken(event_loop: &mut EventLoop) -> bool {
    event_loop.poll.poll(&mut event_loop.events, Some(Duration::ZERO)).unwrap();
    event_loop.events.iter().any(|event| event.token() == WAKER)
}
