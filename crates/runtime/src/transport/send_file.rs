//! Files that the system sends by itself.

use std::fs::File;
use std::io;

use super::Transport;
#[cfg(target_os = "linux")]
use super::retry;
#[cfg(all(test, target_os = "linux"))]
use crate::faults::Call;

impl Transport {
    /// Lets the system send up to `length` bytes of a file from `offset` on, without copying them
    /// through the program. Waits for the disk like a read. Fails with `Unsupported` if something
    /// lies above the socket, and if the system cannot send files.
    ///
    /// A write to a closed connection raises `SIGPIPE`, as a vectored write does. Programs in Rust
    /// ignore it unless they change that.
    #[cfg(target_os = "linux")]
    pub(crate) fn send_file(&self, file: &File, offset: u64, length: usize) -> io::Result<usize> {
        if !self.is_plain() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        retry(|| {
            #[cfg(test)]
            let length = self.before(Call::SendFile, length)?;
            let mut offset = offset;
            Ok(rustix::fs::sendfile(self.as_fd(), file, Some(&mut offset), length)?)
        })
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "as on Linux")]
    pub(crate) fn send_file(&self, _: &File, _: u64, _: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
