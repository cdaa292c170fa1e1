//! The places of streamed responses: a client that takes its response too slowly gives its place to
//! those that wait.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Permit;

/// How long a client may take nothing of its response while others wait. The system accepts some
/// hundred kilobytes at once for a slow client, and then nothing for some seconds.
const GRACE: Duration = Duration::from_secs(5);

/// The pace at which a client must take its response while others wait: the one that the engine
/// requires of peers when threads are scarce.
const BYTES_PER_SECOND_MIN: u32 = 64 * 1024;

/// The place of a response that is being sent. It is shared by the limit and by the reader.
pub(super) struct SendingPlace(Mutex<State>);

struct State {
    /// `None` when it was given to another request.
    permit: Option<Arc<Permit>>,
    /// The time by which the client must ask for the next part. Each part moves it by the time that
    /// the part may take, but never to more than `GRACE` from now. It may stay in the past: a
    /// client that reads a trickle does not catch up.
    deadline: Instant,
    /// Since when the program has been producing a part. This time does not count for the client.
    producing_since: Option<Instant>,
}

impl SendingPlace {
    pub(super) fn new(permit: Arc<Permit>, now: Instant) -> Self {
        let state = State { permit: Some(permit), deadline: now + GRACE, producing_since: None };
        Self(Mutex::new(state))
    }

    /// Takes the place of a client that is too slow. The caller drops it outside of its locks.
    pub(super) fn take_if_late(&self, now: Instant) -> Option<Arc<Permit>> {
        let mut state = self.0.lock();
        let is_late = state.producing_since.is_none() && now > state.deadline;
        if is_late { state.permit.take() } else { None }
    }

    /// Called when the client wants the next part. Returns `false` if its place is gone.
    fn begin_part(&self, now: Instant) -> bool {
        let mut state = self.0.lock();
        state.producing_since = Some(now);
        state.permit.is_some()
    }

    fn end_part(&self, bytes: usize, now: Instant) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let earned = Duration::from_secs(1) * bytes / BYTES_PER_SECOND_MIN;
        let mut state = self.0.lock();
        let produced = state.producing_since.take().map(|since| now.duration_since(since));
        let excused = state.deadline + produced.unwrap_or_default();
        state.deadline = (excused + earned).min(now + GRACE).max(excused);
    }
}

/// A reader that holds a place until it is dropped, or until the place is given to another request.
pub(super) struct PlaceReader {
    pub(super) reader: Box<dyn Read + Send>,
    pub(super) place: Arc<SendingPlace>,
}

impl Read for PlaceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.place.begin_part(Instant::now()) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client took its response too slowly while other requests waited for its \
                 place in a `ConcurrencyLimit`",
            ));
        }
        let read = self.reader.read(buffer);
        self.place.end_part(*read.as_ref().unwrap_or(&0), Instant::now());
        read
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConcurrencyLimit, Limiter};
    use super::*;

    #[test]
    fn a_client_keeps_its_place_as_long_as_it_keeps_the_pace() {
        let limiter = Arc::clone(&ConcurrencyLimit::new(1).limiter);
        let permit = Limiter::acquire(&limiter, None, None).ok().unwrap();
        let mut now = Instant::now();
        let place = SendingPlace::new(permit, now);
        // A megabyte in 16 s.
        for _ in 0..16 {
            now += Duration::from_secs(1);
            assert!(place.take_if_late(now).is_none());
            assert!(place.begin_part(now));
            // The program is slow, which is not the client's fault.
            now += GRACE * 2;
            assert!(place.take_if_late(now).is_none());
            place.end_part(64 * 1024, now);
        }
        assert!(place.take_if_late(now + GRACE).is_none());
        assert_eq!(limiter.counts.lock().running, 1);
        assert!(place.take_if_late(now + GRACE + Duration::from_millis(1)).is_some());
        assert!(!place.begin_part(now), "its place is gone");
        assert_eq!(limiter.counts.lock().running, 0);
    }

    #[test]
    fn a_trickle_and_an_early_burst_earn_no_time() {
        let limiter = Arc::clone(&ConcurrencyLimit::new(1).limiter);
        let permit = Limiter::acquire(&limiter, None, None).ok().unwrap();
        let mut now = Instant::now();
        let place = SendingPlace::new(permit, now);
        assert!(place.begin_part(now));
        place.end_part(100 << 20, now);
        let started = now;
        while place.take_if_late(now).is_none() {
            assert!(now < started + GRACE * 2, "1 KiB/s is too slow");
            now += Duration::from_secs(1);
            assert!(place.begin_part(now));
            place.end_part(1024, now);
            now += Duration::from_millis(1);
        }
    }

    #[test]
    fn a_client_earns_time_by_what_it_takes_and_not_by_the_room_that_there_is() {
        let limiter = Arc::clone(&ConcurrencyLimit::new(1).limiter);
        let permit = Limiter::acquire(&limiter, None, None).ok().unwrap();
        // So long ago that a pause of this thread does not matter.
        let then = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        let place = Arc::new(SendingPlace::new(permit, then));
        let mut reader = PlaceReader { reader: Box::new(&b"x"[..]), place: Arc::clone(&place) };
        assert_eq!(reader.read(&mut vec![0; 4 << 20]).unwrap(), 1);
        assert!(place.0.lock().deadline < then + GRACE + Duration::from_secs(30));
    }
}
