//! A pool for closures, for the users of the crate.

use std::time::{Duration, Instant};

use super::{Pool, PoolConfig, PoolError, PoolMetrics};

type Task = Box<dyn FnOnce() + Send>;

/// A dynamic pool of threads that run closures.
///
/// It starts a thread when a task comes and no thread is idle, up to a limit; beyond it tasks wait
/// in a bounded queue, and beyond that they are refused. Threads that stay idle end. A task that
/// panics is logged and counted; its thread lives on.
///
/// Clones are handles to the same pool. When the last one is dropped the pool takes no more tasks,
/// finishes those it has, and its threads end; [`TaskPool::shutdown`] also waits for that.
///
/// ```
/// use filoplume_runtime::TaskPool;
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let pool = TaskPool::new();
/// let (sender, receiver) = mpsc::channel();
/// for number in 1..=4_u64 {
///     let sender = sender.clone();
///     pool.execute(move || sender.send(number * number).unwrap())?;
/// }
/// drop(sender);
/// assert_eq!(receiver.iter().sum::<u64>(), 30);
/// assert!(pool.shutdown(Duration::from_secs(10)));
/// # Ok::<(), filoplume_runtime::PoolError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TaskPool(Pool<Task>);

impl TaskPool {
    /// Returns a pool with the default settings. No thread is started before there is a task for
    /// it.
    pub fn new() -> Self {
        Self::with_config(PoolConfig::default())
    }

    /// Returns the settings of a pool, to be changed and then built.
    pub fn builder() -> PoolConfig {
        PoolConfig::default()
    }

    pub(super) fn with_config(config: PoolConfig) -> Self {
        Self(Pool::new(config, |task: Task| task()))
    }

    /// Has a closure run on a thread of the pool. Does not wait for it, nor for room.
    ///
    /// A task may execute further tasks, but should not wait for them: when all threads do so,
    /// nobody runs them.
    ///
    /// # Errors
    ///
    /// The closure is dropped when the pool is [full](PoolError::is_full) or [shut
    /// down](PoolError::is_closed), or when the system does not let the pool start a thread and no
    /// other one would run it.
    pub fn execute(&self, task: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        self.0.submit(Box::new(task)).map_err(|refused| refused.reason.into())
    }

    /// Returns what the pool counts about itself.
    pub fn metrics(&self) -> PoolMetrics {
        self.0.metrics()
    }

    /// Takes no more tasks, waits until all that were taken have run, and returns whether they have
    /// in time.
    ///
    /// Tasks that are still at work afterwards go on; nothing is cut off. Not to be called by a
    /// task of the pool, which would wait for itself.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        self.0.close();
        let now = Instant::now();
        // A timeout beyond what the clock can say is as good as a century.
        let deadline = now.checked_add(timeout).unwrap_or(now + CENTURY);
        self.0.join(deadline)
    }
}

const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl Default for TaskPool {
    fn default() -> Self {
        Self::new()
    }
}
