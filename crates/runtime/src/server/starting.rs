//! From a bound server to one that serves.
//!
//! The engine starts without the lock of the server's state, because the program's code runs
//! meanwhile: it may ask for the metrics, or shut the server down. And a process that takes over
//! from another one serves already while it waits for that one.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::{Server, Shared, State};
use crate::config::ServerConfig;
use crate::engine::incoming::IncomingRequest;
use crate::engine::pull_queue::PullQueue;
use crate::engine::{Backend, Engine};
use crate::error::{Kind, Result};

/// How to stop a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// With the lame-duck time and the drain timeout of the configuration.
    Gracefully,
    /// With this drain timeout.
    Within(Duration),
}

impl Stop {
    fn carry_out(self, engine: &Engine) {
        match self {
            Self::Gracefully => engine.stop(),
            Self::Within(timeout) => engine.shutdown(timeout),
        }
    }
}

/// The state `Starting`. Its end notifies those who wait, also if the program's code panics.
struct Starting<'a> {
    server: &'a Server,
    next: State,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let next = std::mem::replace(&mut self.next, State::Ended);
        let engine = match &next {
            State::Serving { engine, .. } => Some(Arc::clone(engine)),
            _ => None,
        };
        let before = std::mem::replace(&mut *self.server.shared.state.lock(), next);
        self.server.shared.started.notify_all();
        // The callbacks of a stop run here. They may use the server.
        match (before, engine) {
            (State::Starting { stop: Some(stop) }, Some(engine)) => stop.carry_out(&engine),
            (State::Starting { stop: Some(_) }, None) => self.server.shared.stopping.tell(),
            _ => {}
        }
    }
}

impl Server {
    pub(super) fn start(
        &self,
        backend: Backend,
        requests: Option<Arc<PullQueue<IncomingRequest>>>,
    ) -> Result<Arc<Engine>> {
        let mut state = self.shared.state.lock();
        if !matches!(*state, State::Bound { .. }) {
            return Err(Kind::AlreadyServing.into());
        }
        let before = std::mem::replace(&mut *state, State::Starting { stop: None });
        drop(state);
        let mut starting = Starting { server: self, next: State::Ended };
        #[cfg(unix)]
        let State::Bound { config, bound, restart } = before else {
            unreachable!("it was checked under the lock")
        };
        #[cfg(not(unix))]
        let State::Bound { config, bound } = before else {
            unreachable!("it was checked under the lock")
        };
        let config = choose_config(config, backend.config());
        let engine = Engine::start(config, bound, backend, self.stopping())?;
        #[cfg(unix)]
        if let Some(Err(source)) = restart.map(|restart| restart.complete(&engine)) {
            engine.shutdown(Duration::ZERO);
            return Err(Kind::Start { what: "as the successor of a server", source }.into());
        }
        starting.next = State::Serving { engine: Arc::clone(&engine), requests };
        Ok(engine)
    }

    /// Stops the server. One that does not serve yet never will.
    pub(super) fn stop(&self, how: Stop) {
        let mut state = self.shared.state.lock();
        match &mut *state {
            State::Serving { engine, .. } => {
                let engine = Arc::clone(engine);
                drop(state);
                how.carry_out(&engine);
            }
            State::Starting { stop } => *stop = Some(how),
            State::Bound { .. } | State::Ended => {
                *state = State::Ended;
                // The callbacks run here. They may use the server.
                drop(state);
                self.shared.stopping.tell();
            }
        }
    }
}

impl Shared {
    /// Waits while another thread starts the engine.
    pub(super) fn await_start(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        self.started.wait_while(&mut state, |state| matches!(state, State::Starting { .. }));
        state
    }
}

/// Returns the builder's configuration, otherwise the service's, otherwise the default.
fn choose_config(built: Option<Box<ServerConfig>>, own: Option<ServerConfig>) -> ServerConfig {
    match (built, own) {
        (Some(built), own) => {
            if own.is_some() {
                tracing::warn!(
                    "the configuration of the server builder replaces that of the service"
                );
            }
            *built
        }
        (None, own) => own.unwrap_or_default(),
    }
}
