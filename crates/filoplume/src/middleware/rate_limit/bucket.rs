//! The token bucket, as arithmetic on times (GCRA). It has no clock and no lock.

use std::fmt;
use std::time::Duration;

/// The rate at which tokens return, and the size of the bucket.
///
/// The state of a client's bucket is one number: the time at which it is full again. Each request
/// moves this time by the time that a token takes to return. A request that would move it further
/// ahead than a whole bucket takes is refused. A time in the past means a full bucket, so such a
/// state can be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    /// The time in which one token returns.
    interval_nanos: u64,
    burst: u32,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// How long to wait, if the request is refused.
    pub(super) retry_after: Option<Duration>,
    /// Remaining tokens.
    pub(super) remaining: u32,
    /// When the bucket is full again.
    pub(super) full_after: Duration,
}

/// Longest interval, about thirty years. No client waits longer, and the sum of several intervals
/// does not overflow.
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

    /// Returns a bucket with a multiple of the rate and the burst.
    pub(super) fn times(self, factor: u32) -> Self {
        let interval_nanos = (self.interval_nanos / u64::from(factor.max(1))).max(1);
        Self { interval_nanos, burst: self.burst.saturating_mul(factor) }
    }

    pub(super) fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the time in which one token returns.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval_nanos)
    }

    #[cfg(feature = "redis")]
    pub(super) fn interval_nanos(&self) -> u64 {
        self.interval_nanos
    }

    /// Returns the time in which an empty bucket becomes full.
    pub(super) fn span_nanos(&self) -> u64 {
        self.interval_nanos.saturating_mul(u64::from(self.burst))
    }

    /// Takes a token from a bucket that is full at `full_at`, if there is one. Returns the new time
    /// at which the bucket is full.
    pub(super) fn take(&self, full_at: u64, now: u64) -> (u64, Decision) {
        let ahead = full_at.saturating_sub(now);
        let wanted = ahead.saturating_add(self.interval_nanos);
        if wanted > self.span_nanos() {
            return (full_at, self.decision(false, ahead));
        }
        (now.saturating_add(wanted), self.decision(true, wanted))
    }

    /// Returns the decision about a request after which the bucket is full in `ahead` nanoseconds.
    pub(super) fn decision(&self, is_allowed: bool, ahead: u64) -> Decision {
        let span = self.span_nanos();
        let wait = ahead.saturating_add(self.interval_nanos).saturating_sub(span);
        let remaining = span.saturating_sub(ahead) / self.interval_nanos;
        Decision {
            retry_after: (!is_allowed).then(|| Duration::from_nanos(wait)),
            remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
            full_after: Duration::from_nanos(ahead),
        }
    }
}

impl Decision {
    /// Returns the decision about a request that needs a token of another bucket too, which was
    /// asked because this one had a token.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            retry_after: self.retry_after.or(other.retry_after),
            remaining: self.remaining.min(other.remaining),
            full_after: self.full_after.max(other.full_after),
        }
    }
}

/// Part of the key in Redis.
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
    fn a_burst_is_allowed_and_then_one_request_per_returned_token() {
        let bucket = Bucket::new(2, Duration::from_secs(1)).with_burst(3);
        let mut full_at = 0;
        let mut take = |now: u64| {
            let (next, decision) = bucket.take(full_at, now);
            full_at = next;
            (decision.retry_after.map(|wait| wait.as_millis()), decision.remaining)
        };
        let start = 100 * SECOND;
        assert_eq!(take(start), (None, 2));
        assert_eq!(take(start), (None, 1));
        assert_eq!(take(start), (None, 0));
        assert_eq!(take(start), (Some(500), 0));
        assert_eq!(take(start + SECOND / 4), (Some(250), 0));
        assert_eq!(take(start + SECOND / 2), (None, 0), "a refused request takes no token");
        assert_eq!(take(start + SECOND / 2), (Some(500), 0));
        assert_eq!(take(start + 100 * SECOND), (None, 2), "at most a full bucket returns");
    }

    #[test]
    fn a_multiple_has_the_rate_and_the_burst_several_times() {
        let bucket = Bucket::new(5, Duration::from_secs(1)).with_burst(3).times(8);
        assert_eq!((bucket.interval(), bucket.burst()), (Duration::from_millis(25), 24));
        let largest = Bucket::new(u32::MAX, Duration::from_nanos(1)).times(8);
        assert_eq!((largest.interval_nanos, largest.burst), (1, u32::MAX));
    }

    #[test]
    fn of_two_limits_the_one_that_leaves_less_is_told() {
        let decision = |retry_after: Option<u64>, remaining, full_after| Decision {
            retry_after: retry_after.map(Duration::from_secs),
            remaining,
            full_after: Duration::from_secs(full_after),
        };
        let rows = [
            (decision(None, 3, 10), decision(None, 5, 20), decision(None, 3, 20)),
            (decision(None, 5, 20), decision(None, 3, 10), decision(None, 3, 20)),
            (decision(None, 5, 20), decision(Some(4), 0, 30), decision(Some(4), 0, 30)),
        ];
        for (own, shared, expected) in rows {
            assert_eq!(own.and(shared), expected);
        }
    }

    #[test]
    fn extreme_numbers_do_not_overflow() {
        for requests in [1, u32::MAX] {
            for period in [Duration::from_nanos(1), Duration::MAX] {
                let bucket = Bucket::new(requests, period).with_burst(u32::MAX);
                let (full_at, decision) = bucket.take(u64::MAX, u64::MAX - 5);
                assert_eq!((full_at, decision.retry_after), (u64::MAX, None));
                bucket.take(0, u64::MAX);
            }
        }
    }

    proptest! {
        #[test]
        fn any_window_has_at_most_the_burst_and_the_returned_tokens(
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
                let (next, decision) = bucket.take(full_at, now);
                full_at = next;
                allowed += u64::from(decision.retry_after.is_none());
                prop_assert!(allowed <= u64::from(burst) + (now - start) / bucket.interval_nanos);
                if let Some(wait) = decision.retry_after {
                    let wait = u64::try_from(wait.as_nanos()).unwrap();
                    prop_assert!(wait > 0);
                    let (_, decision) = bucket.take(full_at, now + wait);
                    prop_assert!(decision.retry_after.is_none(), "after the wait it is allowed");
                    prop_assert!(bucket.take(full_at, now + wait - 1).1.retry_after.is_some());
                }
            }
        }
    }
}
