//! Tests of the queue.

use super::*;

/// Returns a queue of these items. The letter is the client, and `-` is a client that is not
/// counted.
fn queue(items: &str) -> FairQueue<&str> {
    let mut queue = FairQueue::new();
    for item in items.split_whitespace() {
        queue.push(client(item), item);
    }
    queue
}

fn client(item: &str) -> Option<ClientId> {
    let letter = item.bytes().next().filter(|letter| *letter != b'-')?;
    Some(ClientId::V4([192, 0, 2, letter].into()))
}

fn served(mut queue: FairQueue<&str>) -> String {
    let mut served = Vec::new();
    while let Some(item) = queue.pop() {
        served.push(item);
    }
    assert_eq!((queue.len(), queue.depth(), queue.clients.len()), (0, 0, 0));
    served.join(" ")
}

#[test]
fn clients_take_turns() {
    for (items, expected) in [
        ("", ""),
        ("a1 a2 a3", "a1 a2 a3"),
        ("-1 -2 -3", "-1 -2 -3"),
        ("a1 a2 a3 b1", "a1 b1 a2 a3"),
        ("a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3"),
        ("a1 a2 a3 -1 -2", "a1 -1 -2 a2 a3"),
        ("-1 a1 -2 a2 -3", "-1 a1 -2 -3 a2"),
    ] {
        assert_eq!(served(queue(items)), expected, "{items}");
    }
}

#[test]
fn a_client_whose_turn_has_ended_goes_behind_those_who_came_meanwhile() {
    let mut queue = queue("a1 a2 a3");
    assert_eq!(queue.pop(), Some("a1"));
    for item in ["-1", "b1", "a4"] {
        queue.push(client(item), item);
    }
    assert_eq!(served(queue), "a2 -1 b1 a3 a4");
}

#[test]
fn the_items_before_another_one_are_known() {
    for (items, item, before) in [
        ("", "a", 0),
        ("a1 a2 a3", "a", 3),
        ("a1 a2 a3", "b", 1),
        ("a1 a2 a3", "-", 1),
        ("-1 -2 -3", "-", 3),
        ("a1 a2 a3 a4 b1 b2 c1", "b", 6),
        ("a1 a2 a3 a4 b1 b2 c1", "c", 5),
        ("a1 a2 a3 a4 b1 b2 c1", "d", 3),
    ] {
        let queue = queue(items);
        assert_eq!(queue.len_before(queue.len_of(client(item))), before, "{items}, {item}");
    }
}

#[test]
fn an_item_that_may_not_be_served_keeps_its_turn() {
    let mut queue = queue("a1 a2 b1 c1");
    let turn = queue.find(|item| item.starts_with('a').then_some(Obstacle::Own)).unwrap();
    assert_eq!(queue.get_mut(turn).copied(), Some("b1"));
    assert_eq!(queue.take(turn), Some("b1"));
    assert!(queue.find(|item| (!item.starts_with('b')).then_some(Obstacle::Own)).is_none());
    assert_eq!(served(queue), "a1 c1 a2");
}

#[test]
fn the_last_item_of_the_greediest_client_is_evicted() {
    for (items, kept, expected) in [
        ("a1 a2 a3 b1 b2 -1", "", Some("a3")),
        ("a1 a2 a3 b1 b2 -1", "a3", Some("a2")),
        ("a1 a2 b1", "a1 a2", None),
        ("a1 b1 -1 -2", "", None),
        ("", "", None),
    ] {
        let mut queue = queue(items);
        let evicted = queue.evict(|item| !kept.contains(item));
        assert_eq!(evicted, expected, "{items}, without {kept}");
        assert_eq!(queue.len(), queue.depths.iter().sum::<usize>());
    }
}

#[test]
fn removed_items_leave_the_others_in_order() {
    for (items, removed, left) in [
        ("a1 a2 a3 b1 -1 -2", "a1 b1 -1", "a2 -2 a3"),
        ("a1 a2 a3 b1", "a2", "a1 b1 a3"),
        ("a1 a2 -1", "a1 a2 -1", ""),
    ] {
        let mut queue = queue(items);
        let mut late = Vec::new();
        queue.remove_if(&|item: &_| removed.contains(item), &mut late);
        assert_eq!(late.join(" "), removed);
        assert_eq!([queue.len(), queue.iter().count()], [left.split_whitespace().count(); 2]);
        assert_eq!(served(queue), left);
    }
}

/// Returns client number `number` of network `network`.
fn of_network(network: u16, number: u16) -> Option<ClientId> {
    Some(ClientId::V6([0x2001, 0xdb8, network, number, 0, 0, 0, 0].into()))
}

/// An item with the number of its network and its kind.
type Of = (u16, usize, u16);

fn full(networks: &[u16]) -> impl Fn(&Of) -> Option<Obstacle> + use<'_> {
    move |(network, kind, _)| networks.contains(network).then_some(Obstacle::Network(*kind))
}

/// Takes what may be served, in its order. Returns the last numbers.
fn take_all(queue: &mut FairQueue<Of>, networks: &[u16]) -> Vec<u16> {
    let mut taken = Vec::new();
    while let Some(place) = queue.find(full(networks)) {
        let looked_at = queue.get_mut(place).copied();
        let item = queue.take(place);
        assert_eq!(item, looked_at);
        taken.extend(item.map(|(.., number)| number));
    }
    taken
}

#[test]
fn one_look_shows_that_no_client_of_a_network_may_be_served() {
    const MANY: u16 = 10_000;
    let mut queue = FairQueue::new();
    for number in 0..MANY {
        queue.push(of_network(number % 2, number), (number % 2, 0, number));
    }
    let looks = std::cell::Cell::new(0);
    let find = |queue: &mut FairQueue<Of>| {
        let before = looks.get();
        let place = queue.find(|item| {
            looks.set(looks.get() + 1);
            full(&[0, 1])(item)
        });
        (place.and_then(|place| queue.take(place)), looks.get() - before)
    };
    assert_eq!(find(&mut queue).0, None);
    assert_eq!(find(&mut queue), (None, 2), "one for each network");
    queue.push(of_network(2, 1), (2, 0, MANY));
    assert_eq!(find(&mut queue), (Some((2, 0, MANY)), 3));
    queue.push(of_network(0, MANY), (0, 0, MANY));
    assert_eq!(find(&mut queue), (None, 3));
    assert_eq!(find(&mut queue), (None, 2));
    assert_eq!(queue.len(), usize::from(MANY) + 1);
    assert!(take_all(&mut queue, &[]).into_iter().eq(0..=MANY), "they have kept their order");
    assert_eq!((queue.len(), queue.depth(), queue.apart.len()), (0, 0, 0));
}

#[test]
fn a_network_is_overtaken_only_while_it_may_not_be_served() {
    let mut queue = FairQueue::new();
    for (number, network) in [0, 1, 0, 2, 1, 0].into_iter().enumerate() {
        let number = u16::try_from(number).unwrap();
        queue.push(of_network(network, number), (network, 0, number));
    }
    assert_eq!(take_all(&mut queue, &[0, 1]), [3]);
    queue.push(of_network(2, 6), (2, 0, 6));
    queue.push(of_network(1, 1), (1, 0, 7));
    assert_eq!(
        take_all(&mut queue, &[0]),
        [1, 4, 6, 7],
        "the second item of a client is a turn later"
    );
    assert_eq!(take_all(&mut queue, &[1]), [0, 2, 5]);
    assert_eq!(queue.len(), 0);
}

#[test]
fn items_of_another_kind_are_not_held_up() {
    let mut queue = FairQueue::new();
    for number in 0..4 {
        queue.push(of_network(0, number), (0, usize::from(number % 2), number));
    }
    assert!(queue.find(full(&[0])).is_none());
    let only = |kind: usize| move |item: &Of| full(&[0])(item).filter(|_| item.1 == kind);
    let place = queue.find(only(0)).unwrap();
    assert_eq!(queue.take(place), Some((0, 1, 1)));
    let place = queue.find(only(1)).unwrap();
    assert_eq!(queue.take(place), Some((0, 0, 0)));
    assert_eq!(take_all(&mut queue, &[]), [2, 3]);
}

#[test]
fn turns_that_are_apart_keep_their_order_when_items_are_removed() {
    let mut queue = FairQueue::new();
    for number in 0..5 {
        queue.push(of_network(0, number), (0, 0, number));
    }
    // The next items of these clients are of another kind.
    for number in [1, 2] {
        queue.push(of_network(0, number), (0, 1, number + 10));
    }
    assert!(queue.find(full(&[0])).is_none());
    assert_eq!(queue.evict(|item| item.2 == 2), Some((0, 0, 2)));
    let mut removed = Vec::new();
    queue.remove_if(&|item: &_| [0, 1].contains(&item.2), &mut removed);
    removed.sort_unstable();
    assert_eq!(removed, [(0, 0, 0), (0, 0, 1)]);
    let only_first = |item: &Of| full(&[0])(item).filter(|_| item.1 == 0);
    let mut taken = Vec::new();
    while let Some(place) = queue.find(only_first) {
        taken.extend(queue.take(place));
    }
    assert_eq!(taken, [(0, 1, 11), (0, 1, 12)]);
    assert_eq!(take_all(&mut queue, &[]), [3, 4]);
    assert_eq!((queue.len(), queue.depth(), queue.iter().count()), (0, 0, 0));
}

/// An item of a client, by its number, with a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbered {
    client: u16,
    kind: usize,
    number: u16,
}

/// Clients 0 to 5 belong to two networks, 6 to none, and 7 is not counted.
fn numbered(client: u16) -> Option<ClientId> {
    match client {
        0..6 => of_network(client % 2, client),
        6 => Some(ClientId::V4([192, 0, 2, 6].into())),
        _ => None,
    }
}

/// What may not be served: bits of clients, and of kinds of items of the two networks.
fn obstacle(item: &Numbered, clients: u16, networks: u16) -> Option<Obstacle> {
    let is_set = |bits: u16, bit: u16| bits >> bit & 1 == 1;
    if item.client < 6 && is_set(networks, item.client % 2 * 2 + u16::from(item.kind == 1)) {
        return Some(Obstacle::Network(item.kind));
    }
    is_set(clients, item.client).then_some(Obstacle::Own)
}

/// A queue that looks at all turns, each of which has all items of its client.
#[derive(Default)]
struct Plain(Vec<Vec<Numbered>>);

impl Plain {
    fn push(&mut self, item: Numbered) {
        let is_own = |items: &&mut Vec<Numbered>| item.client < 7 && items[0].client == item.client;
        match self.0.iter_mut().find(is_own) {
            Some(items) => items.push(item),
            None => self.0.push(vec![item]),
        }
    }

    fn take(&mut self, obstacle: impl Fn(&Numbered) -> Option<Obstacle>) -> Option<Numbered> {
        let turn = self.0.iter().position(|items| obstacle(&items[0]).is_none())?;
        let mut items = self.0.remove(turn);
        let item = items.remove(0);
        if !items.is_empty() {
            self.0.push(items);
        }
        Some(item)
    }

    fn remove_if(&mut self, is_removed: impl Fn(&Numbered) -> bool) {
        self.0.iter_mut().for_each(|items| items.retain(|item| !is_removed(item)));
        self.0.retain(|items| !items.is_empty());
    }
}

/// Turns that are apart change nothing but the number of looks.
#[test]
fn the_order_is_that_of_a_queue_that_looks_at_all_turns() {
    let mut state = 1_u64;
    // Knuth's generator for 64 bits.
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u16::try_from(state >> 48).unwrap()
    };
    let (mut queue, mut plain) = (FairQueue::new(), Plain::default());
    for number in 0..20_000 {
        let (step, bits) = (random() >> 13, random());
        let is_chosen = |item: &Numbered| bits >> (item.number % 16) & 1 == 1;
        match step {
            0..4 => {
                let [client, kind] = [random() >> 13, random() >> 15];
                let item = Numbered { client, kind: kind.into(), number };
                queue.push(numbered(client), item);
                plain.push(item);
            }
            4..6 => {
                let obstacle = |item: &Numbered| obstacle(item, bits, bits >> 8);
                let place = queue.find(obstacle);
                let taken = place.and_then(|place| queue.take(place));
                assert_eq!(taken, plain.take(obstacle), "step {number}");
            }
            6 => {
                let evicted = queue.evict(is_chosen);
                plain.remove_if(|item| Some(*item) == evicted);
            }
            _ if bits & 7 == 0 => {
                queue.remove_if(&is_chosen, &mut Vec::new());
                plain.remove_if(is_chosen);
            }
            _ => {}
        }
        assert_eq!(queue.len(), plain.0.iter().flatten().count());
    }
    while let Some(place) = queue.find(|_| None) {
        assert_eq!(queue.take(place), plain.take(|_| None));
    }
    assert_eq!((queue.len(), queue.apart.len(), plain.0.len()), (0, 0, 0));
}
