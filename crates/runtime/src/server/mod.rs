//! The server as programs use it: binding, serving and shutting down.

pub(crate) mod address;
pub(crate) mod builder;
pub(crate) mod in_process;
pub(crate) mod incoming;
#[cfg(unix)]
mod passing;
#[cfg(unix)]
mod restart;
#[cfg(unix)]
mod signal;
mod starting;
#[cfg(unix)]
mod systemd;
#[cfg(feature = "tls")]
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use self::address::IntoAddress;
use self::builder::ServerBuilder;
use self::incoming::Incoming;
#[cfg(unix)]
use self::restart::Restart;
use self::starting::Stop;
use crate::config::{INCOMING_CAPACITY, QUEUE_TIMEOUT, ServerConfig};
use crate::engine::incoming::IncomingRequest;
use crate::engine::listener::Bound;
use crate::engine::pull_queue::PullQueue;
use crate::engine::{Backend, Engine};
#[cfg(unix)]
use crate::error::Kind;
use crate::error::Result;
use crate::metrics::Metrics;
use crate::queue::RecvError;
use crate::service::stopping::Stopping;
use crate::service::tcp::TcpService;
use crate::service::{Service, Site};
#[cfg(feature = "tls")]
use crate::tls::acceptor::Acceptor;

/// A server that is bound to its addresses. It answers requests after a call of
/// [`serve`](Self::serve) or [`incoming`](Self::incoming). Clones are handles to the same server.
///
/// ```no_run
/// use filoplume_runtime::{Response, Server};
///
/// let server = Server::bind("127.0.0.1:5000")?;
/// server.incoming().for_each(|_request| {
///     let mut response = Response::default();
///     response.set_text("Hello from Filoplume!");
///     response
/// })?;
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    local_addrs: Vec<SocketAddr>,
    stopping: Stopping,
    #[cfg(feature = "tls")]
    acceptors: Vec<Arc<Acceptor>>,
    state: Mutex<State>,
    /// Notified when the state is no longer `Starting`.
    started: Condvar,
}

enum State {
    Bound {
        /// `None` if the builder was given none.
        config: Option<Box<ServerConfig>>,
        bound: Vec<Bound>,
        #[cfg(unix)]
        restart: Option<Restart>,
    },
    /// A thread starts the engine, without the lock: that runs the program's code.
    Starting {
        /// How to stop as soon as the engine has started.
        stop: Option<Stop>,
    },
    Serving {
        engine: Arc<Engine>,
        requests: Option<Arc<PullQueue<IncomingRequest>>>,
    },
    /// The server was shut down before it served, or failed to start.
    Ended,
}

impl Server {
    /// Binds an address, with the default configuration. If a name has several addresses, binds the
    /// first one that can be bound.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be resolved or bound, such as one that is in use.
    pub fn bind(address: impl IntoAddress) -> Result<Self> {
        Self::builder().bind(address)?.build()
    }

    /// Returns a builder, for several addresses or another configuration.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Returns the address of the first TCP listener, with the port that the system chose for port
    /// 0.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.shared.local_addrs.first().copied()
    }

    /// Returns the addresses of all TCP listeners.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.shared.local_addrs
    }

    /// Answers requests with `service` until the server has shut down.
    ///
    /// # Errors
    ///
    /// If the engine cannot start, or serves already.
    pub fn serve(&self, service: impl Service) -> Result<()> {
        let engine = self.start(Backend::Service(Arc::new(Site::new(service))), None)?;
        engine.wait();
        Ok(())
    }

    /// Starts to answer requests with `service` and returns at once. The server continues when its
    /// handles are dropped. Keep one, or a [`ShutdownHandle`], to end it.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    pub fn spawn(&self, service: impl Service) -> Result<()> {
        self.start(Backend::Service(Arc::new(Site::new(service))), None).map(drop)
    }

    /// Serves a raw TCP service until the server has shut down. Connections do not speak HTTP,
    /// unless the service switches to it ([`tcp::http`](crate::tcp::http)).
    ///
    /// ```no_run
    /// use filoplume_runtime::{Server, tcp};
    ///
    /// Server::bind("127.0.0.1:7")?.serve_tcp(tcp::bytes(|bytes| bytes.into()))?;
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the server is serving already, or a thread, a poller or a listener cannot be made.
    pub fn serve_tcp(&self, service: impl TcpService) -> Result<()> {
        let engine = self.start(Backend::Tcp(Arc::new(service)), None)?;
        engine.wait();
        Ok(())
    }

    /// As [`serve_tcp`](Self::serve_tcp), but returns at once. The [`tcp`](crate::tcp) module has
    /// examples.
    ///
    /// # Errors
    ///
    /// If the server is serving already, or a thread, a poller or a listener cannot be made.
    pub fn spawn_tcp(&self, service: impl TcpService) -> Result<()> {
        self.start(Backend::Tcp(Arc::new(service)), None).map(drop)
    }

    /// Waits until the server has shut down. Returns at once if the server is not serving.
    pub fn wait(&self) {
        if let Some(engine) = self.engine() {
            engine.wait();
        }
    }

    /// Returns the requests, as an iterator or for [`Incoming::for_each`].
    pub fn incoming(&self) -> Incoming {
        Incoming::new(self.clone())
    }

    /// Waits for the next request.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has shut down, or if [`unblock`](Self::unblock) was called.
    pub fn recv(&self) -> Result<IncomingRequest, RecvError> {
        self.requests()?.recv()
    }

    /// Returns the next request if one is waiting.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and an error if none is waiting.
    pub fn try_recv(&self) -> Result<IncomingRequest, RecvError> {
        self.requests()?.try_recv()
    }

    /// Waits for the next request, for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and an error if the timeout has passed.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<IncomingRequest, RecvError> {
        self.requests()?.recv_timeout(timeout)
    }

    /// Makes [`recv`](Self::recv) return without a request in one thread: one that is waiting, or
    /// otherwise the next one that would wait.
    pub fn unblock(&self) {
        if let Ok(requests) = self.requests() {
            requests.unblock();
        }
    }

    /// Returns a handle that shuts the server down from any thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle { server: self.clone() }
    }

    /// Returns a token that tells whether the server has begun to stop.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0")?;
    /// let stopping = server.stopping();
    /// server.spawn(|_: Request| "Hello!")?;
    /// assert!(!stopping.is_stopping());
    /// server.shutdown_handle().shutdown();
    /// assert!(stopping.is_stopping());
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    pub fn stopping(&self) -> Stopping {
        self.shared.stopping.clone()
    }

    /// Shuts the server down on SIGTERM and SIGINT. A second signal ends the process at once.
    ///
    /// # Errors
    ///
    /// Returns an error if the signal handlers cannot be installed.
    #[cfg(unix)]
    pub fn shutdown_on_signals(&self) -> Result<()> {
        signal::shutdown_on_signals(self.shutdown_handle())
            .map_err(|source| Kind::Signals { source }.into())
    }

    /// Tells systemd that the server is ready, and later that it stops. If the unit has a
    /// `WatchdogSec=`, tells it regularly that all event loops respond. Call it after
    /// [`spawn`](Self::spawn). Does nothing if the program was not started by systemd, or not as a
    /// `Type=notify` service.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0")?;
    /// server.spawn(|_: Request| "Hello!")?;
    /// server.notify_systemd()?;
    /// # server.shutdown_handle().shutdown();
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if `NOTIFY_SOCKET` is not the name of a socket, or if no thread can be
    /// started.
    #[cfg(unix)]
    pub fn notify_systemd(&self) -> Result<()> {
        self.notify().map_err(|source| Kind::Start { what: "to notify systemd", source }.into())
    }

    /// Returns the values of all counters and gauges. Returns `None` if the server has not served
    /// yet.
    pub fn metrics(&self) -> Option<Metrics> {
        self.engine().map(|engine| engine.metrics())
    }

    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        match &*self.shared.state.lock() {
            State::Serving { engine, .. } => Some(Arc::clone(engine)),
            State::Bound { .. } | State::Starting { .. } | State::Ended => None,
        }
    }

    /// Returns the queue of requests. The first call starts the engine.
    fn requests(&self) -> Result<Arc<PullQueue<IncomingRequest>>, RecvError> {
        let (capacity, timeout) = match &*self.shared.state.lock() {
            State::Serving { requests, .. } => return requests.clone().ok_or(RecvError::Closed),
            State::Bound { config: Some(config), .. } => {
                (config.queue_capacity, config.queue_timeout)
            }
            State::Bound { config: None, .. } | State::Starting { .. } => (None, QUEUE_TIMEOUT),
            State::Ended => return Err(RecvError::Closed),
        };
        let requests = PullQueue::new(capacity.unwrap_or(INCOMING_CAPACITY), timeout);
        let requests = Arc::new(requests);
        match self.start(Backend::Program(Arc::clone(&requests)), Some(Arc::clone(&requests))) {
            Ok(_) => Ok(requests),
            // Another thread starts the engine, or has started it.
            Err(error) if error.is_already_serving() => match &*self.shared.await_start() {
                State::Serving { requests: Some(requests), .. } => Ok(Arc::clone(requests)),
                _ => Err(RecvError::Closed),
            },
            Err(error) => {
                tracing::error!(%error, "the server cannot start");
                Err(RecvError::Closed)
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("local_addrs", &self.shared.local_addrs)
            .finish_non_exhaustive()
    }
}

/// Shuts a server down. Clones are handles to the same server.
///
/// ```
/// use filoplume_runtime::{Request, Server};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn(|_: Request| "Hello!")?;
/// let handle = server.shutdown_handle();
/// std::thread::spawn(move || handle.shutdown());
/// server.wait();
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    server: Server,
}

impl ShutdownHandle {
    /// Begins to shut down. Returns at once. The phases are:
    ///
    /// 1. [`Stopping`] tells everybody. The server continues to accept and to answer for the
    ///    [lame-duck time](ServerConfig::lame_duck), which is 0 by default.
    /// 2. It stops accepting, closes idle connections, and finishes exchanges that have begun.
    /// 3. It ends when they are finished, or when the [drain timeout](ServerConfig::drain_timeout)
    ///    has passed.
    pub fn shutdown(&self) {
        self.server.stop(Stop::Gracefully);
    }

    /// As [`shutdown`](Self::shutdown), with the given drain timeout and without a lame-duck time.
    /// A further call can only shorten the time.
    pub fn shutdown_within(&self, timeout: Duration) {
        self.server.stop(Stop::Within(timeout));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn a_server_that_serves_goes_on_when_it_is_asked_to_serve_again() {
        let server = Server::bind("127.0.0.1:0").unwrap();
        server.spawn(|_: crate::Request| "first").unwrap();
        for _ in 0..2 {
            let error = server.spawn(|_: crate::Request| "second").unwrap_err();
            assert!(error.is_already_serving(), "{error}");
            assert!(server.metrics().is_some());
        }
        server.shutdown_handle().shutdown();
    }

    /// A service that uses its server while that starts.
    struct UsesServer(Server, fn(&Server));

    impl Service for UsesServer {
        fn started(&self, _: &crate::Monitor) {
            let Self(server, act) = self;
            act(server);
        }

        fn call(&self, _: crate::Request) -> crate::Response {
            crate::Response::from("called")
        }
    }

    #[test]
    fn a_service_may_use_its_server_while_that_starts() {
        type Act = fn(&Server);
        let observes: Act = |server| assert!(server.metrics().is_none());
        let serves: Act = |server| assert!(server.spawn(|_: crate::Request| "").is_err());
        let stops: Act = |server| server.shutdown_handle().shutdown_within(Duration::ZERO);
        for (act, goes_on) in [(observes, true), (serves, true), (stops, false)] {
            let server = Server::bind("127.0.0.1:0").unwrap();
            let (tell, told) = crossbeam_channel::bounded(1);
            let (starts, used) = (server.clone(), server.clone());
            std::thread::spawn(move || tell.send(starts.spawn(UsesServer(used, act)).is_ok()));
            assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
            if goes_on {
                assert!(!server.stopping().is_stopping());
                server.shutdown_handle().shutdown();
            }
            server.wait();
            assert!(server.stopping().is_stopping());
        }
    }

    #[test]
    fn a_server_whose_service_panics_at_its_start_has_ended() {
        let server = Server::bind("127.0.0.1:0").unwrap();
        let (starts, used) = (server.clone(), server.clone());
        let panics = UsesServer(used, |_| panic!("on purpose"));
        assert!(std::thread::spawn(move || _ = starts.spawn(panics)).join().is_err());
        assert_eq!(server.try_recv().unwrap_err(), RecvError::Closed);
    }

    #[test]
    fn what_stops_with_a_server_that_does_not_serve_yet_may_use_it() {
        let server = Arc::new(Server::bind("127.0.0.1:0").unwrap());
        let (tell, told) = crossbeam_channel::bounded(1);
        let used = Arc::clone(&server);
        server.stopping().on_stopping(move || _ = tell.send(used.metrics().is_none())).keep();
        let handle = server.shutdown_handle();
        std::thread::spawn(move || handle.shutdown());
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    #[test]
    fn serving_ends_with_the_shutdown_and_not_before() {
        let server = Arc::new(Server::bind("127.0.0.1:0").unwrap());
        let (tell, told) = crossbeam_channel::bounded(1);
        let serves = Arc::clone(&server);
        std::thread::spawn(move || tell.send(serves.serve(|_: crate::Request| "").is_ok()));
        while server.metrics().is_none() {
            std::thread::yield_now();
        }
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
        server.shutdown_handle().shutdown();
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
    }
}
