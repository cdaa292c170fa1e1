//! Threads for work that may block: as many as are needed, up to a limit.
//!
//! A [`Pool`] runs values of one type with one function; [`TaskPool`] runs closures. The pool does
//! not depend on what it runs. The `README.md` beside this file explains which thread changes which
//! count, and why no task and no wake-up is lost.

mod config;
mod ledger;
mod metrics;
mod patience;
mod refused;
mod reservation;
mod shared;
mod spawn;
mod state;
mod task_pool;
mod worker;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::time::{Duration, Instant};

pub use self::config::PoolConfig;
use self::ledger::Urgency;
pub use self::metrics::PoolMetrics;
pub use self::refused::PoolError;
#[allow(unused_imports, reason = "for callers that distinguish the reasons")]
pub(crate) use self::refused::{Refused, RefusedBecause};
pub(crate) use self::reservation::Reservation;
use self::shared::Shared;
use self::spawn::{Spawner, start_thread};
pub use self::task_pool::TaskPool;
use crate::sync::Arc;

/// A dynamic pool of threads that run tasks of one type. Clones are handles to the same pool.
///
/// The pool is closed when the last handle is dropped. A handle inside `run`, or inside a task that
/// never ends, keeps the pool open. Then [`Pool::close`] must be called.
pub(crate) struct Pool<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    _close_at_last: Arc<CloseOnDrop<T>>,
}

impl<T: Send + 'static> Pool<T> {
    /// Returns a pool that calls `run` with each task on one of its threads. Starts no thread.
    pub(crate) fn new(config: PoolConfig, run: impl Fn(T) + Send + Sync + 'static) -> Self {
        Self::with_spawner(config, Box::new(start_thread), run)
    }

    fn with_spawner(
        config: PoolConfig,
        spawner: Spawner,
        run: impl Fn(T) + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::new(config, spawner, Box::new(run)));
        let close_at_last = Arc::new(CloseOnDrop(Arc::clone(&shared)));
        Self { shared, _close_at_last: close_at_last }
    }

    /// Submits a task. It runs on an idle worker, on a new one, or after the tasks that already
    /// wait.
    ///
    /// # Errors
    ///
    /// Returns the task if the pool is full or closed, or if no thread can be started and no other
    /// worker would run it.
    pub(crate) fn submit(&self, task: T) -> Result<(), Refused<T>> {
        Shared::place(&self.shared, task, Urgency::Ordinary)
    }

    /// Submits a task that leads an event loop. It does not wait in the queue and may use the
    /// reserve.
    ///
    /// # Errors
    ///
    /// Returns the task if the reserve is used up, the pool is closed, or no thread can be started.
    pub(crate) fn submit_urgent(&self, task: T) -> Result<(), Refused<T>> {
        Shared::place(&self.shared, task, Urgency::Urgent)
    }

    /// Claims a worker for a later task, within the limits of urgent tasks.
    ///
    /// Use it if a thread must be available before a task is taken away from another thread.
    pub(crate) fn reserve(&self) -> Option<Reservation<T>> {
        let worker = Shared::claim_worker(&self.shared)?;
        Some(Reservation::new(worker))
    }

    /// Returns whether the pool is short of threads: tasks wait, and no thread is available for
    /// them. Costs one load, so that threads which could end their current work can check it often.
    pub(crate) fn is_short(&self) -> bool {
        self.shared.short_hint()
    }

    /// Returns whether tasks wait, or waited a moment ago. Costs one load.
    pub(crate) fn has_queued(&self) -> bool {
        self.shared.queued_hint() > 0
    }

    /// Runs tasks that have waited for too long. Returns when to check again, if a waiting task
    /// will be overdue then. For a [patient](PoolConfig::patient) pool. Costs one load if no task
    /// waits.
    pub(crate) fn run_overdue(&self) -> Option<Duration> {
        Shared::run_overdue(&self.shared)
    }

    /// Tells a [patient](PoolConfig::patient) pool how long a leader stood in line for a processor,
    /// and in how much time.
    pub(crate) fn note_in_line(&self, in_line: Duration, elapsed: Duration) {
        self.shared.note_in_line(in_line, elapsed);
    }

    /// Returns the metrics of the pool. Holds the lock for a few loads.
    pub(crate) fn metrics(&self) -> PoolMetrics {
        self.shared.metrics()
    }

    /// Refuses tasks from now on. Queued tasks still run, idle workers end, and busy workers end
    /// after their task.
    pub(crate) fn close(&self) {
        Shared::close(&self.shared);
    }

    /// Waits until no worker is left. Returns whether that happened before the deadline.
    ///
    /// Call it only after [`Pool::close`], and not on a worker of this pool, which would wait for
    /// itself.
    pub(crate) fn join(&self, deadline: Instant) -> bool {
        self.shared.join(deadline)
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
            .field("name", &self.shared.name())
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

/// Exists as long as there is a handle. Workers hold only [`Shared`], because an unused pool must
/// be able to end.
struct CloseOnDrop<T: Send + 'static>(Arc<Shared<T>>);

impl<T: Send + 'static> Drop for CloseOnDrop<T> {
    fn drop(&mut self) {
        Shared::close(&self.0);
    }
}
