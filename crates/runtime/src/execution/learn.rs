//! Which routes block: learned from what was seen, one small counter set a route.
//!
//! A route starts inline. The watchdog reports a route that it caught; unless that is rare among
//! many quick calls (a preempted thread looks just like a blocked one), the route is dispatched
//! from then on. The pool reports how long dispatched calls took; a long enough row of quick ones
//! brings the route back, and each relapse doubles the row that is asked for.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Routes told apart. More than this share entries, which costs speed at worst, never an answer.
const ROUTES: usize = 1024;

/// A dispatched call below this counts as quick.
const QUICK: Duration = Duration::from_micros(200);

/// A dispatched call above this breaks the row of quick ones. What lies between was probably a
/// quick call on a busy machine and counts for nothing.
const SLOW: Duration = Duration::from_millis(1);

/// The row of quick calls that first brings a route back inline.
const QUICK_ROW_MIN: u32 = 64;

/// The longest row that relapses can lead to.
const QUICK_ROW_MAX: u32 = 1 << 16;

/// A route that was caught once in so many calls was preempted, not blocking.
const CALLS_A_CATCH_MIN: u32 = 256;

/// An entry of the table: a route's number, folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteKey(u16);

impl RouteKey {
    /// How many entries there are.
    pub(crate) const COUNT: usize = ROUTES;

    /// The entry of a route that the service numbered.
    pub(crate) fn numbered(route: u32) -> Self {
        Self::fold(mix(START, u64::from(route)))
    }

    /// The entry of a path, for services that number no routes. Segments with a digit count as
    /// one and the same: `/users/17` and `/users/42` are one route.
    #[inline]
    pub(crate) fn of_path(path: &str) -> Self {
        let bytes = path.as_bytes();
        let mut hash = START ^ bytes.len() as u64;
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            if has_digit(word) {
                return Self::of_path_with_digits(bytes);
            }
            hash = mix(hash, word);
        }
        // The last eight once more, whatever of them is new.
        let rest = match bytes.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => bytes.iter().fold(NO_DIGITS, |word, &byte| word << 8 | u64::from(byte)),
        };
        if has_digit(rest) {
            return Self::of_path_with_digits(bytes);
        }
        Self::fold(mix(hash, rest))
    }

    #[cold]
    fn of_path_with_digits(path: &[u8]) -> Self {
        let mut hash = START;
        for segment in path.split(|&byte| byte == b'/') {
            hash = mix(hash, u64::from(b'/'));
            if segment.iter().any(u8::is_ascii_digit) {
                hash = mix(hash, u64::from(b'#'));
            } else {
                hash = segment.iter().fold(hash, |hash, &byte| mix(hash, u64::from(byte)));
            }
        }
        Self::fold(hash)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "folded to fewer bits than u16 has")]
    fn fold(hash: u64) -> Self {
        Self((hash >> 32) as u16 % ROUTES as u16)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

/// Eight bytes that are no digits.
const NO_DIGITS: u64 = u64::MAX;

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Whether one of the eight bytes is an ASCII digit: turned so that digits become 0 to 9, and then
/// the usual test for a byte below 10, which borrows from the high bit.
#[inline]
fn has_digit(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let turned = word ^ (ONES * 0x30);
    turned.wrapping_sub(ONES * 10) & !turned & (ONES * 0x80) != 0
}

/// Where a handler runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Execution {
    /// Inline until it was caught blocking, then on the pool until it was quick for long enough.
    #[default]
    Learned,
    Inline,
    Dispatched,
}

/// For which route something runs, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) key: RouteKey,
    pub(crate) execution: Execution,
}

/// What is known of one route.
#[derive(Debug, Default)]
struct Known {
    dispatched: AtomicBool,
    quick_row: AtomicU32,
    quick_row_needed: AtomicU32,
}

/// What is known of all routes. The counters are hints: they are read and written without order.
#[derive(Debug)]
pub(crate) struct Learned {
    routes: Box<[Known]>,
}

impl Learned {
    pub(crate) fn new() -> Self {
        Self { routes: (0..ROUTES).map(|_| Known::default()).collect() }
    }

    /// Whether calls of this route go to the pool, by what was learned or by what was decided.
    #[inline]
    pub(crate) fn dispatches(&self, route: Route) -> bool {
        match route.execution {
            Execution::Learned => self.is_dispatched(route.key),
            Execution::Inline => false,
            Execution::Dispatched => true,
        }
    }

    #[inline]
    fn is_dispatched(&self, key: RouteKey) -> bool {
        self.routes[key.index()].dispatched.load(Ordering::Relaxed)
    }

    /// Takes note that the watchdog caught the route after `quick_calls` that it did not catch.
    pub(crate) fn caught(&self, key: RouteKey, quick_calls: u32) -> Caught {
        if quick_calls >= CALLS_A_CATCH_MIN {
            return Caught::ByChance;
        }
        let route = &self.routes[key.index()];
        let is_new = !route.dispatched.swap(true, Ordering::Relaxed);
        if is_new {
            let needed = route.quick_row_needed.load(Ordering::Relaxed);
            let needed = (needed * 2).clamp(QUICK_ROW_MIN, QUICK_ROW_MAX);
            route.quick_row_needed.store(needed, Ordering::Relaxed);
            route.quick_row.store(0, Ordering::Relaxed);
        }
        if is_new { Caught::First } else { Caught::Again }
    }

    /// Takes note of how long a call took that ran on a pool thread.
    pub(crate) fn observed(&self, key: RouteKey, took: Duration) -> Observed {
        let has_blocked = took > SLOW;
        let route = &self.routes[key.index()];
        let mut is_inline_again = false;
        if has_blocked {
            // Looked at first: many threads come here at once, and a store takes the line from all others.
            if route.quick_row.load(Ordering::Relaxed) != 0 {
                route.quick_row.store(0, Ordering::Relaxed);
            }
        } else if took <= QUICK && route.dispatched.load(Ordering::Relaxed) {
            let row = route.quick_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            is_inline_again = row >= route.quick_row_needed.load(Ordering::Relaxed)
                && route.dispatched.swap(false, Ordering::Relaxed);
        }
        Observed { has_blocked, is_inline_again }
    }
}

/// What it means that a route was caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caught {
    /// Its thread was preempted: nothing follows.
    ByChance,
    /// It is dispatched from now on.
    First,
    /// It was dispatched already, or runs inline whatever is learned.
    Again,
}

/// What one call on a pool thread taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) has_blocked: bool,
    /// This call brought its route back inline.
    pub(crate) is_inline_again: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RouteKey = RouteKey(7);

    #[test]
    fn a_caught_route_is_dispatched_until_it_was_quick_for_long_enough() {
        let learned = Learned::new();
        assert!(!learned.is_dispatched(KEY));
        assert_eq!(learned.caught(KEY, 0), Caught::First);
        assert_eq!(learned.caught(KEY, 0), Caught::Again);
        assert!(learned.is_dispatched(KEY));
        for _ in 0..QUICK_ROW_MIN - 1 {
            assert!(!learned.observed(KEY, Duration::from_micros(1)).is_inline_again);
        }
        assert!(learned.observed(KEY, Duration::from_micros(1)).is_inline_again);
        assert!(!learned.is_dispatched(KEY));
    }

    #[test]
    fn a_slow_call_breaks_the_row() {
        let learned = Learned::new();
        learned.caught(KEY, 0);
        for _ in 0..10 * QUICK_ROW_MIN {
            for _ in 0..QUICK_ROW_MIN - 1 {
                learned.observed(KEY, Duration::ZERO);
            }
            learned.observed(KEY, Duration::from_millis(10));
        }
        assert!(learned.is_dispatched(KEY));
    }

    #[test]
    fn each_relapse_doubles_the_row() {
        let learned = Learned::new();
        let mut rows = Vec::new();
        for _ in 0..12 {
            learned.caught(KEY, 0);
            let mut row = 1;
            while !learned.observed(KEY, Duration::ZERO).is_inline_again {
                row += 1;
            }
            rows.push(row);
        }
        assert_eq!(rows[..3], [64, 128, 256]);
        assert_eq!(rows[11], QUICK_ROW_MAX);
    }

    #[test]
    fn a_catch_among_many_quick_calls_is_a_preemption() {
        let learned = Learned::new();
        assert_eq!(learned.caught(KEY, CALLS_A_CATCH_MIN), Caught::ByChance);
        assert!(!learned.is_dispatched(KEY));
    }

    #[test]
    fn segments_with_digits_are_one_route() {
        let same = RouteKey::of_path("/users/17/posts");
        assert_eq!(same, RouteKey::of_path("/users/42/posts"));
        assert_ne!(same, RouteKey::of_path("/users/17/likes"));
        assert_eq!(RouteKey::of_path("/users/9"), RouteKey::of_path("/users/a1b2c3"));
        assert_ne!(RouteKey::of_path("/plaintext"), RouteKey::of_path("/sleep"));
        assert_ne!(RouteKey::of_path("/a"), RouteKey::of_path("/b"));
        assert_eq!(RouteKey::of_path("/a/long/path/to/item1"), RouteKey::of_path("/a/long/path/to/item2"));
        assert_eq!(RouteKey::of_path("/0"), RouteKey::of_path("/9"));
    }
}
