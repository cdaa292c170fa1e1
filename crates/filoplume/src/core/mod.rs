//! What everything else in the framework needs, and what needs nothing of it: errors, what a
//! handler takes and returns, what stands around it, and where a request is being answered.
//!
//! Who makes an app and who answers with it is further up. They fill what is plain here ([`route`],
//! [`settings`], [`states`]) and are asked through one trait ([`site`]).

mod accept;
pub(crate) mod asked;
pub(crate) mod captures;
mod conditions;
pub(crate) mod context;
mod convert;
pub(crate) mod error;
pub(crate) mod extract;
pub(crate) mod handler;
pub(crate) mod middleware;
pub(crate) mod names;
pub(crate) mod optional;
pub(crate) mod options;
pub(crate) mod panics;
mod pending;
pub(crate) mod refusing;
pub(crate) mod response;
pub(crate) mod route;
pub(crate) mod settings;
pub(crate) mod site;
pub(crate) mod snapshot;
pub(crate) mod states;
pub(crate) mod takes;

pub(crate) use self::accept::Format;
