//! The parts of a request head other than its fields, as plain values.
//!
//! They are in this module because they are stored with the fields, so that a head is moved as one
//! pointer. The code that parses and uses them is in `request`.

use http::Method;

use crate::fields::span::Span;
use crate::framing::Framing;
use crate::version::Version;

/// The parts of a head other than its fields.
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
    /// The parts in a storage that no head was parsed into.
    pub(crate) const NONE: Self = Self {
        method: Method::GET,
        version: Version::Http11,
        facts: Facts::NONE,
        target: TargetParts::NONE,
    };
}

/// The positions of the parts of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetParts {
    /// Empty in an absolute form without a path, and in the authority form.
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    /// The authority in the target. If it is `None`, `Host` names the authority.
    pub(crate) authority: Option<Span>,
}

impl TargetParts {
    pub(crate) const NONE: Self = Self { path: Span::EMPTY, query: None, authority: None };
}

/// The facts that follow from all fields together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) framing: Framing,
    pub(crate) expects_continue: bool,
    pub(crate) is_persistent: bool,
    pub(crate) connection_has_upgrade: bool,
}

impl Facts {
    /// The facts of a head without fields.
    pub(crate) const NONE: Self = Self {
        framing: Framing::Empty,
        expects_continue: false,
        is_persistent: true,
        connection_has_upgrade: false,
    };
}
