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
    Taken { missed: Missed },
}

/// The readiness that was reported while a connection was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Missed {
    #[default]
    Nothing,
    /// The socket became readable or writable.
    Io,
    /// The peer has closed its direction, possibly after some last bytes. It is not reported again.
    IoAndEnd,
}

/// A slab of connections. Vacant entries are reused.
#[derive(Debug)]
pub(crate) struct Slab<C> {
    entries: Vec<Entry<C>>,
    vacant: Option<usize>,
    len: usize,
    parked: usize,
    /// The number of taken connections with missed readiness.
    missed: usize,
}

impl<C> Slab<C> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), vacant: None, len: 0, parked: 0, missed: 0 }
    }

    /// Returns the number of connections, parked and taken.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Reserves an entry for a connection that the caller owns. Returns its token.
    pub(crate) fn reserve(&mut self) -> usize {
        self.len += 1;
        let Some(token) = self.vacant else {
            self.entries.push(Entry::Taken { missed: Missed::Nothing });
            return self.entries.len() - 1;
        };
        if let Entry::Vacant { next } = self.entries[token] {
            self.vacant = next;
        }
        self.entries[token] = Entry::Taken { missed: Missed::Nothing };
        token
    }

    /// Takes a parked connection out. If another owner has it, records `event` as missed readiness
    /// instead.
    #[inline]
    pub(crate) fn take(&mut self, token: usize, event: Missed) -> Option<Box<C>> {
        let entry = self.entries.get_mut(token)?;
        match std::mem::replace(entry, Entry::Taken { missed: Missed::Nothing }) {
            Entry::Parked(connection) => {
                self.parked -= 1;
                Some(connection)
            }
            Entry::Taken { missed } => {
                self.missed += usize::from(missed == Missed::Nothing && event != Missed::Nothing);
                *entry = Entry::Taken { missed: missed.max(event) };
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
            Entry::Taken { .. } | Entry::Vacant { .. } => None,
        }
    }

    /// Returns the readiness that was reported while the connection was taken.
    pub(crate) fn missed(&self, token: usize) -> Missed {
        match self.entries.get(token) {
            Some(Entry::Taken { missed }) => *missed,
            _ => Missed::Nothing,
        }
    }

    /// Returns the readiness that was reported while the connection was taken, and clears it.
    pub(crate) fn take_missed(&mut self, token: usize) -> Missed {
        match self.entries.get_mut(token) {
            Some(Entry::Taken { missed }) => {
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
        debug_assert!(matches!(before, Entry::Taken { .. }), "parked twice");
        if let Entry::Taken { missed: Missed::Io | Missed::IoAndEnd } = before {
            self.missed -= 1;
        }
        self.parked += 1;
    }

    /// Frees the entry of a connection that has ended.
    pub(crate) fn release(&mut self, token: usize) {
        debug_assert!(matches!(self.entries[token], Entry::Taken { .. }), "released while parked");
        self.take_missed(token);
        self.entries[token] = Entry::Vacant { next: self.vacant };
        self.vacant = Some(token);
        self.len -= 1;
    }

    /// Returns all parked connections, with their tokens.
    pub(crate) fn parked(&self) -> impl Iterator<Item = (usize, &C)> {
        self.entries.iter().enumerate().filter_map(|(token, entry)| match entry {
            Entry::Parked(connection) => Some((token, &**connection)),
            Entry::Taken { .. } | Entry::Vacant { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slab with one parked connection.
    fn parked() -> (Slab<&'static str>, usize) {
        let mut slab = Slab::new();
        let token = slab.reserve();
        slab.park(token, Box::new("it"));
        (slab, token)
    }

    #[test]
    fn a_parked_connection_is_taken_once() {
        let (mut slab, token) = parked();
        assert_eq!((slab.len(), slab.parked_len()), (1, 1));
        assert_eq!(slab.take(token, Missed::Io).as_deref(), Some(&"it"));
        assert_eq!((slab.len(), slab.parked_len()), (1, 0));
        assert_eq!(slab.take(token, Missed::Io), None);
        assert_eq!(slab.parked_mut(token), None);
    }

    #[test]
    fn missed_readiness_is_returned_once() {
        let (mut slab, token) = parked();
        assert_eq!(slab.take_missed(token), Missed::Nothing, "it is parked");
        let connection = slab.take(token, Missed::Io).unwrap();
        assert_eq!(
            slab.take_missed(token),
            Missed::Nothing,
            "the event for which it was taken is not missed"
        );
        slab.take(token, Missed::Io);
        slab.take(token, Missed::Io);
        assert_eq!(slab.take_missed(token), Missed::Io);
        assert_eq!(slab.take_missed(token), Missed::Nothing);
        slab.park(token, connection);
        assert!(slab.take(token, Missed::Io).is_some());
    }

    #[test]
    fn a_missed_end_is_not_overwritten_by_later_readiness() {
        let mut slab: Slab<()> = Slab::new();
        let token = slab.reserve();
        slab.take(token, Missed::IoAndEnd);
        slab.take(token, Missed::Io);
        assert_eq!(slab.take_missed(token), Missed::IoAndEnd);
    }

    #[test]
    fn a_reserved_connection_can_miss_readiness() {
        let mut slab: Slab<()> = Slab::new();
        let token = slab.reserve();
        assert_eq!(slab.take(token, Missed::Io), None);
        assert_eq!(slab.take_missed(token), Missed::Io);
    }

    #[test]
    fn a_reused_entry_has_no_missed_readiness() {
        let (mut slab, token) = parked();
        slab.take(token, Missed::Io);
        slab.take(token, Missed::Io);
        slab.release(token);
        assert_eq!(slab.len(), 0);
        assert_eq!(slab.take(token, Missed::Io), None, "an event for a released connection");
        assert_eq!(slab.take_missed(token), Missed::Nothing);
        assert_eq!(slab.reserve(), token);
        assert_eq!(slab.take_missed(token), Missed::Nothing, "its predecessor missed it");
    }

    #[test]
    fn vacant_entries_are_reused_last_in_first_out_before_the_slab_grows() {
        let mut slab: Slab<()> = Slab::new();
        assert_eq!([slab.reserve(), slab.reserve(), slab.reserve()], [0, 1, 2]);
        slab.release(0);
        slab.release(2);
        assert_eq!([slab.reserve(), slab.reserve(), slab.reserve()], [2, 0, 3]);
        assert_eq!(slab.len(), 4);
    }

    #[test]
    fn has_missed_counts_taken_connections_with_missed_readiness() {
        let (mut slab, token) = parked();
        assert!(!slab.has_missed());
        let connection = slab.take(token, Missed::Io).unwrap();
        assert!(!slab.has_missed(), "the event was delivered");
        slab.take(token, Missed::Io);
        slab.take(token, Missed::IoAndEnd);
        assert!(slab.has_missed());
        assert_eq!(slab.take_missed(token), Missed::IoAndEnd);
        assert!(!slab.has_missed());
        slab.take(token, Missed::Io);
        slab.park(token, connection);
        assert!(!slab.has_missed(), "parking clears it");
        slab.take(token, Missed::Io).unwrap();
        slab.take(token, Missed::Io);
        slab.release(token);
        assert!(!slab.has_missed(), "it was released");
    }

    #[test]
    fn only_parked_connections_are_listed() {
        let (mut slab, first) = parked();
        let second = slab.reserve();
        let third = slab.reserve();
        slab.park(third, Box::new("third"));
        let listed = |slab: &Slab<_>| slab.parked().map(|(token, _)| token).collect::<Vec<_>>();
        assert_eq!(listed(&slab), [first, third]);
        slab.release(second);
        assert_eq!(listed(&slab), [first, third]);
    }

    #[test]
    fn a_token_beyond_the_slab_has_no_connection() {
        let (mut slab, token) = parked();
        assert_eq!(slab.take(token + 1, Missed::Io), None);
        assert_eq!(slab.parked_mut(token + 1), None);
        assert_eq!(slab.take_missed(token + 1), Missed::Nothing);
    }
}
