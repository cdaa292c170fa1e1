//! Settings of a whole app.

use std::error::Error as StdError;
use std::sync::{Arc, OnceLock};

use filoplume_runtime::{Monitor, Response, Stopping};

use super::asked::Asked;
use super::error::{Error, Responder};
use super::states::States;
use crate::client::Proxies;
use crate::log::Throttles;
use crate::observe::{CheckResults, Observer};

/// The settings of an app that do not belong to its routes.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) is_development: bool,
    pub(crate) presenter: Option<Presenter>,
    pub(crate) error_mappers: Vec<ErrorMapper>,
    /// Conversions of errors whose types implement `IntoResponse` themselves.
    pub(crate) responders: Vec<Responder>,
    pub(crate) proxies: Proxies,
    pub(crate) states: States,
    /// Set when the server begins to stop.
    pub(crate) stopping: Stopping,
    /// The metrics of the server once it serves, for code that does not need the observer.
    pub(crate) monitor: Arc<OnceLock<Monitor>>,
    /// What is known about the requests. `None` if nothing asks for it.
    pub(crate) observer: Option<Arc<Observer>>,
    /// The health checks, for the metrics and the console.
    pub(crate) checks: Option<Arc<dyn CheckResults>>,
    /// Limits how often the log has lines about the requests of a route.
    pub(crate) throttles: Throttles,
}

/// Maps errors of a type that the program chose.
type ErrorMapper = Box<dyn Fn(&(dyn StdError + 'static)) -> Option<Error> + Send + Sync>;

/// Renders errors in place of the default.
pub(crate) type Presenter = Box<dyn Fn(&Error, &Asked) -> Option<Response> + Send + Sync>;
