//! The state that handles and workers share: one lock around the counts, and the actions outside of
//! it.

use std::io;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::config::PoolConfig;
use super::ledger::Urgency;
use super::metrics::{PoolMetrics, Totals};
use super::refused::{Refused, RefusedBecause};
use super::spawn::{Spawner, ThreadStart};
use super::state::{Accepted, Claim, Overdue, Placement, Rescue, State};
use super::worker::{Assignment, Cell, WorkerHandle};
use crate::budget::throttle::Throttle;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, thread};

/// The state that handles and workers share.
pub(super) struct Shared<T> {
    /// Held for counts and pushes only. Starting, waking, running and dropping happen outside of
    /// it.
    state: Mutex<State<T>>,
    /// The length of the queue, for [`Shared::queued_hint`]. It has a cache line of its own,
    /// because leaders read it often.
    queued: CachePadded<AtomicUsize>,
    /// Whether tasks wait for which no thread is available, for [`Shared::short_hint`].
    is_short: CachePadded<AtomicBool>,
    /// Notified when the last worker has ended.
    all_ended: Condvar,
    pub(super) totals: Totals,
    pub(super) run: Box<dyn Fn(T) + Send + Sync>,
    spawner: Spawner,
    /// Limits the log lines about failed starts of threads.
    spawn_log: Throttle,
    thread_name: String,
    stack_size: Option<usize>,
    pub(super) idle_timeout: Duration,
    /// The start of the nanosecond clock. `None` in a pool that is not patient.
    clock_start: Option<Instant>,
}

impl<T: Send + 'static> Shared<T> {
    pub(super) fn new(
        config: PoolConfig,
        spawner: Spawner,
        run: Box<dyn Fn(T) + Send + Sync>,
    ) -> Self {
        Self {
            state: Mutex::new(State::new(config.limits())),
            queued: CachePadded::new(AtomicUsize::new(0)),
            is_short: CachePadded::new(AtomicBool::new(false)),
            all_ended: Condvar::new(),
            totals: Totals::default(),
            run,
            spawner,
            spawn_log: Throttle::new(),
            thread_name: config.thread_name,
            stack_size: config.stack_size,
            idle_timeout: config.idle_timeout,
            clock_start: config.is_patient.then(Instant::now),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.thread_name
    }

    /// Returns how many tasks wait, or waited a moment ago.
    pub(super) fn queued_hint(&self) -> usize {
        // Relaxed: a thread that sees a new value late checks again after its next request.
        self.queued.load(Ordering::Relaxed)
    }

    /// Returns whether tasks wait, or waited a moment ago, for which no thread is available.
    pub(super) fn short_hint(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Returns the nanoseconds since the pool was created. Always 0 in a pool that is not patient.
    pub(super) fn now(&self) -> u64 {
        let elapsed = self.clock_start.map_or(0, |start| start.elapsed().as_nanos());
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }

    /// Records that a worker which was woken at this time begins with its task.
    pub(super) fn note_wake(&self, woken_at: u64) {
        let took = self.now().saturating_sub(woken_at);
        self.with_state(|state| state.patience.woke(took));
    }

    /// Records how long the leader of an event loop stood in line for a processor, and in how much
    /// time.
    pub(super) fn note_in_line(&self, in_line: Duration, elapsed: Duration) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.with_state(|state| state.patience.stood_in_line(nanos(in_line), nanos(elapsed)));
    }

    /// Waits for the last worker to end. Returns whether no worker and no task is left at the
    /// deadline.
    pub(super) fn join(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.ledger.workers() > 0 {
            let timed_out;
            (state, timed_out) = self.all_ended.wait_until(state, deadline);
            if timed_out {
                break;
            }
        }
        // Tasks without a worker are left only if the last attempt to start one has failed too.
        state.ledger.workers() == 0 && state.ledger.queued() == 0
    }

    /// Runs a closure under the lock.
    pub(super) fn with_state<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        debug_assert!(state.is_consistent());
        let queued = state.ledger.queued();
        // Written only when it changes. Most submissions find an idle worker, and the cache line
        // then stays shared among readers.
        if self.queued.load(Ordering::Relaxed) != queued {
            self.queued.store(queued, Ordering::Relaxed);
        }
        let is_short = queued > 0 && state.is_short();
        if self.is_short.load(Ordering::Relaxed) != is_short {
            self.is_short.store(is_short, Ordering::Relaxed);
        }
        result
    }

    pub(super) fn place(shared: &Arc<Self>, task: T, urgency: Urgency) -> Result<(), Refused<T>> {
        let now = shared.now();
        let placement = shared.with_state(|state| {
            let can_wait =
                shared.clock_start.is_some() && state.patience.waits(now, state.queue.len());
            let admission = state.ledger.admit(urgency, can_wait);
            state.apply(admission, task, urgency, now)
        });
        Self::carry_out(shared, placement, urgency)
    }

    /// Runs each task that has waited for too long on an idle or a new worker. Returns when the
    /// next task will be overdue.
    pub(super) fn run_overdue(shared: &Arc<Self>) -> Option<Duration> {
        // Costs one load if no task waits.
        while shared.queued_hint() > 0 && shared.clock_start.is_some() {
            let now = shared.now();
            match shared.with_state(|state| state.take_overdue(now)) {
                Overdue::Nothing => return None,
                Overdue::In(left) => return Some(Duration::from_nanos(left)),
                Overdue::Now(placement) => {
                    // A task that cannot be placed now is back in the queue. A worker will come for
                    // it.
                    if Self::carry_out(shared, placement, Urgency::Ordinary).is_err() {
                        return None;
                    }
                }
            }
        }
        None
    }

    fn carry_out(
        shared: &Arc<Self>,
        placement: Placement<T>,
        urgency: Urgency,
    ) -> Result<(), Refused<T>> {
        match placement {
            Placement::Spawn(number, task, accepted) => {
                let cell = Arc::new(Cell::new(Some(Assignment {
                    task: Some(task),
                    urgency,
                    woken_at: None,
                })));
                match Self::spawn(shared, number, &cell) {
                    Ok(_) => Ok(()),
                    Err(error) => Self::place_again(shared, &cell, accepted, urgency, error),
                }
            }
            placement => shared.conclude(placement, urgency),
        }
    }

    /// Decides again about the task in the cell, because no thread could be started for it.
    fn place_again(
        shared: &Arc<Self>,
        cell: &Cell<T>,
        accepted: Option<Accepted>,
        urgency: Urgency,
        error: io::Error,
    ) -> Result<(), Refused<T>> {
        let Some(task) = cell.take().and_then(|assignment| assignment.task) else {
            unreachable!("a thread that was not started took no task");
        };
        let now = shared.now();
        let (placement, rescue) = shared
            .with_state(|state| (state.spawn_failed(task, accepted, urgency, now), state.rescue()));
        Self::start_rescue(shared, rescue);
        shared.conclude(placement, urgency).map_err(|refused| Refused {
            task: refused.task,
            reason: RefusedBecause::CannotSpawn(error),
        })
    }

    fn conclude(&self, placement: Placement<T>, urgency: Urgency) -> Result<(), Refused<T>> {
        match placement {
            Placement::Wake(worker, task) => {
                let woken_at = self.clock_start.map(|_| self.now());
                worker.assign(Assignment { task: Some(task), urgency, woken_at });
                Ok(())
            }
            Placement::Queued => Ok(()),
            Placement::Refused(refused) => {
                self.totals.refused.fetch_add(1, Ordering::Relaxed);
                Err(refused)
            }
            Placement::Spawn(..) => unreachable!("a failed start is not retried"),
        }
    }

    /// Claims an idle or a new worker.
    pub(super) fn claim_worker(shared: &Arc<Self>) -> Option<WorkerHandle<T>> {
        let claim = shared.with_state(|state| {
            let admission = state.ledger.admit(Urgency::Urgent, false);
            state.claim(admission)
        });
        match claim {
            Claim::Idle(worker) => Some(worker),
            Claim::Spawn(number) => {
                let cell = Arc::new(Cell::new(None));
                if let Ok(thread) = Self::spawn(shared, number, &cell) {
                    return Some(WorkerHandle { cell, thread });
                }
                let (claim, rescue) = shared.with_state(|state| {
                    let admission = state.ledger.spawn_failed(Urgency::Urgent);
                    (state.claim(admission), state.rescue())
                });
                Self::start_rescue(shared, rescue);
                match claim {
                    Claim::Idle(worker) => Some(worker),
                    Claim::Spawn(_) | Claim::Unavailable => None,
                }
            }
            Claim::Unavailable => None,
        }
    }

    /// Starts a worker that the ledger has already counted.
    fn spawn(shared: &Arc<Self>, number: u64, cell: &Arc<Cell<T>>) -> io::Result<thread::Thread> {
        let name = format!("{}-{number}", shared.thread_name);
        let body = {
            let shared = Arc::clone(shared);
            let cell = Arc::clone(cell);
            Box::new(move || Self::work(&shared, &cell))
        };
        let started = (shared.spawner)(ThreadStart { name, stack_size: shared.stack_size, body });
        match &started {
            Ok(_) => _ = shared.totals.threads_started.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                shared.totals.spawn_failures.fetch_add(1, Ordering::Relaxed);
                if let Some(left_out) = shared.spawn_log.admit() {
                    tracing::warn!(
                        %error,
                        pool = shared.thread_name,
                        left_out,
                        "cannot start a thread"
                    );
                }
            }
        }
        started
    }

    pub(super) fn close(shared: &Arc<Self>) {
        let (idle, rescue) = shared.with_state(|state| {
            state.ledger.close();
            (std::mem::take(&mut state.idle), state.rescue())
        });
        for worker in idle {
            worker.assign(Assignment { task: None, urgency: Urgency::Ordinary, woken_at: None });
        }
        Self::start_rescue(shared, rescue);
    }

    /// Executes a [`State::rescue`].
    fn start_rescue(shared: &Arc<Self>, rescue: Rescue) {
        let is_last = match rescue {
            Rescue::NotNeeded { is_empty } => is_empty,
            Rescue::Spawn(number) => {
                let cell = Arc::new(Cell::new(Some(Assignment {
                    task: None,
                    urgency: Urgency::Ordinary,
                    woken_at: None,
                })));
                let is_alive = Self::spawn(shared, number, &cell).is_ok();
                !is_alive && shared.with_state(State::rescue_failed)
            }
        };
        shared.announce_end(is_last);
    }

    pub(super) fn announce_end(&self, is_last: bool) {
        if is_last {
            self.all_ended.notify_all();
        }
    }

    pub(super) fn metrics(&self) -> PoolMetrics {
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
