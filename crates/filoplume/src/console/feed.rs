//! The feed of snapshots, and the thread that makes them while somebody looks.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use filoplume_runtime::pushed;
use parking_lot::Mutex;

use super::snapshot::{moves, snapshot};
use crate::broadcast::{Broadcast, SlowClients};
use crate::core::error::{Error, Result};
use crate::observe::Observer;
use crate::sse::{self, Event, EventStream};

/// How many viewers there may be at once. An open page is one.
pub(super) const VIEWERS_MAX: usize = 16;

/// The time between two snapshots.
const EVERY: Duration = Duration::from_secs(1);

/// How often the thread checks whether a route has moved between the event loops and the pool. If
/// one has, it sends a snapshot at once, so that a page shows the move within a second even if the
/// machine is busy.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The key of all snapshots. A new one replaces the one that a viewer has not read yet.
const KEY: u64 = 0;

/// Sends snapshots to the viewers of a console.
#[derive(Debug)]
pub(super) struct Feed {
    observer: Arc<Observer>,
    viewers: Broadcast<pushed::Sender>,
    /// Whether there is a thread that makes snapshots. Its lock is held while a viewer is added and
    /// while the thread decides to end, so that no viewer is left without a thread.
    is_running: Mutex<bool>,
    /// Whether the lock was held while a snapshot was made.
    #[cfg(test)]
    is_locked_for_snapshot: AtomicBool,
}

impl Feed {
    pub(super) fn new(observer: Arc<Observer>) -> Arc<Self> {
        let viewers = Broadcast::new(SlowClients::Coalesce);
        Arc::new(Self {
            observer,
            viewers,
            is_running: Mutex::new(false),
            #[cfg(test)]
            is_locked_for_snapshot: AtomicBool::new(false),
        })
    }

    /// Adds a viewer. It gets its first snapshot at once. Returns `None` if there are too many.
    pub(super) fn subscribe(self: &Arc<Self>) -> Result<Option<EventStream>> {
        if !self.has_room() {
            return Ok(None);
        }
        let (sender, stream) = sse::channel();
        // The snapshot is made without the lock, because that takes a while. It is sent before the
        // viewer is added, so that it cannot replace a newer snapshot from the thread.
        let snapshot = self.snapshot(self.viewers.len() + 1);
        // The client may already have gone. The thread notices that with its next snapshot.
        let _ = sender.bytes().send_latest(KEY, snapshot);
        let mut is_running = self.is_running.lock();
        // Other viewers may have come in the meantime.
        if !self.has_room() {
            return Ok(None);
        }
        if !*is_running {
            self.start().map_err(|error| {
                Error::unavailable("no thread can be started for the console").with_source(error)
            })?;
            *is_running = true;
        }
        self.viewers.subscribe(sender.bytes().clone());
        Ok(Some(stream))
    }

    fn has_room(&self) -> bool {
        if self.viewers.len() >= VIEWERS_MAX {
            // Viewers that have left are found when something is sent.
            self.viewers.send(&Event::comment("").encode(), None);
        }
        self.viewers.len() < VIEWERS_MAX
    }

    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let feed = Arc::clone(self);
        let thread = thread::Builder::new().name("filoplume-console".to_owned());
        thread.spawn(move || feed.run()).map(drop)
    }

    /// Sends snapshots until all viewers have left.
    fn run(&self) {
        let _running = Running(self);
        let mut sent_at = Instant::now();
        let mut moves_sent = moves(&self.observer);
        loop {
            thread::sleep(EVERY.saturating_sub(sent_at.elapsed()).min(LOOK_EVERY));
            let moves_now = moves(&self.observer);
            if sent_at.elapsed() < EVERY && moves_now == moves_sent {
                continue;
            }
            (sent_at, moves_sent) = (Instant::now(), moves_now);
            self.viewers.send(&self.snapshot(self.viewers.len()), Some(KEY));
            let mut is_running = self.is_running.lock();
            if self.viewers.is_empty() {
                *is_running = false;
                return;
            }
        }
    }

    fn snapshot(&self, viewers: usize) -> Bytes {
        #[cfg(test)]
        self.is_locked_for_snapshot.fetch_or(self.is_running.is_locked(), Relaxed);
        let event = Event::new(snapshot(&self.observer, viewers)).event("snapshot");
        event.expect("the name has no line end").encode()
    }
}

/// Lets the next viewer start another thread if this one has failed.
struct Running<'a>(&'a Feed);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.0.is_running.lock() = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use filoplume_runtime::{Peer, Response, ServerConfig, answer_in_process};

    use super::*;
    use crate::core::response::IntoResponse;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn viewer(feed: &Arc<Feed>) -> Option<EventStream> {
        feed.subscribe().unwrap()
    }

    fn eventually(what: &str, condition: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_thread_runs_while_somebody_looks() {
        let feed = Feed::new(Arc::default());
        let is_running = || *feed.is_running.lock();
        assert!(!is_running());
        for _ in 0..2 {
            let viewers = [viewer(&feed).unwrap(), viewer(&feed).unwrap()];
            assert!(is_running());
            drop(viewers);
            eventually("the thread ends", || !is_running());
        }
    }

    #[test]
    fn a_viewer_that_does_not_read_holds_one_snapshot() {
        let feed = Feed::new(Arc::default());
        let stream = Mutex::new(viewer(&feed));
        for _ in 0..100 {
            assert_eq!(feed.viewers.send(&feed.snapshot(1), Some(KEY)).sent, 1);
        }
        let service =
            move |_| -> Response { stream.lock().take().unwrap().into_response().unwrap() };
        let input = b"GET / HTTP/1.0\r\n\r\n";
        let answer = answer_in_process(&service, Peer::Unix, input, &ServerConfig::default());
        let answer = String::from_utf8(answer).unwrap();
        assert_eq!(answer.matches("event: snapshot").count(), 1, "{answer}");
    }

    #[test]
    fn viewers_that_have_left_make_room() {
        let feed = Feed::new(Arc::default());
        for _ in 0..100 {
            drop(viewer(&feed).unwrap());
        }
        let viewers: Vec<_> = (0..VIEWERS_MAX).map(|_| viewer(&feed).unwrap()).collect();
        assert!(viewer(&feed).is_none());
        drop(viewers);
        assert!(viewer(&feed).is_some());
    }

    #[test]
    fn viewers_that_come_at_once_are_not_too_many() {
        let feed = Feed::new(Arc::default());
        let comers = 4 * VIEWERS_MAX;
        let all = Barrier::new(comers);
        let come = || {
            all.wait();
            let viewer = viewer(&feed);
            // Nobody leaves before all have come.
            all.wait();
            viewer.is_some()
        };
        let seen = thread::scope(|scope| {
            let threads: Vec<_> = (0..comers).map(|_| scope.spawn(come)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count()
        });
        assert_eq!(seen, VIEWERS_MAX);
    }

    #[test]
    fn a_thread_that_panics_is_followed_by_another_one() {
        let feed = Feed::new(Arc::default());
        *feed.is_running.lock() = true;
        let failing = Arc::clone(&feed);
        let fails = thread::spawn(move || {
            let _running = Running(&failing);
            std::panic::resume_unwind(Box::new("it has failed"));
        });
        assert!(fails.join().is_err());
        assert!(!*feed.is_running.lock());
    }

    #[test]
    fn the_first_snapshot_of_a_viewer_is_made_without_the_lock() {
        let feed = Feed::new(Arc::default());
        // The thread locks as well, but it starts only after the first snapshot.
        let _viewer = viewer(&feed);
        assert!(!feed.is_locked_for_snapshot.load(Relaxed));
    }
}
