//! What a hub keeps for clients, and who gets it.

use super::*;
use crate::core::response::IntoResponse;

fn kept(recent: &mut Recent, events: std::ops::Range<u32>, replay: usize) {
    for number in events {
        recent.keep(number.to_string(), Bytes::from(format!("{number};")), replay);
    }
}

#[test]
fn a_history_comes_in_pieces_and_without_gaps() {
    let mut recent = Recent::new(0);
    kept(&mut recent, 0..10, 4);
    assert_eq!((recent.count_to("7"), recent.count_to("2"), recent.count()), (8, 6, 10));
    let behind = |recent: &Recent, count| recent.piece_behind(count).map(|all| all.concat());
    assert_eq!(behind(&recent, 8).unwrap(), b"8;9;");
    assert_eq!(behind(&recent, 10).unwrap(), b"");
    kept(&mut recent, 10..14, 4);
    assert_eq!(behind(&recent, 10).unwrap(), b"10;11;12;13;");
    kept(&mut recent, 14..15, 4);
    assert_eq!(behind(&recent, 10), None, "10 is not kept any more");
    assert_eq!(behind(&recent, recent.removed).unwrap(), b"11;12;13;14;");
    let long = vec![b'x'; PIECE_BYTES / 2 + 1];
    recent.events.extend((0..3).map(|id| (id.to_string(), Bytes::from(long.clone()))));
    let begin = recent.count() - 3;
    assert_eq!(recent.piece_behind(begin).unwrap().len(), 1, "two are too long for a piece");
    recent.events.push_back(("long".to_owned(), vec![b'x'; 3 * PIECE_BYTES].into()));
    assert_eq!(recent.piece_behind(begin + 3).unwrap().len(), 1, "one is never too long");
}

#[test]
fn ids_say_which_process_has_sent_an_event() {
    let mut recent = Recent::new(0xabc);
    assert_eq!([(); 2].map(|()| recent.next_id()), ["abc-1", "abc-2"]);
    assert_eq!(Recent::new(0xabd).next_id(), "abd-1");
    assert_ne!(Hub::new().recent.lock().prefix, 0, "the time at which it began");
}

#[test]
fn a_client_of_a_closed_hub_is_told_to_stay_away() {
    let hub = Hub::new();
    hub.close();
    let stream = hub.subscribe(&LastEventId(None));
    assert_eq!(stream.into_response().expect("it is valid").status(), 204);
}

/// The time at which two of them began may be the same.
#[test]
#[cfg(feature = "redis")]
fn the_ids_of_a_joined_hub_begin_with_the_number_of_its_membership() {
    // Nothing listens there. The threads that connect end with the last hub.
    let channel = RedisChannel::new("unix:/nowhere/redis.sock", "feed").expect("it is a URL");
    let hub = Hub::new().joined(&channel);
    let origin = hub.joined.as_ref().map(|joined| u128::from(joined.origin()));
    assert_eq!(Some(hub.recent.lock().prefix), origin);
}

/// Returns a client that needs the first of two kept events, and the hub.
fn catching_up() -> (Hub, CatchUp, pushed::Pushed) {
    let hub = Hub::new().replay(2);
    hub.send("one");
    let (sender, body) = pushed::channel();
    let missed = hub.catch_up(0, sender);
    (hub, missed, body)
}

#[test]
fn a_client_that_has_not_begun_to_catch_up_is_not_slow() {
    let (hub, mut missed, _body) = catching_up();
    (0..3).for_each(|_| _ = hub.send("more"));
    assert!(missed.next().is_some(), "it gets what is kept");
    assert!(missed.next().is_none() && missed.sender.is_none());
    assert_eq!((hub.clients(), hub.broadcast.totals().disconnected), (1, 0));
}

#[test]
fn a_client_that_falls_behind_while_it_catches_up_is_disconnected_and_counted() {
    let (hub, mut missed, _body) = catching_up();
    assert!(missed.next().is_some());
    (0..3).for_each(|_| _ = hub.send("more"));
    assert!(missed.next().is_none() && missed.sender.is_none(), "its stream ends");
    assert_eq!((hub.clients(), hub.broadcast.totals().disconnected), (0, 1));
}

#[test]
fn a_client_that_catches_up_does_not_wait_for_an_event_that_is_being_sent() {
    let (hub, mut missed, _body) = catching_up();
    // This thread is in the midst of sending an event.
    let mut turn = hub.broadcast.turn();
    hub.recent.lock().keep("second".to_owned(), "second;".into(), 2);
    turn.let_in();
    let history = missed.next().unwrap();
    assert!(history.ends_with(b"data: one\n\nsecond;"), "{history:?}");
    assert_eq!((missed.next(), hub.clients()), (None, 1));
    assert_eq!(turn.send(&"second;".into(), None).sent, 0, "it has got this one");
    assert_eq!(hub.send("third").sent, 1);
}

/// A client that does not read would otherwise keep the streams of all others open.
#[test]
fn a_client_that_catches_up_does_not_keep_the_streams_of_a_dropped_hub_open() {
    let (hub, mut missed, _body) = catching_up();
    let others = hub.broadcast.downgrade();
    drop(hub);
    assert!(others.upgrade().is_none());
    assert!(missed.next().is_some(), "it still gets what is kept");
    assert!(missed.next().is_none() && missed.sender.is_none(), "and its stream ends");
}

#[test]
fn a_hub_is_empty_when_its_last_client_has_left_or_gives_up_what_it_missed() {
    let (hub, missed, body) = catching_up();
    assert!(!hub.is_empty(), "one catches up");
    drop((missed, body));
    assert!(hub.is_empty());
    let (mut missed, body) = {
        let (sender, body) = pushed::channel();
        (hub.catch_up(0, sender), body)
    };
    while missed.next().is_some() {}
    drop(missed);
    assert!(!hub.is_empty(), "it is among the others");
    drop(body);
    assert!(hub.is_empty());
}
