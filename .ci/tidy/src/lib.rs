//! Support for the tidy tests: a reader of rustdoc's JSON, and the guide's code as doc tests.

pub mod examples;
pub mod public_api;

/// The guide and the README. Their code is compiled as doc tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/guide/getting-started.md")]
    mod getting_started {}
    #[doc = include_str!("../../../docs/guide/routing.md")]
    mod routing {}
    #[doc = include_str!("../../../docs/guide/handlers.md")]
    mod handlers {}
    #[doc = include_str!("../../../docs/guide/mistakes.md")]
    mod mistakes {}
    #[doc = include_str!("../../../docs/guide/state.md")]
    mod state {}
    #[doc = include_str!("../../../docs/guide/errors.md")]
    mod errors {}
    #[doc = include_str!("../../../docs/guide/middleware.md")]
    mod middleware {}
    #[doc = include_str!("../../../docs/guide/forms.md")]
    mod forms {}
    #[doc = include_str!("../../../docs/guide/sessions.md")]
    mod sessions {}
    #[doc = include_str!("../../../docs/guide/pages.md")]
    mod pages {}
    #[doc = include_str!("../../../docs/guide/streams.md")]
    mod streams {}
    #[doc = include_str!("../../../docs/guide/connections.md")]
    mod connections {}
    #[doc = include_str!("../../../docs/guide/testing.md")]
    mod testing {}
    #[doc = include_str!("../../../docs/guide/execution.md")]
    mod execution {}
    #[doc = include_str!("../../../docs/guide/stuck.md")]
    mod stuck {}
    #[doc = include_str!("../../../docs/guide/configuration.md")]
    mod configuration {}
    #[doc = include_str!("../../../docs/guide/tracing.md")]
    mod tracing_guide {}
    #[doc = include_str!("../../../docs/guide/tls.md")]
    mod tls {}
    #[doc = include_str!("../../../docs/guide/deployment.md")]
    mod deployment {}
    #[doc = include_str!("../../../docs/guide/restarts.md")]
    mod restarts {}
    #[doc = include_str!("../../../docs/guide/scaling.md")]
    mod scaling {}
    #[doc = include_str!("../../../docs/guide/observing.md")]
    mod observing {}
    #[doc = include_str!("../../../docs/guide/operating.md")]
    mod operating {}
    #[doc = include_str!("../../../docs/guide/console.md")]
    mod console {}
    #[doc = include_str!("../../../docs/guide/engine.md")]
    mod engine {}
    #[doc = include_str!("../../../docs/guide/websockets.md")]
    mod websockets {}
    #[doc = include_str!("../../../docs/guide/tcp.md")]
    mod tcp {}
}
