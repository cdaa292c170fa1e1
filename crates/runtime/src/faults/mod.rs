//! Fault injection for tests: the Nth read, write, accept or shutdown of a server fails or moves
//! only one byte, and clocks jump.
//!
//! A plan belongs to the configuration of one server, so tests do not affect each other. This
//! module is compiled for tests only.
//!
//! The framework has a similar plan of its own: a shared crate for both would have to be published
//! with them, for forty lines.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![cfg_attr(loom, allow(dead_code, reason = "models have no sockets"))]

#[cfg(not(loom))]
mod catches;
#[cfg(not(loom))]
mod clocks;
#[cfg(not(loom))]
mod echoes;
#[cfg(not(loom))]
mod exchanges;
#[cfg(not(loom))]
mod files;
#[cfg(not(loom))]
mod paces;
#[cfg(all(not(loom), feature = "tls-dev"))]
mod sealed;
#[cfg(not(loom))]
mod turns;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use parking_lot::Mutex;

/// A system call that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Accept,
    Read,
    Write,
    SendFile,
    Shutdown,
}

/// What happens instead of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails.
    Error(rustix::io::Errno),
    /// The call moves only one byte.
    OneByte,
}

/// Which calls of a server fail, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    call: Call,
    fault: Fault,
    /// The first call that fails, counted from 1, and how many fail from this one on.
    first: u64,
    times: u64,
    calls: AtomicU64,
    struck: AtomicU64,
}

impl Plan {
    pub(crate) fn new(call: Call, first: u64, times: u64, fault: Fault) -> Self {
        Self { call, fault, first, times, calls: AtomicU64::new(0), struck: AtomicU64::new(0) }
    }

    /// Returns how many calls the fault has changed.
    pub(crate) fn struck(&self) -> u64 {
        self.struck.load(Ordering::SeqCst)
    }

    /// Returns how many calls of this kind there were.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Called before each system call. Returns how many bytes it may move, or the error with which
    /// it fails.
    pub(crate) fn before(&self, call: Call, length: usize) -> io::Result<usize> {
        if call != self.call {
            return Ok(length);
        }
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if number < self.first || number - self.first >= self.times {
            return Ok(length);
        }
        self.struck.fetch_add(1, Ordering::SeqCst);
        match self.fault {
            Fault::Error(error) => Err(error.into()),
            Fault::OneByte => Ok(length.min(1)),
        }
    }
}

/// Where a socket is registered. The poller is edge-triggered: after an injected fault, the
/// socket's readiness must be reported again.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<Option<(Registry, Token, Interest)>>);

impl Watched {
    pub(crate) fn by(&self, registry: &Registry, token: Token, interest: Interest) {
        *self.0.lock() = Some((registry.try_clone().unwrap(), token, interest));
    }

    pub(crate) fn by_nobody(&self) {
        *self.0.lock() = None;
    }

    pub(crate) fn tell_again(&self, socket: &impl AsRawFd) {
        if let Some((registry, token, interest)) = &*self.0.lock() {
            registry.reregister(&mut SourceFd(&socket.as_raw_fd()), *token, *interest).unwrap();
        }
    }
}

/// How far the clocks of a server's threads have jumped, in seconds: forward, or back if negative.
#[derive(Debug, Default)]
pub(crate) struct Jumps {
    pub(crate) monotonic: AtomicI64,
    pub(crate) wall: AtomicI64,
}

impl Jumps {
    pub(crate) fn now(&self) -> Instant {
        let (now, seconds) = (Instant::now(), self.monotonic.load(Ordering::SeqCst));
        let distance = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { now.checked_sub(distance).unwrap() } else { now + distance }
    }

    pub(crate) fn wall(&self) -> SystemTime {
        let (now, seconds) = (SystemTime::now(), self.wall.load(Ordering::SeqCst));
        let distance = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { now - distance } else { now + distance }
    }
}

#[test]
fn a_plan_fails_exactly_the_given_calls() {
    let plan = Plan::new(Call::Read, 2, 2, Fault::OneByte);
    let moved: Vec<usize> = (0..5).map(|_| plan.before(Call::Read, 9).unwrap()).collect();
    assert_eq!(moved, [9, 1, 1, 9, 9]);
    assert_eq!(plan.before(Call::Write, 9).unwrap(), 9);
    assert_eq!((plan.struck(), plan.calls()), (2, 5));
}
