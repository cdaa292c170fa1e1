//! Threads for work that may block: as many as needed, up to a limit.
//!
//! A [`Pool`] runs values of one type with one function; [`TaskPool`] runs closures. The pool knows nothing of what it runs.
//! The `README.md` beside this file tells who changes which count and why no task and no wake-up is lost.

mod config;
mod ledger;
mod metrics;
mod refused;
mod reservation;
mod spawn;
mod task_pool;
mod worker;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{fmt, io};

use crossbeam_utils::CachePadded;

pub use self::config::PoolConfig;
use self::ledger::{Admission, Ledger, Urgency};
pub use self::metrics::PoolMetrics;
use self::metrics::Totals;
pub use self::refused::PoolError;
pub(crate) use self::refused::{Refused, RefusedBecause};
pub(crate) use self::reservation::Reservation;
use self::spawn::{Spawner, ThreadStart, start_thread};
pub use self::task_pool::TaskPool;
use self::worker::{Assignment, Cell, Seat};
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Arc, Condvar, Mutex, thread};

/// A dynamic pool of threads that run tasks of one type. Clones are handles to the same pool.
///
/// The pool is closed when the last handle is dropped. A handle within `run`, or within a task that never ends, keeps it open:
/// then someone must call [`Pool::close`].
pub(crate) struct Pool<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    _close_at_last: Arc<CloseOnDrop<T>>,
}

impl<T: Send + 'static> Pool<T> {
    /// Returns a pool that gives each task to `run`, on a thread of its own choice. No thread is started yet.
    pub(crate) fn new(config: PoolConfig, run: impl Fn(T) + Send + Sync + 'static) -> Self {
        Self::with_spawner(config, Box::new(start_thread), run)
    }

    fn with_spawner(config: PoolConfig, spawner: Spawner, run: impl Fn(T) + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                ledger: Ledger::new(config.limits()),
                idle: Vec::new(),
                queue: VecDeque::new(),
                threads_peak: 0,
                threads_named: 0,
                threads_retired: 0,
            }),
            queued: CachePadded::new(AtomicUsize::new(0)),
            all_ended: Condvar::new(),
            totals: Totals::default(),
            run: Box::new(run),
            spawner,
            thread_name: config.thread_name,
            stack_size: config.stack_size,
            idle_timeout: config.idle_timeout,
        });
        let close_at_last = Arc::new(CloseOnDrop(Arc::clone(&shared)));
        Self { shared, _close_at_last: close_at_last }
    }

    /// Has a task run: by an idle worker, by a new one, or after the tasks that wait already.
    ///
    /// # Errors
    ///
    /// Gives the task back when the pool is full or closed, or when no thread can be started and nobody else would run it.
    pub(crate) fn submit(&self, task: T) -> Result<(), Refused<T>> {
        Shared::place(&self.shared, task, Urgency::Ordinary)
    }

    /// Has a task run that leads an event loop: it does not wait in the queue and may use the reserve.
    ///
    /// # Errors
    ///
    /// Gives the task back when the reserve is used up, the pool closed, or no thread can be started.
    pub(crate) fn submit_urgent(&self, task: T) -> Result<(), Refused<T>> {
        Shared::place(&self.shared, task, Urgency::Urgent)
    }

    /// Claims a worker for a task that will follow, within the limits of urgent tasks.
    ///
    /// For whoever must know that there is a thread before it takes something away from another one.
    pub(crate) fn reserve(&self) -> Option<Reservation<T>> {
        let seat = Shared::claim_seat(&self.shared)?;
        Some(Reservation::new(seat))
    }

    /// Whether tasks wait for a thread. One load, for those who hold a thread and could give it back.
    pub(crate) fn is_anyone_waiting(&self) -> bool {
        // Relaxed: a hint. Whoever is told a moment too late asks again after its next request.
        self.shared.queued.load(Ordering::Relaxed) > 0
    }

    /// Returns what the pool counts about itself. Takes the lock for a few loads.
    pub(crate) fn metrics(&self) -> PoolMetrics {
        self.shared.metrics()
    }

    /// Takes no more tasks. Those in the queue still run, idle workers end, busy ones end after their task.
    pub(crate) fn close(&self) {
        Shared::close(&self.shared);
    }

    /// Waits until no worker is left and returns whether that came true before the deadline.
    ///
    /// Only of use after [`Pool::close`], and not on a worker of this pool, which would wait for itself.
    pub(crate) fn join(&self, deadline: Instant) -> bool {
        let mut state = self.shared.state.lock();
        while state.ledger.workers() > 0 {
            let timed_out;
            (state, timed_out) = self.shared.all_ended.wait_until(state, deadline);
            if timed_out {
                return state.ledger.workers() == 0;
            }
        }
        state.ledger.queued() == 0
    }
}

impl<T: Send + 'static> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), _close_at_last: Arc::clone(&self._close_at_last) }
    }
}

impl<T: Send + 'static> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.shared.thread_name)
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

/// Lives as long as there is a handle. Workers hold [`Shared`] only: an unused pool must be able to end.
struct CloseOnDrop<T: Send + 'static>(Arc<Shared<T>>);

impl<T: Send + 'static> Drop for CloseOnDrop<T> {
    fn drop(&mut self) {
        Shared::close(&self.0);
    }
}

/// What handles and workers share.
struct Shared<T> {
    /// Held for counts and pushes only. Starting, waking, running and dropping happen outside of it.
    state: Mutex<State<T>>,
    /// The ledger's count of the queue, for [`Pool::is_anyone_waiting`]. On a cache line of its own: leaders read it often.
    queued: CachePadded<AtomicUsize>,
    /// Notified when the last worker has ended.
    all_ended: Condvar,
    totals: Totals,
    run: Box<dyn Fn(T) + Send + Sync>,
    spawner: Spawner,
    thread_name: String,
    stack_size: Option<usize>,
    idle_timeout: Duration,
}

struct State<T> {
    ledger: Ledger,
    /// Last in, first out: the thread that has run last has the warmest caches, and those at the bottom can expire.
    idle: Vec<Seat<T>>,
    queue: VecDeque<T>,
    threads_peak: usize,
    threads_named: u64,
    threads_retired: u64,
}

impl<T> State<T> {
    /// Carries out a decision of the ledger as far as the lock is needed for it.
    fn act(&mut self, admission: Admission, task: T) -> Placement<T> {
        match admission {
            Admission::Wake => match self.idle.pop() {
                Some(seat) => Placement::Wake(seat, task),
                None => unreachable!("the ledger counts the idle stack"),
            },
            Admission::Spawn => {
                self.threads_peak = self.threads_peak.max(self.ledger.workers());
                Placement::Spawn(self.next_name(), task)
            }
            Admission::Queue => {
                self.queue.push_back(task);
                Placement::Queued
            }
            Admission::Refuse => Placement::Refused(Refused { task, reason: RefusedBecause::Full }),
            Admission::Closed => Placement::Refused(Refused { task, reason: RefusedBecause::Closed }),
        }
    }

    /// The same for a worker that will be given its task later.
    fn claim(&mut self, admission: Admission) -> Claim<T> {
        match admission {
            Admission::Wake => self.idle.pop().map_or(Claim::Nobody, Claim::Idle),
            Admission::Spawn => {
                self.threads_peak = self.threads_peak.max(self.ledger.workers());
                Claim::Spawn(self.next_name())
            }
            Admission::Queue | Admission::Refuse | Admission::Closed => Claim::Nobody,
        }
    }

    fn next_name(&mut self) -> u64 {
        self.threads_named += 1;
        self.threads_named
    }

    /// Counts a worker that the ledger has let go. Returns whether it was the last.
    fn retired(&mut self) -> bool {
        self.threads_retired += 1;
        self.ledger.workers() == 0
    }
}

/// What is left to do about a task once the lock is free again.
enum Placement<T> {
    Wake(Seat<T>, T),
    Spawn(u64, T),
    Queued,
    Refused(Refused<T>),
}

enum Claim<T> {
    Idle(Seat<T>),
    Spawn(u64),
    Nobody,
}

impl<T: Send + 'static> Shared<T> {
    /// Runs a few lines under the lock.
    fn with_state<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let queued = state.ledger.queued();
        // Written only when it changes: most submissions find an idle worker, and the line stays shared among readers.
        if self.queued.load(Ordering::Relaxed) != queued {
            self.queued.store(queued, Ordering::Relaxed);
        }
        result
    }

    fn place(shared: &Arc<Self>, task: T, urgency: Urgency) -> Result<(), Refused<T>> {
        let placement = shared.with_state(|state| {
            let admission = state.ledger.admit(urgency);
            state.act(admission, task)
        });
        match placement {
            Placement::Spawn(number, task) => {
                let cell = Arc::new(Cell::new(Some(Assignment { task: Some(task), urgency })));
                match Self::spawn(shared, number, &cell) {
                    Ok(_) => Ok(()),
                    Err(error) => shared.place_again(&cell, urgency, error),
                }
            }
            placement => shared.conclude(placement, urgency),
        }
    }

    /// No thread could be started for the task in the cell: someone else takes it, or it goes back.
    fn place_again(&self, cell: &Cell<T>, urgency: Urgency, error: io::Error) -> Result<(), Refused<T>> {
        let Some(task) = cell.take().and_then(|assignment| assignment.task) else {
            unreachable!("a thread that was not started took nothing");
        };
        let (placement, is_last) = self.with_state(|state| {
            let admission = state.ledger.spawn_failed(urgency);
            (state.act(admission, task), state.ledger.workers() == 0)
        });
        self.announce_end(is_last);
        self.conclude(placement, urgency)
            .map_err(|refused| Refused { task: refused.task, reason: RefusedBecause::CannotSpawn(error) })
    }

    fn conclude(&self, placement: Placement<T>, urgency: Urgency) -> Result<(), Refused<T>> {
        match placement {
            Placement::Wake(seat, task) => {
                seat.assign(Assignment { task: Some(task), urgency });
                Ok(())
            }
            Placement::Queued => Ok(()),
            Placement::Refused(refused) => {
                self.totals.refused.fetch_add(1, Ordering::Relaxed);
                Err(refused)
            }
            Placement::Spawn(..) => unreachable!("a failed start is not tried again"),
        }
    }

    /// Claims a worker that has nothing to do yet.
    fn claim_seat(shared: &Arc<Self>) -> Option<Seat<T>> {
        let placement = shared.with_state(|state| {
            let admission = state.ledger.admit(Urgency::Urgent);
            state.claim(admission)
        });
        match placement {
            Claim::Idle(seat) => Some(seat),
            Claim::Spawn(number) => {
                let cell = Arc::new(Cell::new(None));
                if let Ok(thread) = Self::spawn(shared, number, &cell) {
                    return Some(Seat { cell, thread });
                }
                let (claim, is_last) = shared.with_state(|state| {
                    let admission = state.ledger.spawn_failed(Urgency::Urgent);
                    (state.claim(admission), state.ledger.workers() == 0)
                });
                shared.announce_end(is_last);
                match claim {
                    Claim::Idle(seat) => Some(seat),
                    Claim::Spawn(_) | Claim::Nobody => None,
                }
            }
            Claim::Nobody => None,
        }
    }

    /// Starts a worker that the ledger has counted already.
    fn spawn(shared: &Arc<Self>, number: u64, cell: &Arc<Cell<T>>) -> io::Result<thread::Thread> {
        let name = format!("{}-{number}", shared.thread_name);
        let body = {
            let shared = Arc::clone(shared);
            let cell = Arc::clone(cell);
            Box::new(move || shared.work(&cell))
        };
        let started = (shared.spawner)(ThreadStart { name, stack_size: shared.stack_size, body });
        match &started {
            Ok(_) => _ = shared.totals.threads_started.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                shared.totals.spawn_failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, pool = shared.thread_name, "cannot start a thread");
            }
        }
        started
    }

    fn close(shared: &Arc<Self>) {
        let (idle, rescue) = shared.with_state(|state| {
            state.ledger.close();
            let rescue = state.ledger.rescue().then(|| state.next_name());
            (std::mem::take(&mut state.idle), rescue)
        });
        for seat in idle {
            seat.assign(Assignment { task: None, urgency: Urgency::Ordinary });
        }
        let Some(number) = rescue else { return };
        let cell = Arc::new(Cell::new(Some(Assignment { task: None, urgency: Urgency::Ordinary })));
        if Self::spawn(shared, number, &cell).is_err() {
            let is_last = shared.with_state(|state| {
                state.ledger.rescue_failed();
                state.ledger.workers() == 0
            });
            shared.announce_end(is_last);
        }
    }

    fn announce_end(&self, is_last: bool) {
        if is_last {
            self.all_ended.notify_all();
        }
    }

    fn metrics(&self) -> PoolMetrics {
        let mut metrics = self.with_state(|state| PoolMetrics {
            threads: state.ledger.workers(),
            idle: state.ledger.idle(),
            queued: state.ledger.queued(),
            threads_peak: state.threads_peak,
            threads_retired: state.threads_retired,
            ..PoolMetrics::default()
        });
        metrics.tasks_started = self.totals.tasks_started.load(Ordering::Relaxed);
        metrics.refused = self.totals.refused.load(Ordering::Relaxed);
        metrics.panics = self.totals.panics.load(Ordering::Relaxed);
        metrics.spawn_failures = self.totals.spawn_failures.load(Ordering::Relaxed);
        metrics.threads_started = self.totals.threads_started.load(Ordering::Relaxed);
        metrics
    }
}
