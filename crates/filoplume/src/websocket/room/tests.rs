//! Members come and go while messages are sent.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::super::memberships::BYTES_MAX;
use super::super::outbox::{Bounds, Stage};
use super::super::pace::{PATIENCE, during};
use super::super::rooms::Rooms;
use super::*;

const DEADLINE: Duration = Duration::from_secs(20);

/// A socket without a connection.
fn socket(id: u64) -> Socket {
    socket_with(id, 1 << 20)
}

fn socket_with(id: u64, unsent_bytes_max: usize) -> Socket {
    let bounds = Bounds { unsent_bytes_max, rooms_max: 1000 };
    let outbox = Outbox::new(id, None, Form::Plain, Encoder::server(), bounds, None);
    Socket { outbox: Arc::new(outbox) }
}

/// Does what happens when the peer has taken everything.
fn take_all(socket: &Socket) {
    socket.outbox.begin();
    socket.outbox.end(|_| {});
}

/// Returns a room with members whose bound is 1000 bytes.
fn room_of<const N: usize>(ids: [u64; N]) -> (Room, [Socket; N]) {
    let (room, sockets) = (Room::new(), ids.map(|id| socket_with(id, 1000)));
    sockets.iter().for_each(|socket| room.join(socket));
    (room, sockets)
}

fn behind(room: &Room) -> Vec<u64> {
    room.inner.members.lock().behind.iter().map(|outbox| outbox.id).collect()
}

#[test]
fn a_message_that_is_being_sent_keeps_nobody_from_another_room() {
    let rooms = Rooms::new();
    rooms.join("large", &socket(1));
    let large = rooms.get("large").unwrap();
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        // Locked as while a message is sent to all members.
        let members = large.inner.members.lock();
        let of_large = scope.spawn(|| {
            let socket = socket(2);
            rooms.join("large", &socket);
            rooms.leave("large", &socket);
        });
        let rooms = &rooms;
        scope.spawn(move || {
            // By now, the other thread usually waits for the large room.
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

/// Regression: sockets in a thousand rooms that closed at once kept their loop for half a second or
/// more.
#[test]
fn who_closes_leaves_many_rooms_on_another_thread() {
    const MANY: usize = 1000;

    let (rooms, socket) = (Rooms::new(), socket(1));
    (0..MANY).for_each(|number| rooms.join(&number.to_string(), &socket));
    let inners: Vec<_> = rooms.names().iter().map(|name| rooms.get(name).unwrap().inner).collect();
    // Locked as while a message is sent: nobody leaves a room meanwhile.
    let members: Vec<_> = inners.iter().map(|inner| inner.members.lock()).collect();
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            socket.outbox.closed();
            done.send(()).unwrap();
        });
        let has_closed = is_done.recv_timeout(DEADLINE);
        drop(members);
        has_closed.unwrap();
    });
    let end = Instant::now() + DEADLINE;
    while !rooms.names().is_empty() {
        assert!(Instant::now() < end, "{} rooms are left", rooms.names().len());
        thread::yield_now();
    }
}

#[test]
fn who_is_in_a_room_already_joins_it_without_waiting_for_others() {
    let rooms = Rooms::new();
    let member = socket(1);
    rooms.join("room", &member);
    let room = rooms.get("room").unwrap();
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        // Locked as while a message is sent to all members.
        let members = room.inner.members.lock();
        let rooms = &rooms;
        let member = &member;
        scope.spawn(move || {
            (0..1000).for_each(|_| rooms.join("room", member));
            done.send(()).unwrap();
        });
        let joined = is_done.recv_timeout(DEADLINE);
        drop(members);
        assert_eq!(joined, Ok(()));
    });
    assert_eq!(room.len(), 1);
    rooms.leave("room", &member);
    assert!(rooms.get("room").is_none());
    rooms.join("room", &member);
    assert_eq!(rooms.len_of("room"), 1, "it can come back");
}

/// A socket that has forgotten a room is no member of it, or could not join it again.
#[test]
fn threads_that_let_a_socket_join_and_leave_at_once_do_not_keep_it_out() {
    let rooms = Rooms::new();
    let (member, other) = (socket(1), socket(2));
    rooms.join("room", &other);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    rooms.join("room", &member);
                    rooms.leave("room", &member);
                }
            });
        }
    });
    rooms.leave("room", &member);
    assert_eq!(rooms.len_of("room"), 1);
    rooms.join("room", &member);
    assert_eq!(rooms.len_of("room"), 2);
}

#[test]
fn a_room_is_charged_to_one_member_at_a_time() {
    let rooms = Rooms::new();
    let sockets = [1, 2, 3].map(socket);
    let carried = || sockets.each_ref().map(|socket| socket.outbox.carried_bytes());
    sockets.iter().for_each(|socket| rooms.join("one", socket));
    rooms.join("other room", &sockets[1]);
    let (one, other) = (NAMED_ROOM_BYTES + 3, NAMED_ROOM_BYTES + 10);
    assert_eq!(carried(), [one, other, 0]);
    rooms.leave("one", &sockets[0]);
    assert_eq!(carried(), [0, one + other, 0], "the next member takes it over");
    sockets[1].outbox.closed();
    assert_eq!(carried(), [0, 0, one], "or whoever is there");
    rooms.join("one", &sockets[0]);
    rooms.leave("one", &sockets[0]);
    assert_eq!(carried(), [0, 0, one]);
    rooms.leave("one", &sockets[2]);
    Room::new().join(&sockets[0]);
    assert_eq!(carried(), [0; 3], "rooms without a name are the program's");
}

/// Regression: the room was charged to nobody, although a member was open.
#[test]
fn a_room_is_not_charged_to_a_closed_socket_that_has_yet_to_leave_it() {
    let (rooms, sockets) = (Rooms::new(), [1, 2, 3].map(socket));
    let mut all = ["one", "two"].map(|name| {
        sockets.iter().for_each(|socket| rooms.join(name, socket));
        rooms.get(name).unwrap()
    });
    // In this order a socket leaves them.
    all.sort_by_key(|room| Arc::as_ptr(&room.inner).addr());
    let [first, second] = all;
    let bytes = second.inner.bytes();
    thread::scope(|scope| {
        // Locked as while a message is sent to all members.
        let members = first.inner.members.lock();
        let closing = scope.spawn(|| sockets[1].outbox.closed());
        while sockets[1].outbox.stage() != Stage::Closed {
            thread::yield_now();
        }
        second.leave(&sockets[0]);
        let carried = sockets[2].outbox.carried_bytes();
        drop(members);
        closing.join().unwrap();
        assert_eq!(carried, bytes);
    });
    assert_eq!((first.len(), second.len()), (2, 1));
}

#[test]
fn a_room_is_charged_to_a_member_that_has_memory_for_it() {
    let (rooms, sockets) = (Rooms::new(), [1, 2, 3].map(socket));
    sockets.iter().for_each(|socket| rooms.join("one", socket));
    rooms.join("two", &sockets[1]);
    BYTES_MAX.set(1000);
    rooms.leave("one", &sockets[0]);
    assert_eq!(sockets[2].outbox.carried_bytes(), NAMED_ROOM_BYTES + 3);
    assert!(sockets[1].is_open() && rooms.len_of("one") == 2);
}

/// Regression: the room stayed, and was charged to nobody.
#[test]
fn members_are_closed_and_leave_if_none_has_memory_for_their_room() {
    let (rooms, sockets) = (Rooms::new(), [1, 2, 3].map(|id| socket_with(id, 1000)));
    sockets.iter().for_each(|socket| rooms.join("one", socket));
    for _ in 0..4 {
        rooms.broadcast("one", [7; 300].as_slice());
    }
    let room = rooms.get("one").unwrap();
    BYTES_MAX.set(200);
    sockets[0].outbox.closed();
    BYTES_MAX.set(usize::MAX);
    assert!(sockets.iter().all(|socket| !socket.is_open()));
    assert!(rooms.names().is_empty() && room.is_empty());
    assert!(behind(&room).is_empty() && !room.inner.overrun.is_set());
    rooms.join("one", &socket(4));
    sockets.iter().for_each(|socket| socket.outbox.closed());
    assert_eq!(rooms.len_of("one"), 1);
}

#[test]
fn a_closed_socket_that_is_told_to_leave_is_charged_until_it_has_left_all_rooms() {
    let (rooms, sockets) = (Rooms::new(), [1, 2].map(socket));
    let mut all = ["one", "two"].map(|name| {
        sockets.iter().for_each(|socket| rooms.join(name, socket));
        rooms.get(name).unwrap()
    });
    all.sort_by_key(|room| Arc::as_ptr(&room.inner).addr());
    let [first, second] = all;
    thread::scope(|scope| {
        let members = first.inner.members.lock();
        let closing = scope.spawn(|| sockets[0].outbox.closed());
        while sockets[0].outbox.stage() != Stage::Closed {
            thread::yield_now();
        }
        // As a closure does that is called when the socket has closed.
        second.leave(&sockets[0]);
        let seen = (second.len(), sockets[1].outbox.carried_bytes());
        drop(members);
        closing.join().unwrap();
        assert_eq!(seen, (1, 0), "it would be charged twice");
    });
    assert_eq!(sockets[1].outbox.carried_bytes(), 2 * (NAMED_ROOM_BYTES + 3));
}

#[test]
fn each_message_notes_anew_who_is_behind() {
    let (room, [slow, quick]) = room_of([1, 2]);
    // More than half of the bound waits from the second message on.
    for expected in [vec![], vec![1], vec![1], vec![1]] {
        thread::scope(|scope| scope.spawn(|| room.broadcast([7; 300].as_slice())).join().unwrap());
        assert_eq!(behind(&room), expected);
        take_all(&quick);
    }
    let crowds = || during(|| _ = room.broadcast("short")).and_then(|noted| noted.upgrade());
    assert!(crowds().is_some_and(|noted| Arc::ptr_eq(&noted, &room.inner)));
    take_all(&slow);
    assert!(crowds().is_none() && behind(&room).is_empty());
    for _ in 0..2 {
        room.broadcast([7; 300].as_slice());
    }
    room.leave(&slow);
    assert_eq!(behind(&room), [2], "whoever leaves is not waited for");
}

#[test]
fn a_room_is_overrun_only_while_more_than_its_bound_waits_for_a_member() {
    let (room, [slow, sender]) = room_of([1, 2]);
    let send = || room.broadcast_except(&sender, [7; 300].as_slice());
    for expected in [false, false, false, true, true] {
        assert_eq!(send(), Broadcast { sent: 1, slow: 0 });
        assert_eq!(room.inner.overrun.is_set(), expected);
    }
    assert!(room.inner.wait_for_members(&sender.outbox).is_some());
    assert!(room.inner.overrun.is_set());
    take_all(&slow);
    assert_eq!(room.inner.wait_for_members(&sender.outbox), None);
    assert!(!room.inner.overrun.is_set());
}

/// Regression: if nobody sent to the room afterwards, it stayed overrun for ever, and each message
/// of every socket looked through the rooms of that socket.
#[test]
fn a_room_is_no_longer_overrun_when_its_slow_members_have_left() {
    let (room, slow) = room_of([1, 2, 3]);
    for _ in 0..4 {
        assert_eq!(room.broadcast([7; 300].as_slice()), Broadcast { sent: 3, slow: 0 });
    }
    assert!(room.inner.overrun.is_set());
    room.leave(&slow[0]);
    assert!(room.inner.overrun.is_set(), "more than its bound waits for another member");
    slow[1].outbox.closed();
    room.leave(&slow[2]);
    assert!(!room.inner.overrun.is_set());
}

#[test]
fn a_member_that_takes_nothing_is_disconnected_at_16_times_its_bound() {
    let (room, [slow]) = room_of([1]);
    let mut sent = 0;
    let refused = loop {
        let result = room.broadcast([7; 996].as_slice());
        if result.slow > 0 {
            break result;
        }
        sent += result.sent;
        assert!(sent < 100);
    };
    // With its head of four bytes a frame is as long as the bound. One more than 16 of them waits.
    assert_eq!((sent, refused), (17, Broadcast { sent: 0, slow: 1 }));
    assert!(!slow.is_open());
    let (room, slow) = (Room::skip_slow(), socket_with(1, 1000));
    room.join(&slow);
    let results = [(); 3].map(|()| room.broadcast([7; 600].as_slice()));
    assert_eq!(results.map(|result| (result.sent, result.slow)), [(1, 0), (0, 1), (0, 1)]);
    assert!(slow.is_open() && behind(&room).is_empty(), "nobody waits for it");
}

#[test]
fn a_room_that_is_over_takes_the_name_only_from_itself() {
    let (rooms, members) = (Rooms::new(), [1, 2].map(socket));
    rooms.join("one", &members[0]);
    let over = rooms.get("one").unwrap();
    over.leave(&members[0]);
    rooms.join("one", &members[1]);
    // As if the room that is over were removed late, when another one has its name.
    let (home, name) = over.inner.home().unwrap();
    home.forget(name, &over.inner);
    assert_eq!((rooms.names(), rooms.len_of("one")), (vec!["one".to_owned()], 1));
}

#[test]
fn all_rooms_of_an_app_count_their_messages_together() {
    let rooms = Rooms::skip_slow();
    let sockets = [1, 2, 3, 4].map(|id| socket_with(id, 1000));
    for (socket, name) in sockets.iter().zip(["one", "one", "one", "two"]) {
        rooms.join(name, socket);
    }
    rooms.broadcast("one", [7; 600].as_slice());
    rooms.broadcast("one", [7; 600].as_slice());
    rooms.get("two").unwrap().broadcast("hello");
    assert_eq!(rooms.broadcast("nobody is here", "hello"), Broadcast::default());
    let app = crate::App::new().metrics("/metrics").collector(rooms.collector("chat"));
    let text = app.test().get("/metrics").send().text().to_owned();
    for line in [
        "filoplume_rooms{rooms=\"chat\"} 2\n",
        "filoplume_room_members{rooms=\"chat\"} 4\n",
        "filoplume_room_messages_total{rooms=\"chat\"} 3\n",
        "filoplume_room_deliveries_total{rooms=\"chat\",result=\"sent\"} 4\n",
        "filoplume_room_deliveries_total{rooms=\"chat\",result=\"slow\"} 3\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn a_member_that_was_waited_for_too_long_is_disconnected_at_its_bound() {
    for (waited, expected) in
        [(PATIENCE / 2, Broadcast { sent: 1, slow: 0 }), (PATIENCE, Broadcast { sent: 0, slow: 1 })]
    {
        let (room, [slow]) = room_of([1]);
        for _ in 0..3 {
            assert_eq!(room.broadcast([7; 300].as_slice()).sent, 1);
        }
        slow.outbox.wait_as_if_for(waited);
        assert_eq!(room.broadcast([7; 300].as_slice()), expected, "{waited:?}");
        assert_eq!(slow.is_open(), expected.slow == 0);
    }
}

/// What waits for it is sent before its next message is read.
#[test]
fn a_sender_that_is_behind_does_not_wait_for_itself() {
    let (room, [sender, other]) = room_of([1, 2]);
    for _ in 0..2 {
        room.broadcast([7; 300].as_slice());
    }
    assert_eq!(behind(&room), [1, 2]);
    assert!(room.inner.wait_for_members(&sender.outbox).is_some(), "for the other one");
    take_all(&other);
    assert_eq!(room.inner.wait_for_members(&sender.outbox), None);
}

#[test]
fn a_member_that_takes_something_is_waited_for_again() {
    let (room, slow) = (Room::new(), socket_with(1, 10_000));
    room.join(&slow);
    // More than a call of the protocol sends, so that something is left.
    for _ in 0..3 {
        assert_eq!(room.broadcast(vec![7; 40_000]).sent, 1);
    }
    slow.outbox.wait_as_if_for(PATIENCE);
    take_all(&slow);
    assert!(slow.unsent_bytes() > 10_000);
    assert_eq!(room.broadcast("more"), Broadcast { sent: 1, slow: 0 });
}

/// Again and again, the last member leaves while another one joins.
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
