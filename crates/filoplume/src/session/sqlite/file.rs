//! The rights of the file that has the sessions. SQLite gives its `-wal` and `-shm` those of the
//! file.

use std::io;
use std::path::Path;

#[cfg(unix)]
pub(super) use self::unix::warn_if_shared;

/// Creates an empty file, which SQLite takes for a new database, that only its owner can use.
///
/// A file that exists is not opened: when a process closes a file, POSIX ends all locks that the
/// process has on it, those of other connections to the same database too.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    let is_file = path != Path::new("") && path != Path::new(":memory:") && !is_uri(path);
    if !is_file {
        return Ok(());
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, unix::PRIVATE);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_uri(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with("file:"))
}

/// Other systems have no such rights: a file has those of its folder.
#[cfg(not(unix))]
pub(super) fn warn_if_shared(_: &str) {}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::PermissionsExt;

    /// Read and written by the owner only.
    pub(super) const PRIVATE: u32 = 0o600;

    /// What the group and all others may do.
    const OTHERS: u32 = 0o077;

    /// Logs a warning for each file of a database that others than its owner can use. Its rights
    /// are left alone: the file may be that of the app, and shared on purpose.
    pub(in super::super) fn warn_if_shared(path: &str) {
        for file in [path.to_owned(), format!("{path}-wal"), format!("{path}-shm")] {
            let Ok(metadata) = std::fs::metadata(&file) else { continue };
            let mode = metadata.permissions().mode() & 0o777;
            if mode & OTHERS != 0 {
                tracing::warn!(
                    "the file of the sessions {file:?} has mode {mode:o}, so that others than its \
                     owner can use it: unless this is meant, run `chmod 600` for it"
                );
            }
        }
    }
}
