//! Tests of which client a connection counts for, and what the tests of its parts share.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use super::*;
use crate::config::ServerConfig;
use crate::engine::Engine;
use crate::engine::event_loop::EventLoop;
use crate::engine::tests::{accepted, accepted_over, serving};
use crate::service::Service;
use crate::service::body::Body;
use crate::service::response::Response;

/// A service that names this client for each request.
struct Names(Arc<Mutex<Option<IpAddr>>>);

impl Service for Names {
    fn call(&self, _: Request) -> Response {
        Response::new(204)
    }

    fn client(&self, _: &Request) -> Option<IpAddr> {
        *self.0.lock().unwrap()
    }
}

/// Returns a connection over a Unix socket, and its peer.
pub(crate) fn accept(engine: &Arc<Engine>) -> (Connection, UnixStream) {
    let (accepted, peer) = accepted(Peer::Unix);
    (begin(engine, accepted), peer)
}

/// Returns a connection over this transport.
pub(crate) fn over(engine: &Arc<Engine>, transport: Transport, peer: Peer) -> Connection {
    begin(engine, accepted_over(transport, peer))
}

fn begin(engine: &Arc<Engine>, mut accepted: Accepted) -> Connection {
    let event_loop = EventLoop::new(engine).unwrap();
    accepted.counts_for = CountsFor::Proxy;
    Connection::new(accepted, Arc::clone(event_loop.handle()), 0, Instant::now())
}

#[test]
fn a_request_of_a_proxy_counts_for_the_client_that_it_is_for_and_for_no_earlier_one() {
    let names = Arc::new(Mutex::new(None));
    let service = Names(Arc::clone(&names));
    let (mut connection, _client) = accept(&serving(ServerConfig::default(), service));
    let mapped: IpAddr = "::ffff:203.0.113.9".parse().unwrap();
    connection.peer = Peer::Tcp(SocketAddr::new(mapped, 4711));
    let mut counts_for = |named: Option<&str>| {
        let named = named.map(|text| text.parse().unwrap());
        *names.lock().unwrap() = named;
        let request = http::Request::get("/").body(Body::default()).unwrap().try_into().unwrap();
        connection.act_for(&request);
        connection.account.client().is_some()
            && named.is_some_and(|client| connection.account.is_of(client))
    };
    assert!(counts_for(Some("192.0.2.1")));
    assert!(counts_for(Some("192.0.2.1")));
    assert!(counts_for(Some("198.51.100.1")));
    assert!(!counts_for(None));
    assert!(!counts_for(Some("203.0.113.9")), "the proxy itself");
    assert!(connection.account.client().is_none());
}

#[test]
fn a_connection_is_of_the_crowd_while_its_requests_block() {
    let engine = serving(ServerConfig::default(), Names(Arc::default()));
    let (mut connection, _client) = accept(&engine);
    let mut was_blocking = [false; 2];
    for has_blocked in [true, true, true, false, false, false] {
        connection.note_for_lease(has_blocked);
        assert_eq!(connection.crowd.is_some(), connection.lease.is_blocking(), "{has_blocked}");
        was_blocking[usize::from(has_blocked)] = connection.lease.is_blocking();
    }
    assert_eq!(was_blocking, [false, true]);
}
