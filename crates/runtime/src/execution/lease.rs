//! Whether a thread that was blocked by a connection keeps it for the next request: learned from
//! each connection.
//!
//! A client that sends its next request as soon as it was answered is best served by the thread
//! that waits for it. One that thinks in between makes the same thread wait for nothing, and the
//! socket change its mode twice a request. Only trying tells them apart. So a lease begins with the
//! second request that blocks, and each one that brought nothing makes the next one rarer.

/// Requests that have to block before a lease. With the first one a crowd that comes at once would
/// have its second requests answered before the last of it gets a thread for its first.
const BLOCKED_MIN: u8 = 2;

/// Blocking requests remembered: that many quick ones in a row make all of them forgotten.
const BLOCKED_MAX: u8 = 16;

/// The most blocking requests after which a lease is tried again.
const REST_MAX: u8 = 127;

/// What a connection's requests and leases have brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lease {
    is_on: bool,
    /// Whether a request came while it was on.
    has_served: bool,
    /// Requests that blocked, less those that did not.
    blocked: u8,
    /// Blocking requests to come before the next lease.
    rest: u8,
    /// How many those were after the last lease that brought nothing; 0 after one that served.
    last_rest: u8,
}

impl Lease {
    /// Whether a thread keeps the connection.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether a thread should keep the connection, or go on doing so.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_blocking() && (self.is_on || self.rest == 0)
    }

    /// Whether the connection's requests block.
    #[inline]
    pub(crate) fn is_blocking(&self) -> bool {
        self.blocked >= BLOCKED_MIN
    }

    /// A request blocked its thread, or ran on one and did not.
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

    /// Returns whether it was on.
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

    /// One that has seen so many requests block.
    fn after_blocking(requests: u8) -> Lease {
        let mut lease = Lease::default();
        (0..requests).for_each(|_| lease.note(true));
        lease
    }

    /// A lease that no request came for.
    fn for_nothing(lease: &mut Lease) {
        assert!(lease.is_due());
        lease.begin();
        assert!(lease.end());
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
        assert!(!lease.end(), "it ends once");
    }

    #[test]
    fn quick_requests_end_it_once_they_make_up_for_those_that_blocked() {
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
    fn each_lease_for_nothing_makes_the_next_one_rarer() {
        let mut lease = after_blocking(BLOCKED_MIN - 1);
        let mut begun = Vec::new();
        for request in 0..=374 {
            lease.note(true);
            if lease.is_due() {
                begun.push(request);
                for_nothing(&mut lease);
            }
        }
        assert_eq!(begun, [0, 1, 4, 11, 26, 57, 120, 247, 374]);
    }

    #[test]
    fn one_that_served_is_followed_by_the_next_at_once() {
        let mut lease = after_blocking(BLOCKED_MIN);
        for _ in 0..5 {
            for_nothing(&mut lease);
            while !lease.is_due() {
                lease.note(true);
            }
        }
        // From now on the client is in a hurry, with a rest between two bursts.
        for _ in 0..3 {
            lease.begin();
            lease.note(true);
            assert!(lease.end());
            lease.note(true);
            assert!(lease.is_due());
        }
        for_nothing(&mut lease);
        assert!(!lease.is_due());
        lease.note(true);
        assert!(lease.is_due(), "the bad beginning is forgotten");
    }
}
