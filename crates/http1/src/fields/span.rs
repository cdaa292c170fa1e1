//! The position of a piece of text in a larger one, in half the size of a `Range<usize>`.

/// A range of the arena.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    pub(crate) const EMPTY: Self = Self { start: 0, len: 0 };

    /// The largest arena. No arena is larger than a span can address.
    pub(crate) const ARENA_BYTES_MAX: usize = u32::MAX as usize;

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "arenas are bounded by `ARENA_BYTES_MAX`")]
    pub(crate) fn new(start: usize, len: usize) -> Self {
        Self { start: start as u32, len: len as u32 }
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start.saturating_add(self.len as usize)).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn of_text(self, text: &str) -> &str {
        let start = self.start as usize;
        text.get(start..start.saturating_add(self.len as usize)).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn end(self) -> usize {
        (self.start as usize).saturating_add(self.len as usize)
    }
}

/// Returns the offset of a part in the whole that it was cut from. The result for an empty part may
/// be wrong, which does not matter because its bytes are never read.
#[inline]
pub(crate) fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr())
}
