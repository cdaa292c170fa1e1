//! The bucket of tokens, as arithmetic on times (GCRA): no clock, no lock.

use std::fmt;
use std::time::Duration;

/// How fast tokens come back, and how many there can be.
///
/// A client's bucket is one number: the time at which it is full again. Each request moves it by
/// the time that a token takes; a request that would move it further ahead of now than a whole
/// bucket takes is refused. A time in the past is a full bucket, so what is forgotten then is not
/// missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    /// The time in which one token comes back.
    interval_nanos: u64,
    burst: u32,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// How long to wait, if it is refused.
    pub(super) retry_after: Option<Duration>,
    /// Tokens that are left.
    pub(super) remaining: u32,
    /// When the bucket is full again.
    pub(super) full_after: Duration,
}

/// Longest interval, about thirty years: nobody waits longer, and a bucket of several does not
/// overflow.
const INTERVAL_NANOS_MAX: u64 = 1_000_000_000_000_000_000;

impl Bucket {
    pub(super) fn new(requests: u32, period: Duration) -> Self {
        let nanos = period.as_nanos() / u128::from(requests.max(1));
        let interval_nanos = u64::try_from(nanos).unwrap_or(u64::MAX).clamp(1, INTERVAL_NANOS_MAX);
        Self { interval_nanos, burst: requests.max(1) }
    }

    pub(super) fn with_burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    pub(super) fn burst(&self) -> u32 {
        self.burst
    }

    #[cfg(feature = "redis")]
    pub(super) fn interval_nanos(&self) -> u64 {
        self.interval_nanos
    }

    /// The time in which an empty bucket becomes full.
    pub(super) fn span_nanos(&self) -> u64 {
        self.interval_nanos.saturating_mul(u64::from(self.burst))
    }

    /// Takes a token of a bucket that is full at `full_at`, if there is one; returns when it is
    /// full then.
    pub(super) fn take(&self, full_at: u64, now: u64) -> (u64, Verdict) {
        let ahead = full_at.saturating_sub(now);
        let wanted = ahead.saturating_add(self.interval_nanos);
        if wanted > self.span_nanos() {
            return (full_at, self.verdict(false, ahead));
        }
        (now.saturating_add(wanted), self.verdict(true, wanted))
    }

    /// What is said about a request after which the bucket is full in `ahead` nanoseconds.
    pub(super) fn verdict(&self, is_allowed: bool, ahead: u64) -> Verdict {
        let span = self.span_nanos();
        let wait = ahead.saturating_add(self.interval_nanos).saturating_sub(span);
        let remaining = span.saturating_sub(ahead) / self.interval_nanos;
        Verdict {
            retry_after: (!is_allowed).then(|| Duration::from_nanos(wait)),
            remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
            full_after: Duration::from_nanos(ahead),
        }
    }
}

/// Part of a name in Redis.
impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.burst, self.interval_nanos)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_is_allowed_and_then_one_for_each_token_that_came_back() {
        let bucket = Bucket::new(2, Duration::from_secs(1)).with_burst(3);
        let mut full_at = 0;
        let mut take = |now: u64| {
            let (next, verdict) = bucket.take(full_at, now);
            full_at = next;
            (verdict.retry_after.map(|wait| wait.as_millis()), verdict.remaining)
        };
        let start = 100 * SECOND;
        assert_eq!(take(start), (None, 2));
        assert_eq!(take(start), (None, 1));
        assert_eq!(take(start), (None, 0));
        assert_eq!(take(start), (Some(500), 0));
        assert_eq!(take(start + SECOND / 4), (Some(250), 0));
        assert_eq!(take(start + SECOND / 2), (None, 0), "being refused costs nothing");
        assert_eq!(take(start + SECOND / 2), (Some(500), 0));
        assert_eq!(take(start + 100 * SECOND), (None, 2), "no more than a bucket comes back");
    }

    #[test]
    fn numbers_at_the_edges_do_not_overflow() {
        for requests in [1, u32::MAX] {
            for period in [Duration::from_nanos(1), Duration::MAX] {
                let bucket = Bucket::new(requests, period).with_burst(u32::MAX);
                let (full_at, verdict) = bucket.take(u64::MAX, u64::MAX - 5);
                assert_eq!((full_at, verdict.retry_after), (u64::MAX, None));
                bucket.take(0, u64::MAX);
            }
        }
    }

    proptest! {
        #[test]
        fn in_any_window_there_are_no_more_than_the_burst_and_what_came_back(
            requests in 1_u32..50,
            burst in 1_u32..50,
            steps in proptest::collection::vec(0_u64..SECOND / 2, 1..300),
            seed in any::<u32>(),
        ) {
            let bucket = Bucket::new(requests, Duration::from_secs(1)).with_burst(burst);
            let (mut now, mut full_at, mut allowed) = (u64::from(seed), 0, 0_u64);
            let start = now;
            for step in steps {
                now += step;
                let (next, verdict) = bucket.take(full_at, now);
                full_at = next;
                allowed += u64::from(verdict.retry_after.is_none());
                prop_assert!(allowed <= u64::from(burst) + (now - start) / bucket.interval_nanos);
                if let Some(wait) = verdict.retry_after {
                    let wait = u64::try_from(wait.as_nanos()).unwrap();
                    prop_assert!(wait > 0);
                    prop_assert!(bucket.take(full_at, now + wait).1.retry_after.is_none(), "who waits is let in");
                    prop_assert!(bucket.take(full_at, now + wait - 1).1.retry_after.is_some());
                }
            }
        }
    }
}
