//! The system calls of the loop, with as little code as possible around them.

use std::io;
use std::os::fd::RawFd;
use std::{mem, ptr};

/// Enough for one wait to report every connection of a usual run.
const EVENTS_MAX: usize = 512;

const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
pub const HUNG_UP: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// Edge-triggered: a level-triggered socket is reported again by the next wait, only to be found
/// empty (2 % of CPU time per request when both were measured).
const EDGE: u32 = libc::EPOLLET as u32 | libc::EPOLLRDHUP as u32;

pub struct Epoll(RawFd);

pub type Events = [libc::epoll_event; EVENTS_MAX];

pub fn events() -> Box<Events> {
    Box::new([libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX])
}

impl Epoll {
    pub fn open() -> Self {
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(fd >= 0, "no epoll: {}", io::Error::last_os_error());
        Self(fd)
    }

    pub fn wait<'a>(&self, events: &'a mut Events) -> &'a [libc::epoll_event] {
        let count = unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), EVENTS_MAX as i32, -1) };
        // An interrupted wait reports nothing, and the caller waits again.
        &events[..usize::try_from(count).unwrap_or(0)]
    }

    pub fn add_listener(&self, fd: RawFd) {
        self.control(libc::EPOLL_CTL_ADD, fd, READABLE);
    }

    pub fn add(&self, fd: RawFd) {
        self.control(libc::EPOLL_CTL_ADD, fd, READABLE | EDGE);
    }

    pub fn expect_writes(&self, fd: RawFd) {
        self.control(libc::EPOLL_CTL_MOD, fd, READABLE | WRITABLE | EDGE);
    }

    pub fn expect_reads(&self, fd: RawFd) {
        self.control(libc::EPOLL_CTL_MOD, fd, READABLE | EDGE);
    }

    fn control(&self, operation: i32, fd: RawFd, events: u32) {
        let mut event = libc::epoll_event { events, u64: fd as u64 };
        let result = unsafe { libc::epoll_ctl(self.0, operation, fd, &raw mut event) };
        assert!(result == 0, "epoll_ctl: {}", io::Error::last_os_error());
    }
}

pub fn recv(fd: RawFd, buffer: &mut [u8]) -> Option<usize> {
    let read = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(read).ok()
}

pub fn send(fd: RawFd, bytes: &[u8]) -> Option<usize> {
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(sent).ok()
}

/// Whether the last call failed only because the socket was not ready.
pub fn would_block() -> bool {
    io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
}

pub fn seconds() -> i64 {
    unsafe { libc::time(ptr::null_mut()) }
}

pub fn http_date(seconds: i64) -> String {
    let mut text = [0_u8; 32];
    let length = unsafe {
        let mut parts = mem::zeroed();
        libc::gmtime_r(&raw const seconds, &raw mut parts);
        let format = c"%a, %d %b %Y %H:%M:%S GMT";
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &raw const parts)
    };
    String::from_utf8_lossy(&text[..length]).into_owned()
}
