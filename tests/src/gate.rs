//! A gate that holds handlers until the test lets them go: blocking without a guess about time.

use std::sync::{Arc, Condvar, Mutex};

use crate::wait::{DEADLINE, eventually};

/// A gate, closed at first. Clones are the same gate.
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
        // A test that failed never opens its gate: its server must come to an end all the same.
        let (mut state, _) =
            self.0.opened.wait_timeout_while(state, DEADLINE * 2, |state| !state.is_open).unwrap();
        state.waiting -= 1;
    }

    /// Lets all pass that wait and all that come.
    pub fn open(&self) {
        self.0.state.lock().unwrap().is_open = true;
        self.0.opened.notify_all();
    }

    /// Holds those that come from now on.
    pub fn close(&self) {
        self.0.state.lock().unwrap().is_open = false;
    }

    /// How many threads wait.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().unwrap().waiting
    }

    /// Waits until so many threads wait.
    #[track_caller]
    pub fn holds(&self, threads: usize) {
        eventually(&format!("{threads} handlers wait at the gate"), || self.waiting() == threads);
    }
}
