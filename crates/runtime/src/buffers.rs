//! The buffers of a thread. They serve one connection at a time and belong to none. When a thread
//! leaves a connection, unused input is copied out, which is rarely necessary.

use std::cell::Cell;
use std::fmt;

use crate::clock::Clock;
use crate::execution::probe::Clocks;

/// The number of bytes per read. A content of 64 KiB and its head arrive in one read. Untouched
/// pages cost nothing.
pub(crate) const INPUT_BYTES: usize = 128 * 1024;

/// Responses to pipelined requests are collected up to this size before they are written.
pub(crate) const OUTPUT_BYTES: usize = 64 * 1024;

/// The number of unused input buffers that a thread keeps. A content that arrived in one piece is
/// passed to the handler in the buffer it was read into. The buffer returns here when the handler
/// drops the content.
const SPARE_STORAGES: usize = 2;

/// The minimum buffer size for a content of which little has arrived. A peer that announces much
/// and sends little uses no more than this.
const CONTENT_STEP_BYTES: usize = 16 * 1024;

/// Leftover input up to this size is copied out of a thread's buffer and in again, so that it takes
/// no more memory than it has bytes. Longer input is moved without a copy: otherwise a peer that
/// sends a long message byte by byte would cause a copy of the whole message for each byte.
const LEFTOVER_COPY_MAX: usize = 64 * 1024;

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
    static STORAGES: Cell<Vec<Vec<u8>>> = const { Cell::new(Vec::new()) };
}

/// The buffers with which a thread serves connections.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) input: Input,
    pub(crate) output: Vec<u8>,
    /// The buffer for the readers of response bodies.
    pub(crate) scratch: Vec<u8>,
    pub(crate) clock: Clock,
    pub(crate) clocks: Clocks,
    /// Bytes that the thread has read and written since it counted them last.
    pub(crate) moved: Moved,
}

/// Numbers of bytes that were read from peers and written to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

impl Buffers {
    /// Takes this thread's buffers, or creates them.
    pub(crate) fn take() -> Box<Self> {
        let mut buffers = BUFFERS.take().unwrap_or_else(|| {
            Box::new(Self {
                input: Input::new(),
                output: Vec::with_capacity(4096),
                scratch: Vec::new(),
                clock: Clock::new(),
                clocks: Clocks::default(),
                moved: Moved::default(),
            })
        });
        buffers.clock.refresh();
        buffers
    }

    /// Returns the buffers to this thread.
    pub(crate) fn give_back(mut self: Box<Self>) {
        self.input.clear();
        self.output.clear();
        BUFFERS.set(Some(self));
    }
}

/// Bytes that were read and are not yet parsed.
pub(crate) struct Input {
    storage: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn new() -> Self {
        Self { storage: new_storage(), start: 0, end: 0 }
    }

    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    /// Returns the unread bytes to be decrypted in place.
    #[cfg(feature = "tls")]
    pub(crate) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.end]
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The number of unread bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    pub(crate) fn consume(&mut self, used: usize) {
        self.start += used;
        debug_assert!(self.start <= self.end, "consumed more than was read");
    }

    /// Returns the room for the next read.
    #[inline(always)]
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        if self.start > 0 || self.end == self.storage.len() {
            self.make_room();
        }
        &mut self.storage[self.end..]
    }

    #[inline(never)]
    fn make_room(&mut self) {
        self.storage.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.storage.len() {
            // Only a head can be this long, and only if the limits were raised. Contents are
            // consumed as they arrive.
            self.storage.resize(self.end + INPUT_BYTES, 0);
        }
    }

    #[inline]
    pub(crate) fn filled(&mut self, read: usize) {
        self.end += read;
    }

    /// Returns whether there is no room for more.
    pub(crate) fn is_full(&self) -> bool {
        self.end == self.storage.len()
    }

    pub(crate) fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Loads the leftover input of a connection.
    pub(crate) fn load(&mut self, mut leftover: Content) {
        if leftover.len() > LEFTOVER_COPY_MAX {
            // The thread's buffer is now released in place of the content's.
            std::mem::swap(&mut self.storage, &mut leftover.storage);
            (self.start, self.end) = (leftover.start, leftover.end);
            return;
        }
        if self.storage.len() > INPUT_BYTES {
            // The buffer had grown for one long message.
            self.storage = take_storage();
        }
        self.start = 0;
        self.end = leftover.len();
        self.storage[..self.end].copy_from_slice(leftover.as_slice());
    }

    /// Moves the unread bytes out, for a later [`load`](Self::load). A short rest gets as much
    /// memory as it needs; a long one is moved without a copy.
    pub(crate) fn take_leftover(&mut self) -> Content {
        if self.len() <= LEFTOVER_COPY_MAX {
            return Content::of(self.take_rest());
        }
        let storage = std::mem::replace(&mut self.storage, take_storage());
        let leftover = Content { storage, start: self.start, end: self.end };
        self.clear();
        leftover
    }

    /// Moves the unread bytes out, into as much memory as they need.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.unread().to_vec();
        self.clear();
        rest
    }

    /// Splits off the first `length` unread bytes as a content that owns them. A long content is
    /// not copied.
    pub(crate) fn split_content(&mut self, length: usize) -> Content {
        /// Below this size a copy is cheaper than an exchange of buffers.
        const COPY_MAX: usize = 16 * 1024;

        let length = length.min(self.end - self.start);
        if length <= COPY_MAX {
            let storage = self.storage[self.start..self.start + length].to_vec();
            self.consume(length);
            return Content { start: 0, end: storage.len(), storage };
        }
        let (start, end) = (self.start, self.start + length);
        let mut storage = take_storage();
        let rest = &self.storage[end..self.end];
        storage[..rest.len()].copy_from_slice(rest);
        let rest_length = rest.len();
        let content =
            Content { storage: std::mem::replace(&mut self.storage, storage), start, end };
        self.start = 0;
        self.end = rest_length;
        content
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} unread bytes", self.unread().len())
    }
}

/// A content in memory, in a buffer that returns to a thread when it is no longer used.
#[derive(Default)]
pub(crate) struct Content {
    storage: Vec<u8>,
    start: usize,
    end: usize,
}

impl Content {
    /// Returns a content in a buffer of its own.
    pub(crate) fn of(storage: Vec<u8>) -> Self {
        Self { start: 0, end: storage.len(), storage }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn advance(&mut self, read: usize) {
        self.start += read;
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.extend_expected(bytes, None);
    }

    /// Appends bytes to a content of `expected` bytes, if its length is known. The buffer never has
    /// room for more, because a short content must not be charged as a long one.
    pub(crate) fn extend_expected(&mut self, bytes: &[u8], expected: Option<usize>) {
        self.storage.truncate(self.end);
        let (needed, room) = (self.end + bytes.len(), self.storage.capacity());
        if needed > room {
            let full = expected.map_or(usize::MAX, |expected| self.start.saturating_add(expected));
            let grown = (room * 2).min(full).max(needed);
            self.storage.reserve_exact(grown - self.end);
        }
        self.storage.extend_from_slice(bytes);
        self.end = self.storage.len();
    }

    /// Returns room for the missing part of a content of `expected` bytes. It grows in steps:
    /// memory follows the bytes that have arrived, not the announced length.
    pub(crate) fn spare(&mut self, expected: usize) -> &mut [u8] {
        let full = self.start + expected;
        if self.storage.len() == self.end {
            let grown = (self.storage.len() * 2).max(CONTENT_STEP_BYTES).min(full);
            self.storage.resize(grown, 0);
        }
        let room = self.storage.len().min(full);
        &mut self.storage[self.end..room]
    }

    pub(crate) fn filled(&mut self, read: usize) {
        self.end += read;
    }

    /// Returns the memory that the content takes.
    pub(crate) fn capacity(&self) -> usize {
        self.storage.capacity()
    }

    pub(crate) fn into_bytes(mut self) -> bytes::Bytes {
        let mut storage = std::mem::take(&mut self.storage);
        storage.truncate(self.end);
        let bytes = bytes::Bytes::from(storage);
        bytes.slice(self.start..)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if self.storage.len() == INPUT_BYTES {
            give_back_storage(std::mem::take(&mut self.storage));
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

fn new_storage() -> Vec<u8> {
    vec![0; INPUT_BYTES]
}

fn take_storage() -> Vec<u8> {
    let mut storages = STORAGES.take();
    let storage = storages.pop();
    STORAGES.set(storages);
    storage.unwrap_or_else(new_storage)
}

fn give_back_storage(storage: Vec<u8>) {
    // A content may be dropped while its thread ends. Then the buffer is freed.
    let _ = STORAGES.try_with(|cell| {
        let mut storages = cell.take();
        if storages.len() < SPARE_STORAGES {
            storages.push(storage);
        }
        cell.set(storages);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: &[u8]) -> Input {
        let mut input = Input::new();
        input.load(Content::of(bytes.to_vec()));
        input
    }

    #[test]
    fn a_content_is_split_off_and_the_rest_stays() {
        for length in [0, 3, 16 * 1024, 16 * 1024 + 1, 70_000] {
            let mut bytes = vec![b'a'; length];
            bytes.extend_from_slice(b"GET /next");
            let mut input = input(&bytes);
            let content = input.split_content(length);
            assert_eq!(content.as_slice(), &bytes[..length]);
            assert_eq!(input.unread(), b"GET /next");
        }
    }

    #[test]
    fn a_content_has_room_for_what_it_expects_and_no_more() {
        for (expected, capacity) in [(Some(50_000), 50_000), (Some(70_000), 70_000), (None, 80_000)]
        {
            let mut content = Content::default();
            content.extend_expected(&[b'a'; 40_000], expected);
            assert_eq!(content.capacity(), 40_000, "what has arrived");
            content.extend_expected(&[b'b'; 10_000], expected);
            assert_eq!((content.len(), content.capacity()), (50_000, capacity));
            assert_eq!(content.as_slice()[39_999..40_001], *b"ab");
        }
    }

    #[test]
    fn a_leftover_is_loaded_unchanged() {
        for length in [1, LEFTOVER_COPY_MAX, LEFTOVER_COPY_MAX + 1, 3 * INPUT_BYTES] {
            let bytes: Vec<u8> = (0..=length).map(|n| n.to_le_bytes()[0]).collect();
            let mut input = Input::new();
            let mut read = 0;
            while read < bytes.len() {
                let spare = input.spare();
                let piece = spare.len().min(bytes.len() - read).min(50_000);
                spare[..piece].copy_from_slice(&bytes[read..read + piece]);
                input.filled(piece);
                read += piece;
                let leftover = input.take_leftover();
                assert!(input.is_empty());
                assert!(input.storage.len() >= INPUT_BYTES);
                input.load(leftover);
            }
            input.consume(1);
            let leftover = input.take_leftover();
            assert_eq!(leftover.as_slice(), &bytes[1..]);
            assert!(
                length > LEFTOVER_COPY_MAX || leftover.storage.len() == length,
                "it takes no more memory than it needs"
            );
        }
    }

    #[test]
    fn a_content_grows_with_the_bytes_that_arrive_and_not_beyond_its_end() {
        let mut content = input(&[b'x'; 10]).split_content(10);
        let expected = 400_000_000_000_usize;
        assert!(content.spare(expected).len() <= INPUT_BYTES);
        let mut short = input(b"abc").split_content(3);
        let spare = short.spare(5);
        assert_eq!(spare.len(), 2);
        spare.copy_from_slice(b"de");
        short.filled(2);
        assert_eq!(short.into_bytes(), "abcde");
    }
}
