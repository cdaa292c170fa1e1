//! Stored files, and the content of responses made from them.

use std::error::Error as StdError;
use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::time::SystemTime;

use bytes::Bytes;
use filoplume_runtime::{FileBody, ResponseBody};

use crate::core::error::{Error, Result};
use crate::disk::{File, sendable};
use crate::semantics::conditional::Validators;
use crate::semantics::range::ByteRange;

/// Content up to this length is read at once and sent from memory. The engine reads longer files in
/// pieces of the same size.
const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// Where files come from.
pub(super) trait Source: Send + Sync {
    /// Looks up a path. Segments are separated by `/` and were [checked](super::path).
    fn find(&self, path: &str) -> Result<Found>;
}

/// The result of looking up a path.
pub(super) enum Found {
    File(Stored),
    /// A folder, or a path that could be one.
    Folder,
    Nothing,
}

/// A file that can be sent.
pub(super) struct Stored {
    pub(super) content: Content,
    pub(super) length: u64,
    pub(super) validators: Validators,
}

pub(super) enum Content {
    #[cfg_attr(not(feature = "embed"), allow(dead_code, reason = "what is embedded is in memory"))]
    Memory(Bytes),
    File(OpenFile),
}

impl Content {
    /// Returns a body with a range of the content, which is read while it is sent.
    pub(super) fn into_reader(self, range: ByteRange) -> Result<ResponseBody> {
        match self {
            Self::Memory(_) => self.into_body(range),
            Self::File(file) => {
                let length = range.length();
                let reader = RangeReader { file, offset: range.start, left: length };
                Ok(ResponseBody::File { content: Box::new(reader), length })
            }
        }
    }

    /// Returns a body with a range of the content.
    pub(super) fn into_body(self, range: ByteRange) -> Result<ResponseBody> {
        match self {
            Self::Memory(bytes) => {
                let end = index(range.last)?.checked_add(1).filter(|end| *end <= bytes.len());
                let end = end.ok_or_else(|| Error::internal(changed()))?;
                Ok(ResponseBody::Bytes(bytes.slice(index(range.start)?..end)))
            }
            Self::File(mut file) if range.length() <= MEMORY_BYTES_MAX => {
                let bytes = file.read_range(range).map_err(read_error)?;
                Ok(ResponseBody::Bytes(bytes.into()))
            }
            Self::File(_) => {
                let mut begun = self;
                begun.try_read(range.start)?;
                begun.into_reader(range)
            }
        }
    }

    /// Fails if the content cannot be read at `offset`. This is called before the head of a
    /// response is sent: a later failure can only abort the response.
    pub(super) fn try_read(&mut self, offset: u64) -> Result<()> {
        self.read_at(offset, &mut [0])
            .and_then(|read| if read == 0 { Err(changed()) } else { Ok(()) })
            .map_err(read_error)
    }

    /// Reads some bytes from `offset` on.
    pub(super) fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                bytes.get(start..).unwrap_or_default().read(buffer)
            }
            Self::File(file) => file.read_at(offset, buffer),
        }
    }
}

fn index(offset: u64) -> Result<usize> {
    usize::try_from(offset).map_err(Error::internal)
}

/// A file while it is sent. If it changes, reading fails: otherwise the client would get a mix of
/// two versions.
pub(super) struct OpenFile {
    file: File,
    position: u64,
    stamp: Stamp,
}

/// The metadata that changes with every write to the file. The time of the last metadata change is
/// not part of it: that also changes when another file takes its name, and the open file then keeps
/// its content.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { length: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl OpenFile {
    /// `metadata` belongs to the open file. Its length and validators were taken from it.
    pub(super) fn new(file: File, metadata: &Metadata) -> Self {
        Self { file, position: 0, stamp: Stamp::of(metadata) }
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.seek_to(offset)?;
        let read = loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.position += read as u64;
        self.check()?;
        Ok(read)
    }

    fn read_range(&mut self, range: ByteRange) -> io::Result<Vec<u8>> {
        self.seek_to(range.start)?;
        let length = range.length();
        let mut bytes = Vec::with_capacity(usize::try_from(length).map_err(io::Error::other)?);
        self.file.by_ref().take(length).read_to_end(&mut bytes)?;
        self.check()?;
        if bytes.len() as u64 == length { Ok(bytes) } else { Err(changed()) }
    }

    fn seek_to(&mut self, offset: u64) -> io::Result<()> {
        if self.position != offset {
            self.position = self.file.seek(SeekFrom::Start(offset))?;
        }
        Ok(())
    }

    /// Fails if the data that was just read may belong to another version. This is called after a
    /// read, because the file could change between a check and a read.
    fn check(&self) -> io::Result<()> {
        if Stamp::of(&self.file.metadata()?) == self.stamp { Ok(()) } else { Err(changed()) }
    }
}

/// The error of a read from a changed file.
#[derive(Debug)]
struct FileChanged;

impl fmt::Display for FileChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the file was changed while it was sent")
    }
}

impl StdError for FileChanged {}

fn changed() -> io::Error {
    io::Error::other(FileChanged)
}

/// Returns the error for a file that cannot be read, before anything was sent. A change is over
/// soon; a failing disk is not.
fn read_error(error: io::Error) -> Error {
    if error.get_ref().is_some_and(|source| source.is::<FileChanged>()) {
        Error::unavailable("the file is being changed").with_source(error)
    } else {
        Error::internal(error)
    }
}

/// A range of a file.
struct RangeReader {
    file: OpenFile,
    offset: u64,
    left: u64,
}

impl Read for RangeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.file.read_at(self.offset, &mut buffer[..wanted])?;
        self.offset += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

impl FileBody for RangeReader {
    #[allow(unused_qualifications, reason = "files of unit tests have another type")]
    fn part(&self) -> Option<(&fs::File, u64)> {
        sendable(&self.file.file).map(|file| (file, self.offset))
    }

    /// The file may change between a check and the transmission. The check of the last piece, which
    /// is read, notices every change before it.
    fn advance(&mut self, bytes: u64) -> io::Result<()> {
        self.offset += bytes;
        self.left = self.left.saturating_sub(bytes);
        self.file.check()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    /// Too long for a single read.
    const LENGTH: usize = 200_000;

    fn open(folder: &tempfile::TempDir) -> (std::path::PathBuf, Content) {
        let path = folder.path().join("file");
        fs::write(&path, vec![b'a'; LENGTH]).unwrap();
        let file = File::open(&path).unwrap();
        let metadata = file.metadata().unwrap();
        (path, Content::File(OpenFile::new(file, &metadata)))
    }

    fn reader(content: Content) -> Box<dyn Read + Send> {
        match content.into_body(ByteRange { start: 0, last: LENGTH as u64 - 1 }).unwrap() {
            ResponseBody::File { content, length } => {
                assert_eq!(length, LENGTH as u64);
                Box::new(content)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn writing_a_file_while_it_is_sent_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (path, content) = open(&folder);
        let mut reader = reader(content);
        let mut buffer = [0; 1024];
        reader.read_exact(&mut buffer).unwrap();
        fs::write(&path, vec![b'b'; LENGTH + 1]).unwrap();
        assert!(reader.read(&mut buffer).unwrap_err().to_string().contains("changed"));
    }

    #[test]
    fn a_file_that_is_replaced_while_it_is_sent_is_sent_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (path, content) = open(&folder);
        let mut reader = reader(content);
        let mut buffer = [0; 1024];
        reader.read_exact(&mut buffer).unwrap();
        fs::write(folder.path().join("new"), "b").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest.len() == LENGTH - 1024 && rest.iter().all(|&byte| byte == b'a'));
    }

    #[test]
    fn a_short_range_of_a_truncated_file_is_an_error_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let (path, content) = open(&folder);
        fs::write(&path, "short").unwrap();
        let error = content.into_body(ByteRange { start: 10, last: 20 }).unwrap_err();
        assert_eq!(error.status(), 503);
    }

    fn set_modified(path: &std::path::Path, time: SystemTime) {
        fs::OpenOptions::new().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    const LONG_AGO: SystemTime = SystemTime::UNIX_EPOCH;

    /// Not even a change that keeps its length or its time.
    #[test]
    fn no_change_of_a_file_goes_unnoticed_however_it_is_read() {
        let changes: [fn(&std::path::Path); 2] = [
            |path| set_modified(path, LONG_AGO),
            |path| {
                let modified = fs::metadata(path).unwrap().modified().unwrap();
                fs::write(path, vec![b'a'; LENGTH + 1]).unwrap();
                set_modified(path, modified);
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let (path, content) = open(&folder);
            change(&path);
            let error = content.into_body(ByteRange { start: 10, last: 20 }).unwrap_err();
            assert_eq!(error.status(), 503, "{number}: in memory");
            let (path, content) = open(&folder);
            let Content::File(file) = content else { panic!("it is a file") };
            let mut reader = RangeReader { file, offset: 0, left: LENGTH as u64 };
            assert!(reader.advance(1024).is_ok());
            change(&path);
            assert!(reader.advance(1024).is_err(), "{number}: by the kernel");
            assert!(reader.read(&mut [0; 1024]).is_err(), "{number}: by the program");
        }
    }
    /// A failure after the head can only cut the response short.
    #[test]
    fn a_long_range_of_a_truncated_file_is_an_error_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let (path, content) = open(&folder);
        fs::write(&path, "short").unwrap();
        let error = content.into_body(ByteRange { start: 10, last: 150_000 }).unwrap_err();
        assert_eq!(error.status(), 503);
    }

    #[test]
    fn only_a_long_range_is_read_while_it_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        for (length, is_in_memory) in [(MEMORY_BYTES_MAX, true), (MEMORY_BYTES_MAX + 1, false)] {
            let (_, content) = open(&folder);
            let body = content.into_body(ByteRange { start: 0, last: length - 1 }).unwrap();
            assert_eq!(matches!(body, ResponseBody::Bytes(_)), is_in_memory, "{length}");
        }
    }

    #[test]
    fn several_ranges_of_a_truncated_file_are_an_error_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let (path, content) = open(&folder);
        fs::write(&path, "short").unwrap();
        let mut headers = filoplume_runtime::Headers::new();
        headers.append("range", "bytes=10-20, 30-40").unwrap();
        let stored = Stored { content, length: LENGTH as u64, validators: Validators::new() };
        let get = filoplume_runtime::Method::GET;
        let response = filoplume_runtime::Response::default();
        let sent = crate::static_files::send::send(response, &get, &headers, stored, "text/plain");
        assert_eq!(sent.unwrap_err().status(), 503);
    }
}
