//! A content that has arrived completely, in a file.

use std::fs::File;
use std::io::{self, Read};

use crate::budget::spool::SpoolFile;
use crate::buffers::Content;

pub(crate) struct SpooledContent {
    /// Bytes that were read and put back.
    pub(super) prefix: Content,
    file: SpoolFile,
    /// How much of the file is not read.
    left: u64,
}

impl SpooledContent {
    pub(crate) fn new(mut file: SpoolFile) -> io::Result<Self> {
        file.rewind()?;
        Ok(Self { prefix: Content::default(), left: file.length(), file })
    }

    pub(super) fn len(&self) -> u64 {
        self.prefix.len() as u64 + self.left
    }

    /// Copies the rest into another file. On Linux the system does so by itself.
    pub(super) fn copy_to(&mut self, mut file: &File) -> io::Result<u64> {
        let before = io::copy(&mut self.prefix.as_slice(), &mut file)?;
        self.prefix = Content::default();
        let copied = io::copy(&mut self.file.file(), &mut file)?;
        self.left = self.left.saturating_sub(copied);
        Ok(before + copied)
    }
}

impl Read for SpooledContent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.prefix.is_empty() {
            let read = self.prefix.as_slice().read(buffer)?;
            self.prefix.advance(read);
            return Ok(read);
        }
        let read = self.file.read(buffer)?;
        if read == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::other("the file of the content is shorter than the content"));
        }
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}
