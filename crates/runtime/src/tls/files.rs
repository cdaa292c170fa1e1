//! The files of certificates and keys, and whether they have changed.

use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::SystemTime;

/// Maximum size of a file with certificates or a key. All public authorities together take 250 KiB.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Where certificates or a key come from.
#[derive(Clone)]
pub(crate) enum Source {
    File(PathBuf),
    /// A name for errors, and the content.
    Memory(&'static str, Vec<u8>),
}

/// The metadata that change when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl Source {
    /// Returns the end of a message about a file that cannot be read. It names the working
    /// directory if the path is relative and there is no such file. Otherwise it is empty.
    pub(crate) fn advice(&self, error: &io::Error) -> String {
        let is_relative = matches!(self, Self::File(path) if path.is_relative());
        match std::env::current_dir() {
            Ok(folder) if is_relative && error.kind() == io::ErrorKind::NotFound => {
                format!("; relative paths begin at the working directory, {}", folder.display())
            }
            _ => String::new(),
        }
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::File(path) => {
                let mut content = Vec::new();
                fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
                if content.len() as u64 > FILE_BYTES_MAX {
                    return Err(io::Error::other("the file is longer than 4 MiB"));
                }
                Ok(content)
            }
            Self::Memory(_, content) => Ok(content.clone()),
        }
    }

    /// Returns the stamp of the file, or `None` if there is no file.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let Self::File(path) = self else { return None };
        let metadata = fs::metadata(path).ok()?;
        let inode = inode(&metadata);
        Some(Stamp { modified: metadata.modified().ok(), length: metadata.len(), inode })
    }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Memory(name, _) => f.write_str(name),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are not for logs.
        fmt::Display::fmt(self, f)
    }
}

#[cfg(all(test, feature = "spool"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_maximum_length_is_read_and_a_longer_one_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let source = Source::File(file.path().to_owned());
        file.as_file().set_len(FILE_BYTES_MAX).unwrap();
        assert_eq!(source.read().unwrap().len() as u64, FILE_BYTES_MAX);
        file.as_file().set_len(FILE_BYTES_MAX + 1).unwrap();
        source.read().unwrap_err();
    }
}
