//! Middleware that wraps handlers: it sees the request before them and the response after them.

mod allowed_hosts;
mod basic_auth;
mod bearer_auth;
mod body_limit;
mod catch_panic;
#[cfg(feature = "compression")]
mod compression;
mod concurrency_limit;
mod cors;
#[cfg(feature = "sessions")]
mod csrf;
#[cfg(feature = "compression")]
mod decompression;
#[cfg(feature = "etag")]
mod etag;
#[cfg(feature = "jwt")]
mod jwt;
mod logger;
mod method_override;
mod permits;
mod random_id;
mod rate_limit;
mod request_id;
mod security_headers;
#[cfg(feature = "sessions")]
mod sessions;
mod timeout;
mod trace;
mod verdict;

pub use crate::core::refusal::NextRefused;
pub use allowed_hosts::AllowedHosts;
pub use basic_auth::BasicAuth;
pub use bearer_auth::BearerAuth;
pub use body_limit::BodyLimit;
pub use catch_panic::CatchPanic;
#[cfg(feature = "compression")]
pub use compression::{Coding, Compression};
pub use concurrency_limit::ConcurrencyLimit;
pub use cors::Cors;
#[cfg(feature = "sessions")]
pub use csrf::{Csrf, CsrfToken};
#[cfg(feature = "sessions")]
pub(crate) use csrf::{FIELD as CSRF_FIELD, HEADER as CSRF_HEADER};
#[cfg(feature = "compression")]
pub use decompression::Decompression;
#[cfg(feature = "etag")]
pub use etag::ETag;
pub use filoplume_runtime::Incomplete;
#[cfg(feature = "jwt")]
pub use jwt::{Jwt, JwtAlgorithm, JwtError, JwtKey};
pub use logger::Logger;
pub use method_override::MethodOverride;
pub use rate_limit::RateLimit;
#[cfg(feature = "redis")]
pub use rate_limit::{RedisCounters, WhenRedisFails};
pub use request_id::{RequestId, RequestIds};
pub use security_headers::{CspNonce, Frames, SecurityHeaders};
#[cfg(feature = "sessions")]
pub use sessions::Sessions;
pub use timeout::{TimeLeft, TimeoutBudget};
pub use trace::{Incoming, SpanId, TraceContext, TraceId, Tracing};
pub use verdict::{Verdict, secrets_match};

pub use crate::core::middleware::{Middleware, Next};
