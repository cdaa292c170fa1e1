//! What the head of a request says beside its fields, as plain values.
//!
//! They stand here because they lie in memory with the fields: so a head is moved as one pointer.
//! What makes them of bytes, and what they are good for, is known in `request`.

use http::Method;

use crate::fields::span::Span;
use crate::framing::Framing;
use crate::version::Version;

/// What a head says beside its fields.
#[derive(Clone, Debug)]
pub(crate) struct HeadParts {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) facts: Facts,
    pub(crate) target: TargetParts,
}

impl Default for HeadParts {
    fn default() -> Self {
        Self::NONE
    }
}

impl HeadParts {
    /// What a storage says that no head was parsed into.
    pub(crate) const NONE: Self = Self {
        method: Method::GET,
        version: Version::Http11,
        facts: Facts::NONE,
        target: TargetParts::NONE,
    };
}

/// Where the parts of a target lie in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetParts {
    /// Empty in an absolute form without a path, and in an authority form.
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    /// From the target only; else `Host` says it.
    pub(crate) authority: Option<Span>,
}

impl TargetParts {
    pub(crate) const NONE: Self = Self { path: Span::EMPTY, query: None, authority: None };
}

/// What is known after the last field, decided once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) framing: Framing,
    pub(crate) expects_continue: bool,
    pub(crate) is_persistent: bool,
    pub(crate) connection_has_upgrade: bool,
}

impl Facts {
    /// What follows from no field at all.
    pub(crate) const NONE: Self = Self {
        framing: Framing::Empty,
        expects_continue: false,
        is_persistent: true,
        connection_has_upgrade: false,
    };
}
