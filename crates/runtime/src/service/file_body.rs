//! Bodies that are files, which the system can send without copying them through the program.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// The content of a response that lies in a file: see [`ResponseBody::File`]. It is for frameworks
/// that send parts of files, or count what is sent.
///
/// It is a reader, and the engine reads it like any other. On a plain connection on Linux, the
/// engine asks for [`part`](Self::part) instead, lets the system send bytes of the file
/// (`sendfile`), and reports them by [`advance`](Self::advance). The last piece is always read, so
/// an implementation that checks the file in `read` has the last word on whether the response is
/// complete.
///
/// ```
/// use filoplume_runtime::FileBody;
/// use std::fs::File;
/// use std::io::{self, Read};
///
/// /// Counts what is sent of another body.
/// struct Counted<B>(B, u64);
///
/// impl<B: FileBody> Read for Counted<B> {
///     fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
///         let read = self.0.read(buffer)?;
///         self.1 += read as u64;
///         Ok(read)
///     }
/// }
///
/// impl<B: FileBody> FileBody for Counted<B> {
///     fn part(&self) -> Option<(&File, u64)> {
///         self.0.part()
///     }
///
///     fn advance(&mut self, bytes: u64) -> io::Result<()> {
///         self.1 += bytes;
///         self.0.advance(bytes)
///     }
/// }
/// ```
///
/// [`ResponseBody::File`]: crate::ResponseBody::File
pub trait FileBody: Read + Send {
    /// Returns the file, and the offset of the byte that the next read would return. `None` if the
    /// content has to be read.
    fn part(&self) -> Option<(&File, u64)>;

    /// Continues after `bytes` bytes, which were sent from the file.
    ///
    /// # Errors
    ///
    /// An error breaks the response off, as an error of a read does.
    fn advance(&mut self, bytes: u64) -> io::Result<()>;
}

impl<B: FileBody + ?Sized> FileBody for Box<B> {
    fn part(&self) -> Option<(&File, u64)> {
        (**self).part()
    }

    fn advance(&mut self, bytes: u64) -> io::Result<()> {
        (**self).advance(bytes)
    }
}

/// A file from an offset on.
pub(crate) struct OpenFile {
    file: File,
    offset: u64,
    /// The position of the file itself, which only reads move.
    position: Option<u64>,
}

impl OpenFile {
    pub(crate) fn new(file: File, offset: u64) -> Self {
        Self { file, offset, position: None }
    }
}

impl Read for OpenFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position != Some(self.offset) {
            self.file.seek(SeekFrom::Start(self.offset))?;
        }
        self.position = None;
        let read = self.file.read(buffer)?;
        self.offset += read as u64;
        self.position = Some(self.offset);
        Ok(read)
    }
}

impl FileBody for OpenFile {
    fn part(&self) -> Option<(&File, u64)> {
        Some((&self.file, self.offset))
    }

    fn advance(&mut self, bytes: u64) -> io::Result<()> {
        self.offset += bytes;
        Ok(())
    }
}
