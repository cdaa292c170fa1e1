//! Bytes that the system moves from a socket into a file by itself.
//!
//! They go through a pipe, which holds them as the pages in which they arrived. So they are copied
//! once, into the pages of the file, and not into the program's memory first.

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::io::Write;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
use rustix::io::{Errno, read};
#[cfg(target_os = "linux")]
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::Transport;
#[cfg(target_os = "linux")]
use super::retry;
#[cfg(all(test, target_os = "linux"))]
use crate::faults::Call;

/// The requested capacity of a pipe. This is the most that Linux allows ordinary users by default.
/// With 64 KiB nothing was gained over reading and writing.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1024 * 1024;

/// The size of the pieces in which a file gets what the system cannot move.
#[cfg(target_os = "linux")]
const PIECE_BYTES: usize = 64 * 1024;

/// A pipe between a socket and a file. It is empty before and after each move.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Pipe {
    entry: OwnedFd,
    exit: OwnedFd,
    /// Whether no file has refused to be written by the system so far.
    is_of_use: bool,
}

#[cfg(target_os = "linux")]
impl Pipe {
    /// Makes a pipe. Fails if there are no descriptors left.
    pub(crate) fn new() -> io::Result<Self> {
        let (exit, entry) = pipe_with(PipeFlags::CLOEXEC)?;
        // A user with many pipes gets smaller ones.
        let _ = fcntl_setpipe_size(&entry, PIPE_BYTES);
        Ok(Self { entry, exit, is_of_use: true })
    }

    /// Returns whether files have accepted what the system has written so far.
    pub(crate) fn is_of_use(&self) -> bool {
        self.is_of_use
    }

    /// Moves the `length` bytes in the pipe to the file's position.
    pub(crate) fn empty_into(&mut self, file: &File, length: usize) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            match splice(&self.exit, None, file, None, left, SpliceFlags::MOVE) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(moved) => left = left.saturating_sub(moved),
                Err(Errno::INTR) => {}
                // The file is opened for appending, or its file system does not support this.
                Err(error) if is_unsupported(error) => {
                    self.is_of_use = false;
                    return self.read_into(file, left);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// As [`empty_into`](Self::empty_into), through the program's memory.
    fn read_into(&self, mut file: &File, length: usize) -> io::Result<()> {
        let mut piece = vec![0; length.min(PIECE_BYTES)];
        let mut left = length;
        while left > 0 {
            let read = retry(|| Ok(read(&self.exit, &mut piece)?))?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.write_all(piece.get(..read).unwrap_or_default())?;
            left = left.saturating_sub(read);
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn is_unsupported(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

#[cfg(target_os = "linux")]
impl Transport {
    /// Lets the system move up to `length` bytes from the socket into an empty pipe. Waits like a
    /// read, and returns 0 at the end of the input. Fails with `Unsupported` if something lies
    /// above the socket, or the system cannot do so. Nothing is moved then.
    pub(crate) fn splice(&self, pipe: &Pipe, length: usize) -> io::Result<usize> {
        if !self.is_plain() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        retry(|| {
            #[cfg(test)]
            let length = self.before(Call::Read, length)?;
            match splice(self.as_fd(), None, &pipe.entry, None, length, SpliceFlags::MOVE) {
                Err(error) if is_unsupported(error) => Err(io::ErrorKind::Unsupported.into()),
                moved => Ok(moved?),
            }
        })
    }
}

/// There are no such pipes on this system.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) enum Pipe {}

#[cfg(not(target_os = "linux"))]
impl Pipe {
    pub(crate) fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn is_of_use(&self) -> bool {
        match *self {}
    }

    pub(crate) fn empty_into(&mut self, _: &File, _: usize) -> io::Result<()> {
        match *self {}
    }
}

#[cfg(not(target_os = "linux"))]
impl Transport {
    #[expect(clippy::unused_self, reason = "as on Linux")]
    pub(crate) fn splice(&self, pipe: &Pipe, _: usize) -> io::Result<usize> {
        match *pipe {}
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::{Read, Seek, SeekFrom};

    use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};

    use super::*;

    fn file_in_memory(content: &[u8]) -> File {
        let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(content).unwrap();
        file
    }

    fn content_of(mut file: File) -> Vec<u8> {
        let mut content = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut content).unwrap();
        content
    }

    fn pipe_with(content: &[u8]) -> Pipe {
        let pipe = Pipe::new().unwrap();
        assert_eq!(rustix::io::write(&pipe.entry, content).unwrap(), content.len());
        pipe
    }

    #[test]
    fn a_file_gets_the_bytes_at_its_position() {
        let mut file = file_in_memory(b"begin, and what is overwritten");
        file.seek(SeekFrom::Start(5)).unwrap();
        let content = vec![7; 60_000];
        let mut pipe = pipe_with(&content);
        pipe.empty_into(&file, content.len()).unwrap();
        assert!(pipe.is_of_use());
        assert_eq!(file.stream_position().unwrap(), 60_005);
        assert_eq!(content_of(file), [b"begin", &content[..]].concat());
    }

    #[test]
    fn a_file_that_is_appended_to_gets_the_bytes_by_writes() {
        let file = file_in_memory(b"begin");
        fcntl_setfl(&file, OFlags::APPEND).unwrap();
        let content = vec![7; PIECE_BYTES];
        let mut pipe = pipe_with(&content);
        pipe.empty_into(&file, content.len()).unwrap();
        assert!(!pipe.is_of_use(), "the system refuses such files");
        assert_eq!(content_of(file), [b"begin", &content[..]].concat());
    }

    #[test]
    fn an_error_of_the_file_is_told() {
        let file = File::open("/dev/null").unwrap();
        let error = pipe_with(b"bytes").empty_into(&file, 5).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
    }
}
