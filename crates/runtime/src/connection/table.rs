//! The connections of one event loop, by token. The table owns those that are parked and keeps
//! the place of those that are away.

use super::Connection;

/// Where a connection is, as its loop knows it.
#[derive(Debug)]
enum Entry {
    /// Nobody's; the next such entry, if any.
    Vacant { next: Option<usize> },
    /// Here, waiting for its peer.
    Parked(Box<Connection>),
    /// In somebody's hand. What its poller said meanwhile is not lost.
    Away { missed: bool },
}

/// A table of connections whose places are reused.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    vacant: Option<usize>,
    taken: usize,
    parked: usize,
}

impl Table {
    /// Places that are taken, by parked connections and by those away.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// Reserves a place for a connection that is in the caller's hand.
    pub(crate) fn reserve(&mut self) -> usize {
        self.taken += 1;
        let Some(token) = self.vacant else {
            self.entries.push(Entry::Away { missed: false });
            return self.entries.len() - 1;
        };
        if let Entry::Vacant { next } = self.entries[token] {
            self.vacant = next;
        }
        self.entries[token] = Entry::Away { missed: false };
        token
    }

    /// Takes a parked connection out, or notes for one that is away that its peer has moved.
    pub(crate) fn take(&mut self, token: usize) -> Option<Box<Connection>> {
        let entry = self.entries.get_mut(token)?;
        match std::mem::replace(entry, Entry::Away { missed: true }) {
            Entry::Parked(connection) => {
                *entry = Entry::Away { missed: false };
                self.parked -= 1;
                Some(connection)
            }
            Entry::Away { .. } => None,
            vacant @ Entry::Vacant { .. } => {
                *entry = vacant;
                None
            }
        }
    }

    /// Connections that are here.
    pub(crate) fn parked_len(&self) -> usize {
        self.parked
    }

    /// A parked connection, to look at.
    pub(crate) fn parked_mut(&mut self, token: usize) -> Option<&mut Connection> {
        match self.entries.get_mut(token)? {
            Entry::Parked(connection) => Some(connection),
            Entry::Away { .. } | Entry::Vacant { .. } => None,
        }
    }

    /// Returns whether the peer of a connection moved while it was away, and forgets it.
    pub(crate) fn take_missed(&mut self, token: usize) -> bool {
        match self.entries.get_mut(token) {
            Some(Entry::Away { missed }) => std::mem::take(missed),
            _ => false,
        }
    }

    /// Puts a connection that was away back to its place.
    pub(crate) fn park(&mut self, connection: Box<Connection>) {
        let token = connection.token();
        debug_assert!(matches!(self.entries[token], Entry::Away { .. }), "parked twice");
        self.entries[token] = Entry::Parked(connection);
        self.parked += 1;
    }

    /// Gives the place of a connection that is gone to the next one.
    pub(crate) fn release(&mut self, token: usize) {
        debug_assert!(matches!(self.entries[token], Entry::Away { .. }), "released while parked");
        self.entries[token] = Entry::Vacant { next: self.vacant };
        self.vacant = Some(token);
        self.taken -= 1;
    }

    /// The tokens of all parked connections.
    pub(crate) fn parked_tokens(&self) -> Vec<usize> {
        let parked = |(token, entry): (usize, &Entry)| matches!(entry, Entry::Parked(_)).then_some(token);
        self.entries.iter().enumerate().filter_map(parked).collect()
    }
}
