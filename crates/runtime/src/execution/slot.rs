//! Where an event loop lies while its leader runs a handler, so that it can be taken.
//!
//! The value moves: leader, slot, leader; or leader, slot, thief. Each move is one swap, so there
//! is no state in which two hold it, and none in which it is lost. See `README.md` beside this
//! file.

use crate::sync::atomic::{AtomicU64, Ordering};

/// One value or none, exchanged in one step.
#[cfg(not(loom))]
type Swap<T> = crossbeam_utils::atomic::AtomicCell<Option<T>>;
#[cfg(loom)]
use modelled::Swap;

/// A place for one value that its owner lends out and anyone may take.
pub(crate) struct Slot<T> {
    lent: Swap<Box<T>>,
    /// Odd while the value lies here. Written only by the one who has the value in hand, just
    /// before it is lent and just after it was taken; so two equal odd readings mean that one and
    /// the same call was going on at both.
    turn: AtomicU64,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Self {
        Self { lent: Swap::new(None), turn: AtomicU64::new(0) }
    }

    /// Lays the value down before a handler runs. Returns the turn of this call.
    #[inline]
    pub(crate) fn lend(&self, value: Box<T>) -> u64 {
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        if let Some(before) = self.lent.swap(Some(value)) {
            free_other(before);
        }
        turn
    }

    /// Takes the value back, or for good: whoever comes first gets it, with the turn of the call
    /// that it was lent for. Who lent it in another turn was late: others have had it meanwhile.
    #[inline]
    pub(crate) fn take(&self) -> Option<(Box<T>, u64)> {
        let value = self.lent.swap(None)?;
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        Some((value, turn))
    }

    /// The number of the call that is going on, odd, or an even number between calls.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }
}

/// Frees a value that was where another one comes, which no owner lets happen. It is apart from its
/// callers: they have nothing to free then, and ask for it with one comparison.
#[cold]
pub(crate) fn free_other<T>(value: Box<T>) {
    debug_assert!(false, "there is one value");
    drop(value);
}

/// `AtomicCell` for models. What loom must see is the one swap, with the order that `AtomicCell`
/// documents; the values lie beside it, each under a number of its own.
#[cfg(loom)]
mod modelled {
    use std::sync::Mutex;

    use crate::sync::atomic::{AtomicUsize, Ordering};

    pub(super) struct Swap<T> {
        /// The place of the value that is here, counted from 1; 0 if none is.
        place: AtomicUsize,
        values: Mutex<Vec<Option<T>>>,
    }

    impl<T> Swap<T> {
        pub(super) fn new(value: Option<T>) -> Self {
            let values = Mutex::new(Vec::new());
            let place = AtomicUsize::new(Self::put(&values, value));
            Self { place, values }
        }

        pub(super) fn swap(&self, value: Option<T>) -> Option<T> {
            let place = Self::put(&self.values, value);
            let before = self.place.swap(place, Ordering::AcqRel).checked_sub(1)?;
            self.values.lock().expect("nothing panics here")[before].take()
        }

        fn put(values: &Mutex<Vec<Option<T>>>, value: Option<T>) -> usize {
            let mut values = values.lock().expect("nothing panics here");
            if value.is_none() {
                return 0;
            }
            values.push(value);
            values.len()
        }
    }
}
