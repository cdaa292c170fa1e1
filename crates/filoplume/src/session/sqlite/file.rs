//! The permissions of the database file. SQLite gives its `-wal` and `-shm` files the same
//! permissions.

use std::io;
use std::path::Path;

#[cfg(unix)]
pub(super) use self::unix::warn_if_shared;

/// Creates an empty file, which SQLite treats as a new database, with permissions for its owner
/// only.
///
/// An existing file is not opened: when a process closes a file, POSIX releases all locks that the
/// process has on it, including those of other connections to the same database.
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
        Err(error) => {
            Err(io::Error::new(error.kind(), format!("cannot create {}: {error}", path.display())))
        }
    }
}

fn is_uri(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with("file:"))
}

/// Other systems have no file modes: a file has the permissions of its folder.
#[cfg(not(unix))]
pub(super) fn warn_if_shared(_: &str) {}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::PermissionsExt;

    /// Only the owner can read and write the file.
    pub(super) const PRIVATE: u32 = 0o600;

    /// The permissions of the group and of all others.
    const OTHERS: u32 = 0o077;

    /// Logs a warning for each file of a database that other users can access. The permissions are
    /// not changed: the file may belong to the app, and be shared on purpose.
    pub(in super::super) fn warn_if_shared(path: &str) {
        for file in [path.to_owned(), format!("{path}-wal"), format!("{path}-shm")] {
            let Ok(metadata) = std::fs::metadata(&file) else { continue };
            let mode = metadata.permissions().mode() & 0o777;
            if mode & OTHERS != 0 {
                tracing::warn!(
                    "the session file {file:?} has mode {mode:o}, so other users can access it: \
                     run `chmod 600` unless this is intended"
                );
            }
        }
    }
}
