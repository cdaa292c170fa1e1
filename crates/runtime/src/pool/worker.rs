//! A worker: its handle, the cell for its tasks, and its life.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::ledger::{Next, Urgency};
use super::shared::Shared;
use super::state::State;
use crate::sync::{self, Arc, Mutex, thread};

/// The task for which a worker was claimed.
#[derive(Debug)]
pub(super) struct Assignment<T> {
    /// `None` if the worker must only check the ledger again, because the pool was closed or a
    /// reservation dropped.
    pub(super) task: Option<T>,
    pub(super) urgency: Urgency,
    /// When the worker was woken for it, if that is measured.
    pub(super) woken_at: Option<u64>,
}

/// The place where an assignment is left for one worker.
///
/// The mutex is practically never contended. The worker checks it before it sleeps and after it was
/// woken, and only the one thread that claimed the worker writes.
#[derive(Debug)]
pub(super) struct Cell<T>(Mutex<Option<Assignment<T>>>);

impl<T> Cell<T> {
    pub(super) fn new(assignment: Option<Assignment<T>>) -> Self {
        Self(Mutex::new(assignment))
    }

    pub(super) fn take(&self) -> Option<Assignment<T>> {
        self.0.lock().take()
    }
}

/// A handle to one worker. The thread that takes it from the idle stack has claimed the worker.
#[derive(Debug)]
pub(super) struct WorkerHandle<T> {
    pub(super) cell: Arc<Cell<T>>,
    pub(super) thread: thread::Thread,
}

impl<T> WorkerHandle<T> {
    /// Passes an assignment to the claimed worker and wakes it.
    pub(super) fn assign(self, assignment: Assignment<T>) {
        let previous = self.cell.0.lock().replace(assignment);
        debug_assert!(previous.is_none(), "a worker is claimed once");
        self.thread.unpark();
    }

    pub(super) fn has_cell(&self, cell: &Arc<Cell<T>>) -> bool {
        Arc::ptr_eq(&self.cell, cell)
    }
}

/// What a worker does next.
enum Step<T> {
    Run(Assignment<T>),
    Rest {
        /// Whether it retires when it is not needed for long enough. Otherwise it sleeps without a
        /// deadline.
        may_expire: bool,
    },
    End,
}

impl<T: Send + 'static> Shared<T> {
    /// Runs the whole life of a worker.
    pub(super) fn work(shared: &Arc<Self>, cell: &Arc<Cell<T>>) {
        // The first assignment is already in the cell. If the worker was started for a reservation,
        // it will arrive later.
        let mut step = Step::Rest { may_expire: false };
        loop {
            step = match step {
                Step::Run(assignment) => {
                    if let Some(woken_at) = assignment.woken_at {
                        shared.note_wake(woken_at);
                    }
                    if let Some(task) = assignment.task {
                        shared.run_caught(task);
                    }
                    let next = shared.finish(cell, assignment.urgency);
                    // More tasks may wait than this worker can run. Other workers are woken for
                    // them.
                    Self::run_overdue(shared);
                    next
                }
                Step::Rest { may_expire } => shared.rest(cell, may_expire),
                Step::End => return,
            };
        }
    }

    fn run_caught(&self, task: T) {
        self.totals.tasks_started.fetch_add(1, Ordering::Relaxed);
        let Err(payload) = catch_unwind(AssertUnwindSafe(|| (self.run)(task))) else {
            return;
        };
        self.totals.panics.fetch_add(1, Ordering::Relaxed);
        // This may panic too: in a subscriber, or in the drop of the payload. A worker that unwound
        // here would be counted for ever.
        let mut outcome = catch_unwind(AssertUnwindSafe(|| {
            tracing::error!(pool = self.name(), panic = message_of(&*payload), "a task panicked");
            drop(payload);
        }));
        while let Err(payload) = outcome {
            outcome = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        }
    }

    /// Asks the ledger for a decision, and executes it.
    fn finish(&self, cell: &Arc<Cell<T>>, urgency: Urgency) -> Step<T> {
        let now = self.now();
        let (step, is_last) = self.with_state(|state| {
            // The next task that needs a thread will try again to start one.
            state.cannot_spawn &= state.ledger.queued() > 0;
            if urgency == Urgency::Ordinary {
                state.patience.returned(now);
            }
            match state.ledger.finished(urgency) {
                Next::TakeQueued => (take_queued(state), false),
                Next::Idle => {
                    state
                        .idle
                        .push(WorkerHandle { cell: Arc::clone(cell), thread: thread::current() });
                    (Step::Rest { may_expire: state.ledger.may_expire() }, false)
                }
                Next::Retire => (Step::End, state.retired()),
            }
        });
        self.announce_end(is_last);
        step
    }

    fn rest(&self, cell: &Arc<Cell<T>>, may_expire: bool) -> Step<T> {
        // Also `None` if an `Instant` cannot represent the timeout.
        let deadline =
            if may_expire { Instant::now().checked_add(self.idle_timeout) } else { None };
        loop {
            if let Some(assignment) = cell.take() {
                return Step::Run(assignment);
            }
            // Parking may end early, because of a late `unpark` for the last assignment, or one
            // that a task has left behind.
            match deadline {
                None => thread::park(),
                Some(deadline) if sync::has_passed(deadline) => return self.expire(cell),
                Some(deadline) => sync::park_until(deadline),
            }
        }
    }

    /// Handles the idle timeout. The worker may end unless it was claimed or is one of those that
    /// stay.
    fn expire(&self, cell: &Arc<Cell<T>>) -> Step<T> {
        let (step, is_last) = self.with_state(|state| {
            // The oldest worker is at the bottom and expires first, so it is found at once.
            let Some(position) = state.idle.iter().position(|worker| worker.has_cell(cell)) else {
                // The worker is claimed: an assignment will arrive and must not be missed.
                return (Step::Rest { may_expire: false }, false);
            };
            let Some(next) = state.ledger.idle_expired() else {
                return (Step::Rest { may_expire: false }, false);
            };
            state.idle.remove(position);
            if next == Next::TakeQueued {
                return (take_queued(state), false);
            }
            (Step::End, state.retired())
        });
        self.announce_end(is_last);
        step
    }
}

/// Takes the oldest queued task, which the ledger no longer counts.
fn take_queued<T>(state: &mut State<T>) -> Step<T> {
    let task = state.queue.pop_front().map(|queued| queued.task);
    debug_assert!(task.is_some(), "the ledger counts the queue");
    Step::Run(Assignment { task, urgency: Urgency::Ordinary, woken_at: None })
}

fn message_of(payload: &(dyn Any + Send)) -> &str {
    if let Some(message) = payload.downcast_ref::<&str>() {
        return message;
    }
    payload.downcast_ref::<String>().map_or("(not a string)", String::as_str)
}
