//! A worker: its seat, where tasks are handed to it, and its life.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::ledger::{Next, Urgency};
use super::shared::Shared;
use super::state::State;
use crate::sync::{self, Arc, Mutex, thread};

/// What a worker was claimed for.
#[derive(Debug)]
pub(super) struct Assignment<T> {
    /// Nothing, if it is only to look at the ledger again: the pool was closed, or a reservation
    /// dropped.
    pub(super) task: Option<T>,
    pub(super) urgency: Urgency,
    /// When the worker was woken for it, if that is of interest.
    pub(super) woken_at: Option<u64>,
}

/// Where an assignment is left for one worker.
///
/// The mutex is never contended in practice: the worker looks before it sleeps and after it was
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

/// How to reach one worker. Whoever holds the one that was on the idle stack has claimed the
/// worker.
#[derive(Debug)]
pub(super) struct Seat<T> {
    pub(super) cell: Arc<Cell<T>>,
    pub(super) thread: thread::Thread,
}

impl<T> Seat<T> {
    /// Hands an assignment over to the worker, which must have been claimed, and wakes it.
    pub(super) fn assign(self, assignment: Assignment<T>) {
        let previous = self.cell.0.lock().replace(assignment);
        debug_assert!(previous.is_none(), "a worker is claimed once");
        self.thread.unpark();
    }

    pub(super) fn is_of(&self, cell: &Arc<Cell<T>>) -> bool {
        Arc::ptr_eq(&self.cell, cell)
    }
}

/// What a worker does now.
enum Step<T> {
    Run(Assignment<T>),
    Rest {
        /// Whether it retires when nobody needs it for long enough. It sleeps without a deadline
        /// otherwise.
        may_expire: bool,
    },
    End,
}

impl<T: Send + 'static> Shared<T> {
    /// The whole life of a worker.
    pub(super) fn work(shared: &Arc<Self>, cell: &Arc<Cell<T>>) {
        // The first assignment lies in the cell already, or is on its way if the worker was started
        // for a reservation.
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
                    // There is more to do than this worker can: whoever could help does so.
                    Self::nudge(shared);
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
        // Caught as well, since a subscriber may panic, and so may the drop of a payload: a worker
        // that unwound here would be counted for ever.
        let mut outcome = catch_unwind(AssertUnwindSafe(|| {
            tracing::error!(pool = self.name(), panic = message_of(&*payload), "a task panicked");
            drop(payload);
        }));
        while let Err(payload) = outcome {
            outcome = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        }
    }

    /// One decision of the ledger, acted upon.
    fn finish(&self, cell: &Arc<Cell<T>>, urgency: Urgency) -> Step<T> {
        let now = self.now();
        let (step, is_last) = self.with_state(|state| {
            // Whether one can be started by now is tried with the next task that asks for it.
            state.cannot_spawn &= state.ledger.queued() > 0;
            if urgency == Urgency::Ordinary {
                state.patience.returned(now);
            }
            match state.ledger.finished(urgency) {
                Next::TakeQueued => (take_queued(state), false),
                Next::Idle => {
                    state.idle.push(Seat { cell: Arc::clone(cell), thread: thread::current() });
                    (Step::Rest { may_expire: state.ledger.may_expire() }, false)
                }
                Next::Retire => (Step::End, state.retired()),
            }
        });
        self.announce_end(is_last);
        step
    }

    fn rest(&self, cell: &Arc<Cell<T>>, may_expire: bool) -> Step<T> {
        // `None` also when the timeout is beyond what the clock can say.
        let deadline =
            if may_expire { Instant::now().checked_add(self.idle_timeout) } else { None };
        loop {
            if let Some(assignment) = cell.take() {
                return Step::Run(assignment);
            }
            // Parking may end early: a late `unpark` of the last assignment, or one that a task has
            // left behind.
            match deadline {
                None => thread::park(),
                Some(deadline) if sync::has_passed(deadline) => return self.expire(cell),
                Some(deadline) => sync::park_until(deadline),
            }
        }
    }

    /// Nobody needed this worker in time. It may go, unless it has been claimed or is one of those
    /// that stay.
    fn expire(&self, cell: &Arc<Cell<T>>) -> Step<T> {
        let (step, is_last) = self.with_state(|state| {
            // The oldest lies at the bottom and is the first to expire, so it is found at once.
            let Some(position) = state.idle.iter().position(|seat| seat.is_of(cell)) else {
                // Claimed: an assignment is on its way, and must not be missed.
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

/// The oldest task in the queue, which the ledger no longer counts.
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
