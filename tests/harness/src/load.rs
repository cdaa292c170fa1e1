//! Clients in closed loops: each sends its next request as soon as it has received a response.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};

use crate::client::Client;
use crate::wait::{DEADLINE, eventually_within};

/// Clients on their own threads that request one target until they are stopped.
#[derive(Debug)]
pub struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<ClosedLoop>,
}

#[derive(Debug)]
struct ClosedLoop {
    served: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Load {
    /// Connects the clients, and starts them when all are connected. Every response must be a
    /// `200`.
    #[track_caller]
    pub fn start(address: SocketAddr, clients: usize, target: &'static str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let connected: Vec<Client> = (0..clients).map(|_| Client::connect(address)).collect();
        let clients =
            connected.into_iter().map(|client| ClosedLoop::start(client, target, &is_over));
        Self { clients: clients.collect(), is_over }
    }

    /// Returns the number of responses so far.
    pub fn served(&self) -> usize {
        self.clients.iter().map(ClosedLoop::served).sum()
    }

    /// Waits until the clients have received this many responses in total.
    #[track_caller]
    pub fn reaches(&self, answers: usize) {
        self.goes_on_until(&format!("{answers} answers"), || self.served() >= answers);
    }

    /// Waits until each client has received this many responses.
    #[track_caller]
    pub fn each_reaches(&self, answers: usize) {
        let what = format!("{answers} answers to each client");
        self.goes_on_until(&what, || self.clients.iter().all(|client| client.served() >= answers));
    }

    /// Waits until `is_done` returns `true`. Panics with `what` after the deadline, or if a client
    /// fails.
    #[track_caller]
    pub fn goes_on_until(&self, what: &str, is_done: impl Fn() -> bool) {
        // Thousands of requests take longer than one.
        eventually_within(DEADLINE * 3, what, || {
            assert!(self.clients.iter().all(ClosedLoop::is_running), "a client was not answered");
            is_done()
        });
    }

    /// Stops the clients. Returns the number of responses per client, in ascending order.
    #[track_caller]
    pub fn stop(mut self) -> Vec<usize> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut served: Vec<usize> = self.clients.drain(..).map(ClosedLoop::join).collect();
        served.sort_unstable();
        served
    }
}

/// A failed test must not leave running clients behind.
impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl ClosedLoop {
    fn start(mut client: Client, target: &'static str, is_over: &Arc<AtomicBool>) -> Self {
        let served = Arc::new(AtomicUsize::new(0));
        let thread = thread::spawn({
            let (served, is_over) = (Arc::clone(&served), Arc::clone(is_over));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(client.get(target).status, 200);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { served, thread }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }

    fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    #[track_caller]
    fn join(self) -> usize {
        self.thread.join().expect("every request of the client was answered");
        self.served.load(Ordering::Relaxed)
    }
}

/// Held by tests that need the machine for themselves, and shared by those that do not.
static MACHINE: RwLock<()> = RwLock::new(());

/// Keeps other tests that call this function or [`beside_others`] from running until the guard is
/// dropped. For tests that measure under load, which would otherwise disturb each other.
pub fn one_at_a_time() -> RwLockWriteGuard<'static, ()> {
    // A failed test poisons the lock, which does not matter to the next one.
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps tests that call [`one_at_a_time`] from running until the guard is dropped, and no others.
/// For tests that wait more than they compute.
pub fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}
