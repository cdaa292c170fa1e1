//! The settings of a server, each with its default and the reason for its bound.

mod check;

use std::thread::available_parallelism;
use std::time::Duration;

use filoplume_http1::Limits;

use crate::clock::TIMEOUT_MAX;

/// The number of handlers that may block at once. Two hundred is common for a database pool. Twice
/// that plus some room costs a few megabytes of touched stack.
pub(crate) const THREADS_MAX: usize = 512;

/// The number of requests that may wait for the program in [`Incoming`](crate::Incoming). The time
/// that they would wait is the bound that matters; this one bounds the memory of the queue.
pub(crate) const INCOMING_CAPACITY: usize = 8 * 1024;

/// How long a request may wait for a thread. If handlers take 10 ms each, ten thousand clients are
/// served within this time. A client that waits longer has often given up.
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of connections held at once. When one more arrives, an idle or slow one is closed, or
/// the new one waits in the system's backlog.
pub(crate) const CONNECTIONS_MAX: usize = 65_536;

/// The length of the system's queue of connections that are not yet accepted.
pub(crate) const BACKLOG: u32 = 4096;

/// The time before which no handler is reported as stuck. Few pages take a second, and people
/// notice those that do.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(1);

/// The configuration of a server. Every bound has a default that suits the open internet.
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
    pub(crate) stuck_after: Option<Duration>,
    pub(crate) head_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) handshake_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) handshakes_max: usize,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) content_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) linger_timeout: Duration,
    pub(crate) lame_duck: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) blocking_stream_timeout: Option<Duration>,
    pub(crate) bytes_per_second_min: u64,
    pub(crate) buffered_content_bytes_max: u64,
    pub(crate) content_bytes_max: u64,
    #[cfg(feature = "spool")]
    pub(crate) spool_folder: Option<std::path::PathBuf>,
    #[cfg(feature = "spool")]
    pub(crate) spooled_bytes_max: Option<u64>,
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
    /// Half of all connections if the client has a public address.
    Half,
    /// This number, whatever the client's address.
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
            stuck_after: Some(STUCK_AFTER),
            head_timeout: Duration::from_secs(10),
            #[cfg(feature = "tls")]
            handshake_timeout: Duration::from_secs(10),
            #[cfg(feature = "tls")]
            handshakes_max: available_parallelism().map_or(1, usize::from),
            keep_alive_timeout: Duration::from_secs(75),
            content_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(2),
            lame_duck: Duration::ZERO,
            drain_timeout: Duration::from_secs(10),
            blocking_stream_timeout: Some(Duration::from_secs(120)),
            bytes_per_second_min: 1024,
            buffered_content_bytes_max: 1024 * 1024,
            content_bytes_max: 64 * 1024 * 1024,
            #[cfg(feature = "spool")]
            spool_folder: None,
            #[cfg(feature = "spool")]
            spooled_bytes_max: None,
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
    /// Returns a configuration with short deadlines and small bounds, for a server that hostile
    /// peers reach without a proxy in front of it.
    pub fn strict() -> Self {
        Self {
            head_timeout: Duration::from_secs(5),
            #[cfg(feature = "tls")]
            handshake_timeout: Duration::from_secs(5),
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

    /// Returns a configuration for long-lived connections and large contents, for a server that
    /// only a trusted proxy reaches.
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

    /// Sets the number of event loops that share the connections, up to 16,384. Default: one per
    /// core.
    pub fn event_loops(mut self, loops: usize) -> Self {
        self.event_loops = loops.max(1);
        self
    }

    /// Sets the number of handlers that may block at once. The threads exist only while they are
    /// needed. Default: 512.
    pub fn threads_max(mut self, threads: usize) -> Self {
        self.threads_max = threads.max(1);
        self
    }

    /// Sets how long a thread stays without work before it ends. Default: 10 s.
    pub fn thread_idle_timeout(mut self, timeout: Duration) -> Self {
        self.thread_idle_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets the prefix of the threads' names: `name-1`, `name-2`... A server with a zero byte in it
    /// does not start. Default: `filoplume`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Sets whether Linux schedules the threads that lead event loops under its batch policy
    /// (`sched(7)`). Under this policy a thread that wakes up does not preempt others, so it finds
    /// more events at once. Threads that run handlers are not affected. A program that was started
    /// under another policy than the normal one keeps that policy. If this is off, the engine does
    /// not call `sched_setscheduler` and `setpriority`, which a sandbox may forbid, and threads and
    /// programs that an inline handler starts do not inherit the policy. Default: on; without
    /// effect on systems other than Linux.
    pub fn batch_scheduling(mut self, is_on: bool) -> Self {
        self.batch_scheduling = is_on;
        self
    }

    /// Sets how many requests may wait for a thread, or for the program in
    /// [`Incoming`](crate::Incoming). Further requests are answered with `503` and `Retry-After`.
    /// The default for threads is the maximum number of connections, since
    /// [`queue_timeout`](Self::queue_timeout) is the bound that matters. The default for `Incoming`
    /// is 8192, for the same reason.
    pub fn queue_capacity(mut self, requests: usize) -> Self {
        self.queue_capacity = Some(requests.max(1));
        self
    }

    /// Sets how long a request may wait for a thread. A request that has waited this long is
    /// answered with `503` and `Retry-After`. A request that is expected to wait longer, by the
    /// recent rate of its route, gets the same answer at once. Under overload, accepted requests
    /// wait about as long as a call of their route takes. Requests that the program pulls from
    /// [`Incoming`](crate::Incoming) are treated in the same way, by the rate at which it has
    /// recently pulled them; those that already wait stay until they are pulled. With zero, a
    /// request is refused unless a thread is free; for `Incoming`, one waits. Default: 2 s.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how many bytes the engine buffers for all peers together: contents, until their
    /// handlers take or drop them, and bytes that wait to be read or sent. That includes requests
    /// that wait for their content or for a thread, what other threads have queued for peers that
    /// do not read, what the readers of their responses
    /// [keep](crate::Response::add_reader_memory), and messages that protocols receive in pieces.
    ///
    /// When half of it is used, the engine closes the connections of peers that are silent for a
    /// second or slower than 64 KiB/s. The last quarter is reserved for contents of up to 64 KiB;
    /// longer ones are answered with `503`. When all of it is used, a request that would have to
    /// wait for a thread is answered with `503` too, and a response of more than 64 KiB ends with
    /// its connection if the peer does not take it at once. A connection to which other threads
    /// send ends in this way with more than 4 KiB, and further bytes for it are refused.
    ///
    /// A client that is [counted](Self::connections_per_client_max) leaves a third of it to others,
    /// and an IPv6 network of 48 bits a ninth. Beyond that, the client is treated as if all of the
    /// memory were used, and of its responses those of more than 4 KiB end in this way.
    ///
    /// Default: a quarter of the memory of the machine or the container; 1 GiB if the system does
    /// not report it.
    pub fn memory_max(mut self, bytes: usize) -> Self {
        self.memory_max = Some(bytes);
        self
    }

    /// Sets how many connections are held at once. If the system's limit of open files is lower,
    /// that limit applies; [`Metrics::connections_max`](crate::Metrics::connections_max) is the
    /// actual value. When a connection arrives at the limit, the engine closes another one, in this
    /// order: one that is idle between two requests; one whose head is incomplete; one that has got
    /// its last response; one whose peer sends its content or takes its response more slowly than
    /// 64 KiB/s; a silent stream of a counted client that has more than a quarter of all
    /// connections. If there is none of these, the new connection waits. Default: 65,536.
    pub fn connections_max(mut self, connections: usize) -> Self {
        self.connections_max = connections.max(1);
        self
    }

    /// Sets whether the server raises the soft limit of open files of this process to the hard
    /// limit when it starts. Programs that a handler starts inherit it. Default: yes; without
    /// effect on Windows.
    pub fn raise_descriptor_limit(mut self, is_on: bool) -> Self {
        self.raise_descriptor_limit = is_on;
        self
    }

    /// Sets how many connections one client may hold. A client is an IPv4 address or an IPv6
    /// network of 64 bits. An IPv6 network of 48 bits may hold four times as many, by default three
    /// quarters of all connections. Further connections are closed without a response and counted
    /// as [`Refusal::ClientConnections`](crate::Refusal::ClientConnections). If a
    /// [PROXY header](crate::ServerBuilder::proxy_protocol) names the client, its address is used.
    /// Connections over Unix sockets are not counted, and neither are those of a
    /// [proxy](crate::Service::is_proxy) that the service trusts. `None` removes the bound: use it
    /// behind any other HTTP proxy, which would count as one client.
    ///
    /// What a request holds also counts for its client, as the rest of this text says. If the
    /// request comes from a trusted proxy, its client is the one that
    /// [the service names](crate::Service::client), even with `None`.
    ///
    /// At most an eighth of the pool's threads may wait for one counted client. This covers
    /// handlers that read a content as it arrives, and handlers that own an upgraded connection.
    /// Beyond that, a content is refused with `503` and an upgrade closes its connection. Both are
    /// counted as [`Refusal::ClientThreads`](crate::Refusal::ClientThreads).
    ///
    /// The requests of counted clients wait for threads in turns. One client has at most twice as
    /// many threads for one route as are free, which is two thirds of them if it is alone. For all
    /// routes together a client, and an IPv6 network of 48 bits, has at most eight times as many as
    /// are free.
    ///
    /// Default: half of [`Metrics::connections_max`](crate::Metrics::connections_max), so that no
    /// single client excludes all others. The default does not count loopback, private, link-local
    /// and shared addresses (RFC 1918, 4193, 3927 and 6598), because a client with such an address
    /// is usually a proxy.
    pub fn connections_per_client_max(mut self, connections: impl Into<Option<usize>>) -> Self {
        let bounded = |connections: usize| PerClient::Bounded(connections.max(1));
        self.connections_per_client_max = connections.into().map_or(PerClient::Unbounded, bounded);
        self
    }

    /// Sets how many connections the system queues for the engine before it accepts them. Default:
    /// 4096.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections.max(1);
        self
    }

    /// Sets when a handler that does not return is reported as [stuck](crate::Stuck): if it has
    /// taken three times as long as the longest call of its route before, and at least this time.
    /// The first sixteen calls of a route are reported after ten times this time, because it is not
    /// known yet whether the route always takes that long. `None` reports nothing. Default: 1 s.
    ///
    /// ```
    /// use filoplume_runtime::ServerConfig;
    /// use std::time::Duration;
    ///
    /// let config = ServerConfig::default().stuck_after(Duration::from_secs(5));
    /// # let _ = config;
    /// ```
    pub fn stuck_after(mut self, time: impl Into<Option<Duration>>) -> Self {
        // Below this, the detector would itself use the processor that a handler needs.
        let bounded = |time: Duration| time.clamp(Duration::from_millis(50), TIMEOUT_MAX);
        self.stuck_after = time.into().map(bounded);
        self
    }

    /// Sets how long a head may take. The time begins when the connection is accepted, or with the
    /// head's first byte on a kept connection. It is one deadline for the whole head, not one per
    /// read. Default: 10 s.
    pub fn head_timeout(mut self, timeout: Duration) -> Self {
        self.head_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a TLS handshake may take. The time begins when the connection is accepted and
    /// includes a PROXY header. It is one deadline for the whole handshake. Default: 10 s.
    #[cfg(feature = "tls")]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how many TLS handshakes are computed at once, on threads of their own beside
    /// [`threads_max`](Self::threads_max). Further ones wait. A full handshake takes about a
    /// millisecond of pure computing, so more handshakes than cores would delay requests. Default:
    /// one per core.
    #[cfg(feature = "tls")]
    pub fn handshakes_max(mut self, handshakes: usize) -> Self {
        self.handshakes_max = handshakes.max(1);
        self
    }

    /// Sets how long a connection may be idle between two requests. With zero, it is closed when it
    /// has answered what it was sent at once, and a TCP protocol without a timeout of its own as
    /// soon as it waits for bytes; pushed bodies stay open. Default: 75 s.
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.keep_alive_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a peer may be silent within a content. Bytes that arrive extend the deadline
    /// at [`bytes_per_second_min`](Self::bytes_per_second_min), but never beyond this time from
    /// now. If a handler streams the content, the time in which it does not read is not counted.
    /// Default: 30 s.
    pub fn content_timeout(mut self, timeout: Duration) -> Self {
        self.content_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a response may wait for a peer that does not read. Bytes that the peer takes
    /// extend the deadline at [`bytes_per_second_min`](Self::bytes_per_second_min), but never
    /// beyond this time from now. Default: 30 s.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long the engine discards input after the last response before it closes the
    /// connection, if the peer did not ask for the close. During this time the response can reach a
    /// peer that is still sending its upload or its next request (RFC 9112, section 9.6). Default:
    /// 2 s.
    pub fn linger_timeout(mut self, timeout: Duration) -> Self {
        self.linger_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a shutdown continues to serve before it stops accepting. During this time
    /// [`Stopping`](crate::Stopping) tells health checks that the server is about to stop,
    /// connections are accepted, and each response ends its connection. It is for servers behind a
    /// load balancer, which must notice before connections are refused: set it to more than the
    /// interval of the balancer's health checks times the number of failures that it waits for.
    /// Default: 0, because a server without a load balancer would only stop later.
    pub fn lame_duck(mut self, time: Duration) -> Self {
        self.lame_duck = time.min(TIMEOUT_MAX);
        self
    }

    /// Sets how long a shutdown waits for requests in progress. A request whose head is incomplete
    /// gets one second, because nothing of it was accepted. With zero, no request is waited for.
    /// Default: 10 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets the initial timeout of each read and write of a
    /// [`BlockingStream`](crate::BlockingStream). Its handler may change it. `None` means no
    /// timeout. Default: 120 s, which is longer than the interval between the pings of common
    /// clients.
    pub fn blocking_stream_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        // A socket rejects a timeout of zero.
        let bounded = |timeout: Duration| timeout.clamp(Duration::from_millis(1), TIMEOUT_MAX);
        self.blocking_stream_timeout = timeout.into().map(bounded);
        self
    }

    /// Sets the minimum pace of contents and responses. Each transfer extends the deadline by the
    /// bytes moved divided by this number. The time does not accumulate: no deadline is further
    /// away than its timeout. Default: 1024.
    pub fn bytes_per_second_min(mut self, bytes: u64) -> Self {
        self.bytes_per_second_min = bytes.max(1);
        self
    }

    /// Sets the longest content that is collected before the handler runs. A longer content is
    /// streamed, or refused if the plan asked for a buffered one. Default: 1 MiB.
    pub fn buffered_content_bytes_max(mut self, bytes: u64) -> Self {
        self.buffered_content_bytes_max = bytes;
        self
    }

    /// Sets the longest content that is accepted. A longer one is refused with `413`. Default: 64
    /// MiB.
    pub fn content_bytes_max(mut self, bytes: u64) -> Self {
        self.content_bytes_max = bytes;
        self
    }

    /// Returns the longest content that is accepted, in bytes, unless a route says otherwise.
    pub fn accepted_content_bytes(&self) -> u64 {
        self.content_bytes_max
    }

    /// Sets the folder for contents that [wait in files](crate::Plan::spooled) until they are
    /// complete. It must exist. The files have no names, so nothing is left behind, whatever
    /// happens. Default: the system's folder for temporary files. On many systems that one lies in
    /// memory, which large uploads should not fill: the server then warns when it starts, and few
    /// bytes may [wait there](Self::spooled_bytes_max).
    #[cfg(feature = "spool")]
    pub fn spool_folder(mut self, folder: impl Into<std::path::PathBuf>) -> Self {
        self.spool_folder = Some(folder.into());
        self
    }

    /// Sets how many bytes may lie in the files of [`spool_folder`](Self::spool_folder), all
    /// together. A content reserves its announced length when it begins to be written, and a
    /// request whose content does not fit is answered with `503`. If
    /// [clients are counted](Self::connections_per_client_max), one client may take a quarter. When
    /// half is reserved, slow uploads are ended with `408`: those slower than 64 KiB per second,
    /// and those that would need more than 15 minutes for what they have reserved.
    ///
    /// Default: 8 GiB, or half of what is free in the folder when the server starts, if that is
    /// less. In a folder that lies in memory no more than half of [`memory_max`](Self::memory_max).
    #[cfg(feature = "spool")]
    pub fn spooled_bytes_max(mut self, bytes: u64) -> Self {
        self.spooled_bytes_max = Some(bytes);
        self
    }

    /// Sets how much of a content that the handler left unread is discarded to keep the connection.
    /// If more is left, the connection closes. Default: 256 KiB.
    pub fn unread_content_bytes_max(mut self, bytes: u64) -> Self {
        self.unread_content_bytes_max = bytes;
        self
    }

    /// Sets the limits for heads, chunks and trailers. A server whose limits refuse every request
    /// does not start.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}
