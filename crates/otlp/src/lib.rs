//! Exports spans of `tracing` to an OpenTelemetry collector: by OTLP over HTTP, from a plain
//! thread, without an async runtime.
//!
//! ```no_run
//! use filoplume_otlp::Otlp;
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let (layer, exporter) = Otlp::new().service_name("shop").start()?;
//!     let subscriber = tracing_subscriber::registry().with(layer);
//!     tracing::subscriber::set_global_default(subscriber)?;
//!
//!     tracing::info_span!("work", items = 12).in_scope(|| {
//!         tracing::info!("this event belongs to the span");
//!     });
//!     drop(exporter); // sends what is left, for at most some seconds
//!     Ok(())
//! }
//! ```
//!
//! [`OtlpLayer`] collects spans. When one ends, it is encoded and put into a queue that is bounded
//! in spans and bytes; a full queue drops it. A thread sends batches. So a collector that is slow
//! or unreachable does not delay the program. What is dropped is [counted](Counts) and logged.
//!
//! Requests of a server with `filoplume::middleware::Tracing` keep the IDs that the middleware gave
//! them, and those that it did not sample are not exported.

// The modules. A file may use only modules listed above its own.
//
//   protobuf, random      how bytes are written; IDs and jitter
//   limits                every bound with its reason
//   value                 values of fields, and their visitor
//   span                  a span while it is open, and its encoding
//   error, environment    what can be wrong with settings, and those of the environment
//   queue                 encoded spans that wait, and the counts
//   batch, http           a request's content, and how it is sent
//   exporter              the thread, and the handle of it
//   layer                 where `tracing` reports spans
//   current               the innermost span of a thread
//   settings              the builder

mod batch;
mod current;
mod environment;
mod error;
mod exporter;
mod http;
mod layer;
mod limits;
mod protobuf;
mod queue;
mod random;
mod settings;
mod span;
mod value;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use crate::current::traceparent;
pub use crate::error::OtlpError;
pub use crate::exporter::Exporter;
pub use crate::layer::OtlpLayer;
pub use crate::queue::Counts;
pub use crate::settings::Otlp;
