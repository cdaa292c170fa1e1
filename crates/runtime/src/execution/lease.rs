//! Decides whether a thread that a connection has blocked keeps the connection for the next
//! request, from the history of that connection.
//!
//! If a client sends its next request as soon as it has the response, the thread that waits for it
//! serves it fastest. If the client pauses in between, the thread waits in vain, and the socket
//! changes its mode twice per request. Only a trial tells the two apart. So a lease begins with the
//! second request that blocks, and each lease that served no request makes the next one rarer.

use std::time::Duration;

/// How long a thread waits for the next request before it returns the connection to its loop. A
/// client that sends its next request after each response is quicker. This is also how long other
/// requests may have to wait for a thread with a lease.
pub(crate) const QUIET: Duration = Duration::from_millis(4);

/// A call on the pool that takes longer has probably blocked.
const BLOCKED_FOR_MIN: Duration = Duration::from_micros(50);

/// The number of requests that must block before a lease. With one, some connections of a burst
/// would get responses to their second requests before the last connection of the burst gets a
/// thread for its first.
const BLOCKED_MIN: u8 = 2;

/// The maximum count of blocking requests. This many quick ones in a row reset the count.
const BLOCKED_MAX: u8 = 16;

/// The maximum number of blocking requests before a lease is tried again.
const REST_MAX: u8 = 127;

/// The history of a connection's requests and leases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lease {
    is_on: bool,
    /// Whether a request arrived during the lease.
    has_served: bool,
    /// The number of requests that blocked, minus those that did not.
    blocked: u8,
    /// The number of blocking requests until the next lease.
    rest: u8,
    /// The value of `rest` after the last lease that served no request, or 0 after one that did.
    last_rest: u8,
}

/// Returns whether a call on the pool that took this long has probably blocked, so that a lease may
/// be worthwhile for its connection.
#[inline]
pub(crate) fn has_blocked(took: Duration) -> bool {
    took > BLOCKED_FOR_MIN
}

impl Lease {
    /// Returns whether a thread keeps the connection.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns whether a thread should keep the connection.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_blocking() && (self.is_on || self.rest == 0)
    }

    /// Returns whether the connection's requests block.
    #[inline]
    pub(crate) fn is_blocking(&self) -> bool {
        self.blocked >= BLOCKED_MIN
    }

    /// Records whether a request on a thread of the pool blocked.
    pub(crate) fn note(&mut self, has_blocked: bool) {
        self.has_served |= self.is_on;
        if has_blocked {
            self.blocked = (self.blocked + 1).min(BLOCKED_MAX);
            self.rest = self.rest.saturating_sub(1);
        } else {
            self.blocked = self.blocked.saturating_sub(1);
        }
    }

    pub(crate) fn begin(&mut self) {
        self.is_on = true;
        self.has_served = false;
    }

    /// Ends the lease. Returns whether there was one.
    #[inline]
    pub(crate) fn end(&mut self) -> bool {
        if !self.is_on {
            return false;
        }
        self.is_on = false;
        self.last_rest = if self.has_served { 0 } else { (self.last_rest * 2 + 1).min(REST_MAX) };
        self.rest = self.last_rest;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the state after this many requests that blocked.
    fn after_blocking(requests: u8) -> Lease {
        let mut lease = Lease::default();
        (0..requests).for_each(|_| lease.note(true));
        lease
    }

    /// Runs a lease during which no request arrives.
    fn without_a_request(lease: &mut Lease) {
        assert!(lease.is_due());
        lease.begin();
        assert!(lease.end());
    }

    #[test]
    fn a_call_of_more_than_fifty_microseconds_has_blocked() {
        for (micros, blocked) in [(0, false), (50, false), (51, true), (5000, true)] {
            assert_eq!(has_blocked(Duration::from_micros(micros)), blocked, "{micros} us");
        }
    }

    #[test]
    fn a_lease_begins_with_the_second_request_that_blocks() {
        let mut lease = Lease::default();
        for has_blocked in [false, true, false, true] {
            lease.note(has_blocked);
            assert!(!lease.is_due());
        }
        lease.note(true);
        assert!(lease.is_due() && !lease.is_on());
        lease.begin();
        assert!(lease.is_due() && lease.is_on());
        assert!(lease.end() && !lease.is_on());
        assert!(!lease.end(), "the lease ends once");
    }

    #[test]
    fn as_many_quick_requests_as_blocking_ones_end_the_lease() {
        for blocking in [BLOCKED_MIN, 5, BLOCKED_MAX, 2 * BLOCKED_MAX] {
            let mut lease = after_blocking(blocking);
            lease.begin();
            for _ in BLOCKED_MIN..blocking.min(BLOCKED_MAX) {
                lease.note(false);
                assert!(lease.is_due());
            }
            lease.note(false);
            assert!(!lease.is_due());
        }
    }

    #[test]
    fn each_lease_without_a_request_makes_the_next_one_rarer() {
        let mut lease = after_blocking(BLOCKED_MIN - 1);
        let mut begun = Vec::new();
        for request in 0..=374 {
            lease.note(true);
            if lease.is_due() {
                begun.push(request);
                without_a_request(&mut lease);
            }
        }
        assert_eq!(begun, [0, 1, 4, 11, 26, 57, 120, 247, 374]);
    }

    #[test]
    fn a_lease_that_served_a_request_is_followed_by_the_next_at_once() {
        let mut lease = after_blocking(BLOCKED_MIN);
        for _ in 0..5 {
            without_a_request(&mut lease);
            while !lease.is_due() {
                lease.note(true);
            }
        }
        // Now the client is in a hurry, with a pause between two bursts.
        for _ in 0..3 {
            lease.begin();
            lease.note(true);
            assert!(lease.end());
            lease.note(true);
            assert!(lease.is_due());
        }
        without_a_request(&mut lease);
        assert!(!lease.is_due());
        lease.note(true);
        assert!(lease.is_due(), "the leases without a request no longer count");
    }
}
