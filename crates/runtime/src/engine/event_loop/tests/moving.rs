//! Connections that leave their loop: for a thread, or for the next process.

use std::thread;

use bytes::Bytes;

use super::*;
use crate::buffers::Buffers;
use crate::engine::handover::Resumed;
use crate::protocol::Guest;
use crate::protocol::preamble::Preamble;

/// An idle connection that no slab has, and its client.
fn idle(event_loop: &mut EventLoop) -> (Box<Connection>, UnixStream) {
    let (token, client) = add_idle(event_loop, Instant::now());
    (event_loop.slab.take(token, Missed::Nothing).unwrap(), client)
}

/// Returns how the connection learns that its socket is ready.
fn mode(connection: &Connection) -> String {
    let text = format!("{connection:?}");
    let (_, mode) = text.split_once("mode: ").unwrap();
    mode.split(',').next().unwrap().to_owned()
}

#[test]
fn a_thread_that_holds_a_connection_may_hear_of_its_end() {
    let mut event_loop = event_loop();
    let (mut connection, _client) = idle(&mut event_loop);
    connection.watch(false).unwrap();
    connection.hold(millis(1000)).unwrap();
    assert_eq!(mode(&connection), "Blocking");
    connection.watch_end().unwrap();
    assert_eq!(mode(&connection), "BlockingAndReported");
    connection.release_hold().unwrap();
    assert_eq!(mode(&connection), "Reading", "its poller has it already");
    connection.hold(millis(1000)).unwrap();
    connection.watch_end().unwrap();
    connection.unwatch().unwrap();
    assert_eq!(mode(&connection), "Blocking", "the thread still has it");
    connection.release_hold().unwrap();
    assert_eq!(mode(&connection), "Unregistered");
    connection.watch(true).unwrap();
    assert_eq!(mode(&connection), "ReadingAndWriting");
    connection.watch(false).unwrap();
    assert_eq!(mode(&connection), "ReadingAndWriting");
}

#[test]
fn only_a_connection_that_waits_for_a_request_is_handed_over() {
    let mut event_loop = event_loop();
    let engine = Arc::clone(&event_loop.handle.engine);
    let (mut connection, _client) = idle(&mut event_loop);
    assert!(!engine.hands_over(&connection, false), "there is no next process");
    let (_flushed, is_flushed) = crossbeam_channel::unbounded();
    let _receiver = engine.begin_handover(is_flushed);
    assert!(engine.hands_over(&connection, false));
    assert!(!engine.hands_over(&connection, true), "it has only yielded to others");
    let mut buffers = Buffers::take();
    let more_than_the_socket_takes = Bytes::from(vec![0; 16 << 20]);
    connection.flush_with(&more_than_the_socket_takes, &mut buffers, &engine.config).unwrap();
    assert!(connection.is_writing() && engine.may_hand_over(&connection));
    assert!(!engine.hands_over(&connection, false), "the next process has not its output");
    buffers.give_back();
}

#[cfg(feature = "tls-dev")]
#[test]
fn a_connection_with_a_session_is_not_handed_over() {
    use crate::transport::tests::client::{connect, session};

    let mut event_loop = event_loop();
    let engine = Arc::clone(&event_loop.handle.engine);
    let (_flushed, is_flushed) = crossbeam_channel::unbounded();
    let _receiver = engine.begin_handover(is_flushed);
    let (mut connection, _client) = idle(&mut event_loop);
    assert!(engine.may_hand_over(&connection));
    connection.transport.secure(session(connect(&rustls::version::TLS13).0));
    assert!(!engine.may_hand_over(&connection), "the next process has not its keys");
}

#[test]
fn a_connection_with_a_proxy_header_is_handed_over_only_if_http_follows() {
    let mut event_loop = event_loop();
    let engine = Arc::clone(&event_loop.handle.engine);
    let (_flushed, is_flushed) = crossbeam_channel::unbounded();
    let _receiver = engine.begin_handover(is_flushed);
    let (mut connection, _client) = idle(&mut event_loop);
    let guest = std::mem::replace(&mut connection.guest, engine.first_guest(&accepted().0.entry));
    connection.guest = Guest::Preamble(Box::new(Preamble::before(guest)));
    assert!(engine.hands_over(&connection, false));
    let other =
        Guest::Preamble(Box::new(Preamble::before(engine.first_guest(&accepted().0.entry))));
    connection.guest = Guest::Preamble(Box::new(Preamble::before(other)));
    assert!(!engine.may_hand_over(&connection));
}

#[test]
fn a_connection_that_is_handed_over_has_left_its_thread_and_its_poller() {
    let mut event_loop = event_loop();
    let engine = Arc::clone(&event_loop.handle.engine);
    let (flushed, is_flushed) = crossbeam_channel::unbounded();
    let receiver = engine.begin_handover(is_flushed);
    let (mut held, _first) = idle(&mut event_loop);
    held.hold(millis(1000)).unwrap();
    let (mut watched, _second) = idle(&mut event_loop);
    watched.watch(false).unwrap();
    for connection in [held, watched] {
        engine.hand_over(connection);
        assert_eq!(mode(&receiver.try_recv().unwrap()), "Unregistered");
    }
    let (connection, _third) = idle(&mut event_loop);
    engine.hand_over(connection);
    // The thread that sends ends when no connection follows, and the server when all are sent.
    let (tell, ended) = crossbeam_channel::unbounded();
    let flushes = thread::spawn(move || {
        engine.flush_handover();
        tell.send(()).unwrap();
    });
    assert_eq!(receiver.iter().count(), 1);
    assert!(ended.recv_timeout(millis(50)).is_err(), "the last one may not be sent yet");
    drop(flushed);
    flushes.join().unwrap();
}

#[test]
fn a_loop_waits_for_the_connections_of_the_previous_process() {
    let [mut event_loop] = event_loops(config());
    let (engine, now) = (Arc::clone(&event_loop.handle.engine), Instant::now());
    engine.begin_receiving();
    let (_flushed, is_flushed) = crossbeam_channel::unbounded();
    let _receiver = engine.begin_handover(is_flushed);
    event_loop.continue_to_stop(now);
    assert!(was_woken(&mut event_loop) && !event_loop.has_drained(now));
    engine.end_receiving();
    assert!(was_woken(&mut event_loop) && event_loop.has_drained(now));
}

#[test]
fn connections_of_the_previous_process_are_spread_and_never_refused() {
    let [first, second] = event_loops(config().connections_per_client_max(1));
    let engine = Arc::clone(&first.handle.engine);
    let received = [0, 1, 2].map(|number| {
        let (accepted, client) = accepted();
        engine.resume(Resumed { accepted, leftover: Vec::new(), head_ends_in: None }, number);
        let event_loop = [&first, &second][number % 2];
        let Ok(Message::Resume(resumed)) = event_loop.inbox.try_recv() else {
            panic!("loop {} has connection {number}", number % 2);
        };
        (resumed, client)
    });
    let is_counted = received.map(|(resumed, _)| resumed.accepted.counts_for.client().is_some());
    assert_eq!(is_counted, [true, false, false], "the client has one place");
    assert_eq!(engine.counters.accepted.get(), 3);
    assert_eq!((first.handle.connections(), second.handle.connections()), (2, 1));
}
