//! The little of epoll that a client needs.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

const EVENTS_MAX: usize = 1024;

/// Edge-triggered for reads and writes: whoever is named reads until a read comes back short.
#[derive(Debug)]
pub struct Poll(OwnedFd);

impl Poll {
    pub fn new() -> io::Result<Self> {
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn add(&self, fd: RawFd, index: usize) -> io::Result<()> {
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: interest as u32, u64: index as u64 };
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) })?;
        Ok(())
    }

    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        let nothing = std::ptr::null_mut();
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, nothing) })?;
        Ok(())
    }

    /// Fills `ready` with the indices that can be read or written; empty when the time is up.
    pub fn wait(&self, ready: &mut Vec<usize>, at_most: Duration) -> io::Result<()> {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        // Rounded up: a wait of 0 ms would spin until the deadline.
        let milliseconds = i32::try_from(at_most.as_millis() + 1).unwrap_or(i32::MAX);
        let count = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), EVENTS_MAX as i32, milliseconds)
        };
        match check(count) {
            Ok(count) => ready.extend(events[..count as usize].iter().map(|event| event.u64 as usize)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
