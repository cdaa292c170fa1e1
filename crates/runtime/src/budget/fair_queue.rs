//! A queue in which clients take turns, so that the backlog of one delays only that client.
//!
//! Each client has one turn at a time, however many of its items wait. After its turn it goes to
//! the end. This is fair queueing for items of equal size: a new item of a client without others
//! waits for at most one item of each other client. An item that belongs to no counted client has
//! a turn of its own. Such items come from proxies, which carry many clients, and among
//! themselves they are served in order of arrival.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use crate::budget::clients::ClientId;

/// The items that wait.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    /// The turns in the order in which they are served.
    turns: VecDeque<Turn<T>>,
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

impl<T> FairQueue<T> {
    pub(crate) const fn new() -> Self {
        Self { turns: VecDeque::new(), clients: BTreeMap::new(), depths: Vec::new(), len: 0 }
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
            self.turns.push_back(Turn::Item(item));
            return self.count_added(1);
        };
        let items = self.clients.entry(client).or_default();
        items.push_back(item);
        let len = items.len();
        if len == 1 {
            self.turns.push_back(Turn::Client(client));
        }
        self.count_added(len);
    }

    /// Returns the index of the first turn whose item may be served now. The turns before it stay
    /// where they are.
    pub(crate) fn find(&self, may_be_served: impl Fn(&T) -> bool) -> Option<usize> {
        self.turns.iter().position(|turn| self.item_of(turn).is_some_and(&may_be_served))
    }

    /// Returns the item of a turn.
    pub(crate) fn get_mut(&mut self, turn: usize) -> Option<&mut T> {
        match self.turns.get_mut(turn)? {
            Turn::Item(item) => Some(item),
            Turn::Client(client) => self.clients.get_mut(client)?.front_mut(),
        }
    }

    /// Removes the item of a turn, which ends the turn.
    pub(crate) fn take(&mut self, turn: usize) -> Option<T> {
        let client = match self.turns.remove(turn)? {
            Turn::Item(item) => {
                self.count_removed(1);
                return Some(item);
            }
            Turn::Client(client) => client,
        };
        let items = self.clients.get_mut(&client)?;
        let len = items.len();
        let item = items.pop_front();
        if items.is_empty() {
            self.clients.remove(&client);
        } else {
            self.turns.push_back(Turn::Client(client));
        }
        self.count_removed(len);
        item
    }

    /// Removes the item whose turn it is.
    #[cfg(any(feature = "tls", feature = "spool", test))]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.take(0)
    }

    /// Removes the newest item that may be removed of the client with the most items. It would be
    /// served after the items of all other clients. Does nothing if no client has several items.
    pub(crate) fn evict(&mut self, may_be_removed: impl Fn(&T) -> bool) -> Option<T> {
        let items = self.clients.values_mut().max_by_key(|items| items.len())?;
        let len = items.len();
        // Its turn stays, because at least one item is left.
        let last = items.iter().rposition(may_be_removed).filter(|_| len > 1)?;
        let item = items.remove(last);
        self.count_removed(len);
        item
    }

    /// Removes all items of which `is_removed` is true.
    pub(crate) fn remove_if(&mut self, is_removed: impl Fn(&T) -> bool, removed: &mut Vec<T>) {
        for turn in mem::take(&mut self.turns) {
            match turn {
                Turn::Item(item) if is_removed(&item) => {
                    removed.push(item);
                    self.count_removed(1);
                }
                Turn::Item(item) => self.turns.push_back(Turn::Item(item)),
                Turn::Client(client) => {
                    if self.remove_of(client, &is_removed, removed) {
                        self.turns.push_back(Turn::Client(client));
                    }
                }
            }
        }
    }

    /// As [`remove_if`](Self::remove_if), for one client. Returns whether it has an item left.
    fn remove_of(
        &mut self,
        client: ClientId,
        is_removed: impl Fn(&T) -> bool,
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
        let own = self.turns.iter().filter_map(|turn| match turn {
            Turn::Item(item) => Some(item),
            Turn::Client(_) => None,
        });
        own.chain(self.clients.values().flatten())
    }

    /// Removes all items.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let mut removed = Vec::with_capacity(self.len);
        self.remove_if(|_| true, &mut removed);
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

#[cfg(test)]
mod tests {
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
        let turn = queue.find(|item| !item.starts_with('a')).unwrap();
        assert_eq!(queue.get_mut(turn).copied(), Some("b1"));
        assert_eq!(queue.take(turn), Some("b1"));
        assert_eq!(queue.find(|item| item.starts_with('b')), None);
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
            queue.remove_if(|item| removed.contains(item), &mut late);
            assert_eq!(late.join(" "), removed);
            assert_eq!([queue.len(), queue.iter().count()], [left.split_whitespace().count(); 2]);
            assert_eq!(served(queue), left);
        }
    }
}
