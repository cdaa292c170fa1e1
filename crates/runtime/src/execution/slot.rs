//! The place of an event loop while its leader runs a handler. The watchdog can take it from there.
//!
//! The value is moved: from the leader to the slot and back, or from the slot to another thread.
//! Each move is one swap, so two threads never own the value, and it is never lost. See `README.md`
//! beside this file.

use crate::sync::atomic::{AtomicU64, Ordering};

/// An optional value that is exchanged atomically.
#[cfg(not(loom))]
type Swap<T> = crossbeam_utils::atomic::AtomicCell<Option<T>>;
#[cfg(loom)]
use modelled::Swap;

/// A place for one value that its owner lends and any thread may take.
pub(crate) struct Slot<T> {
    lent: Swap<Box<T>>,
    /// Odd while the value is in the slot. Only the owner of the value writes it, just before the
    /// value is lent and just after it was taken. So if two readings are equal and odd, the same
    /// call was running at both times.
    turn: AtomicU64,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Self {
        Self { lent: Swap::new(None), turn: AtomicU64::new(0) }
    }

    /// Puts the value into the slot before a handler runs. Returns the turn of this call.
    #[inline]
    pub(crate) fn lend(&self, value: Box<T>) -> u64 {
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        if let Some(before) = self.lent.swap(Some(value)) {
            drop_cold(before);
        }
        turn
    }

    /// Takes the value. The first thread that calls this gets it, with the turn of the call for
    /// which it was lent. If the turn is not that of the caller's own call, other threads have
    /// owned the value meanwhile.
    #[inline]
    pub(crate) fn take(&self) -> Option<(Box<T>, u64)> {
        let value = self.lent.swap(None)?;
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        Some((value, turn))
    }

    /// Returns the number of the running call, which is odd, or an even number between calls.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }
}

/// Drops a value that was already in the slot. No owner lets that happen. This is a separate
/// function, so that its callers need one comparison and no drop code.
#[cold]
pub(crate) fn drop_cold<T>(value: Box<T>) {
    debug_assert!(false, "the slot was not empty");
    drop(value);
}

/// A replacement of `AtomicCell` for models. Loom must see the swap with the ordering that
/// `AtomicCell` documents. The values are stored beside it, each under its own number.
#[cfg(loom)]
mod modelled {
    use std::sync::Mutex;

    use crate::sync::atomic::{AtomicUsize, Ordering};

    pub(super) struct Swap<T> {
        /// The number of the current value, counted from 1, or 0 if there is none.
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
            self.values.lock().expect("no thread panics while it holds the lock")[before].take()
        }

        fn put(values: &Mutex<Vec<Option<T>>>, value: Option<T>) -> usize {
            let mut values = values.lock().expect("no thread panics while it holds the lock");
            if value.is_none() {
                return 0;
            }
            values.push(value);
            values.len()
        }
    }
}
