//! The extractor `Observed`: the metrics and reports of the app's requests.

use std::convert::Infallible;
use std::sync::Arc;

use filoplume_runtime::{Metrics, Request};

use crate::core::context::Context;
use crate::core::extract::FromRequest;
use crate::core::options::RouteOptions;
use crate::observe::{Observer, RouteReport, Story};

/// What is known about the requests of the app and about its server. If a handler takes this
/// parameter, the app counts and measures its requests.
///
/// ```
/// use filoplume::extract::Observed;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/load", |observed: Observed| {
///     observed.server().map_or(0, |metrics| metrics.connections).to_string()
/// });
/// app.test().get("/load").send().assert_text("0");
/// ```
#[derive(Clone, Debug)]
pub struct Observed(Arc<Observer>);

impl Observed {
    /// Returns the metrics of the server. `None` in a test without a server, and when the server
    /// has ended.
    pub fn server(&self) -> Option<Metrics> {
        self.0.server()
    }

    /// Returns a report of each route, in the order in which they were added. The last one has the
    /// requests that no route answers.
    pub fn routes(&self) -> Vec<RouteReport> {
        self.0.reports()
    }

    /// Returns the stories of up to 100 recent requests that were
    /// [slow](crate::App::slow_after), failed with a status of 500 or more, or were refused, the
    /// newest first.
    ///
    /// A flood displaces its own stories: the kind with the most stories loses its oldest one of
    /// the route that has the most of this kind. About 100 stories per second are noted. Each route
    /// can note one per second, and five at once, of each kind in any case.
    pub fn recent(&self) -> Vec<Story> {
        self.0.recent()
    }

    /// Returns what [`App::metrics`](crate::App::metrics) answers. Its media type is
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`. Calls within half a second
    /// return the same text, and while another thread formats the next one, the last text is
    /// returned if it is younger than five seconds.
    pub fn open_metrics(&self) -> String {
        String::from_utf8_lossy(&self.0.open_metrics()).into_owned()
    }
}

impl FromRequest for Observed {
    type Rejection = Infallible;

    fn from_request(_: &mut Request, context: &Context<'_>) -> Result<Self, Infallible> {
        // The app has an observer, because a route asks for it.
        Ok(Self(context.settings.observer.clone().unwrap_or_default()))
    }

    fn configure(options: &mut RouteOptions) {
        options.observe();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_takes_it_has_its_app_observed() {
        let mut options = RouteOptions::new();
        assert!(format!("{options:?}").contains("is_observed: false"));
        Observed::configure(&mut options);
        assert!(format!("{options:?}").contains("is_observed: true"));
    }
}
