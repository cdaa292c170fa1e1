//! What the user may set, with the default and the reason of each bound.

use std::thread::available_parallelism;
use std::time::Duration;

use filoplume_http1::Limits;

use crate::clock::TIMEOUT_MAX;

/// Handlers that may block at once. Two hundred is common for a database pool; twice that and
/// some room costs a few megabytes of touched stack.
pub(crate) const THREADS_MAX: usize = 512;

/// Requests that may wait for the program in [`Incoming`](crate::Incoming). Nobody knows how fast
/// it pulls.
pub(crate) const INCOMING_CAPACITY: usize = 1024;

/// How long a request may wait for a thread. Ten thousand clients are served within it if their
/// handlers take 10 ms each; and a client that waits for longer has often gone.
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections held at once. One more has an idle one closed, or waits in the system's backlog.
pub(crate) const CONNECTIONS_MAX: usize = 65_536;

/// The length of the system's queue of connections that were not accepted yet.
pub(crate) const BACKLOG: u32 = 4096;

/// How an engine behaves: every bound has a default that suits a server on the open internet.
///
/// ```
/// use filoplume_runtime::ServerConfig;
/// use std::time::Duration;
///
/// let config =
///     ServerConfig::default().keep_alive_timeout(Duration::from_secs(20)).threads_max(64);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ServerConfig {
    pub(crate) event_loops: usize,
    pub(crate) threads_max: usize,
    pub(crate) thread_idle_timeout: Duration,
    pub(crate) queue_capacity: Option<usize>,
    pub(crate) queue_timeout: Duration,
    pub(crate) memory_max: Option<usize>,
    pub(crate) connections_max: usize,
    pub(crate) raise_descriptor_limit: bool,
    pub(crate) connections_per_client_max: PerClient,
    pub(crate) backlog: u32,
    pub(crate) head_timeout: Duration,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) content_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) linger_timeout: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) blocking_stream_timeout: Option<Duration>,
    pub(crate) bytes_per_second_min: u64,
    pub(crate) buffered_content_bytes_max: u64,
    pub(crate) content_bytes_max: u64,
    pub(crate) unread_content_bytes_max: u64,
    pub(crate) limits: Limits,
    pub(crate) thread_name: String,
    pub(crate) batch_scheduling: bool,
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) faults: Option<std::sync::Arc<crate::faults::Plan>>,
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) jumps: Option<std::sync::Arc<crate::faults::Jumps>>,
}

/// How many connections one client may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerClient {
    /// Half of all, if it comes from the open internet.
    Half,
    /// So many, wherever it comes from.
    Bounded(usize),
    Unbounded,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            event_loops: available_parallelism().map_or(1, usize::from),
            threads_max: THREADS_MAX,
            thread_idle_timeout: Duration::from_secs(10),
            queue_capacity: None,
            queue_timeout: QUEUE_TIMEOUT,
            memory_max: None,
            connections_max: CONNECTIONS_MAX,
            raise_descriptor_limit: true,
            connections_per_client_max: PerClient::Half,
            backlog: BACKLOG,
            head_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(75),
            content_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(10),
            blocking_stream_timeout: Some(Duration::from_secs(120)),
            bytes_per_second_min: 1024,
            buffered_content_bytes_max: 1024 * 1024,
            content_bytes_max: 64 * 1024 * 1024,
            unread_content_bytes_max: 256 * 1024,
            limits: Limits::default(),
            thread_name: "filoplume".to_owned(),
            batch_scheduling: true,
            #[cfg(all(test, target_os = "linux"))]
            faults: None,
            #[cfg(all(test, target_os = "linux"))]
            jumps: None,
        }
    }
}

impl ServerConfig {
    /// Short deadlines and small bounds, for a server that faces hostile peers without a proxy
    /// before it.
    pub fn strict() -> Self {
        Self {
            head_timeout: Duration::from_secs(5),
            keep_alive_timeout: Duration::from_secs(10),
            content_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            blocking_stream_timeout: Some(Duration::from_secs(30)),
            bytes_per_second_min: 8 * 1024,
            buffered_content_bytes_max: 64 * 1024,
            content_bytes_max: 1024 * 1024,
            unread_content_bytes_max: 64 * 1024,
            connections_max: 16_384,
            connections_per_client_max: PerClient::Bounded(512),
            ..Self::default()
        }
    }

    /// Long-lived connections and large contents, for a server that only a trusted proxy reaches.
    pub fn behind_proxy() -> Self {
        Self {
            keep_alive_timeout: Duration::from_secs(600),
            content_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(120),
            blocking_stream_timeout: Some(Duration::from_secs(600)),
            content_bytes_max: 1024 * 1024 * 1024,
            connections_per_client_max: PerClient::Unbounded,
            ..Self::default()
        }
    }

    /// Sets how many event loops share the connections. Default: one a core.
    pub fn event_loops(mut self, loops: usize) -> Self {
        self.event_loops = loops.max(1);
        self
    }

    /// Sets how many handlers may block at once; the threads exist only while they are needed.
    /// Default: 512.
    pub fn threads_max(mut self, threads: usize) -> Self {
        self.threads_max = threads.max(1);
        self
    }

    /// Sets how long a thread without work stays. Default: 10 s.
    pub fn thread_idle_timeout(mut self, timeout: Duration) -> Self {
        self.thread_idle_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how threads are called: `name-1`, `name-2`... Default: `filoplume`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Sets whether Linux schedules the threads that lead event loops under its batch policy,
    /// `sched(7)`: one that wakes up takes the processor from nobody, and finds more to do at once.
    /// Threads that run handlers are not concerned, and a program that was started under another
    /// policy than the usual one keeps that. Off, it makes no call that a sandbox may forbid
    /// (`sched_setscheduler`, `setpriority`), and what an inline handler starts, threads or
    /// programs, does not inherit the policy. Default: yes; without effect elsewhere.
    pub fn batch_scheduling(mut self, is_on: bool) -> Self {
        self.batch_scheduling = is_on;
        self
    }

    /// Sets how many requests may wait for a thread, or in [`Incoming`](crate::Incoming) for the
    /// program; one more is answered `503` with `Retry-After`. Default: as many as there are
    /// connections, since [`queue_timeout`](Self::queue_timeout) is the bound that matters; 1024 in
    /// `Incoming`.
    pub fn queue_capacity(mut self, requests: usize) -> Self {
        self.queue_capacity = Some(requests.max(1));
        self
    }

    /// Sets how long a request may wait for a thread. What would wait longer, by the rate at which
    /// its route was served in that time, is answered `503` with `Retry-After` at once; what has
    /// waited for so long is answered the same. While more comes than can be served, requests wait
    /// for as long as a call of their route takes, and no longer. Default: 2 s.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how many bytes the engine buffers of all peers together: contents, until their handlers
    /// take or drop them, and what waits to be read or sent. From half of it on, peers that are
    /// silent for a second, or slower than 64 KiB/s, are ended; the last quarter is for contents of
    /// up to 64 KiB, and those that are longer are answered `503`. When all is used, a response of
    /// more than 64 KiB that its peer does not take at once ends with its connection. Default: a
    /// quarter of the memory of the machine or the container; 1 GiB where the system does not say.
    pub fn memory_max(mut self, bytes: usize) -> Self {
        self.memory_max = Some(bytes);
        self
    }

    /// Sets how many connections are held at once. There are fewer if the system's limit of open
    /// files does not allow as many: [`Metrics::connections_max`](crate::Metrics::connections_max)
    /// is what holds. For one more the connection is closed that has been idle for the longest time
    /// between two requests, or else the one whose head is unfinished for the longest time; if
    /// there is neither, the new one waits. Default: 65,536.
    pub fn connections_max(mut self, connections: usize) -> Self {
        self.connections_max = connections.max(1);
        self
    }

    /// Sets whether the server raises the soft limit of open files of this process to its hard
    /// limit when it starts. Programs that a handler starts inherit it. Default: yes; without
    /// effect on Windows.
    pub fn raise_descriptor_limit(mut self, is_on: bool) -> Self {
        self.raise_descriptor_limit = is_on;
        self
    }

    /// Sets how many connections one client may hold: an IPv4 address, or an IPv6 network of 64
    /// bits. One more is closed without a word, and counted as
    /// [`Refusal::ClientConnections`](crate::Refusal::ClientConnections). Where a [PROXY
    /// header](crate::ServerBuilder::proxy_protocol) names the client, it is that client;
    /// connections over Unix sockets are not counted. `None` is no bound: for a server behind an
    /// HTTP proxy, which is one client.
    ///
    /// Of the threads of the pool, an eighth at most may wait for a client that is counted: those
    /// of handlers that read a content as it arrives, and those that have an upgraded connection.
    /// One more content is refused with `503`, one more upgrade with the end of its connection, and
    /// counted as [`Refusal::ClientThreads`](crate::Refusal::ClientThreads).
    ///
    /// Default: half of [`Metrics::connections_max`](crate::Metrics::connections_max), so that no
    /// client keeps out all others. The default does not count loopback, private, link-local and
    /// shared addresses (RFC 1918, 4193, 3927 and 6598), because a client that comes from one of
    /// these is as a rule a proxy.
    pub fn connections_per_client_max(mut self, connections: impl Into<Option<usize>>) -> Self {
        let bounded = |connections: usize| PerClient::Bounded(connections.max(1));
        self.connections_per_client_max = connections.into().map_or(PerClient::Unbounded, bounded);
        self
    }

    /// Sets how many connections the system keeps waiting for the engine. Default: 4096.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections.max(1);
        self
    }

    /// Sets how long a head may take from the connection's start, or from its own first byte on a
    /// kept connection, to its end. It is one deadline, not one a read. Default: 10 s.
    pub fn head_timeout(mut self, timeout: Duration) -> Self {
        self.head_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a connection may be idle between two requests. Default: 75 s.
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.keep_alive_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a peer may be silent within a content. Bytes that arrive extend the deadline
    /// at [`bytes_per_second_min`](Self::bytes_per_second_min), but never beyond this time from
    /// now. Time in which a handler that streams the content does not read does not count. Default:
    /// 30 s.
    pub fn content_timeout(mut self, timeout: Duration) -> Self {
        self.content_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a response may wait for a peer that does not read. Bytes that it takes extend
    /// the deadline at [`bytes_per_second_min`](Self::bytes_per_second_min), but never beyond this
    /// time from now. Default: 30 s.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a peer that did not ask for the end may go on sending after the last response,
    /// before its connection is cut. The time lets that response reach a peer that is still busy
    /// with its upload, or with its next request (RFC 9112, section 9.6). Default: 2 s.
    pub fn linger_timeout(mut self, timeout: Duration) -> Self {
        self.linger_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a shutdown waits for what was begun. A request whose head is not complete has
    /// a second: nothing of it was accepted. Default: 10 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long each read and write of a [`BlockingStream`](crate::BlockingStream) may wait at
    /// first; its handler may change that. `None` is for ever. Default: 120 s, which is longer than
    /// the pauses between the pings of common clients.
    pub fn blocking_stream_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        // A socket takes zero for a mistake.
        let bounded = |timeout: Duration| timeout.clamp(Duration::from_millis(1), TIMEOUT_MAX);
        self.blocking_stream_timeout = timeout.into().map(bounded);
        self
    }

    /// Sets the pace that extends the deadlines of contents and responses: bytes moved, over this,
    /// is the time added. The time does not accumulate: no deadline is further away than its
    /// timeout. Default: 1024.
    pub fn bytes_per_second_min(mut self, bytes: u64) -> Self {
        self.bytes_per_second_min = bytes.max(1);
        self
    }

    /// Sets the longest content that is collected before the handler runs; a longer one is
    /// streamed, or refused if the plan asked for a buffer. Default: 1 MiB.
    pub fn buffered_content_bytes_max(mut self, bytes: u64) -> Self {
        self.buffered_content_bytes_max = bytes;
        self
    }

    /// Sets the longest content accepted at all; a longer one is refused with `413`. Default: 64
    /// MiB.
    pub fn content_bytes_max(mut self, bytes: u64) -> Self {
        self.content_bytes_max = bytes;
        self
    }

    /// Sets how much of a content that the handler left unread is skipped to keep the connection;
    /// beyond it the connection closes. Default: 256 KiB.
    pub fn unread_content_bytes_max(mut self, bytes: u64) -> Self {
        self.unread_content_bytes_max = bytes;
        self
    }

    /// Sets the bounds of heads, chunks and trailers.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}
