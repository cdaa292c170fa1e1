//! The engine of Filoplume: blocking code at event-loop speed.
//!
//! Handlers are plain blocking closures. A handler that does not block runs directly on an event
//! loop. The engine detects a handler that blocks and from then on runs it on a thread of its own.
//! Nothing has to be marked, and a slow database call delays no other client.
//!
//! ```no_run
//! use filoplume_runtime::{Response, Server};
//!
//! let server = Server::bind("127.0.0.1:5000")?;
//! server.incoming().for_each(|_request| {
//!     let mut response = Response::default();
//!     response.set_text("Hello from Filoplume!");
//!     response
//! })?;
//! # Ok::<(), filoplume_runtime::Error>(())
//! ```
//!
//! - [`Server`] binds addresses and serves. [`Incoming`] gives the requests to a loop of the
//!   program instead.
//! - [`Service`] is the interface for frameworks: plan from the head, then call.
//! - [`tcp`] serves protocols other than HTTP: lines, messages, or a state machine of your own.
//! - [`pushed`] has response bodies that other threads send.
//! - [`ServerConfig`] has every bound, with its default.
//! - [`TaskPool`] and [`MessageQueue`] are the engine's own pool and queue, for use outside of a
//!   server.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod budget;
mod buffers;
mod client_address;
mod clock;
mod config;
mod engine;
mod error;
mod execution;
#[cfg(all(test, target_os = "linux"))]
mod faults;
#[cfg(all(fuzzing, unix, feature = "tls"))]
#[doc(hidden)]
pub mod fuzzing;
mod metrics;
mod pool;
mod protocol;
mod queue;
mod server;
mod service;
mod sorted;
mod sync;
#[cfg(feature = "tls")]
mod tls;
mod transport;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

// For all programs: the server and its settings.
pub use crate::budget::permits::{HeldPermit, Permits};
pub use crate::config::ServerConfig;
pub use crate::engine::incoming::IncomingRequest;
pub use crate::error::{Error, Result};
pub use crate::server::address::IntoAddress;
pub use crate::server::builder::ServerBuilder;
pub use crate::server::incoming::Incoming;
pub use crate::server::{Server, ShutdownHandle};
#[cfg(feature = "tls")]
pub use crate::tls::Tls;
pub use filoplume_http1::Limits;

// For all handlers: requests and responses.
pub use crate::client_address::client_network;
pub use crate::service::blocking_stream::BlockingStream;
pub use crate::service::body::{Body, ContentError};
pub use crate::service::cancel::{CallbackGuard, Cancel};
pub use crate::service::early_hints::EarlyHints;
pub use crate::service::pushed;
pub use crate::service::request::Request;
pub use crate::service::response::{Response, ResponseBody};
pub use crate::service::status::IntoStatus;
pub use crate::service::stopping::Stopping;
pub use crate::service::tcp;
pub use crate::transport::Peer;
#[cfg(feature = "tls")]
pub use crate::transport::tls_info::TlsInfo;
pub use filoplume_http1::{
    AsHeaderValue, Headers, InvalidHeader, ParseError, StaticField, Version,
};
pub use http::{Method, StatusCode};

// For work outside of requests: the pool and the queue of the engine.
pub use crate::pool::{PoolConfig, PoolError, PoolMetrics, TaskPool};
pub use crate::queue::{MessageQueue, RecvError, SendError};

// For monitoring: what a server counts and why it refuses.
pub use crate::budget::refusal::Refusal;
pub use crate::execution::metrics::{RouteMetrics, Runs, Why};
pub use crate::metrics::timeouts::Awaited;
pub use crate::metrics::{LoopMetrics, Metrics, Phase};

// For frameworks: the interface to the engine, what it tells them, and what they tell it.
pub use crate::execution::stuck::report::Stuck;
pub use crate::execution::stuck::running::RunningCall;
pub use crate::execution::stuck::slot::{
    NotedRequestId, NotedTraceId, note_request_id, note_request_number, note_trace_id,
};
pub use crate::execution::stuck::wait::Wait;
pub use crate::execution::stuck::watched::WatchedThread;
pub use crate::server::in_process::answer_in_process;
pub use crate::service::exchange::{Exchange, Note, PermitHolder, QueuedFor, Ran, Timing};
pub use crate::service::file_body::FileBody;
pub use crate::service::held_memory::HeldMemory;
pub use crate::service::incomplete::Incomplete;
#[cfg(feature = "waits")]
pub use crate::service::monitor::IdleConnections;
pub use crate::service::monitor::Monitor;
pub use crate::service::panics::note_caught_panic;
pub use crate::service::refused::Refused;
pub use crate::service::stopwatch::Stopwatch;
pub use crate::service::{Plan, Service};
