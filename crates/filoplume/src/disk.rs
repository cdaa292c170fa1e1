//! Files as the framework reads and writes them: those of the system, whose calls tests let fail.

#[cfg(not(all(test, target_os = "linux")))]
pub(crate) use std::fs::File;

#[cfg(all(test, target_os = "linux"))]
pub(crate) use crate::faults::File;
