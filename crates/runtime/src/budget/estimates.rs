//! Memory that code of the program takes for requests, where only an estimate is known: what a
//! parser makes of a content depends on the types of the program.
//!
//! Estimates have a budget of their own, as large as that of all peers. One that is too high must
//! not make [memory](super::memory) look short, as that closes the connections of slow peers. For
//! the same reason they wait for each other before one is refused. That ends: who holds one has all
//! that it needs, and is a handler that returns; and nobody waits for longer than [`PATIENCE`]. Few
//! threads wait, and none with a [turn](super::turns) that others need.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::budget::account::Account;
use crate::budget::clients::ClientConnection;
use crate::sync::{Condvar, Mutex};

/// An estimate counts as one part in this many of the budget at most. Otherwise a content with an
/// estimate that is too high would be refused each time, even if nothing else needs memory.
const SHARE_MAX: usize = 4;

/// At least one part in this many of the budget counts as free when the shares of clients are
/// computed, so that a client which has nothing is not refused for that.
const FREE_SHARE: usize = 8;

/// How long an estimate waits for others.
const PATIENCE: Duration = Duration::from_secs(1);

/// At most this many threads wait. Further estimates are refused at once, so that clients which
/// hold all of the budget cannot make all threads wait as well.
const WAITING_MAX: usize = 8;

/// The sum of all estimates.
#[derive(Debug)]
pub(crate) struct Estimates {
    bytes_max: usize,
    sums: Mutex<Sums>,
    /// Notified when less is held.
    less: Condvar,
}

#[derive(Debug, Default)]
struct Sums {
    held: usize,
    /// The number of threads that wait.
    waiting: usize,
}

/// An estimate that counts until it is dropped.
pub(crate) struct Estimate {
    account: Arc<Account>,
    bytes: usize,
}

impl Estimates {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, sums: Mutex::new(Sums::default()), less: Condvar::new() }
    }

    /// Counts the bytes, and waits for that if others have all of the budget, or the client has its
    /// share. Returns whether they are counted.
    fn add(&self, bytes: usize, client: Option<&ClientConnection>, until: Instant) -> bool {
        let add = |sums: &mut Sums| {
            let Some(free) = self.bytes_max.checked_sub(sums.held + bytes) else { return false };
            let free = free.max(self.bytes_max / FREE_SHARE);
            let is_allowed = client.is_none_or(|client| client.try_estimate(bytes, free));
            sums.held += if is_allowed { bytes } else { 0 };
            is_allowed
        };
        let mut sums = self.sums.lock();
        if add(&mut sums) {
            return true;
        }
        if sums.waiting >= WAITING_MAX {
            return false;
        }
        sums.waiting += 1;
        loop {
            let is_late;
            (sums, is_late) = self.less.wait_until(sums, until);
            let is_added = add(&mut sums);
            if is_added || is_late {
                sums.waiting -= 1;
                return is_added;
            }
        }
    }

    fn remove(&self, bytes: usize, client: Option<&ClientConnection>) {
        let mut sums = self.sums.lock();
        sums.held -= bytes;
        if let Some(client) = client {
            client.release_estimate(bytes);
        }
        self.less.notify_all();
    }
}

impl Estimate {
    /// Counts an estimate. Returns `None` if there is no memory for it, for a second if the thread
    /// may wait.
    pub(crate) fn hold(account: &Arc<Account>, bytes: usize, may_wait: bool) -> Option<Self> {
        Self::hold_within(account, bytes, if may_wait { PATIENCE } else { Duration::ZERO })
    }

    fn hold_within(account: &Arc<Account>, bytes: usize, patience: Duration) -> Option<Self> {
        let estimates = account.estimates();
        let bytes = bytes.min(estimates.bytes_max / SHARE_MAX);
        let client = account.client().map(|client| &**client);
        let is_held = estimates.add(bytes, client, Instant::now() + patience);
        is_held.then(|| Self { account: Arc::clone(account), bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

impl Drop for Estimate {
    fn drop(&mut self) {
        let client = self.account.client().map(|client| &**client);
        self.account.estimates().remove(self.bytes, client);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;
    use crate::budget::clients::Clients;
    use crate::budget::memory::Memory;

    const LONG: Duration = Duration::from_secs(30);

    fn account() -> Arc<Account> {
        Account::new(&Memory::new(Some(1000)), None)
    }

    fn hold(account: &Arc<Account>, bytes: usize) -> Option<Estimate> {
        Estimate::hold_within(account, bytes, Duration::ZERO)
    }

    fn waiting(account: &Account) -> usize {
        account.estimates().sums.lock().waiting
    }

    #[track_caller]
    fn until_waiting(account: &Account, threads: usize) {
        let end = Instant::now() + LONG;
        while waiting(account) < threads {
            assert!(Instant::now() < end, "{} wait", waiting(account));
            thread::yield_now();
        }
    }

    #[test]
    fn estimates_fill_a_budget_of_their_own() {
        let memory = Memory::new(Some(1000));
        let all = Account::new(&memory, None);
        let held: Vec<_> = (0..4).map(|_| hold(&all, 240).unwrap()).collect();
        assert!(hold(&all, 41).is_none(), "40 bytes are left");
        assert!(hold(&all, 40).is_some_and(|estimate| estimate.bytes() == 40));
        assert_eq!(memory.used(), 0, "peers have all of theirs");
        drop(held);
        assert!(hold(&all, 250).is_some());
    }

    #[test]
    fn an_estimate_counts_as_a_quarter_at_most() {
        let all = account();
        let held: Vec<_> = (0..4).map(|_| hold(&all, usize::MAX).unwrap()).collect();
        assert!(held.iter().all(|estimate| estimate.bytes() == 250));
        assert!(hold(&all, 1).is_none());
    }

    #[test]
    fn an_estimate_waits_for_others() {
        let all = account();
        let held: Vec<_> = (0..4).map(|_| hold(&all, 250)).collect();
        thread::scope(|scope| {
            let waits = scope.spawn(|| Estimate::hold_within(&all, 250, LONG).is_some());
            until_waiting(&all, 1);
            drop(held);
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn few_threads_wait() {
        let all = account();
        let held: Vec<_> = (0..4).map(|_| hold(&all, 250)).collect();
        thread::scope(|scope| {
            let wait = || Estimate::hold_within(&all, 10, LONG).is_some();
            let waits: Vec<_> = (0..WAITING_MAX).map(|_| scope.spawn(wait)).collect();
            until_waiting(&all, WAITING_MAX);
            assert!(!wait(), "one more is refused at once");
            drop(held);
            assert!(waits.into_iter().all(|thread| thread.join().unwrap()));
        });
        assert_eq!(waiting(&all), 0);
        assert!(hold(&all, 250).is_some());
    }

    #[test]
    fn a_client_leaves_a_third_to_others() {
        let (memory, clients) = (Memory::new(Some(1200)), Arc::new(Clients::new(100)));
        let of =
            |address: &str| Account::new(&memory, clients.admit(address.parse().unwrap()).unwrap());
        let (first, second) = (of("203.0.113.1"), of("203.0.113.2"));
        let fill = |account| std::iter::from_fn(|| hold(account, 100)).collect::<Vec<_>>();
        let held = fill(&first);
        assert_eq!(held.len(), 8);
        let others = fill(&second);
        assert_eq!(others.len(), 3, "an eighth counts as free, and twice that is allowed");
        drop(held);
        assert_eq!(fill(&first).len(), 6);
        drop(others);
        assert_eq!(fill(&first).len(), 8, "all was given back");
    }
}
