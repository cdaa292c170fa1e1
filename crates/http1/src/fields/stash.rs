//! Where storages wait to be used again.
//!
//! Each thread has a stash. A thread that takes as many storages as it recycles needs nothing else.
//! If a request is parsed by one thread and dropped by another one, the first stash runs empty and
//! the second one overflows. [`SpareHeads`] carries storages back.

use std::cell::Cell;
use std::fmt;

use crate::fields::storage::Storage;

thread_local! {
    static STASH: Stash = const { Stash::new() };
}

/// How many storages a [`SpareHeads`] has.
const BATCH_LEN: usize = 8;
/// Most storages that a stash keeps beside the last one.
const STASH_LEN_MAX: usize = 2 * BATCH_LEN;
/// With how many storages beside the last one a stash can spare some.
const SPARE_FROM: usize = STASH_LEN_MAX - BATCH_LEN / 2;

/// Some storages, each of which has the next one.
type Chain = Option<Box<Storage>>;

/// Memory of heads that were dropped, for a thread that parses new ones.
///
/// A thread uses the memory of a head or of [`Headers`](crate::Headers) again when it has dropped
/// them. Where one thread parses requests and others answer them, the memory stays with the others,
/// and the first one allocates for each request. An engine that works like this can carry the
/// memory back, eight heads at a time.
///
/// ```
/// use filoplume_http1::{Limits, SpareHeads, parse_request_head};
///
/// let parse = || parse_request_head(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &Limits::default());
/// let heads: Vec<_> = (0..20).map(|_| parse().unwrap().unwrap()).collect();
/// let answers = std::thread::spawn(move || {
///     drop(heads);
///     SpareHeads::of_this_thread()
/// });
/// let spare = answers.join().unwrap().unwrap();
///
/// assert!(SpareHeads::are_needed());
/// spare.give_to_this_thread();
/// assert!(!SpareHeads::are_needed());
/// ```
pub struct SpareHeads(Chain);

impl SpareHeads {
    /// Takes memory from this thread if it has more than it is likely to need.
    #[must_use]
    pub fn of_this_thread() -> Option<Self> {
        STASH.try_with(Stash::spare).ok().flatten().map(|storage| Self(Some(storage)))
    }

    /// Returns whether this thread has memory for one head at most.
    #[inline]
    #[must_use]
    pub fn are_needed() -> bool {
        STASH.try_with(Stash::is_short).unwrap_or(false)
    }

    /// Lets this thread use the memory. What it cannot keep is freed.
    pub fn give_to_this_thread(self) {
        // This fails while the thread is ending. The storages are then freed.
        let _ = STASH.try_with(|stash| stash.add(self.0));
    }
}

impl fmt::Debug for SpareHeads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpareHeads").finish_non_exhaustive()
    }
}

/// Returns an empty storage, a recycled one if this thread has any.
#[inline]
pub(super) fn take() -> Box<Storage> {
    STASH.try_with(|stash| stash.last.take()).ok().flatten().unwrap_or_else(take_other)
}

#[inline(never)]
fn take_other() -> Box<Storage> {
    STASH.try_with(Stash::take_other).ok().flatten().unwrap_or_default()
}

/// Keeps a storage for the next head of this thread.
#[inline]
pub(super) fn keep(storage: Box<Storage>) {
    // This fails while the thread is ending. The storage is then freed.
    let _ = STASH.try_with(|stash| stash.keep(storage));
}

/// Storages that a thread keeps for reuse.
struct Stash {
    /// The storage that was recycled last. If requests come one after the other, there is no second
    /// one.
    last: Cell<Chain>,
    others: Cell<Chain>,
    others_len: Cell<usize>,
}

impl Stash {
    const fn new() -> Self {
        Self { last: Cell::new(None), others: Cell::new(None), others_len: Cell::new(0) }
    }

    fn is_short(&self) -> bool {
        self.others_len.get() == 0
    }

    fn take_other(&self) -> Chain {
        let mut storage = self.others.take()?;
        self.others.set(storage.next.take());
        self.others_len.set(self.others_len.get().saturating_sub(1));
        Some(storage)
    }

    #[inline]
    fn keep(&self, storage: Box<Storage>) {
        if let Some(other) = self.last.replace(Some(storage)) {
            self.keep_other(other);
        }
    }

    #[inline(never)]
    fn keep_other(&self, mut storage: Box<Storage>) {
        let len = self.others_len.get();
        if len < STASH_LEN_MAX {
            storage.next = self.others.take();
            self.others.set(Some(storage));
            self.others_len.set(len.saturating_add(1));
        }
    }

    /// Returns [`BATCH_LEN`] storages if there are enough.
    fn spare(&self) -> Chain {
        let len = self.others_len.get();
        if len < SPARE_FROM {
            return None;
        }
        // The storages that were recycled last stay: they are in the caches of this processor.
        let kept_len = len.saturating_sub(BATCH_LEN);
        let mut others = self.others.take();
        let mut link = &mut others;
        for _ in 0..kept_len {
            let Some(kept) = link else { break };
            link = &mut kept.next;
        }
        let spare = link.take();
        self.others.set(others);
        self.others_len.set(kept_len);
        spare
    }

    fn add(&self, mut chain: Chain) {
        while let Some(mut storage) = chain {
            chain = storage.next.take();
            self.keep(storage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps storages that are recognised by the capacity of their arena.
    fn keep(stash: &Stash, capacities: impl IntoIterator<Item = usize>) {
        for capacity in capacities {
            let bytes = Vec::with_capacity(capacity);
            stash.keep(Box::new(Storage { bytes, ..Storage::default() }));
        }
    }

    /// Takes all storages of a stash, and returns the capacities of their arenas.
    fn take_all(stash: &Stash) -> Vec<usize> {
        let next = || stash.last.take().or_else(|| stash.take_other());
        std::iter::from_fn(next).map(|storage| storage.bytes.capacity()).collect()
    }

    fn down(from: usize, to: usize) -> Vec<usize> {
        (to..=from).rev().collect()
    }

    #[test]
    fn the_storage_that_was_kept_last_is_taken_first() {
        let stash = Stash::new();
        keep(&stash, 1..=3);
        assert_eq!(take_all(&stash), [3, 2, 1]);
    }

    #[test]
    fn a_stash_has_a_bound() {
        let stash = Stash::new();
        keep(&stash, 1..=100);
        let kept = take_all(&stash);
        assert_eq!((kept.len(), kept[0]), (STASH_LEN_MAX + 1, 100));
        assert_eq!(STASH_LEN_MAX, 16);
        keep(&stash, 1..=3);
        assert_eq!(take_all(&stash), [3, 2, 1], "it counts what was taken");
    }

    #[test]
    fn a_stash_that_has_many_spares_those_that_it_kept_first() {
        let stash = Stash::new();
        // One more than the others, because one is the last.
        keep(&stash, 1..=SPARE_FROM);
        assert!(stash.spare().is_none());
        keep(&stash, [SPARE_FROM + 1]);
        let empty = Stash::new();
        empty.add(stash.spare());
        assert!(stash.spare().is_none());
        assert_eq!(take_all(&stash), down(SPARE_FROM + 1, BATCH_LEN + 1));
        assert_eq!(take_all(&empty).len(), BATCH_LEN);
    }

    #[test]
    fn a_stash_is_short_if_it_has_no_other_than_the_last() {
        let stash = Stash::new();
        assert!(stash.is_short());
        keep(&stash, [1]);
        assert!(stash.is_short());
        keep(&stash, [2]);
        assert!(!stash.is_short());
        assert_eq!(take_all(&stash), [2, 1]);
        assert!(stash.is_short());
    }

    #[test]
    fn threads_that_parse_get_back_what_threads_that_answer_have_dropped() {
        let (parses, answers) = (Stash::new(), Stash::new());
        let mut allocated = 0;
        for _ in 0..1_000 {
            let storage = parses.last.take().or_else(|| parses.take_other());
            allocated += usize::from(storage.is_none());
            answers.keep(storage.unwrap_or_default());
            parses.add(answers.spare());
        }
        assert_eq!(allocated, SPARE_FROM + 1, "until the first came back");
        assert_eq!(take_all(&parses).len() + take_all(&answers).len(), allocated);
    }
}
