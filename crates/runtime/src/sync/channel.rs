//! The part of `crossbeam-channel` that the queue uses, built on loom's primitives.
//!
//! It does what crossbeam's documentation promises and no more, so that a model explores how the
//! queue uses it.

use std::collections::VecDeque;
use std::time::Instant;

use super::{Arc, Condvar, Mutex};

pub(crate) use crossbeam_channel::{TryRecvError, TrySendError};

/// Returns a channel with room for `capacity` messages.
pub(crate) fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { messages: VecDeque::new(), is_connected: true, observers: Vec::new() };
    let channel = Arc::new(Channel { capacity, state: Mutex::new(state) });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

/// Returns a channel without a bound.
pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

struct Channel<T> {
    capacity: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    messages: VecDeque<T>,
    /// Whether the only sender still exists.
    is_connected: bool,
    /// Threads that wait in a `Select`.
    observers: Vec<Arc<Observer>>,
}

/// A waiting thread.
struct Observer {
    is_told: Mutex<bool>,
    told: Condvar,
}

impl<T> State<T> {
    fn notify(&mut self) {
        for observer in self.observers.drain(..) {
            *observer.is_told.lock() = true;
            observer.told.notify_all();
        }
    }
}

pub(crate) struct Sender<T>(Arc<Channel<T>>);

impl<T> Sender<T> {
    pub(crate) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.state.lock();
        if state.messages.len() >= self.0.capacity {
            return Err(TrySendError::Full(message));
        }
        state.messages.push_back(message);
        state.notify();
        Ok(())
    }

    pub(crate) fn send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.try_send(message)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_connected = false;
        state.notify();
    }
}

pub(crate) struct Receiver<T>(Arc<Channel<T>>);

impl<T> Receiver<T> {
    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state.lock();
        match state.messages.pop_front() {
            Some(message) => Ok(message),
            None if state.is_connected => Err(TryRecvError::Empty),
            None => Err(TryRecvError::Disconnected),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.state.lock().messages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.0.capacity
    }

    /// Returns whether a receive would return at once, with a message or because of the end.
    /// Otherwise registers `observer`.
    fn is_ready_or_observed(&self, observer: &Arc<Observer>) -> bool {
        let mut state = self.0.state.lock();
        let is_ready = !state.messages.is_empty() || !state.is_connected;
        if !is_ready {
            state.observers.push(Arc::clone(observer));
        }
        is_ready
    }
}

/// Waits until one of several channels is ready.
pub(crate) struct Select<'a> {
    checks: Vec<Box<dyn Fn(&Arc<Observer>) -> bool + 'a>>,
}

impl<'a> Select<'a> {
    pub(crate) fn new() -> Self {
        Self { checks: Vec::new() }
    }

    pub(crate) fn recv<T>(&mut self, receiver: &'a Receiver<T>) {
        self.checks.push(Box::new(|observer| receiver.is_ready_or_observed(observer)));
    }

    pub(crate) fn ready(&mut self) -> usize {
        let observer = Arc::new(Observer { is_told: Mutex::new(false), told: Condvar::new() });
        if let Some(ready) = self.checks.iter().position(|check| check(&observer)) {
            return ready;
        }
        let mut is_told = observer.is_told.lock();
        while !*is_told {
            (is_told, _) = observer.told.wait_until(is_told, Instant::now());
        }
        0
    }

    /// The deadline never passes. A missing notification becomes a deadlock, which loom reports.
    pub(crate) fn ready_deadline(
        &mut self,
        _deadline: Instant,
    ) -> Result<usize, crossbeam_channel::ReadyTimeoutError> {
        Ok(self.ready())
    }
}
