//! Which connections a loop accepts, and where they go.

use std::net::TcpStream;

use super::*;
use crate::engine::listener::bind;

/// For events that are due soon, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A loop that listens, and the address.
fn listening(config: ServerConfig, expects_proxy_header: bool) -> (EventLoop, SocketAddr) {
    let [mut event_loop] = event_loops(config);
    let mut bound = bind(&[SocketAddr::from(([127, 0, 0, 1], 0))]).unwrap();
    bound.entry.expects_proxy_header = expects_proxy_header;
    let address = bound.local_address().unwrap();
    for listener in bound.listen(16, 1).unwrap() {
        event_loop.add_listener(listener).unwrap();
    }
    (event_loop, address)
}

/// Connects a client, and accepts what has arrived.
fn connect(
    event_loop: &mut EventLoop,
    address: SocketAddr,
    now: Instant,
) -> (TcpStream, Option<Box<Connection>>) {
    event_loop.listeners[0].is_ready = false;
    let client = TcpStream::connect(address).unwrap();
    // The client may be connected before the listener has it.
    while !event_loop.listeners[0].is_ready {
        event_loop.poll.poll(&mut event_loop.events, Some(DEADLINE)).unwrap();
        assert!(event_loop.sort_events() > 0, "the connection does not arrive");
    }
    (client, accept(event_loop, now))
}

fn accept(event_loop: &mut EventLoop, now: Instant) -> Option<Box<Connection>> {
    match event_loop.accept(now) {
        Some(Turn::Serve(connection, Readiness::Io)) => Some(connection),
        None => None,
        Some(other) => panic!("{other:?}"),
    }
}

/// A loop with two listeners, and their addresses.
fn listening_twice(config: ServerConfig) -> (EventLoop, [SocketAddr; 2]) {
    let (mut event_loop, first) = listening(config, false);
    let bound = bind(&[SocketAddr::from(([127, 0, 0, 1], 0))]).unwrap();
    let second = bound.local_address().unwrap();
    for listener in bound.listen(16, 1).unwrap() {
        event_loop.add_listener(listener).unwrap();
    }
    (event_loop, [first, second])
}

#[test]
fn a_crowd_at_one_address_does_not_keep_another_one_waiting() {
    let (mut event_loop, [first, second]) = listening_twice(config());
    let now = Instant::now();
    let _crowd: Vec<_> = (0..10).map(|_| TcpStream::connect(first).unwrap()).collect();
    let other = TcpStream::connect(second).unwrap();
    while !event_loop.listeners.iter().all(|listener| listener.is_ready) {
        event_loop.poll.poll(&mut event_loop.events, Some(DEADLINE)).unwrap();
        event_loop.sort_events();
    }
    let peers: Vec<_> = (0..3).map(|_| accept(&mut event_loop, now).unwrap().peer).collect();
    assert!(peers.contains(&Peer::Tcp(other.local_addr().unwrap())), "{peers:?}");
}

#[test]
fn a_connection_beyond_the_maximum_waits_until_there_is_room() {
    let (mut event_loop, address) = listening(config().connections_max(1), false);
    let now = Instant::now();
    let (_first, connection) = connect(&mut event_loop, address, now);
    let (_second, none) = connect(&mut event_loop, address, now);
    assert!(none.is_none() && event_loop.waiting.is_some());
    event_loop.release(connection.unwrap().token());
    assert!(accept(&mut event_loop, now).is_some(), "no pause stops it now");
    assert_eq!(event_loop.handle.engine.counters.accepted.get(), 2);
}

#[test]
fn descriptors_beside_connections_leave_less_room_for_these() {
    let (mut event_loop, address) = listening(config(), false);
    let now = Instant::now();
    let descriptors = Arc::clone(&event_loop.handle.engine.descriptors);
    let mut held = descriptors.force();
    held.add(descriptors.max() - 1);
    let (_client, none) = connect(&mut event_loop, address, now);
    assert!(none.is_none() && event_loop.waiting.is_some());
    assert!(accept(&mut event_loop, now + millis(99)).is_none());
    drop(held);
    assert!(accept(&mut event_loop, now + millis(99)).is_none(), "accepting has paused");
    assert!(accept(&mut event_loop, now + millis(100)).is_some());
}

#[test]
fn a_crowd_arrives_if_a_second_connection_is_accepted_and_more_may_wait() {
    let (mut event_loop, address) = listening(config(), false);
    let now = Instant::now();
    let _first = connect(&mut event_loop, address, now);
    assert!(!event_loop.is_crowd_arriving(), "one is no crowd");
    let _second = connect(&mut event_loop, address, now);
    assert!(event_loop.is_crowd_arriving());
    assert!(accept(&mut event_loop, now).is_none());
    assert!(!event_loop.is_crowd_arriving(), "there are no more");
}

#[test]
fn a_client_behind_a_proxy_is_counted_when_the_proxy_has_named_it() {
    for (expects_proxy_header, accepted) in [(false, 1), (true, 3)] {
        let config = config().connections_per_client_max(1);
        let (mut event_loop, address) = listening(config, expects_proxy_header);
        let now = Instant::now();
        let all: Vec<_> = (0..3).map(|_| connect(&mut event_loop, address, now)).collect();
        assert_eq!(all.iter().filter(|(_, one)| one.is_some()).count(), accepted);
        assert_eq!(event_loop.handle.engine.counters.accepted.get(), 3);
    }
}

#[test]
fn a_connection_beyond_the_share_goes_to_another_loop_but_not_during_a_drain() {
    let [event_loop, other] = event_loops(config());
    for _ in 0..4 {
        event_loop.handle.count_connection();
    }
    let (accepted_first, _first) = accepted();
    assert!(event_loop.pass_to_lighter(accepted_first).is_none());
    assert_eq!(other.handle.connections(), 1, "it is counted before it has arrived");
    assert!(matches!(other.inbox.try_recv(), Ok(Message::Adopt(_))));
    event_loop.handle.engine.shutdown(Duration::from_secs(60));
    let (accepted_second, _second) = accepted();
    assert!(event_loop.pass_to_lighter(accepted_second).is_some());
    assert_eq!(other.handle.connections(), 1);
}

#[test]
fn a_connection_that_was_passed_to_a_loop_that_ends_is_not_counted_any_more() {
    let event_loop = event_loop();
    let engine = Arc::clone(&event_loop.handle.engine);
    let (accepted, _client) = accepted();
    engine.counters.connections.increment();
    event_loop.handle.send(Message::Adopt(accepted));
    drop(event_loop);
    assert_eq!(engine.counters.connections.get(), 0);
}

#[test]
fn loops_are_asked_for_room_one_after_the_other() {
    let [mut event_loop, first, second] = event_loops(config());
    first.handle.parked.store(1, Ordering::Relaxed);
    second.handle.parked.store(2, Ordering::Relaxed);
    let mut asked = || {
        event_loop.ask_for_room(Scarce::Connections);
        [&first, &second].map(|other| other.inbox.try_iter().count())
    };
    assert_eq!([asked(), asked(), asked()], [[0, 1], [1, 0], [0, 1]], "the fullest one is first");
}

#[test]
fn only_a_lack_of_descriptors_asks_another_loop_for_room() {
    let ([mut event_loop, other], now) = (event_loops(config()), Instant::now());
    other.handle.parked.store(1, Ordering::Relaxed);
    event_loop.pause_accepting(&io::Error::other("a test"), now);
    assert!(other.inbox.try_recv().is_err());
    let lack = io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
    event_loop.pause_accepting(&lack, now);
    assert!(matches!(other.inbox.try_recv(), Ok(Message::MakeRoom(_, Scarce::Descriptors))));
    assert_eq!(event_loop.accept_again_at, Some(now + accept::ACCEPT_PAUSE));
}

#[test]
fn ready_connections_are_served_after_many_that_were_accepted_in_a_row() {
    let (mut event_loop, address) = listening(config(), false);
    event_loop.accepts_in_row = 64;
    let (_client, none) = connect(&mut event_loop, address, Instant::now());
    assert!(none.is_none());
    event_loop.accepts_in_row = 63;
    assert!(accept(&mut event_loop, Instant::now()).is_some());
}
