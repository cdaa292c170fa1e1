//! What the program gave the app.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};

use filoplume_runtime::Request;

use super::Extract;
use crate::core::context::Context;
use crate::core::options::RouteOptions;
use crate::core::states::Shared;

/// A clone of the state of this type that was given to [`App::state`](crate::App::state), or to a
/// router.
///
/// State is shared by all threads. What is expensive to clone goes into an `Arc`, what changes
/// behind a lock or into atomics; connection pools do both already. An app whose handler takes a
/// state that nobody gave does not start.
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
#[derive(Clone, Copy, Debug, Default)]
pub struct State<T>(pub T);

impl<T: Clone + Shared + 'static> Extract for State<T> {
    type Rejection = Infallible;

    fn extract(_: &mut Request, context: &Context<'_>) -> Result<Self, Infallible> {
        let state = context
            .state::<T>()
            .expect("the app starts only if each route has the state that it takes");
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
