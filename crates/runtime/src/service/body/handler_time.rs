//! How long a handler computes between two reads of its content.

use std::time::{Duration, Instant};

use crate::execution::probe::on_processor;

/// A handler that computes for this long between two reads keeps others from the processors. One
/// that saves or hashes what it reads needs much less.
const COMPUTES_MIN: Duration = Duration::from_millis(1);

/// Measures the time of a handler from one read of its content to the next.
///
/// The processor time is measured only after a time that was long, so a quick handler pays for no
/// system call. A handler that waits between its reads does not compute.
#[derive(Debug)]
pub(super) struct HandlerTime {
    since: Instant,
    was_long: bool,
    /// The processor time of the thread at `since`.
    spent: Option<Duration>,
}

impl HandlerTime {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), was_long: false, spent: None }
    }

    /// Ends the handler's time, before a read. Returns whether the handler has computed for long.
    pub(super) fn end(&mut self) -> bool {
        self.was_long = self.since.elapsed() >= COMPUTES_MIN;
        let before = self.spent.take().filter(|_| self.was_long);
        before
            .zip(before.and_then(|_| on_processor()))
            .is_some_and(|(before, now)| now.saturating_sub(before) >= COMPUTES_MIN)
    }

    /// Begins the handler's time, after a read.
    pub(super) fn begin(&mut self) {
        self.spent = if self.was_long { on_processor() } else { None };
        self.since = Instant::now();
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use std::hint::black_box;
    use std::thread;

    use super::*;

    fn compute() {
        let spent = || on_processor().expect("this system has a clock for threads");
        let end = spent() + COMPUTES_MIN * 2;
        while black_box(spent()) < end {}
    }

    #[test]
    fn only_a_handler_that_computes_again_and_again_is_found() {
        let mut time = HandlerTime::new();
        let mut after = |work: fn()| {
            time.begin();
            work();
            time.end()
        };
        assert!(!after(compute), "the first time is not measured");
        assert!(after(compute) && after(compute));
        let waits = || thread::sleep(COMPUTES_MIN * 3);
        assert!(!after(waits) && !after(waits));
        assert!(after(compute), "a wait before it was long as well");
        assert!(!after(|| ()));
    }
}
