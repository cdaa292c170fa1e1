//! The memory of fields: one arena of bytes and an index, recycled by the thread.

use std::cell::{Cell, RefCell};

use crate::fields::parts::HeadParts;
use crate::fields::span::Span;

/// The arena and its index. Bytes between the spans (colons, line ends, a request line) belong to
/// no field.
pub(crate) struct Storage {
    pub(crate) bytes: Vec<u8>,
    /// Whether a response can send the arena as it is: it has all fields as lines, none was
    /// removed, and the encoder handles none of them itself (see
    /// [`is_encoder_field`](crate::fields::static_field::is_encoder_field)).
    pub(crate) is_wire_format: bool,
    pub(crate) fields: Vec<Field>,
    /// The target of a request that was parsed into this storage. It is stored here to be recycled
    /// with the rest. It is a copy, so that UTF-8 is validated once and not on each access.
    pub(crate) target: String,
    /// The other parts of the head. They are stored here so that a head is moved as one pointer.
    pub(crate) parts: HeadParts,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            is_wire_format: true,
            fields: Vec::new(),
            target: String::new(),
            parts: HeadParts::NONE,
        }
    }
}

/// The position of a field in the arena, in half the size of four `usize`.
/// [`Headers::append`](crate::Headers::append) keeps arenas below 4 GiB.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

/// Most storages that a thread keeps: a head and a response for each request of a long pipeline.
const POOL_LEN_MAX: usize = 32;
/// Largest arena that is kept. Larger heads are rare, and a thread must not hold their memory for
/// long.
const POOL_BYTES_MAX: usize = 8 * 1024;
/// Largest index that is kept.
const POOL_FIELDS_MAX: usize = 128;

/// Storages that a thread keeps for reuse.
struct StoragePool {
    /// The storage that was recycled last. If requests come one after the other, there is no second
    /// one.
    last: Cell<Option<Box<Storage>>>,
    #[expect(
        clippy::vec_box,
        reason = "the boxes themselves are reused, because a map holds one pointer"
    )]
    others: RefCell<Vec<Box<Storage>>>,
}

thread_local! {
    static POOL: StoragePool =
        const { StoragePool { last: Cell::new(None), others: RefCell::new(Vec::new()) } };
}

impl StoragePool {
    #[inline(never)]
    fn keep(&self, storage: Box<Storage>) {
        if let Ok(mut others) = self.others.try_borrow_mut() {
            if others.len().saturating_add(1) < POOL_LEN_MAX {
                others.push(storage);
            }
        }
    }
}

impl Storage {
    /// Returns an empty storage, a recycled one if there is any. A storage may be recycled on
    /// another thread than it was taken on.
    #[inline]
    pub(crate) fn take() -> Box<Self> {
        POOL.try_with(|pool| pool.last.take()).ok().flatten().unwrap_or_else(Self::take_other)
    }

    #[inline(never)]
    fn take_other() -> Box<Self> {
        POOL.try_with(|pool| pool.others.try_borrow_mut().ok()?.pop())
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// Returns how many bytes of memory the storage takes, including the unused part of its
    /// buffers.
    pub(crate) fn memory(&self) -> usize {
        let fields = self.fields.capacity().saturating_mul(size_of::<Field>());
        let buffers = self.bytes.capacity().saturating_add(self.target.capacity());
        size_of::<Self>().saturating_add(fields).saturating_add(buffers)
    }

    /// Copies the target from the request line at the start of the arena. Returns `false` if the
    /// target is not UTF-8, or if the block of 16 bytes in which it ends is not.
    #[inline]
    pub(crate) fn keep_target(&mut self, start: usize, end: usize) -> bool {
        // Validates whole blocks, from the start of the allocation to the block in which the target
        // ends. The validation reads sixteen bytes at a time if they are aligned like this, and
        // otherwise one.
        let blocks = self.bytes.get(..end.next_multiple_of(16)).unwrap_or(&self.bytes);
        let target = std::str::from_utf8(blocks).ok().and_then(|text| text.get(start..end));
        self.target.push_str(target.unwrap_or_default());
        target.is_some()
    }

    #[inline(never)]
    pub(crate) fn recycle(mut self: Box<Self>) {
        let bytes = self.bytes.capacity().max(self.target.capacity());
        if bytes > POOL_BYTES_MAX || self.fields.capacity() > POOL_FIELDS_MAX {
            return;
        }
        self.bytes.clear();
        self.fields.clear();
        self.target.clear();
        self.is_wire_format = true;
        // This fails while the thread is ending. The storage is then freed.
        let _ = POOL.try_with(|pool| {
            if let Some(other) = pool.last.replace(Some(self)) {
                pool.keep(other);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::headers::Headers;

    #[test]
    fn large_buffers_are_not_kept() {
        let mut headers = Headers::new();
        headers.append("a", vec![b'x'; POOL_BYTES_MAX * 2]).unwrap();
        drop(headers);
        assert!(pooled().into_iter().all(|capacity| capacity <= POOL_BYTES_MAX));
        let many: Vec<Headers> = (0..POOL_LEN_MAX * 2)
            .map(|_| {
                let mut headers = Headers::new();
                headers.append("a", "b").unwrap();
                headers
            })
            .collect();
        drop(many);
        assert_eq!(pooled().len(), POOL_LEN_MAX);
    }

    /// Returns the capacities of the storages that this thread keeps.
    fn pooled() -> Vec<usize> {
        POOL.with(|pool| {
            let last = pool.last.take();
            let others = pool.others.borrow();
            let capacities =
                last.iter().chain(others.iter()).map(|storage| storage.bytes.capacity()).collect();
            pool.last.set(last);
            capacities
        })
    }

    /// Recycles storages of the capacities in `given`, takes `taken` storages, and returns the
    /// capacities of the reused ones.
    fn kept(given: Vec<(usize, usize)>, taken: usize) -> Vec<(usize, usize)> {
        // Empties what other tests have left in the pool.
        (0..POOL_LEN_MAX).for_each(|_| drop(Storage::take()));
        for (bytes, fields) in given {
            let bytes = Vec::with_capacity(bytes);
            let storage =
                Storage { bytes, fields: Vec::with_capacity(fields), ..Storage::default() };
            Box::new(storage).recycle();
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
        assert_eq!(kept(vec![(POOL_BYTES_MAX, POOL_FIELDS_MAX)], 2).len(), 1);
        assert_eq!(kept(vec![(POOL_BYTES_MAX + 1, 1), (1, POOL_FIELDS_MAX + 1)], 3), []);
        assert_eq!(kept(vec![(8, 4); 2 * POOL_LEN_MAX], 2 * POOL_LEN_MAX).len(), POOL_LEN_MAX);
        assert_eq!(POOL_BYTES_MAX, 8192);
    }
}
