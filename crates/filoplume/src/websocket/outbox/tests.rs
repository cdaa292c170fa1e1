//! Which messages are accepted by a socket without a connection.

#[cfg(feature = "websocket-deflate")]
use filoplume_websocket::{DeflateConfig, DeflateOptions};

use super::super::room::Room;
use super::super::rooms::Rooms;
use super::super::socket::Socket;
use super::*;

fn socket(unsent_bytes_max: usize) -> Socket {
    socket_with(Bounds { unsent_bytes_max, rooms_max: 1000 })
}

fn socket_with(bounds: Bounds) -> Socket {
    let outbox = Outbox::new(1, None, Form::Plain, Encoder::server(), bounds, None);
    Socket { outbox: Arc::new(outbox) }
}

#[test]
fn what_waits_is_as_long_as_the_bound_and_no_longer_but_for_one_message() {
    let text = |length| "x".repeat(length);
    let socket = socket(1000);
    // Its frame has 500 bytes, because the head has four.
    assert_eq!(socket.send(text(496)), Ok(()));
    assert_eq!(socket.send(text(501)), Err(SendError::Full));
    assert_eq!(socket.ping(&[7; 100]), Ok(()));
    assert_eq!(socket.send(text(399)), Err(SendError::Full), "a ping counts too");
    assert_eq!(socket.send(text(398)), Ok(()));
    assert_eq!(socket.ping(b"x"), Err(SendError::Full));
    let sent = |socket: &Socket| {
        let mut bytes = 0;
        socket.outbox.begin();
        socket.outbox.end(|piece| bytes += piece.len());
        bytes
    };
    assert_eq!(sent(&socket), 500 + 102 + 402);
    assert_eq!(socket.send(text(5000)), Ok(()), "it could never be sent otherwise");
    assert_eq!(socket.send("x"), Err(SendError::Full));
}

#[test]
fn what_waits_for_a_peer_that_is_disconnected_is_discarded() {
    // A close frame has a head of two bytes and a code of two.
    let closed_by = |close: fn(&Outbox) -> bool| {
        let socket = socket(1000);
        socket.send("x".repeat(100)).unwrap();
        assert!(close(&socket.outbox));
        socket.unsent_bytes()
    };
    assert_eq!(closed_by(|outbox| outbox.disconnect(CloseCode::POLICY_VIOLATION, "slow")), 8);
    assert_eq!(closed_by(|outbox| outbox.close(CloseCode::POLICY_VIOLATION, "slow")), 102 + 8);
}

#[test]
fn a_socket_that_joins_too_many_rooms_stays_out_and_is_closed() {
    let socket = socket_with(Bounds { unsent_bytes_max: 1000, rooms_max: 3 });
    let rooms = Rooms::new();
    let join = |name: &str| rooms.join(name, &socket);
    let (len, stage) = (|name: &str| rooms.len_of(name), || socket.outbox.stage());
    ["a", "b", "c"].iter().for_each(|name| join(name));
    rooms.leave("b", &socket);
    // Rooms that have ended and those that the socket is in already are not counted.
    (0..10).for_each(|_| Room::new().join(&socket));
    ["b", "c"].iter().for_each(|name| join(name));
    assert_eq!((["a", "b", "c"].map(len), stage()), ([1, 1, 1], Stage::Open));
    join("d");
    assert_eq!((len("d"), stage()), (0, Stage::Closing));
    assert!(rooms.get("d").is_none(), "it takes no memory");
    let mut sent = Vec::new();
    socket.outbox.begin();
    socket.outbox.end(|piece| sent.extend_from_slice(piece));
    assert_eq!(sent[..4], [0x88, 34, 0x03, 0xf0], "1008");
    socket.outbox.closed();
    assert_eq!(["a", "b", "c"].map(len), [0, 0, 0]);
}

#[test]
fn a_name_of_a_room_has_at_most_1024_bytes() {
    let (first, second) = (socket(1000), socket(1000));
    let rooms = Rooms::new();
    let (long, too_long) = ("a".repeat(1024), "a".repeat(1025));
    rooms.join(&long, &first);
    rooms.join(&too_long, &second);
    assert_eq!((rooms.len_of(&long), rooms.len_of(&too_long)), (1, 0));
    assert!(rooms.get(&too_long).is_none(), "it takes no memory");
    assert_eq!((first.outbox.stage(), second.outbox.stage()), (Stage::Open, Stage::Closing));
}

#[test]
fn a_socket_forgets_rooms_that_have_ended() {
    let socket = socket(1000);
    let kept = Room::new();
    kept.join(&socket);
    for _ in 0..1000 {
        Room::new().join(&socket);
    }
    assert!(socket.outbox.queue.lock().rooms.len() < 10);
    socket.outbox.closed();
    assert!(kept.is_empty(), "it has left the one that has not");
}

#[cfg(feature = "websocket-deflate")]
#[test]
fn what_clients_offer_leads_to_three_compressed_forms() {
    let mut forms = Vec::new();
    for server_bits in 9..=15 {
        for client_bits in 8..=15 {
            let offer = format!(
                "permessage-deflate; server_max_window_bits={server_bits}; \
                 client_max_window_bits={client_bits}"
            );
            let (params, _) = DeflateConfig::default().accept(&offer).unwrap();
            let bits_max = params.server_max_window_bits;
            let form = Form::deflated(bits_max, DeflateOptions::default());
            let Form::Deflated(bits, _) = form else { panic!("{offer}: {form:?}") };
            assert!((9..=bits_max).contains(&bits), "{offer}: {form:?}");
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    assert_eq!(forms.len(), 3, "{forms:?}");
}

#[test]
fn a_socket_that_was_never_opened_is_not_counted_as_closed() {
    let counts = Arc::new(SocketCounts::default());
    let bounds = Bounds { unsent_bytes_max: 1000, rooms_max: 10 };
    let counted = Some(Arc::clone(&counts));
    Outbox::new(1, None, Form::Plain, Encoder::server(), bounds, counted).closed();
    assert_eq!(format!("{counts:?}"), format!("{:?}", SocketCounts::default()));
}

/// Each thread keeps one.
#[test]
fn only_a_short_buffer_is_kept_for_the_next_call() {
    for (length, is_kept) in [(KEPT_BYTES_MAX / 2, true), (KEPT_BYTES_MAX + 1, false)] {
        BUFFER.take();
        let socket = socket(4 * KEPT_BYTES_MAX);
        socket.outbox.begin();
        socket.send("x".repeat(length)).unwrap();
        socket.outbox.end(|_| {});
        assert_eq!(BUFFER.take().capacity() > 0, is_kept, "{length}");
    }
}

/// The fewer forms there are, the fewer times a message is compressed.
#[cfg(feature = "websocket-deflate")]
#[test]
fn sockets_share_one_of_three_windows_that_is_no_longer_than_they_allow() {
    let options = DeflateOptions::default();
    for (allowed, shared) in [(15, 15), (14, 12), (12, 12), (11, 9), (9, 9)] {
        assert_eq!(Form::deflated(allowed, options), Form::Deflated(shared, options), "{allowed}");
    }
}

#[test]
fn of_several_that_append_only_the_first_wakes_the_connection() {
    let mut turn = Turn::Waiting;
    assert!(turn.must_wake() && !turn.must_wake());
    turn = Turn::Running;
    assert!(!turn.must_wake());
}
