//! The phases of a server's life, from serving to stopped.
//!
//! ```text
//!   Serving --> LameDuck --> Draining --> Stopped
//!       \___________________/
//!         without a lame-duck time
//! ```
//!
//! The loops move from one phase to the next: each includes the end of the current one in the
//! timeout of its poller.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Backend, Engine};
use crate::budget::memory::WakeLoops;
use crate::clock::TIMEOUT_MAX;
use crate::execution::scheduling::with_normal_policy;
use crate::metrics::Phase;
use crate::service::latch::Set;
use crate::service::monitor::ServerState;
use crate::service::stopping::Stopping;

/// Maximum number of routes that are named in the log if their handlers still run at the end.
const NAMED_MAX: usize = 10;

/// The phase of a server, and how long it may last.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    state: Mutex<State>,
    ended: Condvar,
    /// Whether a phase after `Serving` has begun: responses announce the close.
    is_stopping: AtomicBool,
    is_draining: AtomicBool,
    /// Whether the drain time has passed before everything was finished.
    is_late: AtomicBool,
    pub(super) loops_running: AtomicUsize,
    /// Set when the server begins to stop: the server's token and the service's.
    tokens: Vec<Stopping>,
}

#[derive(Debug, Default)]
struct State {
    lame_duck: Option<LameDuck>,
    drain_deadline: Option<Instant>,
    has_ended: bool,
}

/// A lame-duck phase, and how long the drain after it may last.
#[derive(Clone, Copy, Debug)]
struct LameDuck {
    until: Instant,
    drain_timeout: Duration,
}

impl Lifecycle {
    pub(super) fn new(tokens: Vec<Stopping>) -> Self {
        Self { tokens, ..Self::default() }
    }
}

impl Engine {
    /// Returns whether the server has begun to stop, so that responses announce the close.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.lifecycle.is_stopping.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.lifecycle.is_draining.load(Ordering::Relaxed)
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.lifecycle.state.lock().has_ended {
            Phase::Stopped
        } else if self.is_draining() {
            Phase::Draining
        } else if self.is_stopping() {
            Phase::LameDuck
        } else {
            Phase::Serving
        }
    }

    pub(crate) fn drain_deadline(&self) -> Option<Instant> {
        self.lifecycle.state.lock().drain_deadline
    }

    /// Returns when the current phase ends, if the server has begun to stop.
    pub(crate) fn phase_ends_at(&self) -> Option<Instant> {
        let state = self.lifecycle.state.lock();
        state.drain_deadline.or(state.lame_duck.map(|lame_duck| lame_duck.until))
    }

    /// Stops as configured: tells everybody who asked, continues to serve for the lame-duck time,
    /// then drains.
    pub(crate) fn stop(&self) {
        let (lame_duck, drain_timeout) = (self.config.lame_duck, self.config.drain_timeout);
        if lame_duck.is_zero() {
            self.shutdown(drain_timeout);
            return;
        }
        {
            let mut state = self.lifecycle.state.lock();
            if state.lame_duck.is_some() || state.drain_deadline.is_some() {
                return;
            }
            state.lame_duck = Some(LameDuck { until: Instant::now() + lame_duck, drain_timeout });
        }
        self.begin_to_stop();
        self.wake_loops();
        // Last, because a log whose reader has stopped blocks.
        tracing::info!(
            server = self.config.thread_name,
            phase = "lame duck",
            time = ?lame_duck,
            "stopping: readiness says no, requests are still answered"
        );
    }

    /// Stops accepting, and lets exchanges that have begun finish within `timeout`. A second call
    /// can only shorten the time.
    pub(crate) fn shutdown(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        {
            let mut state = self.lifecycle.state.lock();
            let sooner = state.drain_deadline.is_none_or(|current| deadline < current);
            if sooner {
                state.drain_deadline = Some(deadline);
            }
        }
        let is_first = !self.lifecycle.is_draining.swap(true, Ordering::SeqCst);
        if is_first {
            self.begin_to_stop();
        }
        self.wake_loops();
        if is_first {
            // Last, as in `stop`.
            let server = &*self.config.thread_name;
            tracing::info!(server, phase = "draining", ?timeout, "shutting down");
        }
    }

    /// Begins to drain if the lame-duck time has passed.
    #[cold]
    pub(crate) fn end_lame_duck(&self, now: Instant) {
        if self.is_draining() {
            return;
        }
        let lame_duck = self.lifecycle.state.lock().lame_duck;
        if let Some(LameDuck { drain_timeout, .. }) = lame_duck.filter(|this| this.until <= now) {
            self.shutdown(drain_timeout);
        }
    }

    /// Tells everybody who asked that the server stops.
    fn begin_to_stop(&self) {
        if self.lifecycle.is_stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        let with_callbacks: Vec<Stopping> = self
            .lifecycle
            .tokens
            .iter()
            .filter(|token| token.set() == Set::WithCallbacks)
            .cloned()
            .collect();
        if with_callbacks.is_empty() {
            return;
        }
        // The callbacks run on a thread of their own: they may block, and this may be the thread of
        // a handler.
        let name = format!("{}-stopping", self.config.thread_name);
        let run = with_normal_policy(move || {
            for token in &with_callbacks {
                if token.run_callbacks() > 0 {
                    tracing::error!("a callback of `Stopping` panicked");
                }
            }
        });
        if let Err(error) = thread::Builder::new().name(name).spawn(run) {
            tracing::error!(
                %error,
                "cannot start a thread: the callbacks of `Stopping` do not run"
            );
        }
    }

    /// Calls `callback` when the server begins to stop.
    #[cfg(unix)]
    pub(crate) fn on_begin_to_stop(&self, callback: impl FnOnce() + Send + 'static) {
        if let Some(token) = self.lifecycle.tokens.first() {
            token.on_stopping(callback).keep();
        }
    }

    /// Logs the routes whose handlers still run at the end of the drain time, only once. Nothing
    /// else says which handlers the server has waited for.
    pub(crate) fn give_up(&self) {
        if self.lifecycle.is_late.swap(true, Ordering::Relaxed) {
            return;
        }
        let routes = count_by_route(ServerState::calls(self).into_iter().map(|call| call.route));
        if !routes.is_empty() {
            tracing::warn!(
                server = self.config.thread_name,
                handlers = ?routes,
                "the drain deadline has passed: giving up the handlers that still run"
            );
        }
    }

    /// Called when a loop has ended. The last one ends the server.
    pub(crate) fn loop_ended(&self) {
        if self.lifecycle.loops_running.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        if let Backend::Program(queue) = &self.backend {
            queue.close();
        }
        // All of these refer to this engine: without this, the reference cycle would keep it alive.
        drop(self.seats.close());
        #[cfg(feature = "tls")]
        drop(self.handshakes.line.close());
        #[cfg(feature = "spool")]
        drop((self.spool.line.close(), self.spool.closing.close()));
        drop(mem::take(&mut *self.spare.lock()));
        #[cfg(unix)]
        self.flush_handover();
        self.pool.close();
        self.watchdog.stop();
        self.calls.stop();
        if let Backend::Service(site) = &self.backend {
            if catch_unwind(AssertUnwindSafe(|| site.service.stopped())).is_err() {
                self.note_panic("a service panicked when its server had stopped");
            }
        }
        self.lifecycle.state.lock().has_ended = true;
        self.lifecycle.ended.notify_all();
        tracing::info!(server = self.config.thread_name, phase = "stopped", "stopped");
    }

    /// Waits until the server has ended.
    pub(crate) fn wait(&self) {
        let mut state = self.lifecycle.state.lock();
        while !state.has_ended {
            self.lifecycle.ended.wait(&mut state);
        }
    }
}

/// Returns the number of calls of each route. Only the first routes are named: their calls have run
/// for longest.
fn count_by_route(calls: impl Iterator<Item = Option<String>>) -> Vec<(String, usize)> {
    let mut routes: Vec<(String, usize)> = Vec::new();
    for route in calls {
        let route = route.unwrap_or_else(|| "without a name".to_owned());
        if let Some((_, calls)) = routes.iter_mut().find(|(other, _)| *other == route) {
            *calls += 1;
        } else if routes.len() < NAMED_MAX {
            routes.push((route, 1));
        }
    }
    routes
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::sync::Arc;

    use super::*;
    #[cfg(all(feature = "tls", feature = "spool"))]
    use crate::budget::line::Entered;
    use crate::config::ServerConfig;
    use crate::engine::tests::{event_loops, pulled, serving};
    use crate::execution::stuck::detector::Reporter;
    use crate::service::Service;
    use crate::service::request::Request;
    use crate::service::response::Response;

    const LAME_DUCK: Duration = Duration::from_secs(100);
    const DRAIN: Duration = Duration::from_secs(20);

    fn engine() -> Arc<Engine> {
        pulled(ServerConfig::default().lame_duck(LAME_DUCK).drain_timeout(DRAIN))
    }

    #[test]
    fn a_server_drains_after_its_lame_duck_time_and_stops_with_its_last_loop() {
        let engine = engine();
        engine.lifecycle.loops_running.store(2, Ordering::SeqCst);
        assert_eq!((engine.phase(), engine.phase_ends_at()), (Phase::Serving, None));
        let began = Instant::now();
        engine.stop();
        assert_eq!((engine.phase(), engine.is_stopping()), (Phase::LameDuck, true));
        let until = engine.phase_ends_at().unwrap();
        assert!(until >= began + LAME_DUCK);
        engine.end_lame_duck(until - Duration::from_nanos(1));
        assert_eq!(engine.phase(), Phase::LameDuck);
        engine.end_lame_duck(until);
        assert_eq!(engine.phase(), Phase::Draining);
        engine.loop_ended();
        assert_eq!(engine.phase(), Phase::Draining);
        engine.loop_ended();
        assert_eq!(engine.phase(), Phase::Stopped);
    }

    #[test]
    fn a_second_stop_does_not_prolong_the_lame_duck_time() {
        let engine = engine();
        engine.stop();
        let until = engine.phase_ends_at();
        engine.stop();
        assert_eq!(engine.phase_ends_at(), until);
    }

    #[test]
    fn a_second_shutdown_can_only_shorten_the_time() {
        let engine = engine();
        engine.stop();
        let lame_duck_ends = engine.phase_ends_at().unwrap();
        engine.shutdown(DRAIN);
        let deadline = engine.drain_deadline().unwrap();
        assert!(deadline < lame_duck_ends);
        assert_eq!(engine.phase_ends_at(), Some(deadline), "the lame duck is over");
        engine.shutdown(LAME_DUCK * 2);
        engine.stop();
        assert_eq!(engine.drain_deadline(), Some(deadline));
        engine.shutdown(Duration::ZERO);
        assert!(engine.drain_deadline().unwrap() < deadline);
    }

    #[test]
    fn who_waits_for_requests_learns_that_there_are_no_more() {
        let engine = engine();
        engine.loop_ended();
        let Backend::Program(queue) = &engine.backend else { panic!("it is pulled") };
        assert!(queue.recv().is_err());
        engine.wait();
        assert!(engine.pool.reserve().is_none(), "the pool is closed");
    }

    #[test]
    fn the_thread_that_was_reserved_for_the_next_leader_ends_with_the_server() {
        let engine = engine();
        *engine.spare.lock() = engine.pool.reserve();
        assert!(engine.spare.lock().is_some());
        engine.loop_ended();
        assert!(engine.spare.lock().is_none());
    }

    #[test]
    fn the_first_routes_are_named_with_the_number_of_their_calls() {
        let calls = |names: &[usize]| {
            count_by_route(names.iter().map(|name| (*name > 0).then(|| name.to_string())))
        };
        let named = |name: &str, calls| (name.to_owned(), calls);
        assert_eq!(
            calls(&[7, 0, 7, 8, 0, 7]),
            [named("7", 3), named("without a name", 2), named("8", 1)]
        );
        let many: Vec<_> = (1..20).chain(1..20).collect();
        let counted = calls(&many);
        assert_eq!((counted.len(), &counted[9]), (NAMED_MAX, &named("10", 2)));
    }

    /// A service that panics when it should say goodbye.
    struct Panics;

    impl Service for Panics {
        fn call(&self, _: Request) -> Response {
            Response::new(204)
        }

        fn stopped(&self) {
            panic!("a test")
        }
    }

    #[test]
    fn a_service_that_panics_at_the_end_does_not_keep_its_server() {
        let engine = serving(ServerConfig::default(), Panics);
        engine.loop_ended();
        engine.wait();
        assert_eq!(engine.counters.panics.get(), 1);
    }

    #[test]
    fn the_threads_of_a_server_end_with_its_last_loop() {
        let engine = engine();
        let [event_loop] = event_loops(&engine);
        let handle = Arc::clone(event_loop.handle());
        let watched = Arc::downgrade(&handle);
        engine.watchdog.start("watchdog".into(), vec![handle], Arc::clone(&engine.crowd)).unwrap();
        let reporter: Arc<dyn Reporter> = Arc::clone(&engine) as _;
        engine.calls.start("stuck".into(), Arc::downgrade(&reporter)).unwrap();
        assert_eq!((watched.strong_count(), Arc::strong_count(&engine.calls)), (2, 2));
        drop(event_loop);
        // The threads had the others. A busy machine may run them late.
        let deadline = Instant::now() + Duration::from_secs(60);
        while watched.strong_count() > 0 || Arc::strong_count(&engine.calls) > 1 {
            assert!(Instant::now() < deadline, "a thread does not end");
            thread::yield_now();
        }
    }

    #[cfg(all(feature = "tls", feature = "spool"))]
    #[test]
    fn connections_that_wait_in_line_are_closed_with_their_server() {
        use crate::engine::tests::connection;

        let engine = engine();
        let [event_loop] = event_loops(&engine);
        let mut clients = Vec::new();
        for line in [&engine.handshakes.line, &engine.spool.line] {
            loop {
                let (connection, client) = connection(&event_loop);
                clients.push(client);
                if matches!(line.enter(None, connection), Entered::Waiting) {
                    break;
                }
            }
        }
        drop(event_loop);
        assert!(engine.handshakes.line.close().is_empty());
        assert!(engine.spool.line.close().is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn the_thread_that_sends_connections_learns_that_there_are_no_more() {
        let engine = engine();
        let (flushes, flushed) = crossbeam_channel::bounded(0);
        let connections = engine.begin_handover(flushed);
        drop(flushes);
        engine.loop_ended();
        let ended = connections.try_recv().unwrap_err();
        assert_eq!(ended, crossbeam_channel::TryRecvError::Disconnected);
    }

    #[test]
    fn callbacks_run_when_the_server_begins_to_stop() {
        let engine = engine();
        let (tell, told) = crossbeam_channel::bounded(1);
        engine.on_begin_to_stop(move || tell.send(()).unwrap());
        engine.stop();
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(()));
    }
}
