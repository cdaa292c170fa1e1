//! Which connection is closed to make room for another one.

use std::io::Write;

use super::*;
use crate::buffers::Buffers;
use crate::protocol::Guest;
use crate::protocol::raw::Raw;
use crate::service::tcp::{Io, Protocol};

/// Takes the connection that would be closed at this time.
fn shed(event_loop: &mut EventLoop, now: Instant) -> Option<usize> {
    Some(event_loop.make_room(Scarce::Connections, now)?.connection.token())
}

#[test]
fn a_client_that_sends_its_next_request_at_once_keeps_its_connection() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let (token, _client) = add_idle(&mut event_loop, now);
    assert_eq!(shed(&mut event_loop, now + millis(99)), None);
    assert_eq!(shed(&mut event_loop, now + millis(300)), Some(token));
}

#[test]
fn a_head_has_a_second_to_arrive() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let (token, _client) = add_new(&mut event_loop, now);
    assert_eq!(shed(&mut event_loop, now + millis(999)), None);
    assert_eq!(shed(&mut event_loop, now + millis(1200)), Some(token));
}

#[test]
fn a_search_without_success_is_not_repeated_at_once() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    assert_eq!(shed(&mut event_loop, now + millis(200)), None);
    let (token, _client) = add_idle(&mut event_loop, now);
    assert_eq!(shed(&mut event_loop, now + millis(299)), None);
    assert_eq!(shed(&mut event_loop, now + millis(300)), Some(token));
}

#[test]
fn a_search_that_found_many_is_repeated_as_soon_as_they_are_used_up() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let added: Vec<_> = (0..20).map(|_| add_idle(&mut event_loop, now)).collect();
    let mut closed: Vec<_> =
        added.iter().map(|_| shed(&mut event_loop, now + millis(200)).unwrap()).collect();
    closed.sort_unstable();
    assert_eq!(closed, added.iter().map(|(token, _)| *token).collect::<Vec<_>>());
}

#[test]
fn the_one_that_waits_for_longest_is_closed_unless_it_was_used() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let added = [20, 0, 10].map(|after| add_idle(&mut event_loop, now + millis(after)));
    let [(last, _), (first, _), (used, _)] = &added;
    assert_eq!(shed(&mut event_loop, now + millis(200)), Some(*first));
    event_loop.slab.parked_mut(*used).unwrap().deadline = now + millis(210) + KEEP_ALIVE_TIMEOUT;
    assert_eq!(shed(&mut event_loop, now + millis(400)), Some(*last));
    assert_eq!(shed(&mut event_loop, now + millis(500)), Some(*used), "it is found again");
}

#[test]
fn a_request_that_has_arrived_is_not_lost() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let (_, mut sends_request) = add_idle(&mut event_loop, now);
    let (_, mut sends_head) = add_new(&mut event_loop, now);
    let (silent, _client) = add_new(&mut event_loop, now + millis(1));
    sends_request.write_all(b"G").unwrap();
    sends_head.write_all(b"G").unwrap();
    assert_eq!(shed(&mut event_loop, now + millis(2000)), Some(silent));
    assert_eq!(shed(&mut event_loop, now + millis(2000)), None);
}

#[test]
fn after_a_second_there_may_be_others_with_which_less_is_lost() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let heads = [0, 1, 2].map(|after| add_new(&mut event_loop, now + millis(after)));
    assert_eq!(shed(&mut event_loop, now + millis(2000)), Some(heads[0].0));
    let (idle, _client) = add_idle(&mut event_loop, now + millis(2000));
    assert_eq!(shed(&mut event_loop, now + millis(3000)), Some(heads[1].0));
    assert_eq!(shed(&mut event_loop, now + millis(3001)), Some(idle));
    assert_eq!(shed(&mut event_loop, now + millis(3001)), Some(heads[2].0));
}

#[test]
fn only_an_idle_connection_is_closed_where_the_program_may_not_run() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let (head, _other) = add_new(&mut event_loop, now);
    assert!(event_loop.make_idle_room(now + millis(2000)).is_none());
    assert!(event_loop.slab.parked_mut(head).is_some());
    let (idle, _client) = add_idle(&mut event_loop, now + millis(1000));
    let room = event_loop.make_idle_room(now + millis(3001));
    assert_eq!(room.map(|shed| shed.connection.token()), Some(idle));
}

#[test]
fn a_thread_that_waits_for_a_descriptor_is_told_and_asks_other_loops_itself() {
    let ([mut event_loop, other], now) = (event_loops(config()), Instant::now());
    other.handle.parked.store(1, Ordering::Relaxed);
    let (sender, waiting) = crossbeam_channel::unbounded();
    assert!(event_loop.find_descriptor(Some(sender.clone()), now).is_none());
    assert!(other.inbox.try_recv().is_err());
    assert!(event_loop.find_descriptor(None, now).is_none());
    let asked = other.inbox.try_recv().unwrap();
    assert!(matches!(asked, Message::MakeRoom(_, Scarce::Descriptors)), "{asked:?}");
    let (token, _client) = add_idle(&mut event_loop, now);
    let Some(Turn::Shed(shed)) = event_loop.find_descriptor(Some(sender), now + millis(300)) else {
        panic!("the idle connection is closed");
    };
    assert_eq!((shed.connection.token(), shed.scarce), (token, Scarce::Descriptors));
    assert!(waiting.try_recv().is_err());
    shed.waiting.unwrap().send(()).unwrap();
    waiting.try_recv().unwrap();
}

/// Makes a connection one that lingers since `at`.
fn linger(event_loop: &mut EventLoop, token: usize, at: Instant) {
    let timeout = event_loop.handle.engine.config.linger_timeout;
    let connection = event_loop.slab.parked_mut(token).unwrap();
    connection.guest.linger(at + timeout);
    connection.deadline = at + timeout;
}

#[test]
fn the_end_of_a_response_has_a_second_to_arrive() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let (token, _client) = add_idle(&mut event_loop, now);
    linger(&mut event_loop, token, now);
    assert_eq!(shed(&mut event_loop, now + millis(999)), None);
    assert_eq!(shed(&mut event_loop, now + millis(1100)), Some(token));
}

/// Adds a silent connection of another protocol and of this client. Returns when it fell silent.
fn add_stream(event_loop: &mut EventLoop, client: [u8; 4]) -> (usize, UnixStream, Instant) {
    let engine = Arc::clone(&event_loop.handle.engine);
    let (mut accepted, socket) = accepted();
    accepted.peer = Peer::Tcp(SocketAddr::from((client, 4711)));
    accepted.counts_for = engine.admit(accepted.peer).unwrap();
    let mut connection = event_loop.adopt(accepted, Instant::now());
    let (token, clock) = (connection.token(), Clock::new());
    let mut raw = Raw::new(Arc::new(|_: Peer| Silent));
    raw.deadline(&clock, &engine.config);
    connection.guest = Guest::Raw(Box::new(raw));
    event_loop.park(connection, clock.now());
    (token, socket, clock.now())
}

/// A protocol that is never called.
struct Silent;

impl Protocol for Silent {
    fn data(&mut self, _: &[u8], _: &mut Io<'_>) -> usize {
        panic!("a test")
    }
}

#[test]
fn only_a_client_with_more_than_its_share_loses_a_silent_stream() {
    // A share is a quarter of the connections: two.
    let [mut event_loop] = event_loops(config().connections_max(8));
    let mut streams = [1, 1, 1, 2, 2].map(|client| add_stream(&mut event_loop, [8, 8, 8, client]));
    let now = streams[4].2;
    assert_eq!(shed(&mut event_loop, streams[0].2 + millis(99)), None);
    assert_eq!(shed(&mut event_loop, now + millis(200)), Some(streams[0].0));
    // The other two were selected too. The closed one still counts until it is dropped, so that is
    // looked at again.
    assert_eq!(shed(&mut event_loop, now + millis(200)), None);
    streams[1].1.write_all(b"message").unwrap();
    let fourth = add_stream(&mut event_loop, [8, 8, 8, 1]);
    assert_eq!(shed(&mut event_loop, now + millis(2000)), Some(streams[2].0), "the other has sent");
    drop(fourth);
}

#[test]
fn a_scan_selects_a_part_of_all_connections() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    // Threads have most of them.
    (0..9 * 32).for_each(|_| _ = event_loop.slab.reserve());
    let idle =
        [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|after| add_idle(&mut event_loop, now + millis(after)));
    for (token, _) in &idle[..8] {
        assert_eq!(shed(&mut event_loop, now + millis(200)), Some(*token));
    }
    let (_, _client) = add_idle(&mut event_loop, now);
    assert_eq!(shed(&mut event_loop, now + millis(200)), Some(idle[8].0), "it was selected before");
}

#[test]
fn only_a_slow_peer_is_slow() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let (token, _client) = add_idle(&mut event_loop, now);
    let engine = Arc::clone(&event_loop.handle.engine);
    let connection = event_loop.slab.parked_mut(token).unwrap();
    assert!(!connection.is_slow(&engine.config, now + millis(1000)));
}

/// Gives a connection output that its socket does not take, from now on.
fn stall(event_loop: &mut EventLoop, token: usize) -> Instant {
    let engine = Arc::clone(&event_loop.handle.engine);
    let connection = event_loop.slab.parked_mut(token).unwrap();
    while connection.transport.write(&[0; 4096]).is_ok() {}
    connection.unsent = None;
    let mut buffers = Buffers::take();
    buffers.output.push(b'x');
    connection.flush(&mut buffers, &engine.config).unwrap();
    buffers.give_back();
    connection.unsent.as_ref().unwrap().pressed_deadline()
}

#[test]
fn a_peer_that_is_still_slow_is_closed_although_it_has_taken_something() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let [first, second] = [(); 2].map(|()| add_idle(&mut event_loop, now));
    stall(&mut event_loop, first.0);
    let before = stall(&mut event_loop, second.0);
    let later = now + Duration::from_secs(1000);
    let closed = event_loop.make_room(Scarce::Connections, later).unwrap();
    assert_eq!((closed.connection.token(), closed.only_if_slow), (first.0, true));
    assert_ne!(stall(&mut event_loop, second.0), before);
    assert_eq!(shed(&mut event_loop, later), Some(second.0));
}
