//! The budget for the memory of all peers together: contents that are collected, bytes that wait to
//! be read or sent, requests that wait, and what the readers of unread responses keep. What is
//! answered at once is not charged.
//!
//! Nothing ever waits for memory. A content either grows or is refused, and a request is queued or
//! refused, so incomplete ones cannot block each other. Before that, the deadlines get shorter:
//! when half of the budget is used, silent and slow peers lose their connections
//! ([`Pace::pressed_deadline`](crate::clock::Pace)). The last quarter is reserved for short
//! contents.

use std::fmt;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget is one part in this many of the memory. The program needs the rest.
const SHARE: usize = 4;

/// The budget if the system does not report its memory.
const BYTES_UNKNOWN: usize = 1 << 30;

/// The minimum budget. A few contents must fit even if the share is smaller.
const BYTES_MIN: usize = 8 << 20;

/// The maximum length of a short content. The last quarter of the budget is reserved for short
/// contents: longer ones neither begin nor grow in it.
pub(crate) const SHORT_BYTES: usize = 64 * 1024;

/// The number of buffered bytes, and their maximum.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes_max: usize,
    used: AtomicUsize,
    /// From this use on, slow peers are closed: half of the budget, or 0 while the disk space for
    /// contents is short. One comparison tells a loop of both.
    pressed_from: AtomicUsize,
}

impl Memory {
    /// Returns a budget of this many bytes, or of a share of the system's memory.
    pub(crate) fn new(bytes_max: Option<usize>) -> Arc<Self> {
        let bytes_max = bytes_max.unwrap_or_else(share);
        let (used, pressed_from) = (AtomicUsize::new(0), AtomicUsize::new(bytes_max / 2));
        Arc::new(Self { bytes_max, used, pressed_from })
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
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
        self.used() >= self.bytes_max / 2
    }

    /// Returns whether the disk space for contents is short.
    pub(crate) fn is_disk_short(&self) -> bool {
        self.pressed_from.load(Ordering::Relaxed) == 0
    }

    /// Records whether the disk space for contents is short. The caller makes sure that the last
    /// change is recorded last.
    #[cfg(feature = "spool")]
    pub(crate) fn set_disk_short(&self, is_short: bool) {
        let from = if is_short { 0 } else { self.bytes_max / 2 };
        self.pressed_from.store(from, Ordering::Relaxed);
    }

    /// Returns whether nothing is left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.used() > self.bytes_max
    }

    /// Returns whether a content may begin. `length` is `None` if it is unknown.
    pub(crate) fn may_begin(&self, length: Option<u64>) -> bool {
        self.used() < self.long_max() || length.is_some_and(|length| length <= SHORT_BYTES as u64)
    }

    /// Returns up to which use a long content may grow.
    fn long_max(&self) -> usize {
        self.bytes_max / 4 * 3
    }
}

/// The part of the budget that one owner uses. Dropping it releases the bytes.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    memory: Option<Arc<Memory>>,
    bytes: usize,
}

impl Charge {
    pub(crate) fn of(memory: &Arc<Memory>) -> Self {
        Self { memory: Some(Arc::clone(memory)), bytes: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the bytes count in a budget. Those of a default charge do not.
    pub(crate) fn is_counted(&self) -> bool {
        self.memory.is_some()
    }

    /// Charges this many bytes to the budget of `other`, as [`set`](Self::set) does.
    pub(crate) fn set_beside(&mut self, other: &Self, bytes: usize) {
        if let Some(memory) = &other.memory {
            self.set(memory, bytes);
        }
    }

    /// Changes the number of bytes if the budget allows it. A smaller number is always allowed.
    pub(crate) fn try_set(&mut self, bytes: usize) -> bool {
        let Some(memory) = &self.memory else { return true };
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let before = memory.used.fetch_add(more, Ordering::Relaxed);
            let used_max = if bytes > SHORT_BYTES { memory.long_max() } else { memory.bytes_max };
            if before.saturating_add(more) > used_max {
                memory.used.fetch_sub(more, Ordering::Relaxed);
                return false;
            }
        } else {
            memory.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        true
    }

    /// Changes the number of bytes regardless of the budget. The bytes already exist and are
    /// bounded elsewhere.
    pub(crate) fn set(&mut self, memory: &Arc<Memory>, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        let memory = self.memory.get_or_insert_with(|| Arc::clone(memory));
        memory.used.fetch_add(bytes, Ordering::Relaxed);
        memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// As [`set`](Self::set), for this many additional bytes.
    pub(crate) fn add(&mut self, memory: &Arc<Memory>, bytes: usize) {
        self.set(memory, self.bytes + bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
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
    let least = machine.into_iter().chain(limits).min();
    least.map_or(BYTES_UNKNOWN, |bytes: usize| (bytes / SHARE).max(BYTES_MIN))
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
    fn a_charge_beyond_the_budget_changes_nothing() {
        let memory = Memory::new(Some(1000));
        let (mut one, mut other) = (Charge::of(&memory), Charge::of(&memory));
        assert!(one.try_set(600) && other.try_set(400));
        assert!(!one.try_set(601));
        assert_eq!(memory.used(), 1000);
        assert!(other.try_set(100) && one.try_set(900));
        drop(one);
        assert_eq!(memory.used(), 100);
        other.set(&memory, 5000);
        assert_eq!(memory.used(), 5000, "existing bytes are counted");
        assert!(!other.try_set(5001) && other.try_set(50));
        drop(other);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn long_contents_leave_room_for_short_ones() {
        let memory = Memory::new(Some(16 * SHORT_BYTES));
        let mut long: Vec<Charge> = (0..8).map(|_| Charge::of(&memory)).collect();
        assert!(long[..6].iter_mut().all(|charge| charge.try_set(2 * SHORT_BYTES)));
        assert!(!long[6].try_set(SHORT_BYTES + 1));
        let mut short: Vec<Charge> = (0..4).map(|_| Charge::of(&memory)).collect();
        assert!(short.iter_mut().all(|charge| charge.try_set(SHORT_BYTES)));
        assert!(!long[7].try_set(1), "the whole budget is used");
    }

    #[test]
    fn slow_peers_are_closed_first_and_then_only_short_contents_begin() {
        let memory = Memory::new(Some(1000));
        let mut charge = Charge::default();
        let short = SHORT_BYTES as u64;
        for (used, is_pressed, may_begin_long) in [
            (499, false, true),
            (500, true, true),
            (749, true, true),
            (750, true, false),
            (2000, true, false),
        ] {
            charge.set(&memory, used);
            assert_eq!(memory.is_pressed(), is_pressed, "{used}");
            assert_eq!(memory.may_begin(Some(short + 1)), may_begin_long, "{used}");
            assert_eq!(memory.may_begin(None), may_begin_long, "{used}");
            assert!(memory.may_begin(Some(short)), "{used}");
        }
    }

    #[test]
    fn the_share_is_computed_from_the_total_memory() {
        assert_eq!(
            total_of("MemTotal:       24689856 kB\nMemFree: 1 kB\n"),
            Some(24_689_856 * 1024)
        );
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
        assert!(share() >= BYTES_MIN);
    }
}
