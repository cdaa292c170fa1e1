//! What a running server reports about itself: its metrics, and the calls that run.

use std::sync::{Arc, Weak};
#[cfg(feature = "waits")]
use std::time::Duration;
use std::time::Instant;

#[cfg(feature = "waits")]
use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::buffers::Moved;
use crate::engine::event_loop::LoopHandle;
#[cfg(feature = "waits")]
use crate::engine::event_loop::Message;
use crate::engine::{Backend, Engine};
use crate::execution::key::{ExecutionKey, RouteId};
use crate::execution::stuck::detector::Reporter;
use crate::execution::stuck::report::Stuck;
use crate::execution::stuck::running::RunningCall;
use crate::execution::watchdog::Watched;
use crate::metrics::{Gauges, LoopMetrics, Metrics, Parts, Phase};
#[cfg(feature = "waits")]
use crate::service::monitor::IdleConnections;
use crate::service::monitor::ServerState;
#[cfg(feature = "tls")]
use crate::tls::acceptor::Acceptor;

impl Engine {
    pub(crate) fn metrics(&self) -> Metrics {
        let incoming = match &self.backend {
            Backend::Service { .. } | Backend::Tcp(_) => 0,
            Backend::Program(queue) => queue.len(),
        };
        let phase = self.phase();
        // The handle of a loop that has ended lives as long as its last connection.
        let handles = self.handles().filter(|_| phase != Phase::Stopped);
        let loops = handles.map(|handle| self.read_loop(&handle)).collect();
        let gauges = Gauges {
            phase,
            incoming,
            waiting: self.seats.waiting(),
            threads_max: self.config.threads_max,
            connections_max: self.connections_max,
            held_descriptors: self.descriptors.held(),
            descriptors_max: self.descriptors.max(),
            memory_used: self.memory.used(),
            memory_max: self.memory.bytes_max(),
            spooled_bytes: self.spooled_bytes(),
            pushed_streams: self.streams.pushed(),
            held_streams: self.streams.held(),
            moved: self.moved(),
            #[cfg(feature = "tls")]
            certificates: self.acceptors.get().map(|of| Acceptor::state(of)).unwrap_or_default(),
        };
        let routes = self.routes.read(&|number| self.route_name(number));
        let parts = Parts { pool: self.pool.metrics(), routes, loops };
        self.counters.read(&self.refusals, parts, gauges)
    }

    /// Returns how many bytes of contents lie in files.
    #[cfg_attr(not(feature = "spool"), expect(clippy::unused_self, reason = "there are no files"))]
    fn spooled_bytes(&self) -> u64 {
        #[cfg(feature = "spool")]
        return self.spool.space.written();
        #[cfg(not(feature = "spool"))]
        0
    }

    /// Returns the bytes moved by loops, and by handlers that read or write by themselves.
    fn moved(&self) -> Moved {
        let (read, written) = self.streams.moved();
        self.handles().fold(Moved { read, written }, |sum, handle| {
            let on_loop = handle.moved.get();
            Moved { read: sum.read + on_loop.read, written: sum.written + on_loop.written }
        })
    }

    fn read_loop(&self, handle: &LoopHandle) -> LoopMetrics {
        LoopMetrics {
            thread: self.calls.name_of_thread(handle.leader()),
            connections: handle.connections() as u64,
            parked: handle.parked() as u64,
            handed_over: handle.handed_over(),
        }
    }

    fn handles(&self) -> impl Iterator<Item = Arc<LoopHandle>> + '_ {
        self.loops.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    /// Returns the service's name for a route that it has numbered.
    pub(crate) fn route_name(&self, number: u32) -> Option<String> {
        match &self.backend {
            Backend::Service(site) => site.service.route_name(number),
            Backend::Program(_) | Backend::Tcp(_) => None,
        }
    }
}

/// How long event loops may take to tell what their connections wait for.
#[cfg(feature = "waits")]
const WAITS_TIMEOUT: Duration = Duration::from_millis(20);

impl ServerState for Engine {
    fn metrics(&self) -> Metrics {
        self.metrics()
    }

    fn waiting(&self) -> usize {
        self.seats.waiting()
    }

    fn route_moves(&self) -> u64 {
        self.counters.routes_learned.get() + self.counters.routes_forgotten.get()
    }

    fn calls(&self) -> Vec<RunningCall> {
        let turn_of = |event_loop| {
            let handle = self.handles().find(|handle| handle.number() == event_loop)?;
            Some(handle.turn())
        };
        self.calls.list(self, &turn_of, Instant::now())
    }

    #[cfg(feature = "waits")]
    fn idle_connections(&self) -> IdleConnections {
        let deadline = Instant::now() + WAITS_TIMEOUT;
        let (sender, receiver) = crossbeam_channel::unbounded();
        let mut parked = 0;
        for handle in self.handles() {
            parked += handle.parked() as u64;
            handle.send(Message::CountWaits(sender.clone()));
        }
        drop(sender);
        gather(&receiver, parked, deadline)
    }
}

/// Adds up what the loops tell, which have about so many `parked` connections. Those of loops that
/// do not respond in time count as others.
#[cfg(feature = "waits")]
fn gather(
    receiver: &Receiver<IdleConnections>,
    mut parked: u64,
    deadline: Instant,
) -> IdleConnections {
    let mut idle = IdleConnections::default();
    // The channel disconnects when all loops have responded or dropped the message.
    while let Ok(of_loop) = receiver.recv_deadline(deadline) {
        idle.add(of_loop);
        parked -= of_loop.total().min(parked);
    }
    if receiver.recv_deadline(deadline) == Err(RecvTimeoutError::Timeout) {
        idle.other += parked;
    }
    idle
}

impl Reporter for Engine {
    fn name_of(&self, route: RouteId) -> Option<String> {
        match route.number() {
            Some(number) => {
                Some(self.route_name(number).unwrap_or_else(|| format!("route {number}")))
            }
            None => self.routes.name_of(route.key, &|number| self.route_name(number)),
        }
    }

    fn calls_on_loops(&self, key: ExecutionKey) -> u64 {
        self.routes.calls_on_loops(key)
    }

    fn tell(&self, stuck: &Stuck) {
        match &self.backend {
            Backend::Service(site) => site.service.stuck(stuck),
            Backend::Program(_) | Backend::Tcp(_) => stuck.warn(),
        }
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests;
