//! The metrics of a pool.

// Counters order nothing, so loom need not model them.
use std::sync::atomic::AtomicU64;

/// A snapshot of a pool. The first three values are from the same instant.
///
/// ```
/// use filoplume_runtime::TaskPool;
/// use std::time::Duration;
///
/// let pool = TaskPool::new();
/// pool.execute(|| ())?;
/// assert!(pool.shutdown(Duration::from_secs(10)));
/// let metrics = pool.metrics();
/// assert_eq!((metrics.tasks_started, metrics.panics), (1, 0));
/// # Ok::<(), filoplume_runtime::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolMetrics {
    /// Threads that exist now: idle, busy, or being started.
    pub threads: usize,
    /// Threads that wait for a task.
    pub idle: usize,
    /// Tasks that wait for a thread.
    pub queued: usize,
    /// The maximum of threads that existed at once.
    pub threads_peak: usize,
    /// Tasks that a thread has begun to run.
    pub tasks_started: u64,
    /// Tasks that were refused, for any reason.
    pub refused: u64,
    /// Tasks that ended with a panic.
    pub panics: u64,
    /// Threads that the system refused to start.
    pub spawn_failures: u64,
    /// Threads that were started.
    pub threads_started: u64,
    /// Threads that have ended.
    pub threads_retired: u64,
}

/// Counters that only grow and are not kept under the lock.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) tasks_started: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) spawn_failures: AtomicU64,
    pub(super) threads_started: AtomicU64,
}
