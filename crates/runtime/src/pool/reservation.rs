//! A worker that was claimed before there was a task for it.

use std::fmt;

use super::ledger::Urgency;
use super::worker::{Assignment, Seat};

/// A worker that waits for one task. Dropped unused, the worker goes back to the pool.
#[must_use = "a dropped reservation wakes its worker for nothing"]
pub(crate) struct Reservation<T> {
    /// `None` only once the worker was handed a task, so that the drop does not hand over again.
    seat: Option<Seat<T>>,
}

impl<T> Reservation<T> {
    pub(super) const fn new(seat: Seat<T>) -> Self {
        Self { seat: Some(seat) }
    }

    /// Hands the task over. It runs even if the pool was closed since.
    pub(crate) fn run(mut self, task: T) {
        self.hand_over(Some(task));
    }

    fn hand_over(&mut self, task: Option<T>) {
        if let Some(seat) = self.seat.take() {
            seat.assign(Assignment { task, urgency: Urgency::Urgent, woken_at: None });
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
