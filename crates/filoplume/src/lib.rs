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
//! - Handlers are closures and functions whose parameters are [extractors](Extract) and whose result
//!   [becomes a response](IntoResponse). They may block: nobody waits for them.
//! - [`Middleware`] is what stands around handlers.
//! - [`Error`] is what goes wrong, and how it is answered.
//! - [`testing`] calls an app without a socket.
//!
//! What an app does not use it does not build: `json` and `form` are on by default, and `full` is every feature. `etag`, `multipart`,
//! `validate`, `templates`, `static-files`, `embed`, `cookies`, `sessions`, `sqlite`, `redis`, `jwt` and `compression` bring what they
//! are called after.

// The tests and examples of this crate call it by its name.
extern crate self as filoplume;

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
    BlockingStream, Body, Headers, InvalidHeader, Method, Metrics, Peer, Request, Response, ResponseBody,
    Server, ServerConfig, ShutdownHandle, StaticField, StatusCode, Version,
};

pub use crate::app::App;
pub use crate::core::context::Context;
pub use crate::core::error::{Error, FieldError, Result};
pub use crate::core::handler::{Handler, Parameters};
pub use crate::error_response::Asked;
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
pub use crate::static_files::StaticFiles;
#[cfg(feature = "templates")]
pub use crate::template::Templates;
