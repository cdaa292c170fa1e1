//! Contents that handlers read while they arrive. Each holds a thread, which may wait for its peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From one in so many threads on, the loop collects more of a content before its handler starts: a thread is
/// for those whose peers send.
const CROWDED_SHARE: usize = 8;

/// From one in so many threads on, peers that are silent or slow lose their threads.
const FULL_SHARE: usize = 2;

/// The streams that are open.
#[derive(Debug)]
pub(crate) struct Streams {
    threads_max: usize,
    open: AtomicUsize,
}

/// One of them. Dropped, it is over.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<Streams>);

impl Streams {
    pub(crate) fn new(threads_max: usize) -> Arc<Self> {
        Arc::new(Self { threads_max, open: AtomicUsize::new(0) })
    }

    pub(crate) fn open(self: &Arc<Self>) -> OpenStream {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenStream(Arc::clone(self))
    }

    /// Whether a content should be there, as far as it is collected, before it takes a thread.
    pub(crate) fn are_crowded(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= (self.threads_max / CROWDED_SHARE).max(1)
    }

    fn are_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= (self.threads_max / FULL_SHARE).max(1)
    }
}

impl OpenStream {
    /// Whether threads are so short that a slow peer has to go.
    pub(crate) fn is_pressed(&self) -> bool {
        self.0.are_full()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_crowded_long_before_they_are_full() {
        let streams = Streams::new(16);
        let mut open = Vec::new();
        for (count, is_crowded, is_full) in
            [(1, false, false), (2, true, false), (7, true, false), (8, true, true)]
        {
            open.resize_with(count, || streams.open());
            assert_eq!((streams.are_crowded(), open[0].is_pressed()), (is_crowded, is_full), "{count}");
        }
        open.clear();
        assert!(!streams.are_crowded());
    }
}
