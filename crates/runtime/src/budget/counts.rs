//! What the tables of counts have in common: their limit, and how they release memory.

use std::collections::HashMap;
use std::hash::Hash;

/// A table keeps its memory up to this capacity.
pub(crate) const CAPACITY_KEPT: usize = 1024;

/// The client or its network already has its maximum of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtLimit;

/// Releases the memory of a table that an attack from many addresses has made large.
pub(crate) fn shrink<K: Eq + Hash, V>(counts: &mut HashMap<K, V>) {
    if counts.capacity() > CAPACITY_KEPT && counts.len() < counts.capacity() / 8 {
        let wanted = counts.len() * 2;
        counts.shrink_to(wanted);
    }
}
