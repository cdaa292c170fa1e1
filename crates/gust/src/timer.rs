//! Waits for events of sockets, with a timeout that is more precise than a millisecond.
//!
//! On Linux the timeout of a poller is rounded up to whole milliseconds, in which 20 requests are
//! due at 20,000/s. There a timer file descriptor (`timerfd`) wakes the poller in time. Other
//! systems have only the timeout.

use std::io;

use mio::{Events, Poll};

use crate::units::Nanos;

pub(crate) use imp::Timer;

/// Waits for events for at most `wait`. An interruption by a signal counts as a wake-up.
fn poll(poll: &mut Poll, events: &mut Events, wait: Nanos) -> io::Result<()> {
    match poll.poll(events, Some(std::time::Duration::from_nanos(wait))) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        other => other,
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    use mio::unix::SourceFd;
    use mio::{Events, Interest, Poll, Token};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    use crate::units::{Nanos, SECOND};

    #[derive(Debug)]
    pub(crate) struct Timer {
        descriptor: Option<OwnedFd>,
    }

    impl Timer {
        /// Returns a timer. No socket may have the same token. Without `is_precise` no descriptor
        /// is created.
        pub(crate) fn new(poll: &Poll, token: Token, is_precise: bool) -> io::Result<Self> {
            if !is_precise {
                return Ok(Self { descriptor: None });
            }
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            // Events are edge-triggered, and setting the timer again is an edge, so the descriptor
            // is never read.
            poll.registry().register(
                &mut SourceFd(&descriptor.as_raw_fd()),
                token,
                Interest::READABLE,
            )?;
            Ok(Self { descriptor: Some(descriptor) })
        }

        /// Waits for events for at most `wait`.
        pub(crate) fn wait(
            &mut self,
            poll: &mut Poll,
            events: &mut Events,
            wait: Nanos,
        ) -> io::Result<()> {
            // Also for a long wait: the rounding would be a part of the latency of the request that
            // is due at its end.
            if let Some(descriptor) = self.descriptor.as_ref().filter(|_| wait > 0) {
                let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
                let until = Timespec {
                    tv_sec: i64::try_from(wait / SECOND).unwrap_or(0),
                    tv_nsec: i64::try_from(wait % SECOND).unwrap_or(0),
                };
                let setting = Itimerspec { it_interval: zero, it_value: until };
                timerfd_settime(descriptor, TimerfdTimerFlags::empty(), &setting)?;
            }
            super::poll(poll, events, wait)
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;

    use mio::{Events, Poll, Token};

    use crate::units::Nanos;

    #[derive(Debug)]
    pub(crate) struct Timer;

    impl Timer {
        pub(crate) fn new(_poll: &Poll, _token: Token, _is_precise: bool) -> io::Result<Self> {
            Ok(Self)
        }

        /// Waits for events for at most `wait`.
        pub(crate) fn wait(
            &mut self,
            poll: &mut Poll,
            events: &mut Events,
            wait: Nanos,
        ) -> io::Result<()> {
            super::poll(poll, events, wait)
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::time::Instant;

    use mio::Token;

    use super::*;
    use crate::units::{MICROSECOND, MILLISECOND, nanos};

    /// The descriptor ends waits, because the poller counts in whole milliseconds.
    #[test]
    fn a_wait_is_never_cut_short_and_ended_by_the_timer_if_there_is_one() {
        let mut events = Events::with_capacity(8);
        for (is_precise, wait, is_by_timer) in [
            (true, 300 * MICROSECOND, true),
            (true, 9999 * MICROSECOND, true),
            (true, 12 * MILLISECOND, true),
            (true, 0, false),
            (false, 300 * MICROSECOND, false),
        ] {
            let mut poll = Poll::new().unwrap();
            let mut timer = Timer::new(&poll, Token(7), is_precise).unwrap();
            let begun = Instant::now();
            timer.wait(&mut poll, &mut events, wait).unwrap();
            assert!(nanos(begun.elapsed()) >= wait, "{wait}");
            let is_ended_by_timer = events.iter().any(|event| event.token() == Token(7));
            assert_eq!(is_ended_by_timer, is_by_timer, "{is_precise} {wait}");
        }
    }
}
