//! Which connection is closed to make room for another one.

use std::io::Write;

use super::*;

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
