//! Rooms of several instances, joined by Redis.

use filoplume::instances::RedisChannel;
use filoplume::prelude::*;
use filoplume::websocket::{Message, Rooms, Socket, WebSocketUpgrade};
use harness::Redis;

use crate::client::{Client, Received, eventually, text};

struct Instance {
    rooms: Rooms,
    channel: RedisChannel,
    app: filoplume::RunningApp,
}

impl Instance {
    fn start(url: &str) -> Self {
        let channel = RedisChannel::new(url, "chat").unwrap();
        let rooms = Rooms::new().joined(&channel);
        let app = App::new()
            .state(rooms.clone())
            .websocket(
                "/{room}",
                |Path(name): Path<String>, State(rooms): State<Rooms>, up: WebSocketUpgrade| {
                    let (room, all) = (name.clone(), rooms.clone());
                    up.unsent_bytes_max(64 << 20)
                        .on_open(move |socket: &Socket| {
                            all.join(&room, socket);
                            socket.send("joined")
                        })
                        .on_message(move |socket: &Socket, message: Message| {
                            let room = rooms.get(&name).unwrap();
                            match message {
                                Message::Text(text) => room.broadcast(text),
                                // Binary messages go to the other members only.
                                Message::Binary(bytes) => room.broadcast_except(socket, bytes),
                            };
                        })
                },
            )
            .start("127.0.0.1:0")
            .unwrap();
        Self { rooms, channel, app }
    }

    fn start_two(server: &Redis) -> [Self; 2] {
        let other = format!("redis://localhost:{}/", server.address().port());
        let instances = [Self::start(&server.url()), Self::start(&other)];
        instances.iter().for_each(Self::wait_for_redis);
        instances
    }

    fn wait_for_redis(&self) {
        eventually("Redis is reached", || self.channel.is_connected());
    }

    fn member(&self, room: &str) -> Client {
        let mut client = Client::connect(self.app.local_addr(), &format!("/{room}"));
        client.expect(text("joined"));
        client
    }
}

#[test]
fn members_on_all_instances_receive_each_message_once() {
    let Some(server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    let [mut ada, mut bob] = [first.member("one"), first.member("one")];
    let [mut cid, mut eve] = [second.member("one"), second.member("other")];
    for number in 0..500 {
        ada.text(&number.to_string());
    }
    for member in [&mut ada, &mut bob, &mut cid] {
        (0..500).for_each(|number| member.expect(text(&number.to_string())));
    }
    cid.binary(&[0, 0xff, 7]);
    cid.text("back");
    for member in [&mut ada, &mut bob] {
        member.expect(Received::Binary(vec![0, 0xff, 7]));
        member.expect(text("back"));
    }
    cid.expect(text("back"));
    first.rooms.broadcast("other", "nobody of this instance is there");
    eve.expect(text("nobody of this instance is there"));
}

#[test]
fn names_of_rooms_are_only_names_and_strangers_make_no_rooms() {
    let Some(server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    let mut member = second.member("feather");
    for name in ["", "*", "feather\r\nPUBLISH x y", "filoplume:channel:chat", "\u{1f426}\0"] {
        first.rooms.broadcast(name, "for nobody");
    }
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut publish = |message: &[u8]| {
        let publish = redis::cmd("PUBLISH").arg("filoplume:channel:chat").arg(message).to_owned();
        publish.exec(&mut connection).unwrap();
    };
    let head = |length: u64| [&[1, 2][..], &[9; 8], &length.to_be_bytes()].concat();
    let content = |length: u64, text: &[u8]| [&length.to_be_bytes()[..], text].concat();
    let rows: [&[u8]; 7] = [
        b"",
        b"\x01\x02",
        &head(u64::MAX),
        &head(7),
        &[&head(7)[..], b"feather", &[2], &content(1, b"x")].concat(),
        &[&head(7)[..], b"feather", &[0], &content(1, b"\xff")].concat(),
        &[&head(7)[..], b"feather", &[0], &content(2, b"x")].concat(),
    ];
    rows.iter().for_each(|row| publish(row));
    publish(&[&head(7)[..], b"feather", &[0], &content(2, b"hi")].concat());
    member.expect(text("hi"));
    assert_eq!(second.channel.counts().refused, rows.len() as u64);
    assert_eq!(second.rooms.names(), ["feather"]);
}

#[test]
fn rooms_go_on_without_redis_and_join_again_when_it_is_back() {
    let Some(mut server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    let [mut ada, mut bob] = [first.member("one"), second.member("one")];
    server.stop();
    eventually("the loss is noticed", || !first.channel.is_connected());
    ada.text("alone");
    ada.expect(text("alone"));
    eventually("it is dropped", || first.channel.counts().dropped >= 1);
    server.restart();
    first.wait_for_redis();
    second.wait_for_redis();
    ada.text("together");
    ada.expect(text("together"));
    bob.expect(text("together"));
}

#[test]
fn a_member_that_reads_slowly_does_not_hold_up_the_messages_of_other_instances() {
    let Some(server) = Redis::start() else { return };
    let [first, second] = Instance::start_two(&server);
    let _silent = second.member("one");
    let mut reader = second.member("one");
    // The messages are more than the system buffers for a socket that nobody reads.
    let large = "x".repeat(256 * 1024);
    for number in 0..100 {
        first.rooms.broadcast("one", format!("{number}{large}"));
        reader.expect(text(&format!("{number}{large}")));
    }
    assert_eq!(first.channel.counts().dropped, 0);
}
