//! The connections of one event loop, by token. The table owns those that are parked and keeps
//! the place of those that are away.

/// Where a connection is, as its loop knows it.
#[derive(Debug)]
enum Entry<C> {
    /// Nobody's; the next such entry, if any.
    Vacant { next: Option<usize> },
    /// Here, waiting for its peer.
    Parked(Box<C>),
    /// In somebody's hand. What its poller said meanwhile is not lost.
    Away { missed: Missed },
}

/// What was said of a connection while it was away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Missed {
    #[default]
    Nothing,
    /// Its peer moved.
    Io,
    /// Its peer has ended its direction, perhaps behind some last bytes. It is not said again.
    IoAndEnd,
}

/// A table of connections whose places are reused.
#[derive(Debug)]
pub(crate) struct Table<C> {
    entries: Vec<Entry<C>>,
    vacant: Option<usize>,
    taken: usize,
    parked: usize,
    /// Those away of which something was said.
    missed: usize,
}

impl<C> Table<C> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), vacant: None, taken: 0, parked: 0, missed: 0 }
    }

    /// Places that are taken, by parked connections and by those away.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// Reserves a place for a connection that is in the caller's hand.
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

    /// Takes a parked connection out of which something is said, or keeps what is said for one that
    /// is away.
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

    /// Whether something was said of a connection that is away.
    pub(crate) fn has_missed(&self) -> bool {
        self.missed > 0
    }

    /// Connections that are here.
    pub(crate) fn parked_len(&self) -> usize {
        self.parked
    }

    /// A parked connection, to look at.
    pub(crate) fn parked_mut(&mut self, token: usize) -> Option<&mut C> {
        match self.entries.get_mut(token)? {
            Entry::Parked(connection) => Some(connection),
            Entry::Away { .. } | Entry::Vacant { .. } => None,
        }
    }

    /// Returns what was said of a connection while it was away, and forgets it.
    pub(crate) fn take_missed(&mut self, token: usize) -> Missed {
        match self.entries.get_mut(token) {
            Some(Entry::Away { missed }) => {
                self.missed -= usize::from(*missed != Missed::Nothing);
                std::mem::take(missed)
            }
            _ => Missed::Nothing,
        }
    }

    /// Puts a connection that was away back to its place.
    #[inline(always)]
    pub(crate) fn park(&mut self, token: usize, connection: Box<C>) {
        let before = std::mem::replace(&mut self.entries[token], Entry::Parked(connection));
        debug_assert!(matches!(before, Entry::Away { .. }), "parked twice");
        if let Entry::Away { missed: Missed::Io | Missed::IoAndEnd } = before {
            self.missed -= 1;
        }
        self.parked += 1;
    }

    /// Gives the place of a connection that is gone to the next one.
    pub(crate) fn release(&mut self, token: usize) {
        debug_assert!(matches!(self.entries[token], Entry::Away { .. }), "released while parked");
        self.take_missed(token);
        self.entries[token] = Entry::Vacant { next: self.vacant };
        self.vacant = Some(token);
        self.taken -= 1;
    }

    /// All parked connections, with their tokens.
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

    /// A table with one connection, parked.
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
    fn what_was_missed_while_away_is_told_once() {
        let (mut table, token) = parked();
        assert_eq!(table.take_missed(token), Missed::Nothing, "it is here");
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
    fn an_end_that_was_missed_is_not_forgotten_for_what_comes_after_it() {
        let mut table: Table<()> = Table::new();
        let token = table.reserve();
        table.take(token, Missed::IoAndEnd);
        table.take(token, Missed::Io);
        assert_eq!(table.take_missed(token), Missed::IoAndEnd);
    }

    #[test]
    fn one_that_is_new_can_miss_something_too() {
        let mut table: Table<()> = Table::new();
        let token = table.reserve();
        assert_eq!(table.take(token, Missed::Io), None);
        assert_eq!(table.take_missed(token), Missed::Io);
    }

    #[test]
    fn a_place_is_reused_without_its_past() {
        let (mut table, token) = parked();
        table.take(token, Missed::Io);
        table.take(token, Missed::Io);
        table.release(token);
        assert_eq!(table.len(), 0);
        assert_eq!(table.take(token, Missed::Io), None, "an event for one that is gone");
        assert_eq!(table.take_missed(token), Missed::Nothing);
        assert_eq!(table.reserve(), token);
        assert_eq!(table.take_missed(token), Missed::Nothing, "the one before missed it");
    }

    #[test]
    fn places_are_reused_last_in_first_out_before_the_table_grows() {
        let mut table: Table<()> = Table::new();
        assert_eq!([table.reserve(), table.reserve(), table.reserve()], [0, 1, 2]);
        table.release(0);
        table.release(2);
        assert_eq!([table.reserve(), table.reserve(), table.reserve()], [2, 0, 3]);
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn it_is_known_whether_one_that_is_away_has_missed_anything() {
        let (mut table, token) = parked();
        assert!(!table.has_missed());
        let connection = table.take(token, Missed::Io).unwrap();
        assert!(!table.has_missed(), "it was told");
        table.take(token, Missed::Io);
        table.take(token, Missed::IoAndEnd);
        assert!(table.has_missed());
        assert_eq!(table.take_missed(token), Missed::IoAndEnd);
        assert!(!table.has_missed());
        table.take(token, Missed::Io);
        table.park(token, connection);
        assert!(!table.has_missed(), "parked without being asked, it is forgotten");
        table.take(token, Missed::Io).unwrap();
        table.take(token, Missed::Io);
        table.release(token);
        assert!(!table.has_missed(), "it is gone");
    }

    #[test]
    fn only_those_that_are_here_are_listed() {
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
    fn a_token_beyond_the_table_is_nobodys() {
        let (mut table, token) = parked();
        assert_eq!(table.take(token + 1, Missed::Io), None);
        assert_eq!(table.parked_mut(token + 1), None);
        assert_eq!(table.take_missed(token + 1), Missed::Nothing);
    }
}
