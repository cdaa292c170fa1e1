//! The content of a request that comes from a reader of the program, such as a decoder.

use std::io::{self, Read};

use filoplume_http1::ParseError;
use parking_lot::Mutex;

use crate::buffers::Content;

/// A content of unknown length.
pub(super) struct ContentReader {
    /// Bytes that were read and put back.
    pub(super) prefix: Content,
    /// The lock is never used: it makes a reader `Sync` that is only `Send`.
    reader: Mutex<Box<dyn Read + Send>>,
    /// How many bytes may still be read.
    pub(super) bytes_left: u64,
    failed: bool,
}

impl ContentReader {
    pub(super) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self {
            prefix: Content::default(),
            reader: Mutex::new(reader),
            bytes_left: u64::MAX,
            failed: false,
        }
    }

    fn read_unchecked(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = if self.prefix.is_empty() {
            self.reader.get_mut().read(buffer)?
        } else {
            let read = self.prefix.as_slice().read(buffer)?;
            self.prefix.advance(read);
            read
        };
        let too_long = || io::Error::new(io::ErrorKind::InvalidData, ParseError::ContentTooLong);
        self.bytes_left = self.bytes_left.checked_sub(read as u64).ok_or_else(too_long)?;
        Ok(read)
    }
}

impl Read for ContentReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.failed {
            return Err(io::Error::other("an earlier read of the content failed"));
        }
        let result = self.read_unchecked(buffer);
        self.failed =
            result.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        result
    }
}
