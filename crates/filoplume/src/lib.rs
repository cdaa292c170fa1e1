//! A web framework for handlers that are plain blocking closures, at event-loop speed.
//!
//! ```no_run
//! use filoplume::prelude::*;
//!
//! fn main() -> filoplume::Result<()> {
//!     App::new()
//!         .get("/", || "Hello, World!")
//!         .get("/hello/{name}", |Path(name): Path<String>| format!("Hello, {name}!"))
//!         .listen("127.0.0.1:5000")
//! }
//! ```
//!
//! - [`App`] holds routes, middleware and state; [`Router`] groups routes.
//! - Handlers are closures and functions whose parameters are [extractors](Extract) and whose
//!   result [becomes a response](IntoResponse). They may block: nobody waits for them.
//! - [`Middleware`] is what stands around handlers.
//! - [`Error`] is what goes wrong, and how it is answered.
//! - [`testing`] calls an app without a socket.
//!
//! Of the engine below, what an app can need is here too: [`ServerConfig`] with its [`Limits`] says
//! how the server behaves, [`ServerBuilder`] binds it in other ways, [`TaskPool`] runs what should
//! not wait for an answer, within a [`PoolConfig`], and [`tcp`] serves what is not HTTP.
//!
//! What an app does not use it does not build: `json` and `form` are on by default, and `full` is
//! every feature. `etag`, `multipart`, `validate`, `templates`, `static-files`, `embed`, `cookies`,
//! `sessions`, `sqlite`, `redis`, `jwt` and `compression` bring what they are called after.

#![cfg_attr(docsrs, feature(doc_cfg))]

// The rooms. A file names only rooms that stand above its own.
//
//   log, disk, redis_pool     helpers that know nothing of the web
//   semantics                 what RFC 9110 says, over plain values
//   client                    who asks, behind which proxies
//   core                      errors, contexts, and the traits that all others are about
//   key, routing              secrets; which handler answers what
//   extract                   the extractors, and what `?` makes of errors
//   response, template, session, static_files
//   error_response            the one place that turns errors into answers
//   middleware                what comes with the box
//   app                       what is written, and what answers
//   serve                     the way from the engine and back
//   testing, prelude          what programs see

// The tests and examples of this crate call it by its name.
extern crate self as filoplume;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod app;
mod client;
mod core;
#[cfg(any(feature = "multipart", feature = "static-files"))]
mod disk;
mod error_response;
pub mod extract;
#[cfg(all(test, target_os = "linux"))]
mod faults;
#[cfg(feature = "cookies")]
mod key;
mod log;
pub mod middleware;
pub mod prelude;
#[cfg(feature = "redis")]
mod redis_pool;
pub mod response;
pub mod routing;
mod semantics;
mod serve;
#[cfg(feature = "sessions")]
pub mod session;
#[cfg(feature = "static-files")]
mod static_files;
#[cfg(feature = "templates")]
pub mod template;
pub mod testing;

pub use filoplume_runtime::{
    BlockingStream, Body, Headers, InvalidHeader, Limits, Method, Metrics, Peer, Permits,
    PoolConfig, PoolError, PoolMetrics, Request, Response, ResponseBody, Server, ServerBuilder,
    ServerConfig, ShutdownHandle, StaticField, StatusCode, TaskPool, Version, tcp,
};

pub use crate::app::App;
pub use crate::core::asked::Asked;
pub use crate::core::context::Context;
pub use crate::core::error::{Error, FieldError, Result};
pub use crate::core::handler::{Handler, Parameters};
#[cfg(feature = "cookies")]
pub use crate::extract::Cookies;
#[cfg(feature = "json")]
pub use crate::extract::Json;
#[cfg(feature = "multipart")]
pub use crate::extract::Multipart;
#[cfg(feature = "validate")]
pub use crate::extract::Valid;
pub use crate::extract::{ClientAddr, Extension, Extract, Header, Path, State};
#[cfg(feature = "form")]
pub use crate::extract::{Form, Query};
#[cfg(feature = "cookies")]
pub use crate::key::Key;
pub use crate::middleware::{Middleware, Next};
pub use crate::response::{Html, IntoResponse, Redirect};
pub use crate::routing::{Route, Router};
pub use crate::semantics::conditional;
pub use crate::serve::{AppService, RunningApp};
#[cfg(feature = "sessions")]
pub use crate::session::{Flash, Session};
#[cfg(feature = "static-files")]
pub use crate::static_files::{FileResponse, StaticFiles};
#[cfg(feature = "templates")]
pub use crate::template::Templates;
