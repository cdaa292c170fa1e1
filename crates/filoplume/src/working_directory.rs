//! Where a relative path begins, for messages about files that are missing.

use std::io;
use std::path::Path;

/// Returns the end of a message about a path that cannot be opened. It names the working directory
/// if the path is relative and nothing is there: programs are often started elsewhere than their
/// author thinks. Otherwise it is empty.
#[cold]
pub(crate) fn advice(path: &Path, error: &io::Error) -> String {
    if path.is_absolute() || error.kind() != io::ErrorKind::NotFound {
        return String::new();
    }
    match std::env::current_dir() {
        Ok(folder) => {
            format!("; relative paths begin at the working directory, {}", folder.display())
        }
        Err(_) => String::new(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_working_directory_is_named_for_relative_paths_that_are_missing() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let folder = std::env::current_dir().expect("tests have one").display().to_string();
        assert!(advice(Path::new("public"), &missing).ends_with(&folder));
        assert_eq!(advice(&std::env::temp_dir().join("public"), &missing), "");
        assert_eq!(advice(Path::new("public"), &io::ErrorKind::PermissionDenied.into()), "");
    }
}
