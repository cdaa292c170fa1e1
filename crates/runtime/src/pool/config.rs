//! The settings of a pool: its size and its timeouts.

use std::time::Duration;

use super::TaskPool;
use super::ledger::Limits;

/// Blocking handlers wait for a database or a disk, not for a processor. 512 of them cover about 10
/// ms of waiting at 50,000 requests per second, cost a few MiB of touched stack, and stay far below
/// the usual limits of a process.
pub(crate) const THREADS_MAX: usize = 512;

/// Two tasks for each thread at the limit. With 10 ms per task the last one waits for 20 ms. Tasks
/// beyond that are better refused.
pub(crate) const QUEUE_CAPACITY: usize = 1024;

/// Long enough that a load which arrives every second or so keeps its threads. Short enough that
/// the threads of a peak end soon.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of a [`TaskPool`].
///
/// ```
/// use filoplume_runtime::TaskPool;
/// use std::time::Duration;
///
/// let pool = TaskPool::builder()
///     .thread_name("thumbnails")
///     .threads_max(8)
///     .queue_capacity(100)
///     .idle_timeout(Duration::from_secs(1))
///     .build();
/// # assert!(pool.shutdown(Duration::from_secs(10)));
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until a pool is built from them"]
pub struct PoolConfig {
    pub(super) thread_name: String,
    pub(super) threads_min: usize,
    pub(super) threads_max: usize,
    pub(super) urgent_reserve: usize,
    pub(super) queue_capacity: usize,
    pub(super) idle_timeout: Duration,
    pub(super) stack_size: Option<usize>,
    pub(super) is_patient: bool,
}

impl PoolConfig {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the threads `{name}-1`, `{name}-2`, and so on. Linux shows the first 15 bytes.
    /// Default: `"task-pool"`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        // A NUL in the name of a thread makes std panic when the thread is started, far from the
        // code that chose the name.
        self.thread_name = name.into().replace('\0', "");
        self
    }

    /// Keeps this many threads for ever once they are started. Default: none, so an unused pool has
    /// no thread.
    pub fn threads_min(mut self, threads: usize) -> Self {
        self.threads_min = threads;
        self
    }

    /// Limits the number of threads. The minimum is 1. Default: 512.
    pub fn threads_max(mut self, threads: usize) -> Self {
        self.threads_max = threads.max(1);
        self
    }

    /// Limits the number of tasks that wait while all threads are busy. With 0 no task waits.
    /// Default: 1024.
    pub fn queue_capacity(mut self, tasks: usize) -> Self {
        self.queue_capacity = tasks;
        self
    }

    /// Ends a thread that was idle for this long. Default: 10 seconds.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets the stack size of each thread in bytes. Default: that of `std` (2 MiB, or
    /// `RUST_MIN_STACK`).
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Allows urgent tasks this many threads beyond `threads_max`.
    #[allow(dead_code, reason = "only the engine has urgent tasks")]
    pub(crate) fn urgent_reserve(mut self, threads: usize) -> Self {
        self.urgent_reserve = threads;
        self
    }

    /// Lets tasks wait for workers that will soon finish, as long as another worker would take to
    /// wake up. [`Pool::run_overdue`](super::Pool::run_overdue) must then be called regularly,
    /// because workers may take longer than expected.
    #[allow(dead_code, reason = "only the engine calls `run_overdue`")]
    pub(crate) fn patient(mut self) -> Self {
        self.is_patient = true;
        self
    }

    /// Returns a pool with these settings. A thread is started when there is a task for it.
    pub fn build(self) -> TaskPool {
        TaskPool::with_config(self)
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            // More threads cannot be kept than may be started.
            threads_min: self.threads_min.min(self.threads_max),
            threads_max: self.threads_max,
            urgent_reserve: self.urgent_reserve,
            queue_capacity: self.queue_capacity,
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            thread_name: "task-pool".to_owned(),
            threads_min: 0,
            threads_max: THREADS_MAX,
            urgent_reserve: 0,
            queue_capacity: QUEUE_CAPACITY,
            idle_timeout: IDLE_TIMEOUT,
            stack_size: None,
            is_patient: false,
        }
    }
}
