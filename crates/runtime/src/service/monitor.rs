//! The way from a service to the metrics of its server.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::metrics::Metrics;

/// Where the metrics come from.
pub(crate) trait MetricsSource: Send + Sync {
    fn metrics(&self) -> Metrics;
}

/// The metrics of a running server, for its [service](crate::Service::started). Clones read the
/// same server. It keeps nothing running.
///
/// ```
/// use filoplume_runtime::{Monitor, Request, Response, Server, Service};
/// use std::sync::OnceLock;
///
/// #[derive(Default)]
/// struct Counting {
///     monitor: OnceLock<Monitor>,
/// }
///
/// impl Service for Counting {
///     fn started(&self, monitor: &Monitor) {
///         let _ = self.monitor.set(monitor.clone());
///     }
///
///     fn call(&self, _: Request) -> Response {
///         let metrics = self.monitor.get().and_then(Monitor::metrics);
///         let connections = metrics.map_or(0, |metrics| metrics.connections);
///         Response::from(format!("{connections} connections"))
///     }
/// }
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn(Counting::default())?;
/// server.shutdown_handle().shutdown();
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Monitor {
    source: Weak<dyn MetricsSource>,
}

impl Monitor {
    pub(crate) fn new(source: &Arc<dyn MetricsSource>) -> Self {
        Self { source: Arc::downgrade(source) }
    }

    /// Returns the metrics at this moment; `None` if the server has ended. Its cost grows with the
    /// number of routes. It takes a lock per route for a moment.
    pub fn metrics(&self) -> Option<Metrics> {
        Some(self.source.upgrade()?.metrics())
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}
