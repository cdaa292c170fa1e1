//! The `File` type that the framework uses: `std::fs::File`, or a type in tests that can fail a
//! chosen call.

#[cfg(not(all(test, target_os = "linux")))]
pub(crate) use std::fs::File;

#[cfg(all(test, target_os = "linux"))]
pub(crate) use crate::faults::File;
