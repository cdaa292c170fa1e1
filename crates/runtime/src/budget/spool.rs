//! The files in which long contents wait until they are complete. All of them share one budget of
//! disk space.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::budget::clients::ClientConnection;
use crate::budget::line::Line;

/// How many threads write to files at once. A disk is hardly faster with more, and one that hangs
/// holds up no more than these.
pub(crate) const WRITERS_MAX: usize = 4;

/// One client may take one byte of the space in this many, if clients are counted.
const CLIENT_SHARE: u64 = 4;

/// The disk space for contents that arrive, and the connections whose parts are written.
pub(crate) struct Spool<T> {
    pub(crate) space: Arc<SpoolSpace>,
    pub(crate) line: Line<T>,
}

/// The disk space for contents that arrive.
#[derive(Debug)]
pub(crate) struct SpoolSpace {
    folder: PathBuf,
    bytes_max: u64,
    used: AtomicU64,
}

/// A content in a file without a name. Dropping it frees its space.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    file: File,
    bytes: u64,
    space: Arc<SpoolSpace>,
    /// The client that the bytes count for, if clients are counted.
    client: Option<Arc<ClientConnection>>,
}

/// Why a content cannot be written to its file.
#[derive(Debug)]
pub(crate) enum SpoolError {
    /// The budget is used up.
    Full,
    Failed(io::Error),
}

impl<T> Spool<T> {
    pub(crate) fn new(folder: Option<PathBuf>, bytes_max: u64) -> Self {
        // As many wait as there are connections.
        Self { space: SpoolSpace::new(folder, bytes_max), line: Line::new(WRITERS_MAX, usize::MAX) }
    }
}

impl<T> fmt::Debug for Spool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("space", &self.space).finish_non_exhaustive()
    }
}

impl SpoolSpace {
    pub(crate) fn new(folder: Option<PathBuf>, bytes_max: u64) -> Arc<Self> {
        let folder = folder.unwrap_or_else(std::env::temp_dir);
        Arc::new(Self { folder, bytes_max, used: AtomicU64::new(0) })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns how many bytes lie in files now.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns whether a content of this length may begin. Its bytes are counted when they arrive.
    pub(crate) fn may_begin(
        &self,
        length: Option<u64>,
        client: Option<&Arc<ClientConnection>>,
    ) -> bool {
        let length = length.unwrap_or(0);
        let fits = |used: u64, max: u64| used.saturating_add(length) <= max;
        fits(self.used(), self.bytes_max)
            && client.is_none_or(|client| {
                fits(client.spooled().load(Ordering::Relaxed), self.client_bytes_max())
            })
    }

    fn client_bytes_max(&self) -> u64 {
        self.bytes_max / CLIENT_SHARE
    }

    /// Creates a file that no other user can read. The system removes it with its last handle.
    pub(crate) fn create(
        self: &Arc<Self>,
        client: Option<&Arc<ClientConnection>>,
    ) -> Result<SpoolFile, SpoolError> {
        let file = tempfile::tempfile_in(&self.folder).map_err(SpoolError::Failed)?;
        let client = client.map(Arc::clone);
        Ok(SpoolFile { file, bytes: 0, space: Arc::clone(self), client })
    }
}

impl SpoolFile {
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        let more = bytes.len() as u64;
        let before = self.space.used.fetch_add(more, Ordering::Relaxed);
        // Counted in any case, and freed with the file.
        self.bytes += more;
        let is_full = before.saturating_add(more) > self.space.bytes_max;
        let has_share = self.client.as_ref().is_none_or(|client| {
            let before = client.spooled().fetch_add(more, Ordering::Relaxed);
            before.saturating_add(more) <= self.space.client_bytes_max()
        });
        if is_full || !has_share {
            return Err(SpoolError::Full);
        }
        self.file.write_all(bytes).map_err(SpoolError::Failed)
    }

    /// Returns the number of bytes that were appended.
    pub(crate) fn length(&self) -> u64 {
        self.bytes
    }

    /// Begins to read at the first byte.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0)).map(drop)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Read for SpoolFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        self.space.used.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(client) = &self.client {
            client.spooled().fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::clients::Clients;

    #[test]
    fn files_share_a_budget_and_give_it_back() {
        let space = SpoolSpace::new(None, 10);
        let (mut one, mut other) = (space.create(None).unwrap(), space.create(None).unwrap());
        one.append(b"123456").unwrap();
        let may_begin = |length| space.may_begin(length, None);
        assert!(may_begin(Some(4)) && !may_begin(Some(5)) && may_begin(None));
        other.append(b"1234").unwrap();
        assert!(matches!(one.append(b"7"), Err(SpoolError::Full)));
        drop(one);
        assert_eq!(space.used(), 4);
        other.append(b"56").unwrap();
        other.rewind().unwrap();
        assert_eq!(io::read_to_string(&mut other).unwrap(), "123456");
        drop(other);
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn one_client_has_a_share_and_leaves_the_rest_to_others() {
        let clients = Arc::new(Clients::new(10));
        let client = |address: &str| clients.admit(address.parse().unwrap()).unwrap();
        let (one, same, other) = (client("192.0.2.1"), client("192.0.2.1"), client("192.0.2.2"));
        let space = SpoolSpace::new(None, 40);
        let mut file = space.create(one.as_ref()).unwrap();
        file.append(b"12345678").unwrap();
        assert!(!space.may_begin(Some(3), same.as_ref()), "its connections count together");
        assert!(space.may_begin(Some(10), other.as_ref()) && space.may_begin(Some(30), None));
        let mut more = space.create(same.as_ref()).unwrap();
        assert!(matches!(more.append(b"123"), Err(SpoolError::Full)));
        drop((file, more));
        assert!(space.may_begin(Some(10), one.as_ref()));
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_an_error() {
        let space = SpoolSpace::new(Some("/nowhere/at/all".into()), 10);
        assert!(matches!(space.create(None), Err(SpoolError::Failed(_))));
    }
}
