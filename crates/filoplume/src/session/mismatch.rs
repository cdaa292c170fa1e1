//! Logs signs that another instance of the app has another key or another clock. Without such a
//! line, users seem to be logged out at random.

use super::record::Record;
use crate::log::Throttle;

/// How far apart the clocks of instances are at most if they are synchronized.
const SKEW_SECONDS_MAX: u64 = 10;

/// The shortest cookie that a key makes: its signature, in Base64.
const COOKIE_BYTES_MIN: usize = 44;

/// Limits the lines about mismatches. Strangers can cause those about keys.
pub(crate) struct Mismatches {
    keys: Throttle,
    clocks: Throttle,
}

impl Default for Mismatches {
    fn default() -> Self {
        Self { keys: Throttle::new(), clocks: Throttle::new() }
    }
}

impl Mismatches {
    /// Logs that no key of this app has made a cookie, unless it does not look like one at all.
    #[cold]
    pub(super) fn log_foreign_key(&self, cookie: &str) {
        if !may_be_of_a_key(cookie) {
            return;
        }
        if let Some(left_out) = self.keys.admit() {
            tracing::warn!(
                left_out = left_out.field(),
                "the cookie of a session was made with another key, so a new session begins: \
                 `Key::generate()` makes another key at each start, and several instances need \
                 the same key"
            );
        }
    }

    /// Logs that a session was begun or used at a time that has not come yet.
    pub(super) fn log_foreign_clock(&self, record: &Record, now: u64) {
        let Some(seconds) = seconds_ahead(record, now) else { return };
        if let Some(left_out) = self.clocks.admit() {
            tracing::warn!(
                seconds,
                left_out = left_out.field(),
                "a session was used in the future: the clock of this instance is behind, or that \
                 of another one is ahead"
            );
        }
    }
}

fn may_be_of_a_key(cookie: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte);
    cookie.len() > COOKIE_BYTES_MIN && cookie.bytes().all(is_base64)
}

fn seconds_ahead(record: &Record, now: u64) -> Option<u64> {
    let ahead = record.created.max(record.touched).saturating_sub(now);
    (ahead > SKEW_SECONDS_MAX).then_some(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_may_be_ten_seconds_ahead() {
        let used = |created, touched| Record { created, touched, ..Record::new(0) };
        for (record, ahead) in [
            (used(100, 110), None),
            (used(100, 111), Some(11)),
            (used(111, 100), Some(11)),
            (used(0, 0), None),
        ] {
            assert_eq!(seconds_ahead(&record, 100), ahead);
        }
    }

    #[test]
    fn a_cookie_that_is_too_short_for_a_signature_is_no_sign_of_another_key() {
        for (cookie, may_be) in [
            ("x".repeat(COOKIE_BYTES_MIN), false),
            ("x".repeat(COOKIE_BYTES_MIN + 1), true),
            (" ".repeat(COOKIE_BYTES_MIN + 1), false),
        ] {
            assert_eq!(may_be_of_a_key(&cookie), may_be, "{cookie:?}");
        }
    }
}
