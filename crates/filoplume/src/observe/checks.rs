//! What is known of health checks. The checks themselves are in `health`, which uses this module.

#[cfg(feature = "console")]
use std::time::Duration;

use super::Samples;

/// The latest results of the health checks of an app.
pub(crate) trait CheckResults: Send + Sync {
    /// Adds them to the metrics.
    fn collect(&self, samples: &mut Samples);

    /// Returns them for people who look at the console.
    #[cfg(feature = "console")]
    fn reports(&self) -> Vec<CheckReport>;
}

/// What the console shows of a check.
#[cfg(feature = "console")]
pub(crate) struct CheckReport {
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) is_required: bool,
    /// For how long it has been in this state. `None` if it has not ended yet.
    pub(crate) since: Option<Duration>,
    /// How long the latest run took, or has been running.
    pub(crate) took: Duration,
    /// Why it has failed, or what the thread of a late one waits for.
    pub(crate) message: Option<String>,
}
