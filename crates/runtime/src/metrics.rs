//! The metrics of the engine. Counters only grow; gauges have a current value. All can be read at
//! any time.

pub(crate) mod timeouts;

use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "tls")]
use std::time::SystemTime;

use crossbeam_utils::CachePadded;

use crate::budget::refusal::{Refusal, Refusals};
use crate::buffers::Moved;
use crate::execution::metrics::RouteMetrics;
use crate::pool::PoolMetrics;
#[cfg(feature = "tls")]
use crate::tls::acceptor::CertificateState;
use timeouts::{Awaited, TimeoutCounts, Timeouts};

/// A number that any thread may change. It is relaxed, because it only counts and orders nothing.
#[derive(Debug, Default)]
pub(crate) struct Counter(CachePadded<AtomicU64>);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    #[inline]
    pub(crate) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bytes that the connections of one loop have moved. Only the leader of the loop adds to them,
/// so that it takes no cache line from other cores.
#[derive(Debug, Default)]
pub(crate) struct MovedOnLoop {
    read: AtomicU64,
    written: AtomicU64,
}

impl MovedOnLoop {
    /// Adds to the counts. Only one thread at a time may do so.
    #[inline]
    pub(crate) fn add(&self, moved: Moved) {
        let add = |count: &AtomicU64, bytes: u64| {
            count.store(count.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
        };
        add(&self.read, moved.read);
        add(&self.written, moved.written);
    }

    pub(crate) fn get(&self) -> Moved {
        let [read, written] =
            [&self.read, &self.written].map(|count| count.load(Ordering::Relaxed));
        Moved { read, written }
    }

    /// Takes the counts of a loop that has ended.
    pub(crate) fn take(&self) -> Moved {
        let [read, written] =
            [&self.read, &self.written].map(|count| count.swap(0, Ordering::Relaxed));
        Moved { read, written }
    }
}

/// The counters of an engine. [`Metrics`] documents each one.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: Counter,
    pub(crate) accept_errors: Counter,
    pub(crate) accepts_without_descriptor: Counter,
    pub(crate) connections: Counter,
    pub(crate) connections_shed: Counter,
    pub(crate) shed_for_descriptors: Counter,
    pub(crate) ended_for_memory: Counter,
    pub(crate) requests: Counter,
    pub(crate) timeouts: Timeouts,
    pub(crate) panics: Counter,
    pub(crate) dispatched: Counter,
    pub(crate) hand_overs: Counter,
    pub(crate) hand_overs_failed: Counter,
    pub(crate) leases: Counter,
    pub(crate) leased: Counter,
    pub(crate) routes_learned: Counter,
    pub(crate) routes_forgotten: Counter,
    pub(crate) upgraded: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) abandoned: Counter,
    /// Bytes moved by threads that lead no loop, and by loops that have ended.
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    #[cfg(feature = "tls")]
    pub(crate) handshakes: Counter,
    #[cfg(feature = "tls")]
    pub(crate) handshakes_resumed: Counter,
}

/// What a server does with connections and requests. A shutdown goes through the phases in this
/// order.
///
/// ```
/// use filoplume_runtime::{Phase, Request, Server};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn(|_: Request| "Hello!")?;
/// assert_eq!(server.metrics().expect("it serves").phase, Phase::Serving);
/// server.shutdown_handle().shutdown();
/// server.wait();
/// assert_eq!(server.metrics().expect("it has served").phase, Phase::Stopped);
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// It accepts connections and answers requests.
    Serving,
    /// It is going to stop, and still accepts connections and answers requests. Each response ends
    /// its connection: see [`ServerConfig::lame_duck`](crate::ServerConfig::lame_duck).
    LameDuck,
    /// It accepts no connections, and finishes the requests that have begun.
    Draining,
    /// It has ended.
    Stopped,
}

/// The values that are read elsewhere at the moment of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauges {
    pub(crate) phase: Phase,
    pub(crate) incoming: usize,
    pub(crate) waiting: usize,
    pub(crate) threads_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) held_descriptors: usize,
    pub(crate) descriptors_max: usize,
    pub(crate) memory_used: usize,
    pub(crate) memory_max: usize,
    pub(crate) spooled_bytes: u64,
    pub(crate) pushed_streams: usize,
    pub(crate) held_streams: usize,
    /// Bytes moved by loops, and by handlers that read or write by themselves.
    pub(crate) moved: Moved,
    #[cfg(feature = "tls")]
    pub(crate) certificates: CertificateState,
}

/// The metrics of the parts of an engine.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) pool: PoolMetrics,
    pub(crate) routes: Vec<RouteMetrics>,
    pub(crate) loops: Vec<LoopMetrics>,
}

/// An event loop. Returned by [`Metrics::loops`].
///
/// ```
/// use filoplume_runtime::{Request, Server};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn(|_: Request| "Hello!")?;
/// for event_loop in server.metrics().expect("it serves").loops() {
///     println!("{:?}: {} connections", event_loop.thread, event_loop.connections);
/// }
/// # server.shutdown_handle().shutdown();
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoopMetrics {
    /// The name of the thread that leads it. `None` if its first leader has not begun, and on
    /// systems other than Linux.
    pub thread: Option<String>,
    /// Connections that it holds, with those that threads serve at the moment.
    pub connections: u64,
    /// Idle connections among them, when the loop last waited.
    pub parked: u64,
    /// How often since the start it was given to another thread, because a handler did not return
    /// in time.
    pub handed_over: u64,
}

/// A snapshot of all counters and gauges of an engine.
///
/// Each number is exact. Together they may be a few events apart.
///
/// ```
/// use filoplume_runtime::{Request, Server};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn(|_: Request| "Hello!")?;
/// let metrics = server.metrics().expect("it serves");
/// assert_eq!((metrics.requests, metrics.overloaded), (0, 0));
/// server.shutdown_handle().shutdown();
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// Whether the server serves, or how far its shutdown is.
    pub phase: Phase,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Failed attempts to accept a connection, for example because there was no free descriptor.
    pub accept_errors: u64,
    /// Of these, the attempts for which the process or the system had no free descriptor.
    pub accepts_without_descriptor: u64,
    /// Connections open now.
    pub connections: u64,
    /// The maximum of open connections: [`connections_max`](crate::ServerConfig::connections_max),
    /// or less if the system's limit of open files is lower.
    pub connections_max: u64,
    /// Connections without a running request that were closed since the start to make room for new
    /// ones, or for descriptors that are held in addition to theirs.
    pub connections_shed: u64,
    /// Of these, the ones that were closed because descriptors were scarce, and not because there
    /// were too many connections.
    pub shed_for_descriptors: u64,
    /// Connections ended since the start because there was no memory for what their peers had not
    /// taken. Most were in the middle of a response, which counts with its status although its end
    /// is missing. They are also among the [refusals](Self::refusals).
    pub ended_for_memory: u64,
    /// Descriptors held now in addition to those of connections: for bodies that come from readers
    /// such as files, contents that wait in files or are read as they arrive, and upgraded
    /// connections. They count against the system's limit of open files together with the
    /// connections.
    pub held_descriptors: usize,
    /// The maximum of connections and held descriptors together: the system's limit of open files
    /// without a reserve for the program. `usize::MAX` where the system has no limit.
    pub descriptors_max: usize,
    /// Idle connections that wait in their event loop, without a thread or buffer, when the loop
    /// last waited.
    pub parked: u64,
    /// Requests handed to the service since the start.
    pub requests: u64,
    /// Requests refused since the start because of their bytes. [`refusals`](Self::refusals) has
    /// the reasons.
    pub refused: u64,
    /// Connections closed since the start because they did not begin with a valid PROXY header
    /// although one is [expected](crate::ServerBuilder::proxy_protocol).
    pub proxy_headers_refused: u64,
    /// Requests refused since the start because no thread or permit would have been free in time
    /// ([`Refusal::Overloaded`]): answered with `503`, or disconnected if the response had
    /// begun. Requests refused because other limits were reached, such as
    /// [`memory_max`](crate::ServerConfig::memory_max), are only in [`refusals`](Self::refusals).
    pub overloaded: u64,
    /// Connections closed by a deadline since the start. [`timeouts`](Self::timeouts) has what they
    /// waited for.
    pub timed_out: u64,
    /// Handlers that panicked since the start.
    pub panics: u64,
    /// Requests whose handler has begun on a thread of the pool since the start, because their
    /// route blocks. Those that were refused before are not among them.
    pub dispatched: u64,
    /// Event loops that were given to another thread since the start because a handler did not
    /// return in time.
    pub hand_overs: u64,
    /// Hand-overs that were due but failed because no thread was free to lead.
    pub hand_overs_failed: u64,
    /// Leases granted since the start.
    pub leases: u64,
    /// Connections on a lease now.
    pub leased: u64,
    /// Times that a route was classified as blocking.
    pub routes_learned: u64,
    /// Times that a route was classified as quick again.
    pub routes_forgotten: u64,
    /// Connections detached since the start after a `101`.
    pub upgraded: u64,
    /// Requests since the start whose handlers asked to be told when their client has gone, and
    /// were told: see [`Cancel`](crate::Cancel).
    pub cancelled: u64,
    /// Requests since the start whose handlers did not begin, because their connection had been
    /// reset while they waited for a thread.
    pub abandoned: u64,
    /// Bytes read from connections since the start. On a connection with TLS they are those of the
    /// handshake and the content of the records, without their frames. Bytes of the current turns
    /// of the event loops are missing.
    pub bytes_read: u64,
    /// Bytes that connections have taken since the start, counted as
    /// [`bytes_read`](Self::bytes_read). Interim responses with
    /// [hints](crate::EarlyHints) are not included.
    pub bytes_written: u64,
    /// Responses open now whose bodies are [pushed](crate::pushed) by other threads, such as event
    /// streams.
    pub pushed_streams: usize,
    /// Threads that handlers hold now to read a content as it arrives, to write a pushed body, or
    /// for an [upgraded](crate::Response::upgrade) connection.
    pub held_streams: usize,
    /// TLS handshakes completed since the start. Those that failed are among the
    /// [refusals](Self::refusals).
    #[cfg(feature = "tls")]
    pub handshakes: u64,
    /// Completed TLS handshakes that continued an earlier session.
    #[cfg(feature = "tls")]
    pub handshakes_resumed: u64,
    /// When the first of the certificates that are in use expires, on any address. `None` if there
    /// is none, or its time cannot be read.
    #[cfg(feature = "tls")]
    pub certificates_expire: Option<SystemTime>,
    /// Times since the start that changed certificates could not be used, so that the old ones
    /// stayed in use.
    #[cfg(feature = "tls")]
    pub certificate_loads_failed: u64,
    /// Requests that now wait for a thread of the pool or for a [permit](crate::Permits), so that
    /// their handlers have not begun. [`RouteMetrics::waiting`] is the time that handlers wait.
    pub waiting: usize,
    /// The maximum of handlers that may block at once:
    /// [`threads_max`](crate::ServerConfig::threads_max). The pool has further threads for its
    /// event loops and for vital requests.
    pub threads_max: usize,
    /// Bytes that are now buffered for all peers.
    pub memory_used: usize,
    /// The maximum of buffered bytes: [`memory_max`](crate::ServerConfig::memory_max).
    pub memory_max: usize,
    /// Bytes of contents that now lie in files: see [`Plan`](crate::Plan). 0 without the feature
    /// `spool`.
    pub spooled_bytes: u64,
    /// Requests that now wait in [`Incoming`](crate::Incoming).
    pub incoming: usize,
    /// The threads of the pool and their queue.
    pub pool: PoolMetrics,
    timeouts: TimeoutCounts,
    refusals: Vec<(Refusal, u64)>,
    routes: Vec<RouteMetrics>,
    loops: Vec<LoopMetrics>,
}

impl Metrics {
    /// Returns the event loops that run, always in the same order. It is empty when the server has
    /// stopped.
    pub fn loops(&self) -> &[LoopMetrics] {
        &self.loops
    }

    /// Returns the measurements of each route that was called: how long its calls compute and wait,
    /// where they run, and why.
    pub fn routes(&self) -> &[RouteMetrics] {
        &self.routes
    }

    /// Returns the refusals since the start: each reason that occurred, with its count.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0")?;
    /// server.spawn(|_: Request| "Hello!")?;
    /// for (refusal, count) in server.metrics().expect("it serves").refusals() {
    ///     println!("{refusal} ({:?}): {count}", refusal.status());
    /// }
    /// # server.shutdown_handle().shutdown();
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    pub fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        self.refusals.iter().copied()
    }

    /// Returns how many connections were closed by a deadline since the start, by what they waited
    /// for. Each reason is there, also with a count of zero.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0")?;
    /// server.spawn(|_: Request| "Hello!")?;
    /// for (awaited, count) in server.metrics().expect("it serves").timeouts() {
    ///     println!("{awaited}: {count}");
    /// }
    /// # server.shutdown_handle().shutdown();
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    pub fn timeouts(&self) -> impl Iterator<Item = (Awaited, u64)> + '_ {
        self.timeouts.iter()
    }
}

impl Counters {
    /// Counts the bytes that were moved by a thread that leads no loop, or by a loop that has
    /// ended.
    pub(crate) fn count_moved(&self, moved: Moved) {
        for (counter, bytes) in
            [(&self.bytes_read, moved.read), (&self.bytes_written, moved.written)]
        {
            if bytes > 0 {
                counter.add(bytes);
            }
        }
    }

    pub(crate) fn read(&self, refusals: &Refusals, parts: Parts, gauges: Gauges) -> Metrics {
        let Parts { pool, routes, loops } = parts;
        let Gauges { phase, incoming, waiting, threads_max, connections_max, .. } = gauges;
        let Gauges { memory_used, memory_max, spooled_bytes, moved, .. } = gauges;
        let Gauges { pushed_streams, held_streams, .. } = gauges;
        let Gauges { held_descriptors, descriptors_max, .. } = gauges;
        let refusals = refusals.read();
        let timeouts = self.timeouts.read();
        Metrics {
            phase,
            accepted: self.accepted.get(),
            accept_errors: self.accept_errors.get(),
            accepts_without_descriptor: self.accepts_without_descriptor.get(),
            connections: self.connections.get(),
            connections_max: connections_max as u64,
            connections_shed: self.connections_shed.get(),
            shed_for_descriptors: self.shed_for_descriptors.get(),
            ended_for_memory: self.ended_for_memory.get(),
            held_descriptors,
            descriptors_max,
            parked: loops.iter().map(|event_loop| event_loop.parked).sum(),
            requests: self.requests.get(),
            refused: sum_of(&refusals, |refusal| matches!(refusal, Refusal::Request(_))),
            proxy_headers_refused: sum_of(&refusals, |refusal| refusal == Refusal::ProxyHeader),
            overloaded: sum_of(&refusals, |refusal| refusal == Refusal::Overloaded),
            timed_out: timeouts.sum(),
            panics: self.panics.get(),
            dispatched: self.dispatched.get(),
            hand_overs: self.hand_overs.get(),
            hand_overs_failed: self.hand_overs_failed.get(),
            leases: self.leases.get(),
            leased: self.leased.get(),
            routes_learned: self.routes_learned.get(),
            routes_forgotten: self.routes_forgotten.get(),
            upgraded: self.upgraded.get(),
            cancelled: self.cancelled.get(),
            abandoned: self.abandoned.get(),
            #[cfg(feature = "tls")]
            handshakes: self.handshakes.get(),
            #[cfg(feature = "tls")]
            handshakes_resumed: self.handshakes_resumed.get(),
            #[cfg(feature = "tls")]
            certificates_expire: gauges.certificates.expires,
            #[cfg(feature = "tls")]
            certificate_loads_failed: gauges.certificates.loads_failed,
            bytes_read: self.bytes_read.get() + moved.read,
            bytes_written: self.bytes_written.get() + moved.written,
            pushed_streams,
            held_streams,
            waiting,
            threads_max,
            memory_used,
            memory_max,
            spooled_bytes,
            incoming,
            pool,
            timeouts,
            refusals,
            routes,
            loops,
        }
    }
}

/// Returns how many refusals have a reason that `counts` accepts.
fn sum_of(refusals: &[(Refusal, u64)], counts: fn(Refusal) -> bool) -> u64 {
    refusals.iter().filter(|(refusal, _)| counts(*refusal)).map(|(_, count)| count).sum()
}
