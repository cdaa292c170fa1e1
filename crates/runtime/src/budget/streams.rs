//! Threads that may wait for their peers: those of handlers that read a content while it arrives,
//! and those that have an upgraded connection for themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::budget::clients::{HeldThread, Place};

/// From one in so many threads on, the loop collects more of a content before its handler starts: a
/// thread is for those whose peers send.
const CROWDED_SHARE: usize = 8;

/// From one in so many threads on, peers that are silent or slow lose their threads.
const FULL_SHARE: usize = 2;

/// One client may hold one in so many threads, where clients are counted.
const CLIENT_SHARE: usize = 8;

/// The streams that are open.
#[derive(Debug)]
pub(crate) struct Streams {
    threads_max: usize,
    open: AtomicUsize,
}

/// One of them. Dropped, it is over.
#[derive(Debug)]
pub(crate) struct OpenStream {
    streams: Arc<Streams>,
    /// Its part of what its client may hold, where that is bounded.
    _held: Option<HeldThread>,
}

impl Streams {
    pub(crate) fn new(threads_max: usize) -> Arc<Self> {
        Arc::new(Self { threads_max, open: AtomicUsize::new(0) })
    }

    /// Returns a stream for a client with this place, or `None` if its streams hold as many threads
    /// as those of one client may.
    pub(crate) fn open(self: &Arc<Self>, place: Option<&Arc<Place>>) -> Option<OpenStream> {
        let held = match place {
            Some(place) => Some(place.hold_thread((self.threads_max / CLIENT_SHARE).max(1))?),
            None => None,
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(OpenStream { streams: Arc::clone(self), _held: held })
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
        self.streams.are_full()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::clients::Clients;

    #[test]
    fn streams_are_crowded_long_before_they_are_full() {
        let streams = Streams::new(16);
        let mut open = Vec::new();
        for (count, is_crowded, is_full) in
            [(1, false, false), (2, true, false), (7, true, false), (8, true, true)]
        {
            open.resize_with(count, || streams.open(None).unwrap());
            assert_eq!(
                (streams.are_crowded(), open[0].is_pressed()),
                (is_crowded, is_full),
                "{count}"
            );
        }
        open.clear();
        assert!(!streams.are_crowded());
    }

    #[test]
    fn the_streams_of_one_client_hold_an_eighth_of_the_threads() {
        let streams = Streams::new(16);
        let clients = Arc::new(Clients::new(100));
        let place = |address: &str| clients.admit(address.parse().unwrap()).unwrap();
        let (one, same, other) = (place("192.0.2.1"), place("192.0.2.1"), place("192.0.2.2"));
        let first = streams.open(one.as_ref()).unwrap();
        let second = streams.open(same.as_ref()).unwrap();
        assert!(streams.open(one.as_ref()).is_none(), "its connections count together");
        assert!(streams.open(other.as_ref()).is_some(), "another client is not concerned");
        assert!(streams.open(None).is_some(), "nor is one that is not counted");
        // A stream may outlive the connection that it came from.
        drop((one, same));
        assert!(streams.open(place("192.0.2.1").as_ref()).is_none());
        drop(first);
        assert!(streams.open(place("192.0.2.1").as_ref()).is_some());
        drop(second);
    }
}
