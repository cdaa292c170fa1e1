//! A gate that blocks handlers until the test opens it, and a site with one. With it, tests of
//! blocking need no sleeps.

use std::sync::{Arc, Condvar, Mutex};

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use harness::{DEADLINE, eventually};

use crate::server::{TestServer, site};

/// A gate, initially closed. Clones are handles to the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    waiting: usize,
}

impl Gate {
    /// Returns a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Blocks this thread until the gate is open.
    pub fn pass(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.waiting += 1;
        // A failed test never opens its gate, but its server must end anyway.
        let (mut state, _) =
            self.0.opened.wait_timeout_while(state, DEADLINE * 2, |state| !state.is_open).unwrap();
        state.waiting -= 1;
    }

    /// Opens the gate for the threads that wait and for all later ones.
    pub fn open(&self) {
        self.0.state.lock().unwrap().is_open = true;
        self.0.opened.notify_all();
    }

    /// Closes the gate again.
    pub fn close(&self) {
        self.0.state.lock().unwrap().is_open = false;
    }

    /// Returns how many threads wait.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().unwrap().waiting
    }

    /// Waits until this many threads wait at the gate.
    #[track_caller]
    pub fn holds(&self, threads: usize) {
        eventually(&format!("{threads} handlers wait at the gate"), || self.waiting() == threads);
    }
}

/// A site whose `/gate` waits at a gate, on the pool or where the engine chooses.
struct Gated {
    gate: Gate,
    is_dispatched: bool,
}

impl Service for Gated {
    fn plan(&self, request: &mut Request) -> Plan {
        if self.is_dispatched && request.path() == "/gate" {
            Plan::new().on_pool()
        } else {
            Plan::new()
        }
    }

    fn call(&self, request: Request) -> Response {
        if request.path() == "/gate" {
            self.gate.pass();
        }
        site(request)
    }
}

/// Starts a site whose `/gate` waits at a gate. It runs on the pool if `is_dispatched`, otherwise
/// where the engine chooses.
pub fn gated(config: ServerConfig, gate: &Gate, is_dispatched: bool) -> TestServer {
    TestServer::with(config, Gated { gate: gate.clone(), is_dispatched })
}
