//! Compression streams that belong to threads.
//!
//! A stream takes 48 KiB for inflating and about 300 KiB for deflating, and a new one costs more
//! than a short message. Without context takeover a connection needs one only during a message.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress};

/// Most streams of each kind that a thread keeps. It rarely works on several messages at a time.
const KEPT_MAX: usize = 2;
/// A scratch buffer that grew beyond this is freed.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;
/// The largest window. Any smaller one can be inflated with it.
pub(super) const WINDOW_BITS_MAX: u8 = 15;
/// The memory of a stream for inflating, with the largest window, rounded up: zlib-rs takes 48,576
/// bytes.
pub(super) const INFLATING_BYTES: usize = 48 * 1024;

thread_local! {
    static STREAMS: RefCell<Streams> = const { RefCell::new(Streams {
        inflating: Vec::new(),
        deflating: Vec::new(),
        scratch: Vec::new(),
    }) };
}

struct Streams {
    inflating: Vec<Decompress>,
    deflating: Vec<((u8, u32), Compress)>,
    scratch: Vec<u8>,
}

/// Returns a stream that has inflated nothing, with the largest window.
pub(super) fn take_inflating() -> Decompress {
    let kept = STREAMS.with_borrow_mut(|streams| streams.inflating.pop());
    kept.unwrap_or_else(|| Decompress::new_with_window_bits(false, WINDOW_BITS_MAX))
}

pub(super) fn keep_inflating(mut stream: Decompress) {
    stream.reset(false);
    STREAMS.with_borrow_mut(|streams| {
        if streams.inflating.len() < KEPT_MAX {
            streams.inflating.push(stream);
        }
    });
}

/// Returns a stream that has deflated nothing.
pub(super) fn take_deflating(window_bits: u8, level: u32) -> Compress {
    let kept = STREAMS.with_borrow_mut(|streams| {
        let key = (window_bits, level);
        let at = streams.deflating.iter().position(|(kept, _)| *kept == key)?;
        Some(streams.deflating.swap_remove(at).1)
    });
    kept.unwrap_or_else(|| new_deflating(window_bits, level))
}

pub(super) fn new_deflating(window_bits: u8, level: u32) -> Compress {
    Compress::new_with_window_bits(Compression::new(level), false, window_bits)
}

pub(super) fn keep_deflating(window_bits: u8, level: u32, mut stream: Compress) {
    stream.reset();
    STREAMS.with_borrow_mut(|streams| {
        if streams.deflating.len() >= KEPT_MAX {
            streams.deflating.remove(0);
        }
        streams.deflating.push(((window_bits, level), stream));
    });
}

/// Calls the closure with an empty buffer that the thread keeps.
pub(super) fn with_scratch(work: impl FnOnce(&mut Vec<u8>)) {
    let mut scratch = STREAMS.with_borrow_mut(|streams| std::mem::take(&mut streams.scratch));
    work(&mut scratch);
    if scratch.capacity() <= SCRATCH_BYTES_MAX {
        scratch.clear();
        STREAMS.with_borrow_mut(|streams| streams.scratch = scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many streams of each kind the thread keeps.
    fn kept() -> (usize, usize) {
        STREAMS.with_borrow(|streams| (streams.inflating.len(), streams.deflating.len()))
    }

    #[test]
    fn a_thread_keeps_a_few_streams_of_each_kind() {
        let inflating: Vec<_> = (0..5).map(|_| take_inflating()).collect();
        inflating.into_iter().for_each(keep_inflating);
        assert_eq!(kept(), (KEPT_MAX, 0));
        for level in 1..=5 {
            keep_deflating(10, level, new_deflating(10, level));
        }
        assert_eq!(kept(), (KEPT_MAX, KEPT_MAX));
        drop((take_inflating(), take_deflating(10, 5), take_deflating(10, 4)));
        assert_eq!(kept(), (KEPT_MAX - 1, 0), "the last ones were kept");
    }

    #[test]
    fn a_stream_is_used_again_only_with_its_window_and_its_level() {
        keep_deflating(10, 1, new_deflating(10, 1));
        drop((take_deflating(10, 2), take_deflating(11, 1)));
        assert_eq!(kept(), (0, 1));
        drop(take_deflating(10, 1));
        assert_eq!(kept(), (0, 0));
    }

    #[test]
    fn a_thread_keeps_its_scratch_unless_it_has_become_long() {
        let capacity = |bytes| {
            with_scratch(|scratch| {
                assert!(scratch.is_empty());
                scratch.resize(bytes, 7);
            });
            STREAMS.with_borrow(|streams| streams.scratch.capacity())
        };
        assert_eq!(capacity(1000), 1000);
        assert_eq!(capacity(0), 1000);
        assert_eq!(capacity(SCRATCH_BYTES_MAX), SCRATCH_BYTES_MAX);
        assert_eq!(capacity(SCRATCH_BYTES_MAX + 1), 0);
    }
}
