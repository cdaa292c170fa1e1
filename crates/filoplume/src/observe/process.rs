//! What Linux tells of the process, under the names that the client libraries of Prometheus use.
//! Dashboards and alerts for these exist already.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;
use std::time::Duration;

use super::open_metrics::OpenMetrics;

/// The unit of times in `/proc/self/stat`. It is the same on every architecture that Rust's
/// standard library supports on Linux.
const TICKS_PER_SECOND: u64 = 100;

/// Longer than the files of `/proc` that are read. Linux returns each of them in one piece.
const FILE_BYTES_MAX: usize = 8 * 1024;

/// Files that stay open. A process that has used up its descriptors could not open them, and then
/// its figures matter most.
static LIMITS: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/limits").ok());
static STATUS: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/status").ok());

/// When the process was started, since 1970.
static STARTED: LazyLock<Option<Duration>> = LazyLock::new(started);

/// Opens the files and reads what does not change, while there are descriptors.
pub(crate) fn open_files() {
    for file in [&LIMITS, &STATUS] {
        LazyLock::force(file);
    }
    LazyLock::force(&STARTED);
}

/// Returns what the file says at this moment.
fn read(file: Option<&File>) -> Option<String> {
    let mut bytes = vec![0; FILE_BYTES_MAX];
    let length = file?.read_at(&mut bytes, 0).ok()?;
    bytes.truncate(length);
    String::from_utf8(bytes).ok()
}

/// Writes what can be read now. Files that a sandbox hides are left out. The text of the metrics is
/// formatted at most twice a second, which bounds the cost of counting the descriptors.
pub(super) fn write_process(text: &mut OpenMetrics) {
    if let Some(count) = open_descriptors() {
        text.family("process_open_fds", "gauge", "Open descriptors of the process.");
        text.gauge("", count);
    }
    if let Some(max) = descriptors_max() {
        text.family("process_max_fds", "gauge", "The maximum of open descriptors.");
        text.gauge("", max);
    }
    if let Some(started) = *STARTED {
        let help = "When the process was started, in seconds since 1970.";
        text.family("process_start_time_seconds", "gauge", help);
        text.gauge("", started);
    }
    if let Some(bytes) = resident_memory() {
        text.family("process_resident_memory_bytes", "gauge", "Memory that the process uses.");
        text.gauge("", bytes);
    }
}

/// Returns how many bytes of the machine's memory the process uses.
pub(crate) fn resident_memory() -> Option<u64> {
    resident(&read(STATUS.as_ref())?)
}

/// Since Linux 6.2 the size of the folder is the number of descriptors. Before, it is 0 and they
/// are counted, at about 100 ns each.
pub(crate) fn open_descriptors() -> Option<u64> {
    let folder = "/proc/self/fd";
    match fs::metadata(folder).ok()?.len() {
        // Without the descriptor of the folder itself.
        0 => Some((fs::read_dir(folder).ok()?.count() as u64).saturating_sub(1)),
        count => Some(count),
    }
}

/// Returns how many descriptors the process may have.
pub(crate) fn descriptors_max() -> Option<u64> {
    max_fds(&read(LIMITS.as_ref())?)
}

fn started() -> Option<Duration> {
    let ticks = start_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let booted = boot_seconds(&fs::read_to_string("/proc/stat").ok()?)?;
    let since_boot = Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND));
    Duration::from_secs(booted).checked_add(since_boot)
}

/// Returns the soft limit in `/proc/self/limits`, if there is one.
fn max_fds(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns field 22 of `/proc/self/stat`. The second one is the name of the program, which may have
/// spaces and parentheses.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

fn boot_seconds(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the bytes of `VmRSS` in `/proc/self/status`, which is in KiB whatever the page size.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_linux_are_understood_and_strange_ones_give_nothing() {
        let limits = "Limit     Soft Limit  Hard Limit  Units\n\
                      Max processes         1 2 processes\n\
                      Max open files        1024                 524288  files\n";
        assert_eq!(max_fds(limits), Some(1024));
        assert_eq!(max_fds("Max open files   unlimited unlimited files\n"), None);
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_ticks(stat), Some(4711));
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1_700_000_000));
        assert_eq!(resident("VmHWM:\t  9 kB\nVmRSS:\t   12 kB\n"), Some(12 * 1024));
        for nothing in ["", "Max open files", "btime x", "VmRSS:", "1 (a"] {
            assert_eq!(max_fds(nothing), None);
            assert_eq!(start_ticks(nothing), None);
            assert_eq!(boot_seconds(nothing), None);
            assert_eq!(resident(nothing), None);
        }
    }
}
