//! A pool for closures, for users of the crate.

use std::time::{Duration, Instant};

use super::{Pool, PoolConfig, PoolError, PoolMetrics};

type Task = Box<dyn FnOnce() + Send>;

/// A dynamic pool of threads that run closures.
///
/// The pool starts a thread when a task arrives and no thread is idle, up to a limit. Beyond the
/// limit tasks wait in a bounded queue. When the queue is full, tasks are refused. Threads that
/// stay idle end. A panic of a task is logged and counted, and its thread continues.
///
/// Clones are handles to the same pool. When the last handle is dropped, the pool refuses new
/// tasks, runs the queued ones, and ends its threads. [`TaskPool::shutdown`] also waits for that.
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
    /// Returns a pool with the default settings. A thread is started when there is a task for it.
    pub fn new() -> Self {
        Self::with_config(PoolConfig::default())
    }

    /// Returns the default settings of a pool, which can be changed and built.
    pub fn builder() -> PoolConfig {
        PoolConfig::default()
    }

    pub(super) fn with_config(config: PoolConfig) -> Self {
        Self(Pool::new(config, |task: Task| task()))
    }

    /// Runs a closure on a thread of the pool. Never blocks.
    ///
    /// A task may execute further tasks but should not wait for them: if all threads wait, no
    /// thread runs them.
    ///
    /// # Errors
    ///
    /// If the pool is [full](PoolError::is_full) or [shut down](PoolError::is_closed), or if the
    /// system does not let the pool start a thread and no other thread would run the closure. The
    /// closure is dropped.
    pub fn execute(&self, task: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        self.0.submit(Box::new(task)).map_err(|refused| refused.reason.into())
    }

    /// Returns the metrics of the pool.
    pub fn metrics(&self) -> PoolMetrics {
        self.0.metrics()
    }

    /// Refuses new tasks and waits until all accepted tasks have run. Returns whether that happened
    /// in time.
    ///
    /// Tasks that still run afterwards continue; none is interrupted. Do not call it on a thread of
    /// the pool, which would wait for itself.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        self.0.close();
        let now = Instant::now();
        // An `Instant` cannot represent every timeout. A century stands for longer ones.
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
