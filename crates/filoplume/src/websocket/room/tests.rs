//! Members come and go while messages are sent.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::super::rooms::Rooms;
use super::*;

const DEADLINE: Duration = Duration::from_secs(20);

/// A socket without a connection.
fn socket(id: u64) -> Socket {
    let outbox = Outbox::new(id, None, Form::Plain, Encoder::server(), 1 << 20, None);
    Socket { outbox: Arc::new(outbox) }
}

#[test]
fn a_message_that_is_being_sent_keeps_nobody_from_another_room() {
    let rooms = Rooms::new();
    rooms.join("large", &socket(1));
    let large = rooms.get("large").unwrap();
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        // As while a message is sent to all members.
        let members = large.inner.members.lock();
        let of_large = scope.spawn(|| {
            let socket = socket(2);
            rooms.join("large", &socket);
            rooms.leave("large", &socket);
        });
        let rooms = &rooms;
        scope.spawn(move || {
            // Whoever waits for the large room waits by now, most of the times.
            thread::sleep(Duration::from_millis(20));
            let socket = socket(3);
            rooms.join("small", &socket);
            done.send(rooms.broadcast("small", "hello").sent).unwrap();
            rooms.leave("small", &socket);
        });
        let sent = is_done.recv_timeout(DEADLINE);
        drop(members);
        of_large.join().unwrap();
        assert_eq!(sent, Ok(1));
    });
    assert_eq!(rooms.names(), ["large"]);
}

/// The last one leaves while another one joins, all the time.
#[test]
fn whoever_joins_while_the_last_one_leaves_is_in_the_room() {
    let rooms = Rooms::new();
    thread::scope(|scope| {
        for id in 0..3 {
            let rooms = &rooms;
            scope.spawn(move || {
                let socket = socket(id);
                for _ in 0..5_000 {
                    rooms.join("one", &socket);
                    let room = rooms.get("one").expect("it has a member");
                    assert!(!room.is_empty() && rooms.len_of("one") >= 1);
                    room.leave(&socket);
                }
            });
        }
    });
    assert!(rooms.names().is_empty());
}

#[test]
fn a_room_with_a_name_that_was_kept_is_the_one_that_has_the_name_now() {
    let rooms = Rooms::new();
    let (first, second, third) = (socket(1), socket(2), socket(3));
    rooms.join("one", &first);
    let kept = rooms.get("one").unwrap();
    kept.leave(&first);
    assert!(kept.is_empty() && rooms.names().is_empty());
    assert_eq!(kept.broadcast("nobody"), Broadcast::default());

    kept.join(&second);
    rooms.join("one", &third);
    assert_eq!((kept.len(), rooms.len_of("one")), (2, 2));
    assert_eq!(kept.broadcast("both").sent, 2);
    assert_eq!(kept.broadcast_except(&third, "one").sent, 1);
    kept.leave(&second);
    assert_eq!((kept.len(), rooms.len_of("one")), (1, 1));
}
