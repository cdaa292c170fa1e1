//! Which servers a scenario is for, and what is slow there.

use crate::backends::Backend;
use crate::server::{Family, Lack};

const SLEEP: &str = "/sleep?ms=10";
const WORK: &str = "/cpu?ms=20";

/// The call that the servers of a scenario make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub backend: Backend,
    pub target: &'static str,
    /// The content of every server's answer.
    pub content: &'static str,
}

/// Which servers a scenario is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Everyone,
    /// Those that do not have this lack.
    Able(Lack),
    /// Those that callgrind can run.
    Rust,
    /// The reference, which answers everything, and the server with captures.
    Capturing,
    /// Those that can run blocking handlers, marked and unmarked.
    Sleeping,
    /// The same servers, only in the way that their authors recommend.
    SleepingMarked,
    /// The same servers, with handlers that compute.
    Working,
    /// Those that can wait for less than a millisecond, as their authors recommend, at this target.
    Waiting(&'static str),
    /// Those with a handler that is quick except for some calls, at this target.
    Missing(&'static str),
    /// Those whose handlers make this call.
    Calling(&'static Call),
    /// Echo servers.
    Echoing,
    /// Echo servers that can use two threads.
    EchoingOnTwo,
}

impl Who {
    pub fn family(self) -> Family {
        match self {
            Self::Waiting(_) => Family::Waits,
            Self::Missing(_) => Family::Misses,
            Self::Calling(_) => Family::Calls,
            Self::Echoing | Self::EchoingOnTwo => Family::Echo,
            _ => Family::Standard,
        }
    }

    /// The slow target, for a server that has no separate target for marked handlers.
    pub fn slow(self) -> &'static str {
        match self {
            Self::Waiting(target) | Self::Missing(target) => target,
            Self::Calling(call) => call.target,
            Self::Working => WORK,
            _ => SLEEP,
        }
    }

    /// The backend that the scenario needs.
    pub fn backend(self) -> Option<Backend> {
        match self {
            Self::Calling(call) => Some(call.backend),
            _ => None,
        }
    }
}
