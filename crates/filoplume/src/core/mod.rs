//! What everything else in the framework needs, and what needs nothing of it.

pub(crate) mod context;
mod convert;
pub(crate) mod error;
pub(crate) mod handler;
pub(crate) mod optional;
pub(crate) mod options;
pub(crate) mod panics;
pub(crate) mod takes;
