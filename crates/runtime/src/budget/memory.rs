//! The budget for the memory of all peers together: contents that are collected, bytes that wait to
//! be read or sent, requests that wait, and what the readers of unread responses keep. What is
//! answered at once is not charged.
//!
//! Nothing ever waits for this memory. A content either grows or is refused, and a request is
//! queued or refused, so incomplete ones cannot block each other. Before that, the deadlines get
//! shorter: when half of the budget is used, silent and slow peers lose their connections
//! ([`Pace::pressed_deadline`](crate::clock::Pace)). The last quarter is reserved for short
//! contents. What peers make the server remember for as long as their connections are open, such as
//! their rooms, is a quarter at most, whatever else is used.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::budget::estimates::Estimates;

/// The budget is one part in this many of the memory. The program needs the rest.
const SHARE: usize = 4;

/// The budget if the system does not report its memory.
const BYTES_UNKNOWN: usize = 1 << 30;

/// The minimum budget. A few contents must fit even if the share is smaller.
const BYTES_MIN: usize = 8 << 20;

/// The maximum length of a short content. The last quarter of the budget is reserved for short
/// contents: longer ones neither begin nor grow in it.
pub(crate) const SHORT_BYTES: usize = 64 * 1024;

/// The event loops, as far as the budget uses them.
pub(crate) trait WakeLoops: Send + Sync {
    /// Wakes all event loops, so that they close slow peers. Any thread may call this, also with
    /// locks that protect what is charged.
    fn wake_loops(&self);
}

/// The number of buffered bytes, and their maximum.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes_max: usize,
    used: AtomicUsize,
    /// The part of `used` that is held for as long as a connection is open.
    lasting: AtomicUsize,
    /// When at least this many bytes are used, slow peers are closed: half of the budget, or 0
    /// while the disk space for contents is short. A loop checks both with one comparison.
    pressed_from: AtomicUsize,
    estimates: Estimates,
    /// Not set without an engine.
    loops: OnceLock<Weak<dyn WakeLoops>>,
}

impl Memory {
    /// Returns a budget of this many bytes, or of a share of the system's memory.
    pub(crate) fn new(bytes_max: Option<usize>) -> Arc<Self> {
        let bytes_max = bytes_max.unwrap_or_else(share);
        let (used, lasting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let pressed_from = AtomicUsize::new(bytes_max / 2);
        let estimates = Estimates::new(bytes_max);
        let loops = OnceLock::new();
        Arc::new(Self { bytes_max, used, lasting, pressed_from, estimates, loops })
    }

    /// Sets the event loops that are woken when memory or disk space becomes short. Only the first
    /// call counts.
    pub(crate) fn attach(&self, loops: Weak<dyn WakeLoops>) {
        let _ = self.loops.set(loops);
    }

    /// Wakes the event loops. A loop that sleeps holds as much as others, and the thread that
    /// makes memory short may be none of them.
    #[cold]
    #[inline(never)]
    fn wake_loops(&self) {
        if let Some(loops) = self.loops.get().and_then(Weak::upgrade) {
            loops.wake_loops();
        }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns what code of the program takes for requests, as far as is known.
    pub(super) fn estimates(&self) -> &Estimates {
        &self.estimates
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Displays what uses the memory.
    pub(crate) fn usage(&self) -> impl fmt::Display + use<> {
        format!(
            "contents that arrive and output that peers have not taken have {} of the {} bytes of \
             `ServerConfig::memory_max`, of which a quarter is for short contents",
            self.used(),
            self.bytes_max
        )
    }

    /// Returns whether slow peers must be closed, those whose contents wait in files included.
    pub(crate) fn is_pressed(&self) -> bool {
        self.used() >= self.pressed_from.load(Ordering::Relaxed)
    }

    /// Returns whether memory itself is short.
    pub(crate) fn is_short(&self) -> bool {
        self.used() >= self.short_from()
    }

    fn short_from(&self) -> usize {
        self.bytes_max / 2
    }

    /// Returns whether the disk space for contents is short.
    pub(crate) fn is_disk_short(&self) -> bool {
        self.pressed_from.load(Ordering::Relaxed) == 0
    }

    /// Records whether the disk space for contents is short. The caller makes sure that the last
    /// change is recorded last.
    #[cfg(feature = "spool")]
    pub(crate) fn set_disk_short(&self, is_short: bool) {
        let from = if is_short { 0 } else { self.short_from() };
        let before = self.pressed_from.swap(from, Ordering::Relaxed);
        if is_short && before != from {
            self.wake_loops();
        }
    }

    /// Returns whether more than the budget is used.
    pub(crate) fn is_used_up(&self) -> bool {
        self.used() > self.bytes_max
    }

    /// Returns whether a content of this length may begin.
    pub(super) fn may_begin(&self, length: usize) -> bool {
        self.used() < self.long_max() || length <= SHORT_BYTES
    }

    /// Returns how many bytes may be used in all when a content grows to this many bytes.
    pub(super) fn used_max(&self, bytes: usize) -> usize {
        if bytes > SHORT_BYTES { self.long_max() } else { self.bytes_max }
    }

    fn long_max(&self) -> usize {
        self.bytes_max / 4 * 3
    }

    /// Counts bytes that are held for as long as a connection is open, in addition to
    /// [`add`](Self::add). Returns how many more of them there may be, or `None` if these are too
    /// many and do not count. No peer that is closed for lack of memory would release them, so they
    /// must not bring memory near the half from which it is short.
    pub(super) fn try_add_lasting(&self, bytes: usize) -> Option<usize> {
        let used = self.lasting.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let left = (self.bytes_max / 4).checked_sub(used);
        if left.is_none() {
            self.remove_lasting(bytes);
        }
        left
    }

    /// Removes bytes from the count of [`try_add_lasting`](Self::try_add_lasting).
    pub(super) fn remove_lasting(&self, bytes: usize) {
        self.lasting.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts more bytes. Returns how many bytes are then used.
    #[inline(never)]
    pub(super) fn add(&self, bytes: usize) -> usize {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let used = before.saturating_add(bytes);
        if before < self.short_from() && used >= self.short_from() {
            self.wake_loops();
        }
        used
    }

    /// Removes bytes from the count.
    pub(super) fn remove(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Returns the share of the memory of the machine or of the container.
fn share() -> usize {
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| total_of(&text));
    let container = [
        // The files of both versions of control groups, as a container sees its own group.
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let limits = container.iter().filter_map(|path| read(path)?.trim().parse().ok());
    share_of(machine.into_iter().chain(limits).min())
}

/// Returns the share of this memory, if it is known.
fn share_of(total: Option<usize>) -> usize {
    total.map_or(BYTES_UNKNOWN, |bytes: usize| (bytes / SHARE).max(BYTES_MIN))
}

/// Returns `MemTotal` of `/proc/meminfo` in bytes.
fn total_of(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_computed_from_the_total_memory() {
        assert_eq!(
            total_of("MemTotal:       24689856 kB\nMemFree: 1 kB\n"),
            Some(24_689_856 * 1024)
        );
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
        assert!(share() >= BYTES_MIN);
    }

    #[test]
    fn a_quarter_of_the_memory_is_shared_and_a_small_machine_shares_a_minimum() {
        assert_eq!(share_of(Some(1 << 32)), 1 << 30);
        assert_eq!(share_of(Some(SHARE * BYTES_MIN + SHARE)), BYTES_MIN + 1);
        assert_eq!(share_of(Some(1)), BYTES_MIN);
        assert_eq!(share_of(None), BYTES_UNKNOWN);
    }

    #[test]
    fn memory_is_short_from_a_half_on_and_used_up_beyond_its_maximum() {
        let memory = Memory::new(Some(100));
        let state = || (memory.is_pressed(), memory.is_short(), memory.is_used_up());
        for (more, expected) in [
            (49, (false, false, false)),
            (1, (true, true, false)),
            (50, (true, true, false)),
            (1, (true, true, true)),
        ] {
            memory.add(more);
            assert_eq!(state(), expected, "{} bytes", memory.used());
        }
    }
}
