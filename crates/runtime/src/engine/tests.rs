//! What the tests of the engine share: engines and event loops without threads, and connections
//! with their clients.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::os::unix::net::UnixStream;

use super::*;
use crate::budget::throttle::tests::counting_lines;
use crate::engine::connection::Connection;
use crate::engine::listener::Accepted;
use crate::service::Service;
use crate::transport::Transport;

/// Returns an engine whose requests the program pulls.
pub(crate) fn pulled(config: ServerConfig) -> Arc<Engine> {
    let backend = Backend::Program(Arc::new(PullQueue::new(1, Duration::ZERO)));
    Engine::new(config, backend, Stopping::new())
}

/// Returns an engine that calls this service.
pub(crate) fn serving(config: ServerConfig, service: impl Service) -> Arc<Engine> {
    Engine::new(config, Backend::Service(Arc::new(Site::new(service))), Stopping::new())
}

/// Returns the loops of an engine, which know each other.
pub(crate) fn event_loops<const N: usize>(engine: &Arc<Engine>) -> [EventLoop; N] {
    let event_loops = [(); N].map(|()| EventLoop::new(engine).unwrap());
    let handles = event_loops.iter().map(|event_loop| Arc::downgrade(event_loop.handle()));
    engine.loops.set(handles.collect()).unwrap();
    engine.lifecycle.loops_running.store(N, Ordering::SeqCst);
    event_loops
}

/// Returns an accepted connection over a Unix socket, and its client.
pub(crate) fn accepted(peer: Peer) -> (Accepted, UnixStream) {
    let (socket, client) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    let transport = Transport::unix(mio::net::UnixStream::from_std(socket));
    (accepted_over(transport, peer), client)
}

/// Returns an accepted connection over this transport.
pub(crate) fn accepted_over(transport: Transport, peer: Peer) -> Accepted {
    let entry = Entry {
        expects_proxy_header: false,
        #[cfg(feature = "tls")]
        tls: None,
    };
    Accepted { transport, peer, entry, counts_for: CountsFor::Nobody }
}

/// Returns a connection of this loop over a Unix socket, and its client.
pub(crate) fn connection(event_loop: &EventLoop) -> (Box<Connection>, UnixStream) {
    let (accepted, client) = accepted(Peer::Unix);
    let loop_handle = Arc::clone(event_loop.handle());
    let connection = Connection::new(accepted, loop_handle, 0, Instant::now());
    (Box::new(connection), client)
}

#[test]
fn a_panic_is_counted_each_time_and_logged_once_per_second() {
    let (engine, begun) = (pulled(ServerConfig::default()), Instant::now());
    counting_lines("left_out", |lines| {
        (0..100).for_each(|_| engine.note_panic("a handler panicked"));
        assert!((1..=1 + begun.elapsed().as_secs()).contains(&lines()), "{}", lines());
    });
    assert_eq!(engine.counters.panics.get(), 100);
}

#[test]
fn a_body_that_cannot_be_read_is_logged() {
    counting_lines("error", |lines| {
        crate::service::warn_of_failed_body(Some("/a"), &std::io::ErrorKind::Other.into());
        assert_eq!(lines(), 1);
    });
}
