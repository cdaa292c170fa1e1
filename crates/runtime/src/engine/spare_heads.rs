//! Carries the memory of heads from threads that drop requests to leaders, which parse more.

use filoplume_http1::SpareHeads;
use parking_lot::Mutex;

/// Most that is kept. Each of these is the memory of eight heads.
const KEPT_MAX: usize = 32;

/// The memory of heads that pool threads have dropped. Nobody waits for the lock: who finds it in
/// use frees the memory, or allocates.
#[derive(Debug, Default)]
pub(crate) struct Depot(Mutex<Vec<SpareHeads>>);

impl Depot {
    /// Takes what this thread can spare. Called by a pool thread that has answered a request.
    pub(crate) fn fill(&self) {
        let Some(spare) = SpareHeads::of_this_thread() else { return };
        if let Some(mut kept) = self.0.try_lock() {
            if kept.len() < KEPT_MAX {
                kept.push(spare);
            }
        }
    }

    /// Gives this thread some memory if it has little. Called by a leader that dispatches.
    #[inline]
    pub(crate) fn supply(&self) {
        if SpareHeads::are_needed() {
            if let Some(spare) = self.0.try_lock().and_then(|mut kept| kept.pop()) {
                spare.give_to_this_thread();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use filoplume_http1::Headers;

    use super::*;

    /// Lets a thread of its own drop as many heads, and then offer what it can spare.
    fn drop_heads(depot: &Depot, heads: usize) {
        let dropped: Vec<_> = (0..heads)
            .map(|_| {
                let mut headers = Headers::new();
                headers.append("a", "b").unwrap();
                headers
            })
            .collect();
        thread::scope(|scope| {
            scope.spawn(move || {
                drop(dropped);
                depot.fill();
            });
        });
    }

    fn kept(depot: &Depot) -> usize {
        depot.0.lock().len()
    }

    #[test]
    fn what_a_thread_can_spare_supplies_one_that_has_nothing() {
        let depot = Depot::default();
        drop_heads(&depot, 2);
        assert_eq!(kept(&depot), 0, "the thread may need them");
        drop_heads(&depot, 20);
        drop_heads(&depot, 20);
        assert_eq!(kept(&depot), 2);
        thread::scope(|scope| {
            scope.spawn(|| {
                depot.supply();
                depot.supply();
                assert!(!SpareHeads::are_needed());
            });
        });
        assert_eq!(kept(&depot), 1, "the second time nothing was needed");
    }

    #[test]
    fn a_depot_has_a_bound() {
        let depot = Depot::default();
        (0..KEPT_MAX + 2).for_each(|_| drop_heads(&depot, 20));
        assert_eq!((kept(&depot), KEPT_MAX), (KEPT_MAX, 32));
    }

    #[test]
    fn a_depot_in_use_is_not_waited_for() {
        let depot = Depot::default();
        drop_heads(&depot, 20);
        let in_use = depot.0.lock();
        drop_heads(&depot, 20);
        thread::scope(|scope| {
            scope.spawn(|| {
                depot.supply();
                assert!(SpareHeads::are_needed());
            });
        });
        assert_eq!(in_use.len(), 1);
    }
}
