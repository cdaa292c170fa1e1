//! The request rate of a loop: how many requests per second a blocking call would delay.

use std::time::{Duration, Instant};

/// The shortest period over which requests are counted.
const WINDOW: Duration = Duration::from_millis(20);

/// The rate of requests on a loop with several active connections.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    per_second: u32,
    requests: u64,
    window_began: Option<Instant>,
    /// The connection of the last event.
    last: Option<usize>,
    /// Whether this window had events of several connections.
    is_shared: bool,
}

impl Traffic {
    /// Returns the requests per second in the last window. Returns 0 while only one connection
    /// sends: its next request waits for the response to the last one, so no request is delayed.
    pub(super) fn per_second(&self) -> u32 {
        self.per_second
    }

    pub(super) fn count(&mut self, requests: u64) {
        self.requests += requests;
    }

    /// Records an event of a connection.
    #[inline]
    pub(super) fn record_event(&mut self, token: usize) {
        if self.last != Some(token) {
            self.is_shared |= self.last.is_some();
            self.last = Some(token);
        }
    }

    /// Ends the window if it was long enough.
    #[inline]
    pub(super) fn update(&mut self, now: Instant) {
        match self.window_began {
            Some(began) if now.saturating_duration_since(began) < WINDOW => {}
            began => self.begin_anew(began, now),
        }
    }

    #[cold]
    fn begin_anew(&mut self, began: Option<Instant>, now: Instant) {
        let requests = if self.is_shared { self.requests } else { 0 };
        let millis = began
            .map_or(u128::MAX, |began| now.saturating_duration_since(began).as_millis().max(1));
        self.per_second = u32::try_from(u128::from(requests) * 1000 / millis).unwrap_or(u32::MAX);
        self.requests = 0;
        self.is_shared = false;
        self.window_began = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rate after requests of these connections, one after the other, within this time.
    fn after(tokens: &[usize], time: Duration) -> u32 {
        let mut traffic = Traffic::default();
        let began = Instant::now();
        traffic.update(began);
        for token in tokens {
            traffic.record_event(*token);
            traffic.count(1);
        }
        traffic.update(began + time);
        traffic.per_second()
    }

    #[test]
    fn requests_of_several_connections_are_counted_per_second() {
        assert_eq!(after(&[1, 2, 1, 2], Duration::from_millis(20)), 200);
        assert_eq!(after(&[1, 2, 1, 2], Duration::from_secs(2)), 2);
        assert_eq!(after(&[1, 2, 1, 2], Duration::from_secs(20)), 0);
    }

    #[test]
    fn a_single_connection_has_a_rate_of_zero() {
        assert_eq!(after(&[7; 1000], Duration::from_millis(20)), 0);
        assert_eq!(after(&[], Duration::from_millis(20)), 0);
    }

    #[test]
    fn a_window_is_not_cut_short() {
        assert_eq!(after(&[1, 2, 3], Duration::from_millis(19)), 0);
    }

    #[test]
    fn a_window_knows_nothing_of_the_one_before() {
        let mut traffic = Traffic::default();
        let mut now = Instant::now();
        traffic.update(now);
        let mut window = |tokens: &[usize], requests| {
            tokens.iter().for_each(|token| traffic.record_event(*token));
            traffic.count(requests);
            now += Duration::from_secs(1);
            traffic.update(now);
            traffic.per_second()
        };
        assert_eq!(window(&[1, 2], 50), 50);
        assert_eq!(window(&[1, 2], 7), 7);
        assert_eq!(window(&[2, 2], 7), 0, "only one connection sends");
    }
}
