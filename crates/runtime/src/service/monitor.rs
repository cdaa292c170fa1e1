//! The access of a service to the metrics and the running calls of its server.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::execution::stuck::running::RunningCall;
use crate::metrics::Metrics;

/// What a monitor reads from a running server.
pub(crate) trait ServerState: Send + Sync {
    fn metrics(&self) -> Metrics;

    fn waiting(&self) -> usize;

    fn route_moves(&self) -> u64;

    fn calls(&self) -> Vec<RunningCall>;

    #[cfg(feature = "waits")]
    fn idle_connections(&self) -> IdleConnections;
}

/// The connections that no thread holds at the moment, by what they wait for. Returned by
/// [`Monitor::idle_connections`].
///
/// ```
/// let idle = filoplume_runtime::IdleConnections::default();
/// assert_eq!((idle.first_byte, idle.content), (0, 0));
/// ```
#[cfg(feature = "waits")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdleConnections {
    /// New connections that have not completed their TLS handshake.
    pub handshake: u64,
    /// New connections that have sent nothing of a request.
    pub first_byte: u64,
    /// Connections that have sent the beginning of a head.
    pub head: u64,
    /// Connections of which the rest of a content or a message is awaited.
    pub content: u64,
    /// Connections whose peer has not taken all of its response.
    pub response: u64,
    /// Connections between two requests.
    pub request: u64,
    /// Streams, WebSockets and connections of other protocols, which wait for either side.
    pub stream: u64,
    /// Connections that have had their last response and whose peer has not closed them.
    pub close: u64,
    /// Others, and those of loops that did not respond in time.
    pub other: u64,
}

#[cfg(feature = "waits")]
impl IdleConnections {
    /// Adds those of another event loop.
    pub(crate) fn add(&mut self, more: Self) {
        self.handshake += more.handshake;
        self.first_byte += more.first_byte;
        self.head += more.head;
        self.content += more.content;
        self.response += more.response;
        self.request += more.request;
        self.stream += more.stream;
        self.close += more.close;
        self.other += more.other;
    }

    /// Returns the number of all of them.
    pub fn total(&self) -> u64 {
        [self.handshake, self.first_byte, self.head, self.content, self.response]
            .into_iter()
            .chain([self.request, self.stream, self.close, self.other])
            .sum()
    }
}

/// The metrics of a running server and the calls that run, for its
/// [service](crate::Service::started). It is for frameworks; a program that has the server asks
/// [`Server::metrics`](crate::Server::metrics). Clones read the same server. A monitor does not
/// keep its server running.
///
/// ```
/// use filoplume_runtime::{Monitor, Request, Response, Server, Service};
/// use std::sync::OnceLock;
///
/// #[derive(Default)]
/// struct Counting {
///     monitor: OnceLock<Monitor>,
/// }
///
/// impl Service for Counting {
///     fn started(&self, monitor: &Monitor) {
///         let _ = self.monitor.set(monitor.clone());
///     }
///
///     fn call(&self, _: Request) -> Response {
///         let metrics = self.monitor.get().and_then(Monitor::metrics);
///         let connections = metrics.map_or(0, |metrics| metrics.connections);
///         Response::from(format!("{connections} connections"))
///     }
/// }
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn(Counting::default())?;
/// server.shutdown_handle().shutdown();
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Monitor {
    source: Weak<dyn ServerState>,
}

impl Monitor {
    pub(crate) fn new(source: &Arc<dyn ServerState>) -> Self {
        Self { source: Arc::downgrade(source) }
    }

    /// Returns the metrics at this moment; `None` if the server has ended. Its cost grows with the
    /// number of routes. It takes a lock per route for a moment.
    pub fn metrics(&self) -> Option<Metrics> {
        Some(self.source.upgrade()?.metrics())
    }

    /// Returns how many requests wait for a thread or permit: [`Metrics::waiting`] without the
    /// other metrics; `None` if the server has ended. It reads one number and takes no lock, so an
    /// event loop may call it for each request.
    pub fn waiting(&self) -> Option<usize> {
        Some(self.source.upgrade()?.waiting())
    }

    /// Returns how often routes have moved between the event loops and the pool since the start:
    /// the sum of [`Metrics::routes_learned`] and [`Metrics::routes_forgotten`]; `None` if the
    /// server has ended. It reads two numbers and takes no lock.
    pub fn route_moves(&self) -> Option<u64> {
        Some(self.source.upgrade()?.route_moves())
    }

    /// Returns the calls of handlers that run at this moment, with what each waits for; `None` if
    /// the server has ended. They are ordered by how long they have been running, the longest
    /// first. Those that are [detached](RunningCall::is_detached) come after all others. There are
    /// at most 64.
    ///
    /// Bodies that are produced by a reader or closure count as calls of their route. Not listed
    /// are:
    ///
    /// - calls on an event loop that have been running for a few milliseconds only: those on an
    ///   event loop write nothing, and are found when another thread takes the loop over;
    /// - requests that the program pulls by [`Server::recv`](crate::Server::recv) or
    ///   [`Incoming`](crate::Incoming);
    /// - callbacks of [`Cancel`](crate::Cancel) and [`Stopping`](crate::Stopping).
    ///
    /// It costs some microseconds, and on Linux about 5 us for each call that has been running for
    /// 10 ms, for which it reads `/proc`. If one of these waits for a socket, the list of the
    /// machine's sockets is read once, which takes about a millisecond per thousand. If one may
    /// wait for an SQLite database, it takes 10 ms more. So call it about once a second, and not on
    /// an event loop. It makes no other thread wait.
    ///
    /// What a call waits for is read once, and may have changed since. [`Stuck`](crate::Stuck)
    /// observes the thread for longer and is more exact. The list does not need
    /// [`stuck_after`](crate::ServerConfig::stuck_after).
    ///
    /// ```
    /// use filoplume_runtime::Monitor;
    ///
    /// /// Writes what each handler waits for.
    /// fn print(monitor: &Monitor) {
    ///     for call in monitor.calls().unwrap_or_default() {
    ///         let wait = call.wait.map(|wait| wait.to_string()).unwrap_or_default();
    ///         println!("{:?} {:?}: {wait}", call.route, call.running);
    ///     }
    /// }
    /// # let _ = print;
    /// ```
    pub fn calls(&self) -> Option<Vec<RunningCall>> {
        Some(self.source.upgrade()?.calls())
    }

    /// Returns what the idle connections wait for at this moment; `None` if the server has ended.
    ///
    /// It asks each event loop, and waits for at most 20 ms. Those that have not responded by then
    /// count as [`other`](IdleConnections::other). A loop with more than a thousand idle
    /// connections looks at about a thousand of them, evenly spread, and scales up, so it is held
    /// up for about a tenth of a millisecond. Call it about once a second, and not on an event
    /// loop. It needs the feature `waits`.
    #[cfg(feature = "waits")]
    pub fn idle_connections(&self) -> Option<IdleConnections> {
        Some(self.source.upgrade()?.idle_connections())
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}
