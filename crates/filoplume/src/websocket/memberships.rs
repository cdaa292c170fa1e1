//! The rooms that a socket is in, and the memory that they take.
//!
//! Clients often choose the names of their rooms, and each name that is new takes memory for as
//! long as somebody is in its room. So each membership is charged to its connection, and a room to
//! one of its members. If that member leaves, another one takes it over. If none of them has memory
//! for that, members are closed.

#[cfg(test)]
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use filoplume_runtime::tcp::LastingMemory;

use super::room::RoomInner;

/// What a membership takes: an entry in the list of the room, and one in that of the socket. Trees
/// are half full at the least.
const MEMBERSHIP_BYTES: usize = 96;

/// Why a socket cannot join a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotJoined {
    TooMany,
    OutOfMemory,
}

#[cfg(test)]
thread_local! {
    /// In tests, a socket is refused more memory than this.
    pub(super) static BYTES_MAX: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[derive(Default)]
pub(super) struct Memberships {
    /// By their address. No other room has the same address while this refers to it.
    rooms: BTreeMap<usize, Weak<RoomInner>>,
    /// The memory of the rooms that this socket is charged for.
    carried_bytes: usize,
    /// Not there before the socket opens, and without a server.
    memory: Option<LastingMemory>,
}

impl Memberships {
    pub(super) fn set_memory(&mut self, memory: LastingMemory) {
        self.memory = Some(memory);
    }

    pub(super) fn contains(&self, room: &Arc<RoomInner>) -> bool {
        self.rooms.contains_key(&address_of(room))
    }

    /// Returns the rooms that still exist.
    pub(super) fn existing(&self) -> Vec<Arc<RoomInner>> {
        self.rooms.values().filter_map(Weak::upgrade).collect()
    }

    /// Adds a room. It takes `room_bytes`, or 0 if another member is charged for it.
    pub(super) fn add(
        &mut self,
        room: &Arc<RoomInner>,
        room_bytes: usize,
        rooms_max: usize,
    ) -> Result<(), NotJoined> {
        // Rooms that have ended are removed only at powers of two and at the maximum. So they do
        // not fill the memory, and joining many rooms takes a time that is linear in their number.
        let is_full = self.rooms.len() >= rooms_max;
        if self.rooms.len().is_power_of_two() || is_full {
            self.rooms.retain(|_, other| other.strong_count() > 0);
        }
        let is_new = !self.contains(room);
        if is_new && self.rooms.len() >= rooms_max {
            return Err(NotJoined::TooMany);
        }
        let memberships = self.rooms.len() + usize::from(is_new);
        if !self.charge(memberships, self.carried_bytes + room_bytes) {
            return Err(NotJoined::OutOfMemory);
        }
        self.rooms.insert(address_of(room), Arc::downgrade(room));
        Ok(())
    }

    /// Takes over the charge for a room. Returns whether there is memory for it.
    pub(super) fn carry(&mut self, room: &Arc<RoomInner>, room_bytes: usize) -> bool {
        self.contains(room) && self.charge(self.rooms.len(), self.carried_bytes + room_bytes)
    }

    /// Removes a room, and `room_bytes` if this socket is charged for it. Returns whether it was in
    /// the room.
    pub(super) fn remove(&mut self, room: &Arc<RoomInner>, room_bytes: usize) -> bool {
        let was_in = self.rooms.remove(&address_of(room)).is_some();
        if was_in {
            self.charge(self.rooms.len(), self.carried_bytes.saturating_sub(room_bytes));
        }
        was_in
    }

    /// Removes all rooms. Their memory is charged until the second value is dropped.
    pub(super) fn take(&mut self) -> (Vec<Weak<RoomInner>>, Option<LastingMemory>) {
        let Self { rooms, memory, .. } = std::mem::take(self);
        (rooms.into_values().collect(), memory)
    }

    /// Charges this many memberships, and the rooms. Returns whether there is memory for them.
    fn charge(&mut self, memberships: usize, carried_bytes: usize) -> bool {
        let bytes = memberships.saturating_mul(MEMBERSHIP_BYTES).saturating_add(carried_bytes);
        #[cfg(test)]
        if bytes > BYTES_MAX.get() {
            return false;
        }
        let is_charged = self.memory.as_mut().is_none_or(|memory| memory.try_set(bytes));
        if is_charged {
            self.carried_bytes = carried_bytes;
        }
        is_charged
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rooms.len()
    }

    #[cfg(test)]
    pub(super) fn carried_bytes(&self) -> usize {
        self.carried_bytes
    }
}

fn address_of(room: &Arc<RoomInner>) -> usize {
    Arc::as_ptr(room).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::room::Room;

    #[test]
    fn a_socket_in_all_rooms_that_it_may_be_in_can_join_them_again() {
        let (first, second) = (Room::new(), Room::new());
        let mut memberships = Memberships::default();
        for _ in 0..2 {
            assert!(memberships.add(&first.inner, 0, 1).is_ok());
            assert!(matches!(memberships.add(&second.inner, 0, 1), Err(NotJoined::TooMany)));
        }
        assert_eq!(memberships.len(), 1);
    }

    #[test]
    fn a_room_costs_a_socket_nothing_after_it_has_left() {
        let (first, second) = (Room::new(), Room::new());
        let mut memberships = Memberships::default();
        assert!(memberships.add(&first.inner, 500, 2).is_ok());
        assert!(memberships.add(&second.inner, 70, 2).is_ok());
        memberships.remove(&first.inner, 500);
        assert_eq!((memberships.len(), memberships.carried_bytes()), (1, 70));
    }
}
