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
//! - Handlers are closures and functions. Their parameters are [extractors](FromRequest), and their
//!   result is [converted into a response](IntoResponse). Handlers may block: a blocked handler
//!   holds up no other request.
//! - [`Middleware`] wraps handlers.
//! - [`Error`] carries a failure and the response to it.
//! - [`Health`] answers the probes of load balancers.
//! - `Console` shows what an app does at this moment.
//! - [`sse`] sends events to pages, and [`pushed`] has response bodies that other threads send.
//! - `websocket` has connections on which both sides send messages, and rooms of them.
//! - `instances` connects the hubs and rooms of several processes through Redis.
//! - [`testing`] calls an app without a socket.
//!
//! The parts of the engine that apps need are re-exported: [`ServerConfig`] and its [`Limits`]
//! configure the server, [`ServerBuilder`] binds it in other ways, [`TaskPool`] runs background
//! work within a [`PoolConfig`], and [`tcp`] serves protocols other than HTTP.
//!
//! # Features
//!
//! `json` and `form` are on by default; `full` enables every feature. The others are `etag`,
//! `multipart`, `spool`, `validate`, `templates`, `static-files`, `embed`, `cookies`, `sessions`,
//! `sqlite`, `redis`, `jwt`, `compression`, `console`, `stacks`, `systemd`, `tls`, `tls-dev`,
//! `websocket` and `websocket-deflate`. An app compiles only the features it enables. `spool` keeps
//! long contents in files until they are complete, and `stacks` reports the functions in which a
//! handler hangs; the others add what their names say.

#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules. A file may use only modules listed above its own.
//
//   broadcast, log, disk, redis_pool
//                             helpers that know nothing of HTTP
//   observe                   what is known of requests: counts, times, metrics as text
//   semantics                 the rules of RFC 9110, over plain values
//   client                    the address of the client, behind trusted proxies
//   core                      errors, contexts, and the traits that the others implement
//   key, routing              secrets for cookies; the routes and how requests match them
//   instances                 messages between the instances of an app
//   extract                   the extractors, and the conversions that `?` uses
//   response, template, session, sse, static_files, websocket
//   health                    the probes of load balancers, and the checks behind them
//   error_response            the one place that renders errors
//   middleware                the built-in middleware
//   console                   the page that shows what an app does, and its feed
//   app                       the app while it is written, and after it is built
//   serve                     the connection between an app and the engine
//   testing, prelude          what programs import

// The tests and examples of this crate refer to it by its public name.
extern crate self as filoplume;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod app;
pub mod broadcast;
mod client;
#[cfg(feature = "console")]
mod console;
mod core;
#[cfg(any(feature = "multipart", feature = "static-files"))]
mod disk;
mod error_response;
pub mod extract;
#[cfg(all(test, target_os = "linux"))]
mod faults;
mod health;
#[cfg(feature = "redis")]
pub mod instances;
#[cfg(feature = "cookies")]
mod key;
mod log;
pub mod middleware;
mod observe;
pub mod prelude;
#[cfg(feature = "redis")]
mod redis_pool;
pub mod response;
pub mod routing;
mod semantics;
mod serve;
#[cfg(feature = "sessions")]
pub mod session;
pub mod sse;
#[cfg(feature = "static-files")]
mod static_files;
#[cfg(feature = "templates")]
pub mod template;
pub mod testing;
#[cfg(feature = "websocket")]
pub mod websocket;
#[cfg(any(feature = "static-files", feature = "templates"))]
mod working_directory;

pub use filoplume_runtime::{
    AsHeaderValue, BlockingStream, Body, CallbackGuard, Cancel, EarlyHints, Headers, HeldPermit,
    IntoAddress, InvalidHeader, Limits, LoopMetrics, Method, Metrics, ParseError, Peer, Permits,
    Phase, PoolConfig, PoolError, PoolMetrics, Ran, Refusal, Refused, Request, Response,
    ResponseBody, RouteMetrics, Runs, Server, ServerBuilder, ServerConfig, ShutdownHandle,
    StaticField, StatusCode, Stopping, Stopwatch, TaskPool, Timing, Version, Why, client_network,
    pushed, tcp,
};

#[cfg(feature = "tls")]
pub use filoplume_runtime::{Tls, TlsInfo};

pub use crate::app::App;
#[cfg(feature = "console")]
pub use crate::console::Console;
pub use crate::core::asked::Asked;
pub use crate::core::context::Context;
pub use crate::core::error::{Error, FieldError, Result};
pub use crate::core::handler::{Handler, Parameters};
#[cfg(feature = "tls")]
pub use crate::extract::ClientCertificate;
#[cfg(feature = "cookies")]
pub use crate::extract::Cookies;
#[cfg(feature = "json")]
pub use crate::extract::Json;
#[cfg(feature = "multipart")]
pub use crate::extract::Multipart;
#[cfg(feature = "validate")]
pub use crate::extract::Valid;
pub use crate::extract::{ClientAddr, Extension, FromRequest, Header, Path, State};
#[cfg(feature = "form")]
pub use crate::extract::{Form, Query};
pub use crate::health::Health;
#[cfg(feature = "cookies")]
pub use crate::key::Key;
pub use crate::middleware::{Middleware, Next};
pub use crate::observe::Samples;
pub use crate::response::{Html, IntoResponse, Redirect};
pub use crate::routing::{Route, Router};
pub use crate::semantics::conditional;
pub use crate::serve::{AppService, Listen, RunningApp};
#[cfg(feature = "sessions")]
pub use crate::session::{Flash, Session};
#[cfg(feature = "static-files")]
pub use crate::static_files::{FileResponse, StaticFiles};
#[cfg(feature = "templates")]
pub use crate::template::Templates;
