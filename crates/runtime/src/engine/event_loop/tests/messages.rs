//! How many messages a loop handles between two polls.

use super::*;
use crate::engine::event_loop::messages::{MESSAGES_MAX, NOTIFIED_TIME};

/// A loop with as many messages that ask for a turn, and the clients of their connections.
fn notified(messages: usize) -> (EventLoop, Vec<UnixStream>) {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let mut clients = Vec::new();
    for _ in 0..messages {
        let (token, client) = add_idle(&mut event_loop, now);
        event_loop.handle.send(Message::Notify(token));
        clients.push(client);
    }
    (event_loop, clients)
}

/// Counts the turns of messages until the loop polls, or until there were as many.
fn turns(event_loop: &mut EventLoop, max: usize) -> usize {
    let now = Instant::now();
    (0..max).take_while(|_| event_loop.next_message(now).is_some()).count()
}

#[test]
fn messages_end_after_their_number_and_go_on_after_the_poll() {
    let (mut event_loop, _clients) = notified(MESSAGES_MAX + 2);
    // In the future, so that only their number ends them, however slow the machine is.
    event_loop.notified_since = Some(Instant::now() + Duration::from_secs(1000));
    assert_eq!(turns(&mut event_loop, MESSAGES_MAX + 2), MESSAGES_MAX);
    assert!(matches!(event_loop.next_arrival(&mut Clock::new()), Turn::Again));
    assert!(turns(&mut event_loop, 9) > 0);
}

#[test]
fn messages_end_when_they_have_taken_long_and_go_on_after_the_poll() {
    let (mut event_loop, _clients) = notified(3);
    let before = Instant::now();
    assert_eq!(turns(&mut event_loop, 1), 1);
    assert!(event_loop.notified_since.unwrap() >= before, "counted from the first message");
    event_loop.notified_since = Instant::now().checked_sub(NOTIFIED_TIME);
    assert_eq!(turns(&mut event_loop, 2), 0);
    assert!(matches!(event_loop.next_arrival(&mut Clock::new()), Turn::Again));
    assert!(turns(&mut event_loop, 2) > 0);
}

#[cfg(feature = "waits")]
#[test]
fn all_loops_are_asked_what_their_connections_wait_for() {
    use crate::service::monitor::{IdleConnections, ServerState};

    let [first, second] = event_loops(config());
    let engine = Arc::clone(&first.handle.engine);
    first.handle.parked.store(3, Ordering::Relaxed);
    second.handle.parked.store(4, Ordering::Relaxed);
    // Nobody leads the loops, so none responds.
    let expected = IdleConnections { other: 7, ..IdleConnections::default() };
    assert_eq!(engine.idle_connections(), expected);
    for event_loop in [&first, &second] {
        assert!(matches!(event_loop.inbox.try_recv(), Ok(Message::CountWaits(_))));
    }
    drop((first, second));
    assert_eq!(engine.idle_connections(), IdleConnections::default());
}

#[cfg(feature = "waits")]
#[test]
fn a_loop_with_many_connections_looks_at_some_of_them_and_scales_up() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let (sender, receiver) = crossbeam_channel::unbounded();
    let mut clients = Vec::new();
    // Of 1025 connections it looks at every second one, 513, and counts each of them twice.
    for (connections, counted) in [(3, 3), (1024, 1024), (1025, 1026)] {
        while clients.len() < connections {
            clients.push(add_idle(&mut event_loop, now));
        }
        assert!(event_loop.tell_waits(&sender).is_none());
        let idle = receiver.try_recv().unwrap();
        assert_eq!((idle.request, idle.total()), (counted, counted), "{connections}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn steps_of_handshakes_are_counted_until_the_next_poll() {
    let (mut event_loop, _clients) = notified(1);
    event_loop.note_computed(millis(1));
    event_loop.note_computed(millis(2));
    assert_eq!(event_loop.computed_in_turn(), millis(3));
    event_loop.wait(&mut Clock::new());
    assert_eq!(event_loop.computed_in_turn(), Duration::ZERO);
}
