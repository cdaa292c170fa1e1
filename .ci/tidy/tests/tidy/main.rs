//! Reads the source and the documents as a reviewer would.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod decisions;
mod dependencies;
mod documents;
mod imports;
mod layers;
mod layout;
mod mistakes;
mod source;
mod words;
