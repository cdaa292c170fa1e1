//! Finds out which routes compute: the watchdog looks at some of the calls that run on the pool,
//! and sees whether their threads wait or are ready to run.
//!
//! A look is a sample of time. Ten looks at a route whose calls compute for 1 ms and wait for 9
//! find one call that computes, on average. No call pays for it, a call need not end to be seen,
//! and a thread that stands in line for a processor counts as ready, as it should: with more
//! threads than processors, the CPU time of a call does not say how many of them are in the way of
//! others. Where the system does not say what a thread does, no route computes.

use std::collections::HashMap;
use std::time::Duration;

use super::key::ExecutionKey;

/// The share of a route whose calls are always ready to run. Shares are multiples of one part in
/// this many.
const ALWAYS: u8 = 255;

/// The maximum number of looks at one time. Each reads a file of the system.
const LOOKS_MAX: usize = 32;

/// The last share of a route counts as much as this many looks.
const MEMORY: usize = 16;

/// Calls that compute for less on average are looked at only if they are [`OLD`]. Their threads are
/// soon out of the way.
pub(super) const COMPUTES_MIN: Duration = Duration::from_micros(100);

/// A call that has been running for this long is looked at, whatever its route did before.
pub(crate) const OLD: Duration = Duration::from_millis(100);

/// As [`OLD`], if no call of the route was measured yet.
pub(crate) const OLD_IF_UNKNOWN: Duration = Duration::from_millis(10);

/// A call that runs on the pool: its route, and the system's ID of its thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: ExecutionKey,
    pub(crate) thread: u32,
}

/// Chooses the calls to look at.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    next: usize,
}

/// What was seen of the calls of one route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    looks: usize,
    /// How many of the threads ran or were ready to run.
    ready: usize,
}

impl Looks {
    /// Looks at some of these calls, in turns. Each of them is as likely to be looked at as the
    /// others.
    pub(crate) fn look(
        &mut self,
        calls: &[Candidate],
        is_at_work: impl Fn(u32) -> Option<bool>,
    ) -> HashMap<ExecutionKey, Seen> {
        let mut found = HashMap::<_, Seen>::new();
        let looks = calls.len().min(LOOKS_MAX);
        for look in 0..looks {
            let call = calls[(self.next + look * calls.len() / looks) % calls.len()];
            let Some(is_ready) = is_at_work(call.thread) else { continue };
            let seen = found.entry(call.key).or_default();
            seen.looks += 1;
            seen.ready += usize::from(is_ready);
        }
        self.next = self.next.wrapping_add(1);
        found
    }
}

/// The share of time for which calls of one route are ready to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share(pub(super) u8);

impl Share {
    pub(crate) const ALL: Self = Self(ALWAYS);

    /// Returns the share of one call.
    pub(super) fn of(ran: Duration, waited: Duration) -> Self {
        let all = (ran + waited).as_micros().max(1);
        Self(u8::try_from(ran.as_micros() * u128::from(ALWAYS) / all).unwrap_or(ALWAYS))
    }

    /// Returns the share after these looks.
    pub(crate) fn after(self, seen: Seen) -> Self {
        let all = usize::from(self.0) * MEMORY + usize::from(ALWAYS) * seen.ready;
        Self(u8::try_from(all / (MEMORY + seen.looks)).unwrap_or(ALWAYS))
    }

    /// Returns whether the calls compute rather than wait.
    pub(crate) fn is_large(self) -> bool {
        self.0 > ALWAYS / 2
    }

    /// Returns how many of `running` calls are ready to run.
    pub(crate) fn times(self, running: usize) -> usize {
        (running * usize::from(self.0)).div_ceil(usize::from(ALWAYS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(of: &[(usize, u32)]) -> Vec<Candidate> {
        let candidate = |&(key, thread)| Candidate { key: ExecutionKey::at(key), thread };
        of.iter().map(candidate).collect()
    }

    #[test]
    fn each_call_is_looked_at_in_turn() {
        let running = calls(&(0..100).map(|thread| (1, thread)).collect::<Vec<_>>());
        let looked_at = std::cell::RefCell::new([0; 100]);
        let mut looks = Looks::default();
        for _ in 0..100 {
            let seen = looks.look(&running, |thread| {
                looked_at.borrow_mut()[thread as usize] += 1;
                Some(thread % 2 == 0)
            });
            assert_eq!(seen[&ExecutionKey::at(1)].looks, LOOKS_MAX);
        }
        assert_eq!(looked_at.into_inner(), [LOOKS_MAX; 100]);
    }

    #[test]
    fn routes_are_told_apart_and_threads_of_which_nothing_is_known_do_not_count() {
        let running = calls(&[(1, 1), (1, 2), (2, 3), (2, 4), (3, 5)]);
        let seen = Looks::default().look(&running, |thread| match thread {
            1..=3 => Some(true),
            4 => Some(false),
            _ => None,
        });
        let of = |key: usize| seen.get(&ExecutionKey::at(key)).copied();
        assert_eq!(of(1), Some(Seen { looks: 2, ready: 2 }));
        assert_eq!(of(2), Some(Seen { looks: 2, ready: 1 }));
        assert_eq!(of(3), None);
        assert!(Looks::default().look(&[], |_| Some(true)).is_empty());
    }

    #[test]
    fn a_share_follows_what_is_seen_within_a_few_looks() {
        let (computes, waits) = (Seen { looks: 16, ready: 16 }, Seen { looks: 16, ready: 0 });
        let after = |seen, shares: &[u8]| -> Vec<u8> {
            shares.iter().map(|share| Share(*share).after(seen).0).collect()
        };
        assert_eq!(after(computes, &[0, 127, 191, ALWAYS]), [127, 191, 223, 255]);
        assert_eq!(after(waits, &[ALWAYS, 127, 63, 1]), [127, 63, 31, 0]);
        let quarter = Seen { looks: 8, ready: 2 };
        let share = (0..50).fold(Share(0), |share, _| share.after(quarter));
        assert!((60..=64).contains(&share.0), "{share:?}");
    }

    #[test]
    fn a_share_says_how_many_calls_compute() {
        let ms = Duration::from_millis;
        assert_eq!(Share::of(ms(5), ms(0)), Share(ALWAYS));
        assert_eq!(Share::of(ms(1), ms(9)), Share(25));
        assert_eq!(Share::of(ms(0), ms(0)), Share(0));
        assert_eq!(
            [0, 25, 127, 128, ALWAYS].map(|share| Share(share).times(20)),
            [0, 2, 10, 11, 20]
        );
        assert!(Share(128).is_large() && !Share(127).is_large());
    }
}
