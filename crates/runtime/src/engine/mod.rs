//! Event loops, connections, and the workers that carry out the steps of each connection's guest.
//! This file has the state that all of them share.
//!
//! These parts refer to each other: a connection to its loop, a loop to the engine, and the engine
//! to its loops. They are therefore one module. Only `server` is above it.

pub(crate) mod cancel;
mod computing;
pub(crate) mod connection;
pub(crate) mod event_loop;
pub(crate) mod exchange;
#[cfg(unix)]
pub(crate) mod handover;
pub(crate) mod incoming;
mod lifecycle;
pub(crate) mod listener;
mod observed;
pub(crate) mod pull_queue;
pub(crate) mod seat;
mod spare_heads;
pub(crate) mod task;
pub(crate) mod work;
pub(crate) mod worker;

use std::cmp::Reverse;
use std::fmt;
use std::iter;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
#[cfg(unix)]
use std::time::Instant;

#[cfg(unix)]
use crossbeam_channel::TryRecvError;
use parking_lot::Mutex;

use crate::budget::account::Account;
use crate::budget::clients::{ClientConnection, Clients, CountsFor};
use crate::budget::counts::AtLimit;
use crate::budget::descriptors::{self, Descriptors};
#[cfg(feature = "tls")]
use crate::budget::handshakes::Handshakes;
use crate::budget::memory::{Memory, WakeLoops};
use crate::budget::refusal::Refusals;
use crate::budget::seats::{Seats, VITAL_SEATS};
#[cfg(feature = "spool")]
use crate::budget::spool::{CLOSERS_MAX, Spool, WRITERS_MAX};
use crate::budget::streams::Streams;
use crate::budget::throttle::{Throttle, Throttles};
use crate::config::{PerClient, ServerConfig};
use crate::engine::cancel::{Cancels, RUNNERS_MAX};
#[cfg(any(feature = "tls", feature = "spool"))]
use crate::engine::connection::Connection;
#[cfg(unix)]
use crate::engine::event_loop::Message;
use crate::engine::event_loop::{EventLoop, LoopHandle};
use crate::engine::incoming::IncomingRequest;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::listener::{Bound, Entry};
use crate::engine::pull_queue::PullQueue;
use crate::engine::task::Task;
use crate::engine::work::Work;
use crate::error::{Kind, Result};
use crate::execution::crowd::Crowd;
use crate::execution::key::ExecutionKey;
use crate::execution::policy::Place;
use crate::execution::routes::Routes;
use crate::execution::stuck::Calls;
use crate::execution::stuck::detector::Reporter;
use crate::execution::watchdog::Watchdog;
use crate::metrics::Counters;
use crate::pool::{Pool, PoolConfig, Reservation};
use crate::protocol::Guest;
#[cfg(feature = "tls")]
use crate::protocol::handshake::Handshake;
use crate::protocol::http::Http;
use crate::protocol::preamble::Preamble;
use crate::protocol::raw::Raw;
use crate::service::Site;
use crate::service::monitor::{Monitor, ServerState};
use crate::service::stopping::Stopping;
use crate::service::tcp::TcpService;
use crate::sorted::insert_sorted;
#[cfg(feature = "tls")]
use crate::tls;
use crate::transport::Peer;

/// Maximum number of threads that lead a loop, or whose loop was taken during a call that has not
/// returned.
const LEADERS_MAX: usize = ExecutionKey::COUNT;

/// What answers the requests.
pub(crate) enum Backend {
    /// A service, called by the engine.
    Service(Arc<Site>),
    /// The program, which pulls requests from a queue.
    Program(Arc<PullQueue<IncomingRequest>>),
    /// A raw protocol, which receives bytes instead of requests. A connection that switches to HTTP
    /// has its own [`Site`].
    Tcp(Arc<dyn TcpService>),
}

impl Backend {
    /// Returns the configuration that the service asks for.
    pub(crate) fn config(&self) -> Option<ServerConfig> {
        match self {
            Self::Service(site) => site.service.config(),
            Self::Tcp(service) => service.config(),
            Self::Program(_) => None,
        }
    }

    /// Returns the token that the service gives to handlers.
    fn stopping(&self) -> Option<Stopping> {
        match self {
            Self::Service(site) => site.service.stopping(),
            Self::Tcp(_) | Self::Program(_) => None,
        }
    }

    /// Returns whether the service trusts a proxy with this address.
    fn trusts(&self, address: IpAddr) -> bool {
        let Self::Service(site) = self else { return false };
        catch_unwind(AssertUnwindSafe(|| site.service.is_proxy(address))).unwrap_or_else(|_| {
            tracing::error!("`Service::is_proxy` panicked");
            false
        })
    }
}

/// The state of a running server that its threads share.
pub(crate) struct Engine {
    pub(crate) config: ServerConfig,
    /// The configured maximum, or less if there are too few file descriptors.
    pub(crate) connections_max: usize,
    /// The descriptors that are held beside those of connections.
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) backend: Backend,
    pub(crate) pool: Pool<Task>,
    /// Decides which requests get a thread of the pool. It bounds how many wait, so the pool's own
    /// queue needs no tighter bound.
    pub(crate) seats: Seats<Work>,
    /// Decides which TLS handshakes are computed now.
    #[cfg(feature = "tls")]
    pub(crate) handshakes: Handshakes<Box<Connection>>,
    /// The TLS acceptors of all addresses.
    #[cfg(feature = "tls")]
    acceptors: OnceLock<Box<[Arc<tls::acceptor::Acceptor>]>>,
    /// The files in which contents wait, and the connections that wait to write to them.
    #[cfg(feature = "spool")]
    pub(crate) spool: Spool<Box<Connection>>,
    /// The budget for buffered bytes of all peers.
    pub(crate) memory: Arc<Memory>,
    /// The account of connections whose clients are not counted.
    uncounted: Arc<Account>,
    /// The contents that handlers read while they arrive.
    pub(crate) streams: Arc<Streams>,
    pub(crate) routes: Routes,
    pub(crate) crowd: Arc<Crowd>,
    /// The callbacks of handlers whose clients have gone.
    cancels: Cancels,
    pub(crate) counters: Counters,
    pub(crate) refusals: Refusals,
    /// Limits the log lines about errors of `accept` and the pauses that follow them.
    pub(crate) accept_log: Throttle,
    /// Limits the log lines about connections that wait because the maximum is reached.
    pub(crate) full_log: Throttle,
    /// Limits the log lines about connections that are closed to make room.
    pub(crate) shed_log: Throttle,
    /// Limits the log lines about panics. A client may know a request that causes one.
    panic_log: Throttles,
    /// What each client has: its connections, and what its requests hold.
    clients: Arc<Clients>,
    pub(crate) watchdog: Watchdog,
    /// The calls that may be stuck.
    pub(crate) calls: Arc<Calls>,
    /// A reserved thread that leads the next loop that is taken. It is reserved while there is
    /// work.
    pub(crate) spare: Mutex<Option<Reservation<Task>>>,
    /// The memory of heads, on its way back to the leaders.
    pub(crate) heads: spare_heads::Depot,
    /// Weak, because a loop's handle has a strong reference to the engine.
    loops: OnceLock<Box<[Weak<LoopHandle>]>>,
    #[cfg(unix)]
    handover: handover::Handover,
    lifecycle: Lifecycle,
}

impl Engine {
    /// Starts the event loops on the bound addresses.
    pub(crate) fn start(
        config: ServerConfig,
        bound: Vec<Bound>,
        backend: Backend,
        stopping: Stopping,
    ) -> Result<Arc<Self>> {
        config.check()?;
        let loops = config.event_loops;
        let engine = Self::new(config, backend, stopping);
        let started = |what| move |source| Kind::Start { what, source };
        let mut event_loops = Vec::with_capacity(loops);
        for _ in 0..loops {
            event_loops.push(EventLoop::new(&engine).map_err(started("an event loop"))?);
        }
        #[cfg(feature = "tls")]
        let _ = engine.acceptors.set(bound.iter().filter_map(|of| of.entry.tls.clone()).collect());
        for bound in bound {
            let listeners =
                bound.listen(engine.config.backlog, loops).map_err(started("to listen"))?;
            // There may be more listeners than loops if another process has bound them.
            for (index, listener) in listeners.into_iter().enumerate() {
                event_loops[index % loops].add_listener(listener).map_err(started("to listen"))?;
            }
        }
        let handles: Vec<_> =
            event_loops.iter().map(|event_loop| Arc::clone(event_loop.handle())).collect();
        let _ = engine.loops.set(handles.iter().map(Arc::downgrade).collect());
        engine.lifecycle.loops_running.store(loops, Ordering::SeqCst);
        let name = format!("{}-watchdog", engine.config.thread_name);
        let crowd = Arc::clone(&engine.crowd);
        engine.watchdog.start(name, handles, crowd).map_err(started("the watchdog"))?;
        let reporter: Arc<dyn Reporter> = Arc::clone(&engine) as _;
        let name = format!("{}-stuck", engine.config.thread_name);
        let detector = engine.calls.start(name, Arc::downgrade(&reporter));
        detector.map_err(started("the detector of stuck calls"))?;
        if let Backend::Service(site) = &engine.backend {
            let source: Arc<dyn ServerState> = Arc::clone(&engine) as _;
            site.service.started(&Monitor::new(&source));
        }
        for event_loop in event_loops {
            if let Err(refused) = engine.pool.submit_urgent(Task::Lead(Box::new(event_loop))) {
                engine.shutdown(Duration::ZERO);
                let source = std::io::Error::other(format!("{:?}", refused.reason));
                return Err(Kind::Start { what: "a leader", source }.into());
            }
        }
        tracing::info!(loops, "serving");
        Ok(engine)
    }

    /// Returns the configuration of an engine's pool. Threads for event loops and for the engine's
    /// own work are added to those for handlers.
    fn pool_of(config: &ServerConfig) -> PoolConfig {
        let loops = config.event_loops;
        #[cfg(feature = "tls")]
        let handshakes_max = config.handshakes_max;
        #[cfg(not(feature = "tls"))]
        let handshakes_max = 0;
        #[cfg(feature = "spool")]
        let writers = WRITERS_MAX + CLOSERS_MAX;
        #[cfg(not(feature = "spool"))]
        let writers = 0;
        PoolConfig::new()
            .thread_name(config.thread_name.clone())
            .threads_max(config.threads_max)
            .queue_capacity(config.connections_max)
            .idle_timeout(config.thread_idle_timeout)
            // Leaders are not counted among the threads that may block. Neither are threads that
            // lost their loop and have not returned, because a loop that is taken needs a new
            // leader at once. A route that costs a thread its loop does not run on loops any more,
            // so there is at most one such thread per execution key. Threads for vital requests are
            // added as well, and those that compute handshakes, write contents to files, close
            // these files or tell handlers that their clients have gone: handlers that block must
            // not delay this work.
            .urgent_reserve(
                (LEADERS_MAX.max(loops * 4) + VITAL_SEATS + RUNNERS_MAX + writers)
                    .saturating_add(handshakes_max),
            )
            .patient()
    }

    /// Returns an engine without event loops.
    fn new(config: ServerConfig, backend: Backend, stopping: Stopping) -> Arc<Self> {
        let loops = config.event_loops;
        let (connections_max, descriptors) = descriptors_of(&config);
        let pool = Self::pool_of(&config);
        let clients = match config.connections_per_client_max {
            PerClient::Half => Clients::public((connections_max / 2).max(1)),
            PerClient::Bounded(connections) => Clients::new(connections),
            PerClient::Unbounded => Clients::of_proxies(),
        };
        let waiting_max = config.queue_capacity.unwrap_or(connections_max);
        let seats = Seats::new(config.threads_max, waiting_max, config.queue_timeout);
        let memory = Memory::new(config.memory_max);
        #[cfg(feature = "tls")]
        let handshakes = Handshakes::new(config.handshakes_max);
        #[cfg(feature = "spool")]
        let spool = Spool::new(config.spool_folder.clone(), config.spooled_bytes_max, &memory);
        let streams = Streams::new(config.threads_max);
        let calls = Arc::new(Calls::new(config.stuck_after));
        let tokens = iter::once(stopping).chain(backend.stopping()).collect();
        let engine = Arc::new_cyclic(|engine: &Weak<Self>| Self {
            connections_max,
            descriptors,
            config,
            backend,
            pool: Pool::new(pool, Task::run),
            seats: seats.notifying(Weak::<Self>::clone(engine)),
            #[cfg(feature = "tls")]
            handshakes,
            #[cfg(feature = "tls")]
            acceptors: OnceLock::new(),
            #[cfg(feature = "spool")]
            spool,
            uncounted: Account::new(&memory, None),
            memory,
            streams,
            routes: Routes::new(),
            crowd: Arc::new(Crowd::new(loops)),
            cancels: Cancels::default(),
            counters: Counters::default(),
            refusals: Refusals::new(),
            accept_log: Throttle::new(),
            full_log: Throttle::new(),
            shed_log: Throttle::new(),
            panic_log: Throttles::default(),
            clients: Arc::new(clients),
            watchdog: Watchdog::new(),
            calls,
            spare: Mutex::new(None),
            heads: spare_heads::Depot::default(),
            loops: OnceLock::new(),
            #[cfg(unix)]
            handover: handover::Handover::default(),
            lifecycle: Lifecycle::new(tokens),
        });
        let loops: Weak<Self> = Arc::downgrade(&engine);
        engine.memory.attach(loops);
        #[cfg(feature = "spool")]
        engine.close_files_elsewhere();
        engine
    }

    /// Counts one more connection of a client. A proxy that the service trusts may have as many
    /// connections as its clients need.
    pub(crate) fn admit(&self, peer: Peer) -> Result<CountsFor, AtLimit> {
        let clients = &self.clients;
        match peer {
            Peer::Tcp(address) if !self.backend.trusts(address.ip()) => {
                Ok(clients.admit(address.ip())?.map_or(CountsFor::Nobody, CountsFor::Client))
            }
            _ => Ok(CountsFor::Proxy),
        }
    }

    /// Returns the account of a connection of this client. Connections without a counted client
    /// share one account.
    pub(crate) fn account(&self, client: Option<Arc<ClientConnection>>) -> Arc<Account> {
        match client {
            Some(_) => Account::new(&self.memory, client),
            None => Arc::clone(&self.uncounted),
        }
    }

    /// Returns the account of a connection of a proxy, which acts for this client.
    pub(crate) fn account_for(&self, address: IpAddr) -> Arc<Account> {
        self.account(self.clients.act_for(address))
    }

    /// Returns the first guest of an accepted connection.
    pub(crate) fn first_guest(&self, entry: &Entry) -> Guest {
        let guest = match &self.backend {
            Backend::Service(site) => Guest::Http(Http::new(Some(Arc::clone(site)))),
            Backend::Program(_) => Guest::Http(Http::new(None)),
            Backend::Tcp(service) => Guest::Raw(Box::new(Raw::new(Arc::clone(service)))),
        };
        #[cfg(feature = "tls")]
        let guest = match &entry.tls {
            Some(acceptor) => {
                let handshake =
                    Handshake::before(guest, tls::handshake::Handshake::new(Arc::clone(acceptor)));
                Guest::Handshake(Box::new(handshake))
            }
            None => guest,
        };
        if entry.expects_proxy_header {
            Guest::Preamble(Box::new(Preamble::before(guest)))
        } else {
            guest
        }
    }

    /// Returns the loop with the fewest connections, if `own` has clearly more than its share.
    pub(crate) fn lighter_loop(&self, own: &LoopHandle) -> Option<Arc<LoopHandle>> {
        let loops = self.loops.get()?;
        if loops.len() < 2 {
            return None;
        }
        let others = loops
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|other| !std::ptr::eq(&raw const **other, own));
        let lightest = others.min_by_key(|other| other.connections())?;
        // The tolerance keeps short-lived connections on the loop that accepted them: their number
        // always fluctuates.
        let own_connections = own.connections();
        let fair = lightest.connections() + 2 + own_connections / 16;
        (own_connections > fair).then_some(lightest)
    }

    /// Returns another loop that has parked connections. The loops are in descending order of
    /// parked connections, and `skipped` is the index, modulo their number.
    pub(crate) fn fuller_loop(&self, own: &LoopHandle, skipped: usize) -> Option<Arc<LoopHandle>> {
        let mut others = Vec::new();
        for other in self.loop_handles().filter(|other| !std::ptr::eq(&raw const **other, own)) {
            let parked = other.parked();
            if parked > 0 {
                insert_sorted(&mut others, (parked, other), usize::MAX, |(parked, _)| {
                    Reverse(*parked)
                });
            }
        }
        let index = skipped.checked_rem(others.len())?;
        Some(others.swap_remove(index).1)
    }

    /// Counts and logs a panic in the program's code.
    #[cold]
    pub(crate) fn note_panic(&self, what: &'static str) {
        self.counters.panics.increment();
        if let Some(left_out) = self.panic_log.admit(what) {
            tracing::error!(left_out, "{what}");
        }
    }

    /// Counts a route that moves to the pool or back to the loops.
    #[inline]
    pub(crate) fn count_move(&self, to: Option<Place>) {
        match to {
            None => {}
            Some(Place::Pool) => self.counters.routes_learned.increment(),
            Some(Place::Loop) => self.counters.routes_forgotten.increment(),
        }
    }

    /// Returns whether each loop responds to a message within `timeout`, or has ended.
    #[cfg(unix)]
    pub(crate) fn responds_within(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let (sender, receiver) = crossbeam_channel::unbounded();
        for handle in self.loop_handles() {
            handle.send(Message::Ping(sender.clone()));
        }
        drop(sender);
        // The channel disconnects when all loops have responded or dropped the message.
        while receiver.recv_deadline(deadline).is_ok() {}
        matches!(receiver.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Returns the loops that have not ended.
    pub(crate) fn loop_handles(&self) -> impl Iterator<Item = Arc<LoopHandle>> {
        self.loops.get().into_iter().flatten().filter_map(Weak::upgrade)
    }
}

impl WakeLoops for Engine {
    /// Wakes all loops, so that each of them notices a change of the shared state.
    fn wake_loops(&self) {
        self.loop_handles().for_each(|handle| handle.wake());
    }
}

/// Returns the maximum number of connections, and the budget of descriptors. Raises the limit of
/// open files first, if configured.
fn descriptors_of(config: &ServerConfig) -> (usize, Arc<Descriptors>) {
    if config.raise_descriptor_limit {
        descriptors::raise_limit();
    }
    let descriptors_max = descriptors::limit();
    let descriptors = Descriptors::new(descriptors_max);
    let connections_max = descriptors.connections_max(config.connections_max);
    tracing::info!(
        server = config.thread_name,
        connections_max,
        configured = config.connections_max,
        descriptors_max,
        connections_per_client_max = ?config.connections_per_client_max,
        "limits"
    );
    (connections_max, descriptors)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(all(test, unix, not(loom)))]
pub(crate) mod tests;
