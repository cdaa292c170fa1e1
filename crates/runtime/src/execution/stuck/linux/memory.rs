//! The memory of this process, read through the system, so that a wrong address is an error and not
//! a crash.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The memory of this process.
#[derive(Debug)]
pub(super) struct Memory {
    /// `None` in a sandbox.
    file: Option<File>,
}

impl Memory {
    pub(super) fn open() -> Self {
        Self { file: File::open("/proc/self/mem").ok() }
    }

    /// Reads bytes, fewer than asked for if the memory ends there.
    pub(super) fn read<'a>(&self, address: u64, bytes: &'a mut [u8]) -> &'a [u8] {
        let read = self.file.as_ref().and_then(|file| file.read_at(bytes, address).ok());
        bytes.get(..read.unwrap_or(0)).unwrap_or_default()
    }

    pub(super) fn u32(&self, address: u64) -> Option<u32> {
        Some(u32::from_ne_bytes(self.read(address, &mut [0; 4]).try_into().ok()?))
    }

    pub(super) fn u64(&self, address: u64) -> Option<u64> {
        Some(u64::from_ne_bytes(self.read(address, &mut [0; 8]).try_into().ok()?))
    }
}
