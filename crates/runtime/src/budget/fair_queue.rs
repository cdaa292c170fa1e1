//! A queue in which clients take turns, so that the backlog of one delays only that client.
//!
//! Each client has one turn at a time, however many of its items wait. After its turn it goes to
//! the end. This is fair queueing for items of equal size: a new item of a client without others
//! waits for at most one item of each other client. An item that belongs to no counted client has
//! a turn of its own. Such items come from proxies, which carry many clients, and among
//! themselves they are served in order of arrival.
//!
//! An item whose client may not be served at the moment keeps its turn, and is overtaken. If a
//! large IPv6 network has its share, that holds for all of its clients, which may be tens of
//! thousands. So their turns are kept [apart](Apart), in a list per network: if its first turn is
//! blocked by the network, all of them are.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::net::Ipv6Addr;

use crate::budget::clients::ClientId;
use crate::budget::networks::network_of;

/// The items that wait.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    /// The turns in the order in which they are served, with their numbers.
    turns: VecDeque<(u64, Turn<T>)>,
    apart: Vec<Apart>,
    /// The number of the next turn.
    next_number: u64,
    /// The items of each counted client that has a turn, the oldest first.
    clients: BTreeMap<ClientId, VecDeque<T>>,
    /// How many clients have more than `n` items, for each `n`. With it, the number of items that
    /// will be served before another one is known without a search.
    depths: Vec<usize>,
    len: usize,
}

#[derive(Debug)]
enum Turn<T> {
    /// The oldest item of this client.
    Client(ClientId),
    /// An item of no counted client.
    Item(T),
}

/// The turns of clients whose network had its share when they were last looked at, in their order.
/// While it has its share, none of them may be served.
#[derive(Debug)]
struct Apart {
    network: Ipv6Addr,
    /// The kind of [`Obstacle::Network`].
    kind: usize,
    turns: VecDeque<(u64, ClientId)>,
}

/// Why an item may not be served now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Only this item is blocked.
    Own,
    /// The network of its client has its share, so no item of this network and this kind may be
    /// served. Each item must always have the same kind.
    Network(usize),
}

/// The place of a turn, until the queue changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Turn(usize),
    Apart(usize, usize),
}

impl<T> FairQueue<T> {
    pub(crate) const fn new() -> Self {
        Self {
            turns: VecDeque::new(),
            apart: Vec::new(),
            next_number: 0,
            clients: BTreeMap::new(),
            depths: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the largest number of items that one client has.
    pub(crate) fn depth(&self) -> usize {
        self.depths.len()
    }

    /// Returns how many items of this client wait, or 0 if the client is not counted.
    pub(crate) fn len_of(&self, client: Option<ClientId>) -> usize {
        client.and_then(|client| self.clients.get(&client)).map_or(0, VecDeque::len)
    }

    /// Returns how many items would be served before the next item of a client that has `own` items
    /// already.
    pub(crate) fn len_before(&self, own: usize) -> usize {
        // Sums the shorter part, because with one greedy client `depths` is as long as the queue.
        let (before, after) = self.depths.split_at((own + 1).min(self.depths.len()));
        if before.len() <= after.len() {
            before.iter().sum()
        } else {
            self.len - after.iter().sum::<usize>()
        }
    }

    pub(crate) fn push(&mut self, client: Option<ClientId>, item: T) {
        let Some(client) = client else {
            self.begin_turn(Turn::Item(item));
            return self.count_added(1);
        };
        let items = self.clients.entry(client).or_default();
        items.push_back(item);
        let len = items.len();
        if len == 1 {
            self.begin_turn(Turn::Client(client));
        }
        self.count_added(len);
    }

    fn begin_turn(&mut self, turn: Turn<T>) {
        self.turns.push_back((self.next_number, turn));
        self.next_number += 1;
    }

    /// Returns the place of the first turn whose item may be served, and puts none apart.
    pub(crate) fn first(&self, may_be_served: impl Fn(&T) -> bool) -> Option<Place> {
        let may = |(_, turn): &(u64, Turn<T>)| self.item_of(turn).is_some_and(&may_be_served);
        self.turns.iter().position(may).map(Place::Turn)
    }

    /// Returns the place of the first turn whose item has no obstacle. The turns before it keep
    /// their order.
    pub(crate) fn find(&mut self, obstacle: impl Fn(&T) -> Option<Obstacle>) -> Option<Place> {
        if self.is_empty() { None } else { self.find_any(&obstacle) }
    }

    /// As [`find`](Self::find), compiled once for all closures.
    #[inline(never)]
    fn find_any(&mut self, obstacle: &dyn Fn(&T) -> Option<Obstacle>) -> Option<Place> {
        let mut first = self.find_apart(obstacle);
        let mut index = 0;
        while let Some((number, turn)) = self.turns.get(index) {
            let number = *number;
            if first.is_some_and(|(earlier, _)| earlier < number) {
                break;
            }
            match (self.item_of(turn).map_or(Some(Obstacle::Own), obstacle), turn) {
                (None, _) => {
                    first = Some((number, Place::Turn(index)));
                    break;
                }
                (Some(Obstacle::Network(kind)), Turn::Client(client)) => {
                    let turn = (number, *client);
                    // An IPv4 client is in no network.
                    if !set_apart(&mut self.apart, kind, turn) {
                        index += 1;
                        continue;
                    }
                    self.turns.remove(index);
                }
                _ => index += 1,
            }
        }
        first.map(|(_, place)| place)
    }

    /// As [`find`](Self::find), among the turns that were put apart. Also returns the number of the
    /// turn.
    fn find_apart(&self, obstacle: &dyn Fn(&T) -> Option<Obstacle>) -> Option<(u64, Place)> {
        let mut first: Option<(u64, Place)> = None;
        for (of, apart) in self.apart.iter().enumerate() {
            for (index, (number, client)) in apart.turns.iter().enumerate() {
                if first.is_some_and(|(earlier, _)| earlier < *number) {
                    break;
                }
                let item = self.clients.get(client).and_then(VecDeque::front);
                match item.map_or(Some(Obstacle::Own), obstacle) {
                    Some(Obstacle::Own) => {}
                    Some(Obstacle::Network(_)) => break,
                    None => {
                        first = Some((*number, Place::Apart(of, index)));
                        break;
                    }
                }
            }
        }
        first
    }

    /// Returns the item of the turn at this place.
    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let client = match place {
            Place::Apart(of, index) => &self.apart.get(of)?.turns.get(index)?.1,
            Place::Turn(index) => match &mut self.turns.get_mut(index)?.1 {
                Turn::Item(item) => return Some(item),
                Turn::Client(client) => client,
            },
        };
        self.clients.get_mut(client)?.front_mut()
    }

    /// Removes the item of the turn at this place, which ends the turn.
    pub(crate) fn take(&mut self, place: Place) -> Option<T> {
        let client = match place {
            Place::Apart(of, index) => {
                let apart = self.apart.get_mut(of)?;
                let (_, client) = apart.turns.remove(index)?;
                if apart.turns.is_empty() {
                    self.apart.swap_remove(of);
                }
                client
            }
            Place::Turn(index) => match self.turns.remove(index)?.1 {
                Turn::Item(item) => {
                    self.count_removed(1);
                    return Some(item);
                }
                Turn::Client(client) => client,
            },
        };
        let items = self.clients.get_mut(&client)?;
        let len = items.len();
        let item = items.pop_front();
        if items.is_empty() {
            self.clients.remove(&client);
        } else {
            self.begin_turn(Turn::Client(client));
        }
        self.count_removed(len);
        item
    }

    /// Removes the item whose turn it is, if no turn was put apart.
    #[cfg(any(feature = "tls", feature = "spool", test))]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.take(Place::Turn(0))
    }

    /// Removes the newest item that may be removed of the client with the most items. It would be
    /// served after the items of all other clients. Does nothing if no client has several items.
    pub(crate) fn evict(&mut self, may_be_removed: impl Fn(&T) -> bool) -> Option<T> {
        let (client, items) = self.clients.iter_mut().max_by_key(|(_, items)| items.len())?;
        let (client, len) = (*client, items.len());
        // Its turn stays, because at least one item is left.
        let last = items.iter().rposition(may_be_removed).filter(|_| len > 1)?;
        let item = items.remove(last);
        self.count_removed(len);
        if last == 0 {
            // The next item may be of another kind.
            self.rejoin_client(client);
        }
        item
    }

    #[cold]
    fn rejoin_client(&mut self, client: ClientId) {
        for of in 0..self.apart.len() {
            let Some(Apart { turns, .. }) = self.apart.get_mut(of) else { return };
            let Some(index) = turns.iter().position(|(_, other)| *other == client) else {
                continue;
            };
            let turn = turns.remove(index);
            if turns.is_empty() {
                self.apart.swap_remove(of);
            }
            return turn.into_iter().for_each(|turn| self.rejoin(turn));
        }
    }

    /// Puts a turn back among those that are not apart.
    #[cold]
    #[inline(never)]
    fn rejoin(&mut self, (number, client): (u64, ClientId)) {
        let index = self.turns.partition_point(|(earlier, _)| *earlier < number);
        self.turns.insert(index, (number, Turn::Client(client)));
    }

    /// Removes all items of which `is_removed` is true.
    #[inline(never)]
    pub(crate) fn remove_if(&mut self, is_removed: &dyn Fn(&T) -> bool, removed: &mut Vec<T>) {
        for (number, turn) in mem::take(&mut self.turns) {
            match turn {
                Turn::Item(item) if is_removed(&item) => {
                    removed.push(item);
                    self.count_removed(1);
                }
                Turn::Item(item) => self.turns.push_back((number, Turn::Item(item))),
                Turn::Client(client) => {
                    if self.remove_of(client, is_removed, removed) {
                        self.turns.push_back((number, Turn::Client(client)));
                    }
                }
            }
        }
        for mut apart in mem::take(&mut self.apart) {
            for turn in mem::take(&mut apart.turns) {
                let first = self.clients.get(&turn.1).and_then(VecDeque::front);
                let is_changed = first.is_some_and(is_removed);
                match self.remove_of(turn.1, is_removed, removed) {
                    // What comes after the removed item may be of another kind.
                    true if is_changed => self.rejoin(turn),
                    true => apart.turns.push_back(turn),
                    false => {}
                }
            }
            if !apart.turns.is_empty() {
                self.apart.push(apart);
            }
        }
    }

    /// As [`remove_if`](Self::remove_if), for one client. Returns whether it has an item left.
    fn remove_of(
        &mut self,
        client: ClientId,
        is_removed: &dyn Fn(&T) -> bool,
        removed: &mut Vec<T>,
    ) -> bool {
        let Some(items) = self.clients.get_mut(&client) else { return false };
        let before = items.len();
        let mut kept = VecDeque::with_capacity(before);
        for item in items.drain(..) {
            if is_removed(&item) {
                removed.push(item);
            } else {
                kept.push_back(item);
            }
        }
        let left = kept.len();
        *items = kept;
        if left == 0 {
            self.clients.remove(&client);
        }
        (left + 1..=before).rev().for_each(|len| self.count_removed(len));
        left > 0
    }

    /// Returns the items in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let own = self.turns.iter().filter_map(|(_, turn)| match turn {
            Turn::Item(item) => Some(item),
            Turn::Client(_) => None,
        });
        own.chain(self.clients.values().flatten())
    }

    /// Removes all items.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let mut removed = Vec::with_capacity(self.len);
        self.remove_if(&|_| true, &mut removed);
        removed
    }

    fn item_of<'a>(&'a self, turn: &'a Turn<T>) -> Option<&'a T> {
        match turn {
            Turn::Item(item) => Some(item),
            Turn::Client(client) => self.clients.get(client)?.front(),
        }
    }

    /// Counts an item that was added: its client now has `len` items.
    fn count_added(&mut self, len: usize) {
        self.len += 1;
        match self.depths.get_mut(len - 1) {
            Some(clients) => *clients += 1,
            None => self.depths.push(1),
        }
    }

    /// Counts an item that was removed: its client had `len` items before.
    fn count_removed(&mut self, len: usize) {
        self.len -= 1;
        if let Some(clients) = self.depths.get_mut(len - 1) {
            *clients -= 1;
        }
        // A client with more items is counted at each smaller number too.
        if self.depths.last() == Some(&0) {
            self.depths.pop();
        }
    }
}

/// Puts a turn apart. Returns `false` if its client is in no network.
#[cold]
#[inline(never)]
fn set_apart(all: &mut Vec<Apart>, kind: usize, turn: (u64, ClientId)) -> bool {
    let Some(network) = network_of(turn.1) else { return false };
    let is_same = |apart: &Apart| (apart.network, apart.kind) == (network, kind);
    let index = all.iter().position(is_same).unwrap_or_else(|| {
        all.push(Apart { network, kind, turns: VecDeque::new() });
        all.len() - 1
    });
    if let Some(Apart { turns, .. }) = all.get_mut(index) {
        let index = turns.partition_point(|(earlier, _)| *earlier < turn.0);
        turns.insert(index, turn);
    }
    true
}

#[cfg(test)]
mod tests;
