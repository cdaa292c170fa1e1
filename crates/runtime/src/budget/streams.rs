//! Threads that may wait for their peers. They run handlers that read a content while it arrives,
//! that own an upgraded connection, or that write a response body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::budget::clients::{ClientConnection, ClientId, HeldThread};
use crate::budget::refusal::Refusal;
use crate::budget::turns::{Turn, Turns};

/// When one thread in this many is held, the loop collects more of a content before its handler
/// starts. Threads are then for peers that send.
const CROWDED_SHARE: usize = 8;

/// When one thread in this many is held, silent or slow peers lose their threads.
const FULL_SHARE: usize = 2;

/// One client may hold one thread in this many, if clients are counted.
const CLIENT_SHARE: usize = 8;

/// How long a peer may do nothing while threads are scarce: longer than the second for which a peer
/// that sends a content may pause.
pub(crate) const PRESSED_SILENCE: Duration = Duration::from_secs(2);

/// The open streams.
#[derive(Debug)]
pub(crate) struct Streams {
    threads_max: usize,
    open: AtomicUsize,
    /// The streams of upgraded connections, and of bodies that are written.
    lasting: AtomicUsize,
    /// Responses whose bodies are pushed. They need no thread.
    pushed: AtomicUsize,
    /// For code that reads contents, writes bodies or owns a connection.
    turns: Arc<Turns>,
    read: AtomicU64,
    written: AtomicU64,
}

/// An open response whose body is pushed. Dropping it removes it from the count.
#[derive(Debug)]
pub(crate) struct OpenPushed(Arc<Streams>);

/// An open stream. Dropping it removes it from the count.
#[derive(Debug)]
pub(crate) struct OpenStream {
    streams: Arc<Streams>,
    kind: Kind,
    client: Option<ClientId>,
    /// The thread that counts for its client, if clients are bounded.
    _held: Option<HeldThread>,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A content.
    Content,
    /// The peer of a connection that a request has upgraded, or the client of a body that is
    /// written.
    Lasting,
    /// The peer of a connection of a raw service, whose threads may all be used for that.
    Raw,
}

impl Streams {
    pub(crate) fn new(threads_max: usize) -> Arc<Self> {
        Arc::new(Self {
            threads_max,
            open: AtomicUsize::new(0),
            lasting: AtomicUsize::new(0),
            pushed: AtomicUsize::new(0),
            turns: Turns::of_this_machine(),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
        })
    }

    /// Opens a stream for the client with this connection. Returns `None` if the client's streams
    /// already hold their maximum of threads.
    pub(crate) fn open(
        self: &Arc<Self>,
        connection: Option<&Arc<ClientConnection>>,
    ) -> Option<OpenStream> {
        self.open_as(connection, Kind::Content)
    }

    /// As [`open`](Self::open), for a thread that owns a connection or writes a body. The threads
    /// of upgraded connections and written bodies have a maximum together, because they may last
    /// for long, and other requests need threads.
    pub(crate) fn open_lasting(
        self: &Arc<Self>,
        connection: Option<&Arc<ClientConnection>>,
        is_of_raw_service: bool,
    ) -> Result<OpenStream, Refusal> {
        if is_of_raw_service {
            return self.open_as(connection, Kind::Raw).ok_or(Refusal::ClientThreads);
        }
        let has_place = self.lasting.fetch_add(1, Ordering::Relaxed) < self.share();
        let opened = if has_place {
            self.open_as(connection, Kind::Lasting).ok_or(Refusal::ClientThreads)
        } else {
            Err(Refusal::Overloaded)
        };
        if opened.is_err() {
            self.lasting.fetch_sub(1, Ordering::Relaxed);
        }
        opened
    }

    fn open_as(
        self: &Arc<Self>,
        connection: Option<&Arc<ClientConnection>>,
        kind: Kind,
    ) -> Option<OpenStream> {
        let held = match connection {
            Some(connection) => {
                Some(connection.hold_thread((self.threads_max / CLIENT_SHARE).max(1))?)
            }
            None => None,
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        let client = connection.map(|connection| connection.client());
        Some(OpenStream { streams: Arc::clone(self), kind, client, _held: held })
    }

    /// Counts a response whose body is pushed.
    pub(crate) fn open_pushed(self: &Arc<Self>) -> OpenPushed {
        self.pushed.fetch_add(1, Ordering::Relaxed);
        OpenPushed(Arc::clone(self))
    }

    /// Returns how many threads are held now.
    pub(crate) fn held(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns how many responses are open whose bodies are pushed.
    pub(crate) fn pushed(&self) -> usize {
        self.pushed.load(Ordering::Relaxed)
    }

    /// Returns the bytes that handlers have read and written by themselves.
    pub(crate) fn moved(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed))
    }

    /// Returns whether a content must be collected, as far as possible, before it takes a thread.
    pub(crate) fn are_crowded(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= (self.threads_max / CROWDED_SHARE).max(1)
    }

    /// Returns the threads that stand in line for their turn on the processors, or that compute in
    /// their turn for certain.
    pub(crate) fn in_line(&self) -> Vec<u32> {
        let mut threads = self.turns.in_line();
        threads.extend(Turns::threads_computing());
        threads
    }

    fn share(&self) -> usize {
        (self.threads_max / FULL_SHARE).max(1)
    }
}

impl OpenStream {
    /// Returns whether threads are so scarce that slow peers must be closed.
    pub(crate) fn is_pressed(&self) -> bool {
        let open = self.streams.open.load(Ordering::Relaxed);
        match self.kind {
            Kind::Content | Kind::Lasting => open >= self.streams.share(),
            Kind::Raw => open >= self.streams.threads_max,
        }
    }

    /// Waits for a turn of the current thread on the processors. A raw service has the processors
    /// for itself, so its threads take no turns.
    pub(crate) fn wait_for_turn(&self) -> Option<Turn> {
        (self.kind != Kind::Raw).then(|| Turn::wait(&self.streams.turns, self.client))
    }

    /// Counts bytes that the stream has read.
    pub(crate) fn count_read(&self, bytes: usize) {
        self.streams.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that the stream has written.
    pub(crate) fn count_written(&self, bytes: usize) {
        self.streams.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.open.fetch_sub(1, Ordering::Relaxed);
        if self.kind == Kind::Lasting {
            self.streams.lasting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for OpenPushed {
    fn drop(&mut self) {
        self.0.pushed.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::clients::Clients;
    use crate::execution::probe;

    #[test]
    fn upgraded_connections_hold_half_of_the_threads() {
        let streams = Streams::new(16);
        let upgrade = || streams.open_lasting(None, false);
        let mut open: Vec<_> = (0..8).map(|_| upgrade().unwrap()).collect();
        assert!(open[0].is_pressed());
        assert_eq!(upgrade().unwrap_err(), Refusal::Overloaded);
        assert!(streams.open(None).is_some(), "a content is not refused");
        open.pop();
        assert!(!open[0].is_pressed());
        open.push(upgrade().unwrap());
        assert_eq!(upgrade().unwrap_err(), Refusal::Overloaded);
    }

    #[test]
    fn connections_of_a_raw_service_may_hold_all_threads() {
        let streams = Streams::new(16);
        let mut open: Vec<_> = (0..15).map(|_| streams.open_lasting(None, true).unwrap()).collect();
        assert!(!open[0].is_pressed());
        open.push(streams.open_lasting(None, true).unwrap());
        assert!(open[0].is_pressed());
        drop(open.into_iter().next());
        let open = streams.open_lasting(None, true).unwrap();
        assert!(!open.is_pressed());
    }

    #[test]
    fn only_threads_of_a_raw_service_compute_without_a_turn() {
        let streams = Streams::new(16);
        let raw = streams.open_lasting(None, true).unwrap();
        assert!(raw.wait_for_turn().is_none());
        let (upgraded, content) = (streams.open_lasting(None, false), streams.open(None));
        for stream in [upgraded.unwrap(), content.unwrap()] {
            assert!(stream.wait_for_turn().is_some());
        }
    }

    /// Whether it stands in line or has its turn, it computes.
    #[test]
    fn a_thread_with_a_turn_of_a_parser_is_known_to_compute() {
        let streams = Streams::new(16);
        let _turn = Turn::wait(Turns::of_computing(), None);
        assert!(streams.in_line().contains(&probe::thread_number()));
    }

    #[test]
    fn a_client_at_its_limit_takes_no_place_of_upgraded_connections() {
        let streams = Streams::new(8);
        let client = Arc::new(Clients::new(100)).admit("192.0.2.1".parse().unwrap()).unwrap();
        let _first = streams.open_lasting(client.as_ref(), false).unwrap();
        for _ in 0..8 {
            let refused = streams.open_lasting(client.as_ref(), false);
            assert_eq!(refused.unwrap_err(), Refusal::ClientThreads);
        }
        assert!(streams.open_lasting(None, false).is_ok());
    }

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
        let connection = |address: &str| clients.admit(address.parse().unwrap()).unwrap();
        let (one, same, other) =
            (connection("192.0.2.1"), connection("192.0.2.1"), connection("192.0.2.2"));
        let first = streams.open(one.as_ref()).unwrap();
        let second = streams.open(same.as_ref()).unwrap();
        assert!(streams.open(one.as_ref()).is_none(), "the connections of a client count together");
        assert!(streams.open(other.as_ref()).is_some(), "another client is not affected");
        assert!(streams.open(None).is_some(), "a client that is not counted is not affected");
        // A stream may outlive the connection that it came from.
        drop((one, same));
        assert!(streams.open(connection("192.0.2.1").as_ref()).is_none());
        drop(first);
        assert!(streams.open(connection("192.0.2.1").as_ref()).is_some());
        drop(second);
    }

    #[test]
    fn each_client_may_hold_a_thread_however_few_there_are() {
        let streams = Streams::new(4);
        let client = Arc::new(Clients::new(100)).admit("192.0.2.1".parse().unwrap()).unwrap();
        let first = streams.open(client.as_ref());
        assert!(first.is_some() && streams.open(client.as_ref()).is_none());
    }
}
