//! One budget for what the engine buffers of all peers: contents that are collected, and what waits
//! to be read or sent.
//!
//! Nobody ever waits for memory: a content either grows or is refused, so contents that are half
//! there cannot keep each other from being finished. What comes before that is patience: from half
//! of the budget on, peers that are silent or slow lose theirs
//! ([`Pace::pressed_deadline`](crate::clock::Pace)); the last quarter is for short contents.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Of the memory that there is, the rest is for the program.
const SHARE: usize = 4;

/// The budget where the system does not say how much memory there is.
const BYTES_UNKNOWN: usize = 1 << 30;

/// The least budget, whatever the share is: a few contents must fit.
const BYTES_MIN: usize = 8 << 20;

/// A content up to this is short. The last quarter of the budget is for short contents: those that
/// are longer neither begin nor grow in it.
pub(crate) const SHORT_BYTES: usize = 64 * 1024;

/// How much is buffered, and how much may be.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes_max: usize,
    used: AtomicUsize,
}

impl Memory {
    /// Returns a budget of so many bytes, or of a share of the memory that there is.
    pub(crate) fn new(bytes_max: Option<usize>) -> Arc<Self> {
        Arc::new(Self { bytes_max: bytes_max.unwrap_or_else(share), used: AtomicUsize::new(0) })
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether slow peers have to go.
    pub(crate) fn is_pressed(&self) -> bool {
        self.used() >= self.bytes_max / 2
    }

    /// Whether nothing is left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.used() > self.bytes_max
    }

    /// Whether a content of this length, if that is known, may begin.
    pub(crate) fn may_begin(&self, length: Option<u64>) -> bool {
        self.used() < self.long_max() || length.is_some_and(|length| length <= SHORT_BYTES as u64)
    }

    /// How much may be used for a long content to grow.
    fn long_max(&self) -> usize {
        self.bytes_max / 4 * 3
    }
}

/// What one owner has of the budget. Dropped, it is given back.
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

    /// Has so many bytes from now on, if the budget allows it. It always allows fewer than before.
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

    /// Has so many bytes from now on, whatever the budget says: they are there already, and are
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

    /// As [`set`](Self::set), for so many bytes more.
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

/// A share of the machine's memory, or of the container's.
fn share() -> usize {
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| total_of(&text));
    let container = [
        // The two versions of control groups, as a container sees its own.
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let limits = container.iter().filter_map(|path| read(path)?.trim().parse().ok());
    let least = machine.into_iter().chain(limits).min();
    least.map_or(BYTES_UNKNOWN, |bytes: usize| (bytes / SHARE).max(BYTES_MIN))
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total_of(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_that_would_go_beyond_the_budget_leaves_everything_as_it_was() {
        let memory = Memory::new(Some(1000));
        let (mut one, mut other) = (Charge::of(&memory), Charge::of(&memory));
        assert!(one.try_set(600) && other.try_set(400));
        assert!(!one.try_set(601));
        assert_eq!(memory.used(), 1000);
        assert!(other.try_set(100) && one.try_set(900));
        drop(one);
        assert_eq!(memory.used(), 100);
        other.set(&memory, 5000);
        assert_eq!(memory.used(), 5000, "what is there is counted");
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
        assert!(!long[7].try_set(1), "all of it is used");
    }

    #[test]
    fn slow_peers_go_first_and_then_only_short_contents_begin() {
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
    fn the_share_is_of_the_memory_that_there_is() {
        assert_eq!(
            total_of("MemTotal:       24689856 kB\nMemFree: 1 kB\n"),
            Some(24_689_856 * 1024)
        );
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
        assert!(share() >= BYTES_MIN);
    }
}
