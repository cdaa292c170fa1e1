//! Compression streams that belong to threads.
//!
//! A stream takes 40 KiB for inflating and about 300 KiB for deflating, and a new one costs more
//! than a short message. Without context takeover a connection needs one only during a message.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress};

/// Most streams of each kind that a thread keeps. It rarely works on several messages at a time.
const KEPT_MAX: usize = 2;
/// A scratch buffer that grew beyond this is freed.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;
/// The largest window. Any smaller one can be inflated with it.
pub(super) const WINDOW_BITS_MAX: u8 = 15;

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
