//! The totals of the seats of all routes.

use super::processors::Processors;
use super::rest::Rest;
use super::share::Free;
use crate::execution::key::ExecutionKey;

/// The totals of the seats of all routes.
pub(super) struct Counts {
    pub(super) rest: Rest,
    pub(super) processors: Processors,
}

impl Counts {
    /// Records that a route now has `taken` seats, one more than before.
    #[inline]
    pub(super) fn note_taken(&mut self, key: ExecutionKey, taken: usize) {
        self.rest.note_taken(key, taken);
        self.processors.note_taken(key, taken);
    }

    /// Records that a route now has `taken` seats, one less than before.
    #[inline]
    pub(super) fn note_released(&mut self, key: ExecutionKey, taken: usize) {
        self.rest.note_released(key);
        self.processors.note_released(key, taken);
    }

    /// Returns the free seats as a route with `taken` seats may see them.
    #[inline]
    pub(super) fn free_for(&self, key: ExecutionKey, taken: usize, free: usize) -> Free {
        Free { all: free, computing: self.processors.for_route(key, taken) }
    }
}
