//! A line of tasks of one kind: a few run at once, the others wait in order.

use std::collections::VecDeque;
use std::fmt;

use parking_lot::Mutex;

/// The tasks that run, and those that wait.
pub(crate) struct Line<T> {
    state: Mutex<State<T>>,
    running_max: usize,
    waiting_max: usize,
}

struct State<T> {
    running: usize,
    waiting: VecDeque<T>,
}

/// What becomes of a task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered<T> {
    /// Run it now, then call [`Line::next`].
    Run(T),
    Waiting,
    /// Too many wait already.
    Refused(T),
}

impl<T> Line<T> {
    /// Returns a line in which at least one task runs.
    pub(crate) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            state: Mutex::new(State { running: 0, waiting: VecDeque::new() }),
            running_max: running_max.max(1),
            waiting_max,
        }
    }

    pub(crate) fn enter(&self, task: T) -> Entered<T> {
        let mut state = self.state.lock();
        if state.running < self.running_max {
            state.running += 1;
            Entered::Run(task)
        } else if state.waiting.len() < self.waiting_max {
            state.waiting.push_back(task);
            Entered::Waiting
        } else {
            Entered::Refused(task)
        }
    }

    /// Ends a task that ran. Returns the next one, which takes its place.
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.running -= 1;
        }
        next
    }

    /// Takes all that wait.
    pub(crate) fn close(&self) -> VecDeque<T> {
        std::mem::take(&mut self.state.lock().waiting)
    }
}

impl<T> fmt::Debug for Line<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("running_max", &self.running_max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_maximum_run_and_the_others_follow_in_order() {
        let line = Line::new(2, 10);
        assert_eq!(line.enter(1), Entered::Run(1));
        assert_eq!(line.enter(2), Entered::Run(2));
        assert_eq!(line.enter(3), Entered::Waiting);
        assert_eq!(line.enter(4), Entered::Waiting);
        assert_eq!(line.next(), Some(3));
        assert_eq!(line.next(), Some(4));
        assert_eq!(line.next(), None);
        assert_eq!(line.enter(5), Entered::Run(5));
        assert_eq!(line.enter(6), Entered::Waiting);
    }

    #[test]
    fn the_queue_is_bounded() {
        let line = Line::new(0, 3);
        assert_eq!(line.enter(0), Entered::Run(0));
        for number in 1..4 {
            assert_eq!(line.enter(number), Entered::Waiting);
        }
        assert_eq!(line.enter(7), Entered::Refused(7));
        assert_eq!(line.close(), [1, 2, 3]);
    }
}
