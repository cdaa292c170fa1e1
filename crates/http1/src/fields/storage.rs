//! The memory of fields: one arena of bytes and an index, recycled by the thread.

use std::cell::{Cell, RefCell};

use crate::fields::parts::HeadParts;
use crate::fields::span::Span;

/// The arena and its index. Bytes between the spans (colons, line ends, a request line) belong to
/// nobody.
pub(crate) struct Storage {
    pub(crate) bytes: Vec<u8>,
    /// Whether the arena is just what a response sends: the fields as lines, none removed, and none
    /// that decides anything (see [`is_deciding`](crate::fields::static_field::is_deciding)).
    pub(crate) is_wire: bool,
    pub(crate) fields: Vec<Field>,
    /// The target of a request that was parsed into this storage. It is here to be recycled with
    /// the rest, and it is a copy because a `str` that was checked once need not be checked at each
    /// look.
    pub(crate) target: String,
    /// What else that request's head says: here, so that a head is moved as a pointer.
    pub(crate) parts: HeadParts,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            is_wire: true,
            fields: Vec::new(),
            target: String::new(),
            parts: HeadParts::NONE,
        }
    }
}

/// Where a field lies in the arena. Half the size of four `usize`;
/// [`Headers::append`](crate::Headers::append) keeps arenas below 4 GiB.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

/// Most buffers that a thread keeps: a head and a response for each request of a long pipeline.
const STASH_LEN_MAX: usize = 32;
/// Largest arena that is kept. Heads over it are rare, and a thread must not hoard them.
const STASH_BYTES_MAX: usize = 8 * 1024;
/// Largest index that is kept.
const STASH_FIELDS_MAX: usize = 128;

/// Storages that a thread keeps for later.
struct Stash {
    /// The one that was given back last. As long as requests come one after the other there is no
    /// second one.
    last: Cell<Option<Box<Storage>>>,
    #[expect(
        clippy::vec_box,
        reason = "what is stashed are the boxes: a map is as large as a pointer"
    )]
    others: RefCell<Vec<Box<Storage>>>,
}

thread_local! {
    static STASH: Stash = const { Stash { last: Cell::new(None), others: RefCell::new(Vec::new()) } };
}

impl Stash {
    #[inline(never)]
    fn keep(&self, storage: Box<Storage>) {
        if let Ok(mut others) = self.others.try_borrow_mut() {
            if others.len().saturating_add(1) < STASH_LEN_MAX {
                others.push(storage);
            }
        }
    }
}

impl Storage {
    /// Returns an empty storage, used before if there is one. It need not come from the thread that
    /// dropped it.
    #[inline]
    pub(crate) fn take() -> Box<Self> {
        STASH.try_with(|stash| stash.last.take()).ok().flatten().unwrap_or_else(Self::take_other)
    }

    #[inline(never)]
    fn take_other() -> Box<Self> {
        STASH
            .try_with(|stash| stash.others.try_borrow_mut().ok()?.pop())
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// Copies the target out of the request line at the start of the arena. Returns whether it is
    /// text.
    #[inline]
    pub(crate) fn keep_target(&mut self, start: usize, end: usize) -> bool {
        // Checked from the start of the allocation in whole blocks, as far as the line goes: there
        // the check takes sixteen bytes at a time, and elsewhere one.
        let blocks = self.bytes.get(..end.next_multiple_of(16)).unwrap_or(&self.bytes);
        let target = std::str::from_utf8(blocks).ok().and_then(|text| text.get(start..end));
        self.target.push_str(target.unwrap_or_default());
        target.is_some()
    }

    #[inline(never)]
    pub(crate) fn give_back(mut self: Box<Self>) {
        let bytes = self.bytes.capacity().max(self.target.capacity());
        if bytes > STASH_BYTES_MAX || self.fields.capacity() > STASH_FIELDS_MAX {
            return;
        }
        self.bytes.clear();
        self.fields.clear();
        self.target.clear();
        self.is_wire = true;
        // Fails while the thread ends: then the storage is simply freed.
        let _ = STASH.try_with(|stash| {
            if let Some(other) = stash.last.replace(Some(self)) {
                stash.keep(other);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::headers::Headers;

    #[test]
    fn large_buffers_are_not_hoarded() {
        let mut headers = Headers::new();
        headers.append("a", vec![b'x'; STASH_BYTES_MAX * 2]).unwrap();
        drop(headers);
        assert!(stashed().into_iter().all(|capacity| capacity <= STASH_BYTES_MAX));
        let many: Vec<Headers> = (0..STASH_LEN_MAX * 2)
            .map(|_| {
                let mut headers = Headers::new();
                headers.append("a", "b").unwrap();
                headers
            })
            .collect();
        drop(many);
        assert_eq!(stashed().len(), STASH_LEN_MAX);
    }

    /// The capacities of what this thread keeps.
    fn stashed() -> Vec<usize> {
        STASH.with(|stash| {
            let last = stash.last.take();
            let others = stash.others.borrow();
            let capacities =
                last.iter().chain(others.iter()).map(|storage| storage.bytes.capacity()).collect();
            stash.last.set(last);
            capacities
        })
    }

    /// Gives storages of these capacities back, and returns which of so many that are taken then
    /// were used before.
    fn kept(given: Vec<(usize, usize)>, taken: usize) -> Vec<(usize, usize)> {
        // What other tests have left.
        (0..STASH_LEN_MAX).for_each(|_| drop(Storage::take()));
        for (bytes, fields) in given {
            let bytes = Vec::with_capacity(bytes);
            let storage =
                Storage { bytes, fields: Vec::with_capacity(fields), ..Storage::default() };
            Box::new(storage).give_back();
        }
        let storages: Vec<_> = (0..taken).map(|_| Storage::take()).collect();
        let capacities =
            storages.iter().map(|storage| (storage.bytes.capacity(), storage.fields.capacity()));
        capacities.filter(|&capacities| capacities != (0, 0)).collect()
    }

    #[test]
    fn a_thread_keeps_storages_up_to_their_bounds() {
        assert_eq!(
            kept(vec![(100, 10), (200, 20), (300, 30)], 4),
            [(300, 30), (200, 20), (100, 10)]
        );
        assert_eq!(kept(vec![(STASH_BYTES_MAX, STASH_FIELDS_MAX)], 2).len(), 1);
        assert_eq!(kept(vec![(STASH_BYTES_MAX + 1, 1), (1, STASH_FIELDS_MAX + 1)], 3), []);
        assert_eq!(kept(vec![(8, 4); 2 * STASH_LEN_MAX], 2 * STASH_LEN_MAX).len(), STASH_LEN_MAX);
        assert_eq!(STASH_BYTES_MAX, 8192);
    }
}
