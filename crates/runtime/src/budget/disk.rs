//! The disk on which contents wait: how much of it may be used.

use std::path::Path;

/// No more than this is used by default, however large the disk is.
const BYTES_MAX: u64 = 8 << 30;

/// Half of what is free is for the program and for others.
const FREE_SHARE: u64 = 2;

/// Files of a disk that is memory take memory in addition to the budget for memory, so at most that
/// budget divided by this is for them.
const MEMORY_SHARE: u64 = 2;

/// The file system of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    /// Whether its files lie in memory, as on many systems those of `/tmp` do.
    pub(crate) is_memory: bool,
    /// The free bytes, if the system reports them.
    free: Option<u64>,
}

impl Disk {
    /// Returns what the system reports about the file system of a folder.
    #[cfg(unix)]
    pub(crate) fn of(folder: &Path) -> Self {
        let stat = rustix::fs::statvfs(folder).ok();
        let free = stat.map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        Self { is_memory: is_memory(folder), free }
    }

    #[cfg(not(unix))]
    pub(crate) fn of(_: &Path) -> Self {
        Self::default()
    }

    /// Returns how many bytes of contents may wait here by default. `memory_max` is the budget for
    /// contents in memory.
    pub(crate) fn spooled_bytes_max(self, memory_max: u64) -> u64 {
        let free = self.free.map_or(BYTES_MAX, |free| free / FREE_SHARE);
        let memory = if self.is_memory { memory_max / MEMORY_SHARE } else { BYTES_MAX };
        BYTES_MAX.min(free).min(memory)
    }
}

#[cfg(target_os = "linux")]
fn is_memory(folder: &Path) -> bool {
    /// The types of `tmpfs` and `ramfs` in `linux/magic.h`.
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

    #[allow(
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        reason = "its type depends on the C \
            library"
    )]
    rustix::fs::statfs(folder).is_ok_and(|stat| IN_MEMORY.contains(&(stat.f_type as u64)))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn is_memory(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_follows_from_the_disk_and_the_memory() {
        const GIB: u64 = 1 << 30;
        for (is_memory, free, memory_max, expected) in [
            (false, None, GIB, 8 * GIB),
            (false, Some(100 * GIB), GIB, 8 * GIB),
            (false, Some(5 * GIB), GIB, 5 * GIB / 2),
            (false, Some(0), GIB, 0),
            (true, Some(100 * GIB), GIB, GIB / 2),
            (true, Some(GIB / 2), GIB, GIB / 4),
            (true, None, 100 * GIB, 8 * GIB),
        ] {
            let disk = Disk { is_memory, free };
            assert_eq!(disk.spooled_bytes_max(memory_max), expected, "{disk:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_disk_that_is_memory_is_recognised() {
        let found = |path| Disk::of(Path::new(path));
        assert!(!found("/proc").is_memory && !found("/nowhere/at/all").is_memory);
        // A container in which the tests run may have no such mount.
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        if mounts.lines().any(|mount| mount.contains(" /dev/shm tmpfs ")) {
            let disk = found("/dev/shm");
            assert!(disk.is_memory && disk.free.is_some(), "{disk:?}");
        }
    }
}
