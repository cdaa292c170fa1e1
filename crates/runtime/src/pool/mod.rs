//! Threads for work that may block: as many as needed, up to a limit.
//!
//! A [`Pool`] runs values of one type with one function; [`TaskPool`] runs closures. The pool knows
//! nothing of what it runs. The `README.md` beside this file tells who changes which count and why
//! no task and no wake-up is lost.

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
#[allow(unused_imports, reason = "for those who tell the reasons apart")]
pub(crate) use self::refused::{Refused, RefusedBecause};
pub(crate) use self::reservation::Reservation;
use self::shared::Shared;
use self::spawn::{Spawner, start_thread};
pub use self::task_pool::TaskPool;
use crate::sync::Arc;

/// A dynamic pool of threads that run tasks of one type. Clones are handles to the same pool.
///
/// The pool is closed when the last handle is dropped. A handle within `run`, or within a task that
/// never ends, keeps it open: then someone must call [`Pool::close`].
pub(crate) struct Pool<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    _close_at_last: Arc<CloseOnDrop<T>>,
}

impl<T: Send + 'static> Pool<T> {
    /// Returns a pool that gives each task to `run`, on a thread of its own choice. No thread is
    /// started yet.
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

    /// Has a task run: by an idle worker, by a new one, or after the tasks that wait already.
    ///
    /// # Errors
    ///
    /// Gives the task back when the pool is full or closed, or when no thread can be started and
    /// nobody else would run it.
    pub(crate) fn submit(&self, task: T) -> Result<(), Refused<T>> {
        Shared::place(&self.shared, task, Urgency::Ordinary)
    }

    /// Has a task run that leads an event loop: it does not wait in the queue and may use the
    /// reserve.
    ///
    /// # Errors
    ///
    /// Gives the task back when the reserve is used up, the pool closed, or no thread can be
    /// started.
    pub(crate) fn submit_urgent(&self, task: T) -> Result<(), Refused<T>> {
        Shared::place(&self.shared, task, Urgency::Urgent)
    }

    /// Claims a worker for a task that will follow, within the limits of urgent tasks.
    ///
    /// For whoever must know that there is a thread before it takes something away from another
    /// one.
    pub(crate) fn reserve(&self) -> Option<Reservation<T>> {
        let seat = Shared::claim_seat(&self.shared)?;
        Some(Reservation::new(seat))
    }

    /// Whether tasks wait for which there is no thread to be had. One load, for those who hold a
    /// thread and could give it back.
    pub(crate) fn is_anyone_waiting(&self) -> bool {
        self.shared.short_hint()
    }

    /// Has tasks run that have waited for too long. Returns when to look again, if tasks wait that
    /// will have then. For a [patient](PoolConfig::patient) pool; one load if nothing waits.
    pub(crate) fn nudge(&self) -> Option<Duration> {
        Shared::nudge(&self.shared)
    }

    /// Returns what the pool counts about itself. Takes the lock for a few loads.
    pub(crate) fn metrics(&self) -> PoolMetrics {
        self.shared.metrics()
    }

    /// Takes no more tasks. Those in the queue still run, idle workers end, busy ones end after
    /// their task.
    pub(crate) fn close(&self) {
        Shared::close(&self.shared);
    }

    /// Waits until no worker is left and returns whether that came true before the deadline.
    ///
    /// Only of use after [`Pool::close`], and not on a worker of this pool, which would wait for
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

/// Lives as long as there is a handle. Workers hold [`Shared`] only: an unused pool must be able to
/// end.
struct CloseOnDrop<T: Send + 'static>(Arc<Shared<T>>);

impl<T: Send + 'static> Drop for CloseOnDrop<T> {
    fn drop(&mut self) {
        Shared::close(&self.0);
    }
}
