//! The states of the app, as a handler parameter.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};

use filoplume_runtime::Request;

use super::FromRequest;
use crate::core::context::Context;
use crate::core::options::RouteOptions;
use crate::core::states::{CloneState, Shared};

/// Extracts a clone of the state of this type that was passed to [`App::state`](crate::App::state)
/// or to a router's `state`.
///
/// Threads share states. Put values that are expensive to clone into an `Arc`, and values that
/// change behind a lock or into atomics; connection pools already do both. An app with a handler
/// that extracts a missing state does not start.
///
/// ```
/// use filoplume::prelude::*;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let app = App::new()
///     .get("/", |State(visits): State<Arc<AtomicU64>>| {
///         format!("visit {}", visits.fetch_add(1, Ordering::Relaxed) + 1)
///     })
///     .state(Arc::new(AtomicU64::new(0)));
/// let client = app.test();
/// client.get("/").send().assert_text("visit 1");
/// client.get("/").send().assert_text("visit 2");
/// ```
#[doc(alias("Data"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct State<T>(pub T);

impl<T: CloneState + Shared + 'static> FromRequest for State<T> {
    type Rejection = Infallible;

    fn from_request(_: &mut Request, context: &Context<'_>) -> Result<Self, Infallible> {
        let state = context
            .state::<T>()
            .expect("the app starts only if each route has the state that it extracts");
        Ok(Self(state.clone()))
    }

    fn configure(options: &mut RouteOptions) {
        options.require_state::<T>();
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for State<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
