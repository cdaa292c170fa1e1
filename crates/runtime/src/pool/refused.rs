//! The reasons for which a task is refused.

use std::{error, fmt, io};

/// A task that the pool refused.
pub(crate) struct Refused<T> {
    pub(crate) task: T,
    pub(crate) reason: RefusedBecause,
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("reason", &self.reason).finish_non_exhaustive()
    }
}

/// The reason why the pool refused a task.
#[derive(Debug)]
pub(crate) enum RefusedBecause {
    /// All threads are busy and the queue is full.
    Full,
    /// The pool is closed.
    Closed,
    /// The system refused to start a thread, and no other thread would run the task.
    CannotSpawn(io::Error),
}

/// The reason why a [`TaskPool`](super::TaskPool) refused a task. The task did not run and will
/// not.
///
/// ```
/// use filoplume_runtime::TaskPool;
/// use std::time::Duration;
///
/// let pool = TaskPool::new();
/// assert!(pool.shutdown(Duration::from_secs(10)));
/// let error = pool.execute(|| println!("too late")).expect_err("the pool is shut down");
/// assert!(error.is_closed() && !error.is_full());
/// ```
#[derive(Debug)]
pub struct PoolError(RefusedBecause);

impl PoolError {
    /// Returns whether all threads were busy and the queue was full. There may be room later.
    pub const fn is_full(&self) -> bool {
        matches!(self.0, RefusedBecause::Full)
    }

    /// Returns whether the pool was shut down.
    pub const fn is_closed(&self) -> bool {
        matches!(self.0, RefusedBecause::Closed)
    }
}

impl From<RefusedBecause> for PoolError {
    fn from(reason: RefusedBecause) -> Self {
        Self(reason)
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            RefusedBecause::Full => "all threads of the pool are busy and its queue is full",
            RefusedBecause::Closed => "the pool is shut down",
            RefusedBecause::CannotSpawn(_) => "cannot start a thread for the pool",
        })
    }
}

impl error::Error for PoolError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.0 {
            RefusedBecause::CannotSpawn(error) => Some(error),
            RefusedBecause::Full | RefusedBecause::Closed => None,
        }
    }
}
