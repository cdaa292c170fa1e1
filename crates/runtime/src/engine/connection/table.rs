//! The connections of one event loop, by token. The slab owns the parked connections and keeps the
//! entries of those that a thread has taken.

/// One entry of the slab.
#[derive(Debug)]
enum Entry<C> {
    /// Free. Links to the next vacant entry, if any.
    Vacant { next: Option<usize> },
    /// The connection is in the slab and waits for its peer.
    Parked(Box<C>),
    /// Another owner has the connection. Readiness that the poller reports meanwhile is kept here.
    Away { missed: Missed },
}

/// The readiness that was reported while a connection was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Missed {
    #[default]
    Nothing,
    /// The socket became readable or writable.
    Io,
    /// The peer has closed its direction, possibly after some last bytes. This is not reported
    /// again.
    IoAndEnd,
}

/// A slab of connections. Vacant entries are reused.
#[derive(Debug)]
pub(crate) struct Table<C> {
    entries: Vec<Entry<C>>,
    vacant: Option<usize>,
    taken: usize,
    parked: usize,
    /// Taken connections with missed readiness.
    missed: usize,
}

impl<C> Table<C> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), vacant: None, taken: 0, parked: 0, missed: 0 }
    }

    /// Returns the number of connections, parked and taken.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// Reserves an entry for a connection that the caller owns. Returns its token.
    pub(crate) fn reserve(&mut self) -> usize {
        self.taken += 1;
        let Some(token) = self.vacant else {
            self.entries.push(Entry::Away { missed: Missed::Nothing });
            return self.entries.len() - 1;
        };
        if let Entry::Vacant { next } = self.entries[token] {
            self.vacant = next;
        }
        self.entries[token] = Entry::Away { missed: Missed::Nothing };
        token
    }

    /// Takes a parked connection out. If another owner has it, records `said` as missed readiness
    /// instead.
    #[inline]
    pub(crate) fn take(&mut self, token: usize, said: Missed) -> Option<Box<C>> {
        let entry = self.entries.get_mut(token)?;
        match std::mem::replace(entry, Entry::Away { missed: Missed::Nothing }) {
            Entry::Parked(connection) => {
                self.parked -= 1;
                Some(connection)
            }
            Entry::Away { missed } => {
                self.missed += usize::from(missed == Missed::Nothing && said != Missed::Nothing);
                *entry = Entry::Away { missed: missed.max(said) };
                None
            }
            vacant @ Entry::Vacant { .. } => {
                *entry = vacant;
                None
            }
        }
    }

    /// Returns whether a taken connection has missed readiness.
    pub(crate) fn has_missed(&self) -> bool {
        self.missed > 0
    }

    /// Returns the number of parked connections.
    pub(crate) fn parked_len(&self) -> usize {
        self.parked
    }

    /// Returns a reference to a parked connection.
    pub(crate) fn parked_mut(&mut self, token: usize) -> Option<&mut C> {
        match self.entries.get_mut(token)? {
            Entry::Parked(connection) => Some(connection),
            Entry::Away { .. } | Entry::Vacant { .. } => None,
        }
    }

    /// Returns the readiness that was reported while the connection was taken, and clears it.
    pub(crate) fn take_missed(&mut self, token: usize) -> Missed {
        match self.entries.get_mut(token) {
            Some(Entry::Away { missed }) => {
                self.missed -= usize::from(*missed != Missed::Nothing);
                std::mem::take(missed)
            }
            _ => Missed::Nothing,
        }
    }

    /// Puts a taken connection back into its entry.
    #[inline(always)]
    pub(crate) fn park(&mut self, token: usize, connection: Box<C>) {
        let before = std::mem::replace(&mut self.entries[token], Entry::Parked(connection));
        debug_assert!(matches!(before, Entry::Away { .. }), "parked twice");
        if let Entry::Away { missed: Missed::Io | Missed::IoAndEnd } = before {
            self.missed -= 1;
        }
        self.parked += 1;
    }

    /// Frees the entry of a connection that has ended.
    pub(crate) fn release(&mut self, token: usize) {
        debug_assert!(matches!(self.entries[token], Entry::Away { .. }), "released while parked");
        self.take_missed(token);
        self.entries[token] = Entry::Vacant { next: self.vacant };
        self.vacant = Some(token);
        self.taken -= 1;
    }

    /// Returns all parked connections, with their tokens.
    pub(crate) fn parked(&self) -> impl Iterator<Item = (usize, &C)> {
        self.entries.iter().enumerate().filter_map(|(token, entry)| match entry {
            Entry::Parked(connection) => Some((token, &**connection)),
            Entry::Away { .. } | Entry::Vacant { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slab with one parked connection.
    fn parked() -> (Table<&'static str>, usize) {
        let mut table = Table::new();
        let token = table.reserve();
        table.park(token, Box::new("it"));
        (table, token)
    }

    #[test]
    fn a_parked_connection_is_taken_once() {
        let (mut table, token) = parked();
        assert_eq!((table.len(), table.parked_len()), (1, 1));
        assert_eq!(table.take(token, Missed::Io).as_deref(), Some(&"it"));
        assert_eq!((table.len(), table.parked_len()), (1, 0));
        assert_eq!(table.take(token, Missed::Io), None);
        assert_eq!(table.parked_mut(token), None);
    }

    #[test]
    fn missed_readiness_is_returned_once() {
        let (mut table, token) = parked();
        assert_eq!(table.take_missed(token), Missed::Nothing, "it is parked");
        let connection = table.take(token, Missed::Io).unwrap();
        assert_eq!(
            table.take_missed(token),
            Missed::Nothing,
            "the event for which it was taken is not missed"
        );
        table.take(token, Missed::Io);
        table.take(token, Missed::Io);
        assert_eq!(table.take_missed(token), Missed::Io);
        assert_eq!(table.take_missed(token), Missed::Nothing);
        table.park(token, connection);
        assert!(table.take(token, Missed::Io).is_some());
    }

    #[test]
    fn a_missed_end_is_not_overwritten_by_later_readiness() {
        let mut table: Table<()> = Table::new();
        let token = table.reserve();
        table.take(token, Missed::IoAndEnd);
        table.take(token, Missed::Io);
        assert_eq!(table.take_missed(token), Missed::IoAndEnd);
    }

    #[test]
    fn a_reserved_connection_can_miss_readiness() {
        let mut table: Table<()> = Table::new();
        let token = table.reserve();
        assert_eq!(table.take(token, Missed::Io), None);
        assert_eq!(table.take_missed(token), Missed::Io);
    }

    #[test]
    fn a_reused_entry_has_no_missed_readiness() {
        let (mut table, token) = parked();
        table.take(token, Missed::Io);
        table.take(token, Missed::Io);
        table.release(token);
        assert_eq!(table.len(), 0);
        assert_eq!(table.take(token, Missed::Io), None, "an event for a released connection");
        assert_eq!(table.take_missed(token), Missed::Nothing);
        assert_eq!(table.reserve(), token);
        assert_eq!(table.take_missed(token), Missed::Nothing, "its predecessor missed it");
    }

    #[test]
    fn vacant_entries_are_reused_last_in_first_out_before_the_slab_grows() {
        let mut table: Table<()> = Table::new();
        assert_eq!([table.reserve(), table.reserve(), table.reserve()], [0, 1, 2]);
        table.release(0);
        table.release(2);
        assert_eq!([table.reserve(), table.reserve(), table.reserve()], [2, 0, 3]);
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn has_missed_counts_taken_connections_with_missed_readiness() {
        let (mut table, token) = parked();
        assert!(!table.has_missed());
        let connection = table.take(token, Missed::Io).unwrap();
        assert!(!table.has_missed(), "the event was delivered");
        table.take(token, Missed::Io);
        table.take(token, Missed::IoAndEnd);
        assert!(table.has_missed());
        assert_eq!(table.take_missed(token), Missed::IoAndEnd);
        assert!(!table.has_missed());
        table.take(token, Missed::Io);
        table.park(token, connection);
        assert!(!table.has_missed(), "parking clears it");
        table.take(token, Missed::Io).unwrap();
        table.take(token, Missed::Io);
        table.release(token);
        assert!(!table.has_missed(), "it was released");
    }

    #[test]
    fn only_parked_connections_are_listed() {
        let (mut table, first) = parked();
        let second = table.reserve();
        let third = table.reserve();
        table.park(third, Box::new("third"));
        let listed = |table: &Table<_>| table.parked().map(|(token, _)| token).collect::<Vec<_>>();
        assert_eq!(listed(&table), [first, third]);
        table.release(second);
        assert_eq!(listed(&table), [first, third]);
    }

    #[test]
    fn a_token_beyond_the_slab_has_no_connection() {
        let (mut table, token) = parked();
        assert_eq!(table.take(token + 1, Missed::Io), None);
        assert_eq!(table.parked_mut(token + 1), None);
        assert_eq!(table.take_missed(token + 1), Missed::Nothing);
    }
}
