//! The foundation of the framework: errors, and the traits and contexts of handlers, extractors,
//! middleware and responses. It does not depend on the other modules.
//!
//! Apps are built and run by modules above this one. They fill the plain data here ([`route`],
//! [`settings`], [`states`]) and implement one trait, [`app_router`], through which this module
//! calls them.

pub(crate) mod app_router;
pub(crate) mod asked;
pub(crate) mod captures;
pub(crate) mod changed_method;
pub(crate) mod coded_content;
mod conditions;
pub(crate) mod context;
mod convert;
pub(crate) mod engine_refusal;
pub(crate) mod error;
mod error_format;
pub(crate) mod extract;
pub(crate) mod handler;
#[cfg(feature = "json")]
pub(crate) mod json_memory;
pub(crate) mod json_text;
pub(crate) mod middleware;
pub(crate) mod names;
pub(crate) mod optional;
pub(crate) mod options;
pub(crate) mod panics;
mod pending;
pub(crate) mod refusal;
pub(crate) mod request_id;
pub(crate) mod response;
pub(crate) mod route;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod states;
pub(crate) mod takes;

pub(crate) use self::error_format::ErrorFormat;
