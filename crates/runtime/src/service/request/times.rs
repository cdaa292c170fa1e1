//! What is known of the time of a request.

use std::time::Duration;

use super::Request;
use crate::service::stopwatch::Stopwatch;

impl Request {
    #[cold]
    pub(crate) fn make_timed(&mut self) {
        self.rare.get_or_insert_default().is_timed = true;
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.is_timed)
    }

    #[cold]
    pub(crate) fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.rare.get_or_insert_default().stopwatch = Some(stopwatch);
    }

    /// Returns the stopwatch of a request that is measured exactly: its plan was
    /// [timed](crate::Plan::timed), and its service [measures](crate::Service::measures). `None`
    /// for others, and before the handler is called.
    pub fn stopwatch(&self) -> Option<Stopwatch> {
        self.rare.as_ref()?.stopwatch
    }

    #[cold]
    pub(crate) fn set_queued(&mut self, queued: Duration) {
        self.rare.get_or_insert_default().queued = queued;
    }

    /// Returns how long the request waited for a free thread or a permit before its handler was
    /// called. Zero for requests that did not wait, which are most.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Response};
    ///
    /// fn handle(request: Request) -> Response {
    ///     Response::from(format!("you waited for {:?}", request.queued()))
    /// }
    /// # let request = Request::try_from(http::Request::new(Vec::new()))?;
    /// # assert_eq!(handle(request).status(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queued(&self) -> Duration {
        self.rare.as_ref().map_or(Duration::ZERO, |rare| rare.queued)
    }
}
