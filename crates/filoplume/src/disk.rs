//! The `File` type that the framework uses: `std::fs::File`, or a type in tests that can fail a
//! chosen call.

#[cfg(not(all(test, target_os = "linux")))]
pub(crate) use std::fs::File;

#[cfg(all(test, target_os = "linux"))]
pub(crate) use crate::faults::File;

/// Returns the file in the form that the system can send. In tests, it is `None` for a file to
/// which a plan of faults applies.
#[cfg(all(feature = "static-files", not(all(test, target_os = "linux"))))]
#[expect(clippy::unnecessary_wraps, reason = "as in tests")]
pub(crate) fn sendable(file: &File) -> Option<&File> {
    Some(file)
}

#[cfg(all(feature = "static-files", test, target_os = "linux"))]
pub(crate) use crate::faults::sendable;
