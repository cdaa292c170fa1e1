//! A line of tasks of one kind: a few run at once, the others wait. Clients take turns.

use std::fmt;

use parking_lot::Mutex;

use crate::budget::clients::ClientId;
use crate::budget::fair_queue::FairQueue;

/// The tasks that run, and those that wait.
pub(crate) struct Line<T> {
    state: Mutex<State<T>>,
    running_max: usize,
    waiting_max: usize,
}

struct State<T> {
    running: usize,
    waiting: FairQueue<T>,
}

/// What becomes of a task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered<T> {
    /// Run it now, then call [`Line::next`].
    Run(T),
    Waiting,
    /// It waits, and this task of a client with more tasks is refused instead.
    Replaced(T),
    /// Too many wait already.
    Refused(T),
}

impl<T> Line<T> {
    /// Returns a line in which at least one task runs.
    pub(crate) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            state: Mutex::new(State { running: 0, waiting: FairQueue::new() }),
            running_max: running_max.max(1),
            waiting_max,
        }
    }

    /// Decides whether a task of this client runs, waits or is refused. `None` is a client that is
    /// not counted.
    pub(crate) fn enter(&self, client: Option<ClientId>, task: T) -> Entered<T> {
        let mut state = self.state.lock();
        if state.running < self.running_max {
            state.running += 1;
            return Entered::Run(task);
        }
        let waiting = &mut state.waiting;
        if waiting.len() < self.waiting_max {
            waiting.push(client, task);
            return Entered::Waiting;
        }
        // A task is evicted only if its client has more tasks than this client would then have.
        let is_modest = waiting.len_of(client) + 1 < waiting.depth();
        let Some(evicted) = is_modest.then(|| waiting.evict(|_| true)).flatten() else {
            return Entered::Refused(task);
        };
        waiting.push(client, task);
        Entered::Replaced(evicted)
    }

    /// Ends a task that ran. Returns the next one, which takes its place.
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        let next = state.waiting.pop();
        if next.is_none() {
            state.running -= 1;
        }
        next
    }

    /// Removes all tasks that wait.
    pub(crate) fn close(&self) -> Vec<T> {
        self.state.lock().waiting.clear()
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

    fn client(number: u8) -> Option<ClientId> {
        Some(ClientId::V4([192, 0, 2, number].into()))
    }

    #[test]
    fn no_more_than_the_maximum_run_and_the_others_follow_in_order() {
        let line = Line::new(2, 10);
        assert_eq!(line.enter(None, 1), Entered::Run(1));
        assert_eq!(line.enter(None, 2), Entered::Run(2));
        assert_eq!(line.enter(None, 3), Entered::Waiting);
        assert_eq!(line.enter(None, 4), Entered::Waiting);
        assert_eq!(line.next(), Some(3));
        assert_eq!(line.next(), Some(4));
        assert_eq!(line.next(), None);
        assert_eq!(line.enter(None, 5), Entered::Run(5));
        assert_eq!(line.enter(None, 6), Entered::Waiting);
    }

    #[test]
    fn the_queue_is_bounded() {
        for client in [None, client(1)] {
            let line = Line::new(0, 3);
            assert_eq!(line.enter(client, 0), Entered::Run(0));
            for number in 1..4 {
                assert_eq!(line.enter(client, number), Entered::Waiting);
            }
            assert_eq!(line.enter(client, 7), Entered::Refused(7));
            assert_eq!(line.close(), [1, 2, 3]);
        }
    }

    #[test]
    fn a_task_of_another_client_comes_before_the_backlog_of_a_greedy_one() {
        let line = Line::new(1, 100);
        assert_eq!(line.enter(client(1), 10), Entered::Run(10));
        for number in 11..15 {
            assert_eq!(line.enter(client(1), number), Entered::Waiting);
        }
        assert_eq!(line.enter(client(2), 20), Entered::Waiting);
        assert_eq!(line.enter(None, 30), Entered::Waiting);
        let served: Vec<i32> = std::iter::from_fn(|| line.next()).collect();
        assert_eq!(served, [11, 20, 30, 12, 13, 14]);
    }

    #[test]
    fn the_greediest_client_makes_room_in_a_full_line() {
        let line = Line::new(1, 3);
        assert_eq!(line.enter(client(1), 10), Entered::Run(10));
        for number in 11..14 {
            assert_eq!(line.enter(client(1), number), Entered::Waiting);
        }
        assert_eq!(line.enter(client(1), 14), Entered::Refused(14));
        assert_eq!(line.enter(client(2), 20), Entered::Replaced(13));
        assert_eq!(line.enter(client(2), 21), Entered::Refused(21), "it would have as many");
        assert_eq!(line.enter(None, 30), Entered::Replaced(12));
        assert_eq!(line.enter(None, 31), Entered::Refused(31), "no client has two");
        assert_eq!(std::iter::from_fn(|| line.next()).collect::<Vec<_>>(), [11, 20, 30]);
    }
}
