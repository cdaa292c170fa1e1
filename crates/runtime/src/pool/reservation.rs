//! A worker that is claimed before there is a task for it.

use std::fmt;

use super::ledger::Urgency;
use super::worker::{Assignment, WorkerHandle};

/// A worker that waits for one task. If the reservation is dropped, the worker returns to the pool.
#[must_use = "a dropped reservation wakes its worker without a task"]
pub(crate) struct Reservation<T> {
    /// `None` once the worker has its task, so that the drop does not assign another one.
    worker: Option<WorkerHandle<T>>,
}

impl<T> Reservation<T> {
    pub(super) const fn new(worker: WorkerHandle<T>) -> Self {
        Self { worker: Some(worker) }
    }

    /// Assigns the task. It runs even if the pool was closed meanwhile.
    pub(crate) fn run(mut self, task: T) {
        self.hand_over(Some(task));
    }

    fn hand_over(&mut self, task: Option<T>) {
        if let Some(worker) = self.worker.take() {
            worker.assign(Assignment { task, urgency: Urgency::Urgent, woken_at: None });
        }
    }
}

impl<T> Drop for Reservation<T> {
    fn drop(&mut self) {
        self.hand_over(None);
    }
}

impl<T> fmt::Debug for Reservation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}
