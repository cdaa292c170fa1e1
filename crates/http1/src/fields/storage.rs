//! The memory of fields: one arena of bytes and an index, recycled by the thread.

use crate::fields::parts::HeadParts;
use crate::fields::span::Span;
use crate::fields::stash;

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
    /// The next storage, while both wait to be used again.
    pub(crate) next: Option<Box<Self>>,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            is_wire_format: true,
            fields: Vec::new(),
            target: String::new(),
            parts: HeadParts::NONE,
            next: None,
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

/// Largest arena that is kept. Larger heads are rare, and nobody must hold their memory for long.
const KEPT_BYTES_MAX: usize = 8 * 1024;
/// Largest index that is kept.
const KEPT_FIELDS_MAX: usize = 128;

impl Storage {
    /// Returns an empty storage, a recycled one if there is any. A storage may be recycled on
    /// another thread than it was taken on.
    #[inline]
    pub(crate) fn take() -> Box<Self> {
        stash::take()
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
        if bytes > KEPT_BYTES_MAX || self.fields.capacity() > KEPT_FIELDS_MAX {
            return;
        }
        self.bytes.clear();
        self.fields.clear();
        self.target.clear();
        self.is_wire_format = true;
        stash::keep(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::headers::Headers;

    /// Recycles a storage of these capacities, and returns whether the thread has kept it.
    fn is_kept(bytes: usize, target: usize, fields: usize) -> bool {
        // Takes what other tests have left.
        (0..32).for_each(|_| drop(Storage::take()));
        let storage = Storage {
            bytes: Vec::with_capacity(bytes),
            target: String::with_capacity(target),
            fields: Vec::with_capacity(fields),
            ..Storage::default()
        };
        Box::new(storage).recycle();
        let next = Storage::take();
        let capacities = (next.bytes.capacity(), next.target.capacity(), next.fields.capacity());
        capacities == (bytes, target, fields)
    }

    #[test]
    fn large_buffers_are_not_kept() {
        assert_eq!((KEPT_BYTES_MAX, KEPT_FIELDS_MAX), (8192, 128));
        assert!(is_kept(KEPT_BYTES_MAX, KEPT_BYTES_MAX, KEPT_FIELDS_MAX));
        assert!(!is_kept(KEPT_BYTES_MAX + 1, 1, 1));
        assert!(!is_kept(1, KEPT_BYTES_MAX + 1, 1));
        assert!(!is_kept(1, 1, KEPT_FIELDS_MAX + 1));
    }

    #[test]
    fn a_recycled_storage_is_empty() {
        let mut headers = Headers::new();
        headers.append("a", "b").unwrap();
        headers.remove("a");
        drop(headers);
        let storage = Storage::take();
        assert!(storage.bytes.is_empty() && storage.fields.is_empty() && storage.is_wire_format);
        assert!(storage.bytes.capacity() > 0);
    }
}
